#include "syrtos/transport/socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "syrtos/base/errno_text.h"
#include "syrtos/base/fork_guard.h"

namespace syrtos {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

struct Lookup {
  AddressList list{nullptr, &freeaddrinfo};
  int error = 0;  // of getaddrinfo
};

Lookup Resolve(const std::string& address, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  Lookup lookup;
  lookup.error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (lookup.error == 0) lookup.list.reset(found);
  return lookup;
}

Status CheckPort(const std::string& address, int port, int lowest) {
  if (port >= lowest && port <= 65535) return Status::Ok();
  return Status::InvalidArgument("address \"" + address + "\" with port " + std::to_string(port) +
                                 ": ports are " + std::to_string(lowest) + " to 65535");
}

Status CannotResolve(const std::string& address, int error) {
  return Status::InvalidArgument("cannot resolve the address \"" + address +
                                 "\": " + gai_strerror(error));
}

Socket OpenSocket(int family) {
  return Socket(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void SetOption(int fd, int level, int option, int value) {
  // Failure only costs speed or comfort.
  static_cast<void>(setsockopt(fd, level, option, &value, sizeof value));
}

std::string HostAndPort(const std::string& host, const std::string& port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return (ipv6 ? "[" + host + "]" : host) + ":" + port;
}

bool SocketName(int fd, int (*which)(int, sockaddr*, socklen_t*), sockaddr_storage* name,
                socklen_t* length) {
  *name = {};
  *length = sizeof *name;
  return fd >= 0 && which(fd, reinterpret_cast<sockaddr*>(name), length) == 0;
}

// A connection attempt to a free port of this host may, by TCP's simultaneous open, meet itself.
bool IsConnectedToItself(int fd) {
  sockaddr_storage ours;
  sockaddr_storage theirs;
  socklen_t our_length = 0;
  socklen_t their_length = 0;
  return SocketName(fd, getsockname, &ours, &our_length) &&
         SocketName(fd, getpeername, &theirs, &their_length) && our_length == their_length &&
         std::memcmp(&ours, &theirs, our_length) == 0;
}

// One attempt at one address: 0 and a connected `socket`, or an errno.
int TryConnect(const addrinfo& target, Deadline deadline, Socket* socket) {
  Socket attempt = OpenSocket(target.ai_family);
  if (!attempt.valid()) return errno;
  if (connect(attempt.fd(), target.ai_addr, target.ai_addrlen) != 0) {
    // An interrupted connect goes on in the background like a non-blocking one.
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!WaitForEvents(attempt.fd(), POLLOUT, deadline)) return ETIMEDOUT;
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(attempt.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
    if (error != 0) return error;
  }
  if (IsConnectedToItself(attempt.fd())) return ECONNREFUSED;
  SetOption(attempt.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
  *socket = std::move(attempt);
  return 0;
}

// All addresses of a name in turn, sharing what is left of the time.
int TryConnectAny(const addrinfo* list, Deadline deadline, Socket* socket) {
  int left = 0;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) ++left;
  int error = ECONNREFUSED;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next, --left) {
    error = TryConnect(*a, DeadlineAfter(Remaining(deadline) / left), socket);
    if (error == 0) return 0;
  }
  return error;
}

bool MayPass(int error) {
  return error == ECONNREFUSED || error == ECONNRESET || error == ETIMEDOUT || error == EAGAIN;
}

void SleepUntil(Deadline deadline) {
  while (Remaining(deadline).count() > 0) poll(nullptr, 0, PollTimeout(deadline));
}

// A free or given port of one address: 0 and a listening `socket`, or an errno.
int TryListen(const addrinfo& target, Socket* socket) {
  Socket attempt = OpenSocket(target.ai_family);
  if (!attempt.valid()) return errno;
  SetOption(attempt.fd(), SOL_SOCKET, SO_REUSEADDR, 1);  // a port is free again right after a job
  if (target.ai_family == AF_INET6) {
    SetOption(attempt.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);  // "::" takes IPv4 too
  }
  if (bind(attempt.fd(), target.ai_addr, target.ai_addrlen) != 0) return errno;
  if (listen(attempt.fd(), SOMAXCONN) != 0) return errno;
  *socket = std::move(attempt);
  return 0;
}

int BoundPort(int fd) {
  sockaddr_storage name;
  socklen_t length = 0;
  if (!SocketName(fd, getsockname, &name, &length)) return 0;
  if (name.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6&>(name).sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in&>(name).sin_port);
}

// accept(2): errors of a connection that broke before we took it; the next one may be fine.
bool ConcernsOneConnection(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case ENETDOWN:
    case EPROTO:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

}  // namespace

Socket::Socket(int fd) : fd_(fd) {
  if (fd_ < 0) return;
  RegisterDescriptor(fd_);
  fork_generation_ = ForkGeneration();
}

Socket::~Socket() { Close(); }

Socket::Socket(Socket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), fork_generation_(other.fork_generation_) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this == &other) return *this;
  Close();
  fd_ = std::exchange(other.fd_, -1);
  fork_generation_ = other.fork_generation_;
  return *this;
}

