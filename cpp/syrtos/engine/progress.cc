#include "syrtos/engine/progress.h"

#include <sched.h>

#include <algorithm>
#include <utility>

namespace syrtos {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Plans that all ranks have agreed on end by themselves; longer than this only if a peer is stuck.
constexpr std::chrono::seconds kDrainLimit{5};

}  // namespace

Status Progress::Start(Loop& loop) {
  loop_ = &loop;
  SYRTOS_ASSIGN_OR_RETURN(thread_, Thread::Start("syrtos-engine", [this] { Run(); }));
  return Status::Ok();
}

bool Progress::TryTake() NO_THREAD_SAFETY_ANALYSIS {
  MutexLock lock(mutex_);
  if (held_) return false;
  held_ = true;
  return true;
}

void Progress::Give() NO_THREAD_SAFETY_ANALYSIS {
  MutexLock lock(mutex_);
  held_ = false;
  changed_.NotifyAll();
}

bool Progress::stopping() const {
  MutexLock lock(mutex_);
  return stop_;
}

void Progress::Run() {
  while (Turn()) {
  }
  // Nobody drives any more, and Submit refuses: what is left fails with the reason it refuses with.
  while (!TryTake()) SleepWhileCallerDrives();
  Loop::Finished finished;
  loop_->FailAll(loop_->queue().closed(), finished);
  Give();
  HandOver(std::move(finished));
  RunCallbacks();
  MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

bool Progress::Turn() {
  RunCallbacks();
  if (!TryTake()) {
    SleepWhileCallerDrives();
    return true;
  }
  Loop::Finished finished;
  loop_->RunOnce(/*may_block=*/true, finished);
  auto limit = loop_->SleepLimit(Clock::now());
  bool ready = stopping() && loop_->ReadyToLeave();
  Give();
  bool callbacks = !finished.empty();
  HandOver(std::move(finished));
  {
    MutexLock lock(mutex_);
    if (stop_ && (ready || Clock::now() >= drain_deadline_)) return false;
    if (stop_) limit = std::min(limit.value_or(milliseconds(10)), milliseconds(10));
  }
  if (callbacks) return true;
  if (limit && limit->count() == 0) {
    sched_yield();
    return true;
  }
  loop_->timeline().Flush();
  loop_->poller().Wait(limit);
  return true;
}

void Progress::SleepWhileCallerDrives() {
  MutexLock lock(mutex_);
  while (held_ && callbacks_.empty()) changed_.Wait(mutex_);
}

void Progress::HandOver(Loop::Finished finished) {
  if (finished.empty()) return;
  MutexLock lock(mutex_);
  for (auto& pending : finished) callbacks_.push_back(std::move(pending));
  changed_.NotifyAll();
}

void Progress::RunCallbacks() {
  for (;;) {
    Loop::Finished callbacks;
    {
      MutexLock lock(mutex_);
      callbacks = std::exchange(callbacks_, {});
    }
    if (callbacks.empty()) return;
    for (auto& pending : callbacks) pending->request.callback(*pending->request.completion);
  }
}

bool Progress::WaitFor(const Completion& completion, std::chrono::nanoseconds timeout) {
  auto deadline = Clock::now() + timeout;
  if (completion.done()) return true;
  // Only a thread that finds the baton free drives; else whoever has it does the work.
  if (loop_->callers_may_drive() && TryTake()) {
    bool done = Drive(completion, deadline);
    Give();
    loop_->Kick();
    if (done) return true;
  }
  auto left =
      std::max<std::chrono::nanoseconds>(deadline - Clock::now(), std::chrono::nanoseconds(0));
  return completion.WaitFor(left);
}

bool Progress::Drive(const Completion& completion, Clock::time_point deadline) {
  for (;;) {
    Loop::Finished finished;
    loop_->RunOnce(/*may_block=*/false, finished);
    if (!finished.empty()) {
      HandOver(std::move(finished));
      loop_->Kick();  // the engine thread may sleep in the poller
    }
    if (completion.done()) return true;
    auto now = Clock::now();
    if (now >= deadline || stopping()) return false;
    auto left = std::chrono::duration_cast<milliseconds>(deadline - now) + milliseconds(1);
    auto limit = std::min(loop_->SleepLimit(now).value_or(left), left);
    if (limit.count() == 0) {
      sched_yield();
    } else {
      loop_->poller().Wait(limit);
    }
  }
}

void Progress::Close() {
  if (loop_ == nullptr || closed_) return;
  closed_ = true;
  {
    MutexLock lock(mutex_);
    if (!stop_) drain_deadline_ = Clock::now() + kDrainLimit;
    stop_ = true;
    changed_.NotifyAll();
  }
  loop_->Kick();
  bool ended;
  {
    MutexLock lock(mutex_);
    auto patience = drain_deadline_ + std::chrono::seconds(1);
    while (!ended_) {
      if (!changed_.WaitUntil(mutex_, patience)) break;
    }
    ended = ended_;
  }
  if (!ended) {
    loop_->AbortCommunicators(Status::Shutdown("Syrtos is being shut down"));
    loop_->Kick();
  }
  thread_.Join();
  loop_->Leave();
}

}  // namespace syrtos
