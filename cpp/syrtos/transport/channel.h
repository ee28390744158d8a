// A framed, non-blocking message channel over one connected socket.
//
// Frames are a 4-byte magic, an 8-byte little-endian length and that many bytes; a limit on the
// length and buffers that only grow with what has arrived keep a stray client from making us
// allocate. Owner: one thread at a time (the holder of the progress baton, or the liveness thread).
// Failure: kPeerLost with the peer's address and the system's reason; kInternal where what arrived
// is no frame, or a message is beyond the limit. After a failure every call repeats it, but
// messages that the peer had sent before are still received first: among them may be its reason to
// go.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "syrtos/base/config.h"
#include "syrtos/base/result.h"
#include "syrtos/transport/socket.h"

namespace syrtos {

class Channel {
 public:
  static constexpr uint64_t kMaxFrameBytes = uint64_t{1} << 30;

  explicit Channel(Socket socket, uint64_t max_frame_bytes = kMaxFrameBytes);
  // Puts a message in the outbox and writes what the socket takes now; never blocks. The rest goes
  // out in later Flush calls: poll for writability while wants_write().
  Status Send(const std::string& message);
  Status Flush();
  bool wants_write() const;
  // The next whole message if one has arrived; nullopt if not yet. Never blocks. Call it until
  // nullopt before polling fd(): further messages may have been read already. kPeerLost "closed the
  // connection" at the end of the stream.
  Result<std::optional<std::string>> Receive();
  // Blocking forms, for the start only. kTimeout leaves the channel as it is.
  Status SendBlocking(const std::string& message, Seconds timeout);
  Result<std::string> ReceiveBlocking(Seconds timeout);
  int fd() const;
  // Drops what is unsent and unread; later calls fail with kShutdown.
  void Close();
  const std::string& peer() const { return peer_; }  // "10.0.0.2:4000", for messages
  uint64_t max_frame_bytes() const { return max_frame_bytes_; }
  void set_max_frame_bytes(uint64_t bytes) { max_frame_bytes_ = bytes; }

 private:
  Result<std::optional<std::string>> TakeFrame();
  Result<size_t> ReadSome();
  Status FailSending(int error);
  Status FailReceiving(Status cause);

  Socket socket_;
  std::string peer_;
  uint64_t max_frame_bytes_;
  std::string outbox_;
  size_t outbox_sent_ = 0;  // bytes at the front of outbox_ that are done with
  std::string inbox_;
  size_t inbox_taken_ = 0;  // likewise of inbox_
  Status failure_;
  bool reading_ended_ = false;
};

}  // namespace syrtos
