// Runs plans in their world-wide order on the chosen communicators.
//
// Plans of communicators that do not block may be in flight together; a blocking one holds the
// executor until it ends and is entered by the engine thread only.
//
// Owner: the engine. Threads: the holder of the baton.
// Failure: the first failed operation is returned by Run and is fatal for the engine.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "syrtos/collectives/activities.h"
#include "syrtos/collectives/backend_registry.h"
#include "syrtos/engine/request_queue.h"
#include "syrtos/engine/timeline.h"

namespace syrtos {

// A plan with the requests of this rank that its entries mean.
struct ResolvedPlan {
  uint64_t sequence = 0;
  int backend = 0;
  std::vector<int32_t> ranks;  // of the group
  struct Entry {
    std::shared_ptr<PendingRequest> pending;
    size_t part = 0;
  };
  std::vector<Entry> entries;
};

class Executor {
 public:
  // The references outlive the executor. `own_rank` is global.
  Executor(int own_rank, BackendRegistry& backends, Timeline& timeline);
  void Enqueue(ResolvedPlan plan);
  // Starts and progresses what it may. Requests whose last part is done are appended to `finished`.
  Status Run(bool may_block, std::vector<std::shared_ptr<PendingRequest>>& finished);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  uint64_t plans() const { return plans_; }
  uint64_t parts() const { return parts_; }
  // Forgets everything; only after the communicators were aborted.
  void Clear();

 private:
  struct Running {
    ResolvedPlan plan;
    std::unique_ptr<Activities> activities;  // null while there is no timeline
    std::unique_ptr<Operation> operation;
  };
  Status StartNext();
  Result<Collective> MakeCollective(const ResolvedPlan& plan) const;
  Result<Part> MakePart(const ResolvedPlan::Entry& entry, const Collective& collective) const;
  Status ProgressRunning(std::vector<std::shared_ptr<PendingRequest>>& finished);

  const int own_rank_;
  BackendRegistry& backends_;
  Timeline& timeline_;
  std::deque<ResolvedPlan> waiting_;
  std::deque<Running> running_;
  uint64_t plans_ = 0;
  uint64_t parts_ = 0;
};

}  // namespace syrtos
