// Events of the loop as a Chrome trace (a JSON array; opens in Perfetto). An observer: never
// steers.
//
// One row ("process") per tensor name: NEGOTIATE_<KIND> from the post to the agreement, then <KIND>
// while a communicator works. Times are microseconds since the file was begun. The file is closed
// with its bracket after every flush, so it can be read at any moment. Threads: any (one lock).
// Failure: an unwritable path is a warning naming it, and the run goes on.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "syrtos/base/mutex.h"
#include "syrtos/engine/messages.h"

namespace syrtos {

class Timeline {
 public:
  ~Timeline();
  Status Start(const std::string& path, int rank, bool mark_cycles);
  void Stop();
  void NegotiateBegin(const RequestMeta& meta);
  void NegotiateEnd(const RequestMeta& meta);
  void OperationBegin(const RequestMeta& meta);
  void OperationEnd(const RequestMeta& meta);
  // One turn of the loop in which something happened; drawn if mark_cycles was asked for.
  void Cycle();
  // Writes what is buffered; cheap when there is nothing.
  void Flush();

 private:
  void Event(const RequestMeta& meta, char phase, const std::string& name);
  int RowOf(const RequestMeta& meta) REQUIRES(mutex_);
  void Append(const std::string& event) REQUIRES(mutex_);
  void FlushLocked() REQUIRES(mutex_);
  double NowMicros() const REQUIRES(mutex_);

  Mutex mutex_;
  int fd_ GUARDED_BY(mutex_) = -1;
  bool mark_cycles_ GUARDED_BY(mutex_) = false;
  int64_t end_ GUARDED_BY(mutex_) = 0;  // file offset of the closing bracket
  std::string buffer_ GUARDED_BY(mutex_);
  std::map<std::string, int> rows_ GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point begin_ GUARDED_BY(mutex_);
};

}  // namespace syrtos
