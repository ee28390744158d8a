// A named std::thread that joins in its destructor and blocks all signals but those of its own
// faults (SIGSEGV and the like), so that Python's signal handlers run on Python's threads only.
//
// Fork: a forked child does not have the thread; there Join and the destructor do nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "syrtos/base/result.h"

namespace syrtos {

class Thread {
 public:
  Thread() = default;
  // name: at most 15 characters. kInternal if the system refuses another thread.
  static Result<Thread> Start(const std::string& name, std::function<void()> body);
  // The same where there is no way to go on without the thread: a refusal ends the process.
  Thread(const std::string& name, std::function<void()> body);
  ~Thread() { Join(); }
  Thread(Thread&&) = default;
  Thread& operator=(Thread&& other) noexcept;  // joins the old thread first
  void Join();
  bool IsCurrent() const { return thread_.get_id() == std::this_thread::get_id(); }

 private:
  std::thread thread_;
  uint64_t fork_generation_ = 0;  // at the start
};

}  // namespace syrtos
