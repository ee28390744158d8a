// RAII TCP sockets (IPv4 and IPv6), non-blocking, close-on-exec, closed in forked children
// (base/fork_guard.h).
//
// Threads: one at a time. Failure: kInvalidArgument (a bad or unusable address), kTimeout,
// kPeerLost (unreachable), kInternal (the system lacks resources), all with address and errno text.
#pragma once

#include <cstdint>
#include <string>

#include "syrtos/base/config.h"
#include "syrtos/base/deadline.h"
#include "syrtos/base/result.h"

namespace syrtos {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd);  // takes ownership; any descriptor, epoll's and eventfd's too
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  int fd() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close();
  // Sends FIN; the peer reads what is under way and then the end of the stream.
  void ShutdownWrite();

 private:
  int fd_ = -1;
  uint64_t fork_generation_ = 0;  // of the process that opened it
};

class Listener {
 public:
  // Binds and listens; port 0 takes any free one, held from now on. "" is every address of the
  // host.
  static Result<Listener> Create(const std::string& address, int port);
  int port() const { return port_; }
  int fd() const { return socket_.fd(); }
  // The next connection, waiting up to `timeout` (zero: only what is there); kTimeout if none.
  Result<Socket> Accept(Seconds timeout);

 private:
  Socket socket_;
  int port_ = 0;
};

// Connects, retrying refused connections until `timeout`. TCP_NODELAY is set.
Result<Socket> Connect(const std::string& address, int port, Seconds timeout);

// Waits until poll reports any of `events` (POLLIN, POLLOUT) or an error for `fd`; false at the
// deadline.
bool WaitForEvents(int fd, short events, Deadline deadline);
// "10.0.0.2:4000", "[::1]:4000".
std::string EndpointText(const std::string& address, int port);
// The other end of a connection in that form; "the peer" where there is no address.
std::string PeerText(int fd);

}  // namespace syrtos
