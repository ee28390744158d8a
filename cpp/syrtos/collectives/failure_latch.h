// The first cause of a failure, kept for good. Threads: any.
#pragma once

#include "syrtos/base/mutex.h"
#include "syrtos/base/status.h"

namespace syrtos {

class FailureLatch {
 public:
  // Keeps `cause` if it is the first failure; returns the first. Ok is ignored.
  Status Set(const Status& cause) {
    MutexLock lock(mutex_);
    if (first_.ok()) first_ = cause;
    return first_;
  }

  // Ok, or the first cause.
  Status Get() const {
    MutexLock lock(mutex_);
    return first_;
  }

 private:
  mutable Mutex mutex_;
  Status first_ GUARDED_BY(mutex_);
};

}  // namespace syrtos
