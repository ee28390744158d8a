// Threads that let compiled programs go on.
//
// Whoever completes a future of XLA may have to run what the program does next, to its end. That
// must not be the engine's thread: meanwhile no other collective would make progress. Nor may one
// program wait for another's thread, since what comes next may itself wait for a collective. So a
// completion takes an idle thread, or a new one if none is idle.
//
// Owner: one immortal set of threads per process. Threads: Run may be called from any; it never
// waits. Fork: a child has none of the threads, and no collective that could end there.
#pragma once

namespace syrtos_xla {

class Task {
 public:
  virtual ~Task() = default;
  virtual void Run() = 0;
};

// Runs and deletes `task` on a thread of its own. If the system refuses another thread, the task
// waits for one that exists, or runs on the caller's.
void RunAside(Task* task);

}  // namespace syrtos_xla
