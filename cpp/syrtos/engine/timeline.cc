#include "syrtos/engine/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "syrtos/base/log.h"
#include "syrtos/engine/validate.h"

namespace syrtos {
namespace {

std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "\"";
}

std::string Upper(const char* name) {
  std::string out;
  for (const char* c = name; *c != 0; ++c) {
    if (*c != '-') out += static_cast<char>(*c >= 'a' && *c <= 'z' ? *c - 32 : *c);
  }
  return out;
}

}  // namespace

Timeline::~Timeline() { Stop(); }

Status Timeline::Start(const std::string& path, int rank, bool mark_cycles) {
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    return Status::InvalidArgument("timeline file \"" + path +
                                   "\" cannot be written: " + std::strerror(errno));
  }
  MutexLock lock(mutex_);
  if (fd_ >= 0) {
    close(fd);
    return Status::InvalidArgument("a timeline is being written already: stop it first");
  }
  fd_ = fd;
  mark_cycles_ = mark_cycles;
  begin_ = std::chrono::steady_clock::now();
  rows_.clear();
  auto epoch = std::chrono::system_clock::now().time_since_epoch();
  auto micros = std::chrono::duration_cast<std::chrono::microseconds>(epoch).count();
  buffer_ =
      "[\n{\"name\":\"syrtos\",\"ph\":\"M\",\"pid\":0,\"args\":{\"rank\":" + std::to_string(rank) +
      ",\"start_time_since_epoch_in_micros\":" + std::to_string(micros) + "}}";
  end_ = 0;
  FlushLocked();
  return Status::Ok();
}

void Timeline::Stop() {
  MutexLock lock(mutex_);
  if (fd_ < 0) return;
  FlushLocked();
  close(fd_);
  fd_ = -1;
}

void Timeline::NegotiateBegin(const RequestMeta& meta) {
  Event(meta, 'B', "NEGOTIATE_" + Upper(InfoOf(meta.kind).name));
}
void Timeline::NegotiateEnd(const RequestMeta& meta) { Event(meta, 'E', ""); }
void Timeline::OperationBegin(const RequestMeta& meta) {
  Event(meta, 'B', Upper(InfoOf(meta.kind).name));
}
void Timeline::OperationEnd(const RequestMeta& meta) { Event(meta, 'E', ""); }

void Timeline::Cycle() {
  MutexLock lock(mutex_);
  if (fd_ < 0 || !mark_cycles_) return;
  char text[96];
  std::snprintf(text, sizeof text, R"({"name":"CYCLE_START","ph":"i","s":"g","pid":0,"ts":%.1f})",
                NowMicros());
  Append(text);
}

void Timeline::Event(const RequestMeta& meta, char phase, const std::string& name) {
  MutexLock lock(mutex_);
  if (fd_ < 0) return;
  int row = RowOf(meta);
  char head[96];
  std::snprintf(head, sizeof head, R"({"ph":"%c","pid":%d,"ts":%.1f)", phase, row, NowMicros());
  Append(head + (name.empty() ? std::string("}") : ",\"name\":" + JsonString(name) + "}"));
}

int Timeline::RowOf(const RequestMeta& meta) {
  // Unnamed requests share one row per kind: their call numbers would make a row each.
  std::string label =
      meta.key.name.empty() ? std::string("unnamed ") + InfoOf(meta.kind).name : meta.key.name;
  auto [found, fresh] = rows_.emplace(label, static_cast<int>(rows_.size()) + 1);
  if (fresh) {
    Append("{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" + std::to_string(found->second) +
           ",\"args\":{\"name\":" + JsonString(label) + "}}");
  }
  return found->second;
}

void Timeline::Append(const std::string& event) {
  constexpr size_t kFlushBytes = 1 << 16;
  buffer_ += ",\n";
  buffer_ += event;
  if (buffer_.size() > kFlushBytes) FlushLocked();
}

void Timeline::Flush() {
  MutexLock lock(mutex_);
  if (fd_ >= 0 && !buffer_.empty()) FlushLocked();
}

void Timeline::FlushLocked() {
  std::string block = buffer_ + "\n]\n";
  ssize_t written = pwrite(fd_, block.data(), block.size(), end_);
  if (written != static_cast<ssize_t>(block.size())) {
    SYRTOS_LOG(kWarning, "timeline") << "the timeline file could not be written ("
                                     << std::strerror(errno) << "); no further events are kept";
    close(fd_);
    fd_ = -1;
  } else {
    end_ += static_cast<int64_t>(buffer_.size());
  }
  buffer_.clear();
}

double Timeline::NowMicros() const {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin_)
      .count();
}

}  // namespace syrtos
