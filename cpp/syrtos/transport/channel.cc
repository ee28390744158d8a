#include "syrtos/transport/channel.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <string_view>
#include <utility>

#include "syrtos/base/errno_text.h"
#include "syrtos/transport/bytes.h"

namespace syrtos {
namespace {

constexpr std::string_view kMagic = "SYR1";
constexpr size_t kHeaderBytes = 12;
constexpr size_t kSmallRead = size_t{16} << 10;
constexpr size_t kLargeRead = size_t{256} << 10;
constexpr size_t kKeptCapacity = size_t{1} << 20;  // buffers beyond this are given back when empty

std::string FrameHeader(uint64_t length) {
  std::string header(kMagic);
  ByteWriter writer;
  writer.U64(length);
  return header + writer.Take();
}

// The first bytes, in hexadecimal and as text: whoever sent us HTTP is easily seen.
std::string Excerpt(std::string_view bytes) {
  bytes = bytes.substr(0, 16);
  std::string hex;
  std::string text;
  for (char c : bytes) {
    char two[4];
    std::snprintf(two, sizeof two, "%02x ", static_cast<unsigned>(static_cast<uint8_t>(c)));
    hex += two;
    text += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '.';
  }
  return hex + "\"" + text + "\"";
}

void ClearBuffer(std::string& buffer) {
  if (buffer.capacity() > kKeptCapacity) {
    std::string().swap(buffer);
  } else {
    buffer.clear();
  }
}

}  // namespace

Channel::Channel(Socket socket, uint64_t max_frame_bytes)
    : socket_(std::move(socket)),
      peer_(PeerText(socket_.fd())),
      max_frame_bytes_(max_frame_bytes) {}

int Channel::fd() const { return socket_.fd(); }

bool Channel::wants_write() const { return failure_.ok() && outbox_sent_ < outbox_.size(); }

void Channel::Close() {
  socket_.Close();
  outbox_ = {};
  inbox_ = {};
  outbox_sent_ = inbox_taken_ = 0;
  if (failure_.ok()) {
    failure_ = Status::Shutdown("the connection to " + peer_ + " has been closed on this side");
  }
  reading_ended_ = true;
}

Status Channel::FailSending(int error) {
  // Reading goes on: what the peer said before it went may explain why.
  failure_ = Status::PeerLost("sending to " + peer_ + " failed: " + ErrnoText(error));
  return failure_;
}

Status Channel::FailReceiving(Status cause) {
  reading_ended_ = true;
  if (failure_.ok()) failure_ = std::move(cause);
  return failure_;
}

Status Channel::Send(const std::string& message) {
  SYRTOS_RETURN_IF_ERROR(failure_);
  if (message.size() > max_frame_bytes_) {
    failure_ =
        Status::Internal("a message of " + std::to_string(message.size()) + " bytes to " + peer_ +
                         " is beyond the limit of " + std::to_string(max_frame_bytes_));
    return failure_;
  }
  std::string header = FrameHeader(message.size());
  if (wants_write()) {
    outbox_ += header;
    outbox_ += message;
    return Flush();
  }
  // Nothing is queued: straight from the caller's memory, keeping only what the socket does not
  // take.
  std::array<iovec, 2> parts = {
      {{header.data(), header.size()}, {const_cast<char*>(message.data()), message.size()}}};
  msghdr out{};
  out.msg_iov = parts.data();
  out.msg_iovlen = parts.size();
  ssize_t n = 0;
  do {
    n = sendmsg(fd(), &out, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return FailSending(errno);
  const size_t sent = n < 0 ? 0 : static_cast<size_t>(n);
  if (sent < header.size()) outbox_.append(header, sent, std::string::npos);
  outbox_.append(message, sent - std::min(sent, header.size()), std::string::npos);
  return Status::Ok();
}

Status Channel::Flush() {
  SYRTOS_RETURN_IF_ERROR(failure_);
  while (outbox_sent_ < outbox_.size()) {
    const ssize_t n = send(fd(), outbox_.data() + outbox_sent_, outbox_.size() - outbox_sent_,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n < 0) return FailSending(errno);
    outbox_sent_ += static_cast<size_t>(n);
  }
  if (outbox_sent_ == outbox_.size()) {
    ClearBuffer(outbox_);
    outbox_sent_ = 0;
  } else if (outbox_sent_ >= outbox_.size() / 2) {
    // Moves at most as many bytes as have been sent since the last time: linear in total.
    outbox_.erase(0, outbox_sent_);
    outbox_sent_ = 0;
  }
  return Status::Ok();
}

Result<std::optional<std::string>> Channel::Receive() {
  while (true) {
    auto frame = TakeFrame();
    if (!frame.ok() || frame->has_value()) return frame;
    if (reading_ended_) return failure_;
    SYRTOS_ASSIGN_OR_RETURN(const size_t read, ReadSome());
    if (read == 0) return std::optional<std::string>();
  }
}

// The first message of the inbox if it is all there. Looks at the magic as soon as any of it is
// there, so that a talker of another protocol is refused at once rather than waited for.
Result<std::optional<std::string>> Channel::TakeFrame() {
  const std::string_view bytes = std::string_view(inbox_).substr(inbox_taken_);
  const std::string_view magic = kMagic.substr(0, bytes.size());
  if (bytes.substr(0, magic.size()) != magic) {
    Status cause =
        Status::Internal(peer_ + " sent something that is no Syrtos message: " + Excerpt(bytes));
    inbox_ = {};
    inbox_taken_ = 0;
    return FailReceiving(std::move(cause));
  }
  if (bytes.size() < kHeaderBytes) return std::optional<std::string>();
  ByteReader header(bytes.substr(kMagic.size(), sizeof(uint64_t)));
  const uint64_t length = header.U64();
  if (length > max_frame_bytes_) {
    inbox_ = {};
    inbox_taken_ = 0;
    return FailReceiving(Status::Internal(peer_ + " announced a message of " +
                                          std::to_string(length) + " bytes, beyond the limit of " +
                                          std::to_string(max_frame_bytes_)));
  }
  if (bytes.size() - kHeaderBytes < length) return std::optional<std::string>();
  std::optional<std::string> message(bytes.substr(kHeaderBytes, length));
  inbox_taken_ += kHeaderBytes + length;
  if (inbox_taken_ == inbox_.size()) {
    ClearBuffer(inbox_);
    inbox_taken_ = 0;
  }
  return message;
}

// Bytes appended to the inbox; 0 if none are there now.
Result<size_t> Channel::ReadSome() {
  if (inbox_taken_ > 0) {
    // What is left is part of one message and moves once, for the offset stays 0 until it is whole.
    inbox_.erase(0, inbox_taken_);
    inbox_taken_ = 0;
  }
  // Small reads go over the stack, as growing a string would first fill it with zeros; for the same
  // reason large ones are bounded by about what a socket holds.
  std::array<char, kSmallRead> stack;
  const size_t before = inbox_.size();
  const bool small = before < kSmallRead;
  const size_t wanted = small ? kSmallRead : std::min(before, kLargeRead);
  if (!small) inbox_.resize(before + wanted);
  ssize_t n = 0;
  do {
    n = recv(fd(), small ? stack.data() : inbox_.data() + before, wanted, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  const int error = errno;
  const size_t read = n < 0 ? 0 : static_cast<size_t>(n);
  if (small) {
    inbox_.append(stack.data(), read);
  } else {
    inbox_.resize(before + read);
  }
  if (n > 0) return read;
  if (n == 0) {
    return FailReceiving(Status::PeerLost(peer_ + " closed the connection" +
                                          (inbox_.empty() ? "" : " in the middle of a message")));
  }
  if (error == EAGAIN || error == EWOULDBLOCK) return size_t{0};
  return FailReceiving(
      Status::PeerLost("receiving from " + peer_ + " failed: " + ErrnoText(error)));
}

Status Channel::SendBlocking(const std::string& message, Seconds timeout) {
  const Deadline deadline = DeadlineAfter(timeout);
  SYRTOS_RETURN_IF_ERROR(Send(message));
  while (wants_write()) {
    if (!WaitForEvents(fd(), POLLOUT, deadline)) {
      return Status::Timeout(peer_ + " did not take a message of " +
                             std::to_string(message.size()) + " bytes within " +
                             SecondsText(timeout));
    }
    SYRTOS_RETURN_IF_ERROR(Flush());
  }
  return Status::Ok();
}

Result<std::string> Channel::ReceiveBlocking(Seconds timeout) {
  const Deadline deadline = DeadlineAfter(timeout);
  while (true) {
    SYRTOS_ASSIGN_OR_RETURN(std::optional<std::string> message, Receive());
    if (message) return *std::move(message);
    if (!WaitForEvents(fd(), POLLIN, deadline)) {
      return Status::Timeout("no message from " + peer_ + " within " + SecondsText(timeout));
    }
  }
}

}  // namespace syrtos
