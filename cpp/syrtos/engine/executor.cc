#include "syrtos/engine/executor.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "syrtos/engine/part_layout.h"

namespace syrtos {
namespace {

// Draws what a communicator does in the rows of all requests that have a part in the plan.
class PlanActivities : public Activities {
 public:
  PlanActivities(Timeline& timeline, const ResolvedPlan& plan) : timeline_(timeline) {
    const RequestKey* last = nullptr;
    for (const ResolvedPlan::Entry& entry : plan.entries) {
      const RequestKey& key = entry.pending->request.meta.key;
      if (last != nullptr && key == *last) continue;  // a request's parts stand together
      last = &key;
      keys_.push_back(key);
    }
  }
  void Begin(const std::string& name) override {
    for (const RequestKey& key : keys_) timeline_.ActivityBegin(key, name);
  }
  void End() override {
    for (const RequestKey& key : keys_) timeline_.ActivityEnd(key);
  }

 private:
  Timeline& timeline_;
  std::vector<RequestKey> keys_;
};

}  // namespace

Executor::Executor(int own_rank, BackendRegistry& backends, Timeline& timeline)
    : own_rank_(own_rank), backends_(backends), timeline_(timeline) {}

void Executor::Enqueue(ResolvedPlan plan) { waiting_.push_back(std::move(plan)); }

Result<Collective> Executor::MakeCollective(const ResolvedPlan& plan) const {
  const PendingRequest& first = *plan.entries.front().pending;
  const RequestMeta& meta = first.request.meta;
  const PartMeta& part = meta.parts[plan.entries.front().part];
  Collective c;
  c.kind = meta.kind;
  c.dtype = part.dtype;
  c.item_bytes = part.item_bytes;
  c.op = meta.op;
  c.prescale = meta.prescale;
  c.postscale = meta.postscale;
  c.sequence = plan.sequence;
  c.ranks = plan.ranks;
  c.active.assign(c.ranks.size(), 1);
  c.divisor = DivisorOf(first.agreement, c.ranks.size());
  for (size_t i = 0; i < c.ranks.size(); ++i) {
    const auto& absent = first.agreement.absent;
    if (std::find(absent.begin(), absent.end(), c.ranks[i]) != absent.end()) c.active[i] = 0;
    if (c.ranks[i] == own_rank_) c.self = static_cast<int>(i);
    if (c.ranks[i] == meta.root) c.root = static_cast<int>(i);
  }
  if (c.ranks.empty()) {
    return Status::Internal("a plan for group " + std::to_string(meta.key.group) +
                            ", which this rank does not know");
  }
  return c;
}

Result<Part> Executor::MakePart(const ResolvedPlan::Entry& entry, const Collective& c) const {
  PendingRequest& pending = *entry.pending;
  const PartMeta& meta = pending.request.meta.parts[entry.part];
  static const std::vector<int64_t> kNoRows;
  const auto& rows =
      entry.part < pending.agreement.rows.size() ? pending.agreement.rows[entry.part] : kNoRows;
  SYRTOS_ASSIGN_OR_RETURN(PartLayout layout, LayOut(c, meta, rows));
  PartMemory& memory = pending.request.memory[entry.part];
  PartResult& result = pending.request.completion->mutable_results()[entry.part];
  const bool allocates = memory.output == nullptr;
  if (allocates) timeline_.ActivityBegin(pending.request.meta.key, "ALLOCATE_OUTPUT");
  if (allocates && pending.request.allocate) {
    SYRTOS_ASSIGN_OR_RETURN(memory.output,
                            pending.request.allocate(entry.part, layout.output_shape));
  } else if (allocates) {
    SYRTOS_ASSIGN_OR_RETURN(result.owned, AllocateBuffer(layout.output_bytes));
    memory.output = result.owned.get();
  }
  if (allocates) timeline_.ActivityEnd(pending.request.meta.key);
  result.output = memory.output;
  result.shape = std::move(layout.output_shape);
  result.received_splits = std::move(layout.received_rows);
  Part part;
  part.input = memory.input;
  part.output = memory.output;
  part.count = layout.count;
  part.counts = std::move(layout.counts);
  part.recv_counts = std::move(layout.recv_counts);
  return part;
}

Status Executor::StartNext() {
  ResolvedPlan plan = std::move(waiting_.front());
  waiting_.pop_front();
  SYRTOS_ASSIGN_OR_RETURN(Collective collective, MakeCollective(plan));
  std::unique_ptr<Activities> activities;
  if (timeline_.on()) activities = std::make_unique<PlanActivities>(timeline_, plan);
  collective.activities = activities.get();
  std::vector<Part> parts;
  for (const auto& entry : plan.entries) {
    SYRTOS_ASSIGN_OR_RETURN(Part part, MakePart(entry, collective));
    parts.push_back(std::move(part));
  }
  ++plans_;
  parts_ += parts.size();
  SYRTOS_ASSIGN_OR_RETURN(auto operation,
                          backends_.at(plan.backend).Start(collective, std::move(parts)));
  running_.push_back({std::move(plan), std::move(activities), std::move(operation)});
  return Status::Ok();
}

Status Executor::ProgressRunning(std::vector<std::shared_ptr<PendingRequest>>& finished) {
  for (auto it = running_.begin(); it != running_.end();) {
    SYRTOS_ASSIGN_OR_RETURN(bool done, it->operation->Progress());
    if (!done) {
      ++it;
      continue;
    }
    for (auto& entry : it->plan.entries) {
      if (--entry.pending->parts_left == 0) finished.push_back(std::move(entry.pending));
    }
    it->operation.reset();  // before the activities that it may use
    it = running_.erase(it);
  }
  return Status::Ok();
}

Status Executor::Run(bool may_block, std::vector<std::shared_ptr<PendingRequest>>& finished) {
  while (!waiting_.empty()) {
    bool blocking = backends_.at(waiting_.front().backend).may_block();
    if (blocking && !may_block) break;
    SYRTOS_RETURN_IF_ERROR(StartNext());
    if (!blocking) continue;
    timeline_.Flush();  // so that the file shows what this waits in, should it be for ever
    SYRTOS_RETURN_IF_ERROR(ProgressRunning(finished));
    // One blocking plan at a time: let the loop hand out what is finished and hear the others
    // first.
    return Status::Ok();
  }
  return ProgressRunning(finished);
}

void Executor::Clear() {
  waiting_.clear();
  running_.clear();
}

}  // namespace syrtos
