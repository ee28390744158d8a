// The progress baton: who drives the loop, and the engine thread.
//
// One thread at a time holds the baton and is the single writer of the engine's state: the engine
// thread, or (only where no communicator blocks) a caller that waits for a request, which saves the
// hand-over to another thread. Callbacks are always run by the engine thread, outside the baton. A
// caller that leaves wakes the engine thread if work is left.
//
// Threads: any. Owner: the engine.
#pragma once

#include <chrono>
#include <vector>

#include "syrtos/base/mutex.h"
#include "syrtos/base/thread.h"
#include "syrtos/engine/loop.h"

namespace syrtos {

class Progress {
 public:
  Progress() = default;
  ~Progress() { Close(); }
  Status Start(Loop& loop);  // the loop outlives this
  // A request was queued.
  void Wake() { loop_->Kick(); }
  bool WaitFor(const Completion& completion, std::chrono::nanoseconds timeout);
  // Lets agreed plans end, fails the rest, joins the thread and leaves the world. Idempotent.
  void Close();

 private:
  bool TryTake() TRY_ACQUIRE(true, baton_);
  void Give() RELEASE(baton_);
  void Run();
  // One turn of the engine thread; false when it is to end.
  bool Turn();
  void SleepWhileCallerDrives();
  void HandOver(Loop::Finished finished);
  void RunCallbacks();
  bool stopping() const;
  bool Drive(const Completion& completion, std::chrono::steady_clock::time_point deadline);

  // A capability without code of its own: held_ says who has it, the compiler checks who needs it.
  class CAPABILITY("baton") Baton {};
  Baton baton_;

  Loop* loop_ = nullptr;
  bool closed_ = false;  // by the one thread that closes
  mutable Mutex mutex_;
  CondVar changed_;
  bool held_ GUARDED_BY(mutex_) = false;
  bool stop_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false;
  std::chrono::steady_clock::time_point drain_deadline_ GUARDED_BY(mutex_);
  Loop::Finished callbacks_ GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace syrtos
