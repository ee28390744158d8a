#include "syrtos/collectives/pairwise/pairwise_communicator.h"

#include <utility>

#include "syrtos/collectives/activities.h"
#include "syrtos/collectives/failure_latch.h"
#include "syrtos/collectives/guard.h"
#include "syrtos/collectives/layout.h"
#include "syrtos/collectives/pairwise/exchange.h"

namespace syrtos {
namespace {

class PairwiseCommunicator : public Communicator {
 public:
  PairwiseCommunicator(std::string name, int score, std::unique_ptr<PointToPoint> wire,
                       PairwiseOptions options)
      : name_(std::move(name)), score_(score), options_(options), wire_(std::move(wire)) {}

  std::string_view name() const override { return name_; }
  int Score(const Collective& collective, int64_t) const override {
    return CanMove(collective) ? score_ : 0;
  }
  bool may_block() const override { return true; }
  bool needs_contiguous() const override { return true; }
  Result<std::unique_ptr<Operation>> Start(const Collective& collective,
                                           std::vector<Part> parts) override;

  void Abort(const Status& cause) override { wire_->Abort(failure_.Set(cause)); }

  // Does the whole collective; a failure is final.
  Status Run(const Collective& collective, const Part& part) {
    SYRTOS_RETURN_IF_ERROR(failure_.Get());
    const ActivityScope activity(name_, collective);
    Status status = Guarded(name_.c_str(), [&]() -> Status { return Dispatch(collective, part); });
    if (status.ok()) return status;
    Abort(status);
    return failure_.Get();
  }

 private:
  Status Dispatch(const Collective& collective, const Part& part) {
    const Members members = MembersOf(collective);
    const Exchange exchange{*wire_, collective, part, members, options_, scratch_, copy_};
    switch (collective.kind) {
      case CollectiveKind::kAllreduce:
        return collective.op == ReduceOp::kAdasum ? PairwiseAdasum(exchange)
                                                  : PairwiseAllreduce(exchange);
      case CollectiveKind::kAllgather:
        return PairwiseAllgather(exchange);
      case CollectiveKind::kBroadcast:
        return PairwiseBroadcast(exchange);
      case CollectiveKind::kAlltoall:
        return PairwiseAlltoall(exchange);
      case CollectiveKind::kReduceScatter:
        return PairwiseReduceScatter(exchange);
      case CollectiveKind::kBarrier:
      case CollectiveKind::kJoin:
      case CollectiveKind::kAddGroup:
      case CollectiveKind::kRemoveGroup:
        break;
    }
    return Status::Internal("CheckParts let through a collective that moves no data");
  }

  const std::string name_;
  const int score_;
  const PairwiseOptions options_;
  FailureLatch failure_;
  // One collective runs at a time, so they share their scratch memory.
  AlignedBuffer scratch_;
  AlignedBuffer copy_;
  // Last, so that it is gone before the memory that its messages use.
  const std::unique_ptr<PointToPoint> wire_;
};

// Blocking: one Progress does it all.
class PairwiseOperation : public Operation {
 public:
  PairwiseOperation(PairwiseCommunicator& communicator, const Collective& collective, Part part)
      : communicator_(communicator), collective_(collective), part_(std::move(part)) {}

  Result<bool> Progress() override {
    if (!done_) SYRTOS_RETURN_IF_ERROR(communicator_.Run(collective_, part_));
    done_ = true;
    return true;
  }

 private:
  PairwiseCommunicator& communicator_;
  const Collective collective_;
  const Part part_;
  bool done_ = false;
};

Result<std::unique_ptr<Operation>> PairwiseCommunicator::Start(const Collective& collective,
                                                               std::vector<Part> parts) {
  SYRTOS_RETURN_IF_ERROR(failure_.Get());
  if (parts.size() != 1) {
    return Status::Internal(name_ + " takes one part at a time, not " +
                            std::to_string(parts.size()) +
                            "; it belongs into a PackedCommunicator");
  }
  SYRTOS_RETURN_IF_ERROR(CheckParts(collective, parts));
  return std::unique_ptr<Operation>(
      std::make_unique<PairwiseOperation>(*this, collective, std::move(parts.front())));
}

}  // namespace

std::unique_ptr<Communicator> MakePairwiseCommunicator(std::string name, int score,
                                                       std::unique_ptr<PointToPoint> wire,
                                                       PairwiseOptions options) {
  return std::make_unique<PairwiseCommunicator>(std::move(name), score, std::move(wire), options);
}

}  // namespace syrtos