void Socket::Close() {
  const int fd = std::exchange(fd_, -1);
  // In a forked child the guard has closed it, and the number may belong to something else by now.
  if (fd < 0 || fork_generation_ != ForkGeneration()) return;
  const int saved_errno = errno;  // so that a failed attempt can report its cause after clean-up
  UnregisterDescriptor(fd);
  close(fd);  // not repeated on EINTR: Linux has freed the number by then
  errno = saved_errno;
}

void Socket::ShutdownWrite() {
  if (fd_ >= 0) shutdown(fd_, SHUT_WR);
}

bool WaitForEvents(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int n = poll(&entry, 1, PollTimeout(deadline));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return true;  // let the operation itself find out what is wrong
    if (Remaining(deadline).count() <= 0) return false;
  }
}

std::string EndpointText(const std::string& address, int port) {
  return HostAndPort(address, std::to_string(port));
}

std::string PeerText(int fd) {
  sockaddr_storage name;
  socklen_t length = 0;
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (!SocketName(fd, getpeername, &name, &length) ||
      (name.ss_family != AF_INET && name.ss_family != AF_INET6) ||
      getnameinfo(reinterpret_cast<sockaddr*>(&name), length, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "the peer";
  }
  return HostAndPort(host, port);
}

Result<Listener> Listener::Create(const std::string& address, int port) {
  if (address.empty()) {
    Result<Listener> both = Create("::", port);  // takes IPv4 as well
    return both.ok() ? std::move(both) : Create("0.0.0.0", port);
  }
  SYRTOS_RETURN_IF_ERROR(CheckPort(address, port, 0));
  const Lookup lookup = Resolve(address, port, AI_PASSIVE);
  if (lookup.error != 0) return CannotResolve(address, lookup.error);
  int error = 0;
  for (const addrinfo* a = lookup.list.get(); a != nullptr; a = a->ai_next) {
    Listener listener;
    error = TryListen(*a, &listener.socket_);
    if (error != 0) continue;
    listener.port_ = BoundPort(listener.fd());
    return listener;
  }
  return Status::InvalidArgument("cannot listen on " + EndpointText(address, port) + ": " +
                                 ErrnoText(error));
}

Result<Socket> Listener::Accept(Seconds timeout) {
  const Deadline deadline = DeadlineAfter(timeout);
  while (true) {
    Socket socket(accept4(fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      SetOption(socket.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
      return socket;
    }
    if (ConcernsOneConnection(errno)) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      return Status::Internal("cannot accept a connection on port " + std::to_string(port_) + ": " +
                              ErrnoText(errno));
    }
    if (!WaitForEvents(fd(), POLLIN, deadline)) {
      return Status::Timeout("nobody connected to port " + std::to_string(port_) + " within " +
                             SecondsText(timeout));
    }
  }
}

Result<Socket> Connect(const std::string& address, int port, Seconds timeout) {
  SYRTOS_RETURN_IF_ERROR(CheckPort(address, port, 1));
  const std::string failed = "cannot connect to " + EndpointText(address, port);
  const std::string late = failed + " within " + SecondsText(timeout) + ": ";
  const Deadline deadline = DeadlineAfter(timeout);
  Seconds pause{0.005};
  while (true) {
    // Looked up anew each time: the name of a host that is being started may change its address.
    const Lookup lookup = Resolve(address, port, 0);
    std::string reason;
    if (lookup.error == 0) {
      Socket socket;
      const int error = TryConnectAny(lookup.list.get(), deadline, &socket);
      if (error == 0) return socket;
      reason = ErrnoText(error);
      if (!MayPass(error)) return Status::PeerLost(": " + reason).WithPrefix(failed);
    } else if (lookup.error == EAI_AGAIN) {
      reason = gai_strerror(lookup.error);
    } else {
      return CannotResolve(address, lookup.error);
    }
    const Seconds left = Remaining(deadline);
    if (left.count() <= 0) {
      return Status::Timeout(late + reason);
    }
    SleepUntil(DeadlineAfter(std::min(pause, left)));
    pause = std::min(pause * 2, Seconds(0.25));
  }
}

}  // namespace syrtos
