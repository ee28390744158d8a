#include "syrtos/engine/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "syrtos/base/errno_text.h"
#include "syrtos/base/log.h"

namespace syrtos {
namespace {

constexpr char kBracket[] = "\n]\n";

// Length of the UTF-8 character that begins at `text[at]`; 0 if none does.
size_t CharacterLength(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned first = byte(0);
  size_t length = 0;
  unsigned lowest = 0x80, highest = 0xbf;  // of the second byte: no overlong forms, no surrogates
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  if (first >= 0xe0 && first <= 0xef) length = 3;
  if (first >= 0xf0 && first <= 0xf4) length = 4;
  if (length == 0) return 0;
  if (first == 0xe0) lowest = 0xa0;
  if (first == 0xed) highest = 0x9f;
  if (first == 0xf0) lowest = 0x90;
  if (first == 0xf4) highest = 0x8f;
  if (byte(1) < lowest || byte(1) > highest) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return length;
}

Status CannotWrite(const std::string& path, int error) {
  return Status::InvalidArgument("the timeline file \"" + path +
                                 "\" cannot be written: " + ErrnoText(error) +
                                 ". Give the name of a file in a folder that exists and that "
                                 "this user may write to.");
}

}  // namespace

std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<unsigned char>(text[at]);
    const size_t length = CharacterLength(text, at);
    char escaped[8];
    if (length == 0) {
      std::snprintf(escaped, sizeof escaped, "\\\\x%02x", c);
      out += escaped;
      ++at;
      continue;
    }
    if (c < 0x20) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out.append(text, at, length);
    }
    at += length;
  }
  return out + "\"";
}

Status TraceFile::Open(const std::string& path, const std::string& first) {
  // Not waiting for the reader of a pipe, which could not be written to at an offset anyway.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
  if (fd < 0) return CannotWrite(path, errno);
  path_ = path;
  fd_ = fd;
  buffer_ = "[\n" + first;
  const Status written = Write();
  if (!written.ok()) Abandon();
  return written;
}

bool TraceFile::IsSameFileAs(const TraceFile& other) const {
  struct stat mine{};
  struct stat theirs{};
  return fd_ >= 0 && other.fd_ >= 0 && fstat(fd_, &mine) == 0 && fstat(other.fd_, &theirs) == 0 &&
         mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino;
}

void TraceFile::Append(const std::string& event) {
  if (fd_ < 0) return;
  buffer_ += ",\n";
  buffer_ += event;
  if (buffer_.size() > kBufferBytes) Flush();
}

void TraceFile::Flush() {
  if (fd_ < 0 || buffer_.empty()) return;
  const Status written = Write();
  if (written.ok()) return;
  SYRTOS_LOG(kWarning, "timeline") << written.message() << " No further events are kept.";
  Abandon();
}

void TraceFile::Close() {
  Flush();
  Abandon();
}

void TraceFile::Abandon() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
  buffer_.clear();
}

Status TraceFile::Write() {
  const std::string block = std::exchange(buffer_, {}) + kBracket;
  ssize_t written = 0;
  do {
    written = pwrite(fd_, block.data(), block.size(), end_);
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(block.size())) {
    end_ += static_cast<int64_t>(block.size() - (sizeof kBracket - 1));
    return Status::Ok();
  }
  const int error = written < 0 ? errno : ENOSPC;
  // The room for the bracket was there before.
  const auto size = static_cast<int64_t>(sizeof kBracket - 1);
  const bool repaired = end_ > 0 && ftruncate(fd_, end_ + size) == 0 &&
                        pwrite(fd_, kBracket, sizeof kBracket - 1, end_) == size;
  if (end_ > 0 && !repaired) {
    SYRTOS_LOG(kWarning, "timeline") << "the closing bracket of \"" << path_ << "\" is lost";
  }
  return CannotWrite(path_, error);
}

}  // namespace syrtos
