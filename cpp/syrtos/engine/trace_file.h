// A JSON array in a file that is complete at any moment.
//
// Each event is a line. Every write puts new lines and the closing bracket, in one system call, in
// the place of the old bracket; so a program that is killed leaves an array that parses, unless the
// kernel was stopped in the middle of that very call, which can cost the last events only. If
// the disk is full, the file is cut back to what was complete.
//
// Memory: at most kBufferBytes and one event. Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>

#include "syrtos/base/status.h"

namespace syrtos {

// `text` as a JSON string with its quotes. Bytes that are no UTF-8 appear as "\\xff".
std::string JsonString(const std::string& text);

class TraceFile {
 public:
  TraceFile() = default;
  ~TraceFile() { Close(); }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Once: begins the file anew, with `first` as the first event. A failure names the path.
  Status Open(const std::string& path, const std::string& first);
  // Both are open and write to one file, by whatever names.
  bool IsSameFileAs(const TraceFile& other) const;
  bool is_open() const { return fd_ >= 0; }
  void Append(const std::string& event);
  // Writes what is buffered. A failure is a warning that names the path, and closes the file.
  void Flush();
  void Close();
  // Closes without writing what is buffered.
  void Abandon();

 private:
  Status Write();

  static constexpr size_t kBufferBytes = 1 << 16;
  std::string path_;
  int fd_ = -1;
  int64_t end_ = 0;  // offset of the closing bracket
  std::string buffer_;
};

}  // namespace syrtos
