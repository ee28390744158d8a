// One call of the user, with its memory, and the Completion it is waited on.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "syrtos/base/mutex.h"
#include "syrtos/base/result.h"
#include "syrtos/engine/messages.h"

namespace syrtos {

// Memory the engine allocated for a result whose size only the agreement tells; freed with the last
// reference. 64-byte aligned.
using OwnedBuffer = std::shared_ptr<void>;
Result<OwnedBuffer> AllocateBuffer(uint64_t bytes);

struct PartMemory {
  const void* input = nullptr;
  void* output = nullptr;  // nullptr: allocate when the size is known (Request::allocate or ours)
};

// What came out of one part.
struct PartResult {
  void* output = nullptr;
  Shape shape;
  OwnedBuffer owned;                     // set if the engine allocated
  std::vector<int64_t> received_splits;  // alltoall: rows from each position
};

// The state shared by the engine and whoever waits.
// Owner: shared_ptr on both sides. Threads: any.
class Completion {
 public:
  bool done() const;
  // Ok / error once done; waits at most `timeout` and returns false if still pending.
  bool WaitFor(std::chrono::nanoseconds timeout) const;
  // Valid once done.
  Status status() const;
  const std::vector<PartResult>& results() const { return results_; }
  int64_t value() const { return value_; }  // join: last rank; add group: id

  // Engine's side. Finish wakes all waiters; the first call wins.
  std::vector<PartResult>& mutable_results() { return results_; }
  void Finish(Status status, int64_t value = 0);

 private:
  mutable Mutex mutex_;
  mutable CondVar finished_;
  bool done_ GUARDED_BY(mutex_) = false;
  Status status_ GUARDED_BY(mutex_);
  std::vector<PartResult> results_;  // written before Finish, read after
  int64_t value_ = 0;
};

struct Request {
  RequestMeta meta;
  std::vector<PartMemory> memory;  // one per part
  // Called by whichever thread drives the engine when the size of an output is known; must return
  // memory that stays until `callback`, and must not call back into the engine. Null: the engine
  // allocates.
  std::function<Result<void*>(size_t part, const Shape& shape)> allocate;
  // Called once after completion, outside the engine's single-writer section, by the engine thread.
  // Must not wait for collectives; may submit.
  std::function<void(const Completion&)> callback;
  std::shared_ptr<Completion> completion;  // set by Submit
};

}  // namespace syrtos
