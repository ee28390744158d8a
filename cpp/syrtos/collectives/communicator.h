// THE backend interface: how a collective is done.
//
// A communicator serves every group of its world: the members of each operation are in the
// Collective. Backends bid with Score; the chooser never knows their names.
//
// Threads: Start and Operation::Progress are called by one thread at a time (the holder of the
// progress baton); Abort by any thread, at any time, also during a blocking Progress.
// Order: operations of one communicator are started in the same order on all their members; several
// may be in flight. Determinism: a floating-point element is combined in the order of `ranks` (by
// kAdasum in pairs of neighbours, then pairs of pairs, ...), so all members get the same bits in
// every run, whatever the piece sizes and the fusion. Failure: a failed operation or an Abort is
// fatal for the communicator; every later call repeats it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "syrtos/base/result.h"
#include "syrtos/collectives/collective.h"

namespace syrtos {

// One started collective. Destroying it before the end is allowed only after Abort.
class Operation {
 public:
  virtual ~Operation() = default;
  // Works on; true when finished. A communicator whose may_block() is true may finish in one call.
  virtual Result<bool> Progress() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::string_view name() const = 0;
  // 0: cannot; else the highest bid among the backends that all ranks have wins. A pure function of
  // its arguments (evaluated on rank 0 for all); `self` and `sequence` are not set.
  virtual int Score(const Collective& collective, int64_t bytes) const = 0;
  // May Progress sleep until peers act? Then callers leave it to the engine thread.
  virtual bool may_block() const = 0;
  // True: only operations with exactly one part (see PackedCommunicator).
  virtual bool needs_contiguous() const = 0;
  virtual Result<std::unique_ptr<Operation>> Start(const Collective& collective,
                                                   std::vector<Part> parts) = 0;
  // Ends every wait, now and later, with `cause`. Idempotent: the first cause stays.
  virtual void Abort(const Status& cause) = 0;
};

}  // namespace syrtos
