#include "syrtos/collectives/local/local_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "syrtos/collectives/activities.h"
#include "syrtos/collectives/failure_latch.h"
#include "syrtos/collectives/guard.h"
#include "syrtos/collectives/host_reduce.h"
#include "syrtos/collectives/layout.h"

namespace syrtos {
namespace {

constexpr int kScore = 100;                  // nothing beats a copy
constexpr int64_t kPieceElements = 1 << 16;  // keeps the accumulator in the cache

void Copy(const Collective& collective, const Part& part, int64_t from, int64_t to, int64_t count) {
  if (count == 0) return;
  // memmove: in place the two runs may overlap.
  std::memmove(At(part.output, to, collective.item_bytes),
               At(part.input, from, collective.item_bytes),
               static_cast<size_t>(count) * collective.item_bytes);
}

// The one member's share of a reduction: its own input, scaled and divided by the same rules.
void Reduce(const Collective& collective, const Part& part, int64_t from, int64_t count) {
  const int64_t piece = std::min(count, kPieceElements);
  if (piece == 0) return;
  Collective alone = collective;
  // The Adasum of one tensor is the tensor, and so is its sum.
  if (alone.op == ReduceOp::kAdasum) alone.op = ReduceOp::kSum;
  const std::unique_ptr<Reducer> reducer = MakeReducer(alone, piece);
  for (int64_t done = 0; done < count; done += piece) {
    reducer->Begin(At(part.input, from + done, collective.item_bytes),
                   std::min(piece, count - done));
    reducer->Finish(At(part.output, done, collective.item_bytes));
  }
}

void DoPart(const Collective& collective, const Part& part) {
  const auto self = static_cast<size_t>(collective.self);
  switch (collective.kind) {
    case CollectiveKind::kAllreduce:
      Reduce(collective, part, 0, part.count);
      return;
    case CollectiveKind::kBroadcast:
      Copy(collective, part, 0, 0, part.count);
      return;
    case CollectiveKind::kAllgather:
      Copy(collective, part, 0, Offsets(part.counts)[self], part.counts[self]);
      return;
    case CollectiveKind::kAlltoall:
      Copy(collective, part, Offsets(part.counts)[self], Offsets(part.recv_counts)[self],
           std::min(part.counts[self], part.recv_counts[self]));
      return;
    case CollectiveKind::kReduceScatter:
      Reduce(collective, part, Offsets(part.counts)[self], part.counts[self]);
      return;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kJoin:
    case CollectiveKind::kAddGroup:
    case CollectiveKind::kRemoveGroup:
      return;  // CheckParts refuses them
  }
}

class LocalOperation : public Operation {
 public:
  LocalOperation(FailureLatch& failure, const Collective& collective, std::vector<Part> parts)
      : failure_(failure), collective_(collective), parts_(std::move(parts)) {}

  Result<bool> Progress() override {
    return Guarded("local communicator", [this]() -> Result<bool> {
      SYRTOS_RETURN_IF_ERROR(failure_.Get());
      const ActivityScope activity("local", collective_);
      for (const Part& part : parts_) DoPart(collective_, part);
      parts_.clear();  // a further call has nothing left to do
      return true;
    });
  }

 private:
  FailureLatch& failure_;
  const Collective collective_;
  std::vector<Part> parts_;
};

class LocalCommunicator : public Communicator {
 public:
  std::string_view name() const override { return "local"; }

  int Score(const Collective& collective, int64_t) const override {
    return CanMove(collective) && ActiveCount(collective) == 1 ? kScore : 0;
  }

  bool may_block() const override { return false; }
  bool needs_contiguous() const override { return false; }

  Result<std::unique_ptr<Operation>> Start(const Collective& collective,
                                           std::vector<Part> parts) override {
    SYRTOS_RETURN_IF_ERROR(failure_.Get());
    SYRTOS_RETURN_IF_ERROR(CheckParts(collective, parts));
    if (ActiveCount(collective) != 1) {
      return Status::Internal("the local communicator serves one member, not " +
                              std::to_string(ActiveCount(collective)));
    }
    return std::unique_ptr<Operation>(
        std::make_unique<LocalOperation>(failure_, collective, std::move(parts)));
  }

  void Abort(const Status& cause) override { static_cast<void>(failure_.Set(cause)); }

 private:
  FailureLatch failure_;
};

}  // namespace

std::unique_ptr<Communicator> MakeLocalCommunicator() {
  return std::make_unique<LocalCommunicator>();
}

}  // namespace syrtos
