#include "framework_ops/xla/continuations.h"

#include <pthread.h>
#include <signal.h>

#include <deque>
#include <memory>

namespace syrtos_xla {
namespace {

// pthread's own types: those of the standard library would tie the library to a newer libstdc++.
class Threads {
 public:
  Threads() {
    pthread_mutex_init(&mutex_, nullptr);
    pthread_cond_init(&changed_, nullptr);
  }
  ~Threads() = delete;  // immortal: its threads sleep until the process ends
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  void Run(Task* task) {
    pthread_mutex_lock(&mutex_);
    tasks_.push_back(task);
    const bool enough = idle_ >= tasks_.size();
    pthread_mutex_unlock(&mutex_);
    if (enough) {
      pthread_cond_signal(&changed_);
    } else if (!Start()) {
      RunOne();
    }
  }

 private:
  // False if the system refuses.
  bool Start() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);  // Python's signal handlers run on Python's threads only
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
      sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const int refused = pthread_create(&thread, nullptr, Loop, this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (refused != 0) return false;
    pthread_setname_np(thread, "syrtos-xla");
    pthread_detach(thread);
    return true;
  }

  static void* Loop(void* self) {
    for (;;) static_cast<Threads*>(self)->WaitAndRun();
  }

  void WaitAndRun() {
    pthread_mutex_lock(&mutex_);
    while (tasks_.empty()) {
      ++idle_;
      pthread_cond_wait(&changed_, &mutex_);
      --idle_;
    }
    TakeAndRun();
  }

  // Runs a task if another thread has not taken it already.
  void RunOne() {
    pthread_mutex_lock(&mutex_);
    if (tasks_.empty()) {
      pthread_mutex_unlock(&mutex_);
    } else {
      TakeAndRun();
    }
  }

  // Called with the mutex, which it leaves.
  void TakeAndRun() {
    const std::unique_ptr<Task> task(tasks_.front());
    tasks_.pop_front();
    pthread_mutex_unlock(&mutex_);
    task->Run();
  }

  pthread_mutex_t mutex_;
  pthread_cond_t changed_;
  std::deque<Task*> tasks_;  // guarded by mutex_
  size_t idle_ = 0;          // likewise
};

}  // namespace

void RunAside(Task* task) {
  static Threads* threads = new Threads;
  threads->Run(task);
}

}  // namespace syrtos_xla
