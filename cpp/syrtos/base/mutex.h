// Annotated Mutex, MutexLock and CondVar on pthread.
//
// Why not std::mutex: libstdc++'s is no capability for Clang's -Wthread-safety, and
// std::condition_variable of g++ 12 needs GLIBCXX_3.4.30, which would shut out older systems.
#pragma once

#include <pthread.h>

#include <chrono>

#if defined(__clang__)
#define SYRTOS_TSA(x) __attribute__((x))
#else
#define SYRTOS_TSA(x)
#endif
#define CAPABILITY(x) SYRTOS_TSA(capability(x))
#define SCOPED_CAPABILITY SYRTOS_TSA(scoped_lockable)
#define GUARDED_BY(x) SYRTOS_TSA(guarded_by(x))
#define REQUIRES(...) SYRTOS_TSA(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) SYRTOS_TSA(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) SYRTOS_TSA(acquire_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) SYRTOS_TSA(try_acquire_capability(__VA_ARGS__))
#define RELEASE(...) SYRTOS_TSA(release_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS SYRTOS_TSA(no_thread_safety_analysis)

namespace syrtos {

class CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  ~Mutex() { pthread_mutex_destroy(&mutex_); }
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void Lock() ACQUIRE() { pthread_mutex_lock(&mutex_); }
  bool TryLock() TRY_ACQUIRE(true) { return pthread_mutex_trylock(&mutex_) == 0; }
  void Unlock() RELEASE() { pthread_mutex_unlock(&mutex_); }

 private:
  friend class CondVar;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  CondVar() {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&cond_, &attr);
    pthread_condattr_destroy(&attr);
  }
  ~CondVar() { pthread_cond_destroy(&cond_); }
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;
  // Spurious wake-ups happen: always wait in a loop over the condition.
  void Wait(Mutex& mutex) REQUIRES(mutex) { pthread_cond_wait(&cond_, &mutex.mutex_); }
  // False when `deadline` has passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline) REQUIRES(mutex) {
    auto ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()).count();
    timespec ts{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
    return pthread_cond_timedwait(&cond_, &mutex.mutex_, &ts) == 0;
  }
  void NotifyOne() { pthread_cond_signal(&cond_); }
  void NotifyAll() { pthread_cond_broadcast(&cond_); }

 private:
  pthread_cond_t cond_;
};

}  // namespace syrtos
