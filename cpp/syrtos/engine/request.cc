#include "syrtos/engine/request.h"

#include <cstdlib>
#include <utility>

namespace syrtos {

Result<OwnedBuffer> AllocateBuffer(uint64_t bytes) {
  constexpr uint64_t kAlignment = 64;
  if (bytes > UINT64_MAX - kAlignment) return Status::Internal("a buffer size beyond 2^64");
  uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (rounded == 0) rounded = kAlignment;  // a zero-size result still has an address
  void* memory = std::aligned_alloc(kAlignment, rounded);
  if (memory == nullptr) {
    return Status::Internal("could not allocate " + std::to_string(bytes) + " bytes for a result");
  }
  return OwnedBuffer(memory, [](void* p) { std::free(p); });
}

bool Completion::done() const {
  MutexLock lock(mutex_);
  return done_;
}

bool Completion::WaitFor(std::chrono::nanoseconds timeout) const {
  auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(mutex_);
  while (!done_) {
    if (!finished_.WaitUntil(mutex_, deadline)) return done_;
  }
  return true;
}

Status Completion::status() const {
  MutexLock lock(mutex_);
  return status_;
}

void Completion::Finish(Status status, int64_t value) {
  MutexLock lock(mutex_);
  if (done_) return;
  done_ = true;
  status_ = std::move(status);
  value_ = value;
  finished_.NotifyAll();
}

}  // namespace syrtos
