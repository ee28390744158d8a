// A Communicator between threads of one process that never blocks: Start leaves a copy of the
// inputs at a shared hub, Progress asks whether all members have come and then computes the own
// outputs.
//
// For tests of whoever drives communicators; it is fast for small tensors only. Every member
// combines in the order of positions, so all get the same bits. Lists need no packing.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fakes/adasum_reference.h"
#include "syrtos/base/mutex.h"
#include "syrtos/collectives/communicator.h"
#include "syrtos/collectives/failure_latch.h"
#include "syrtos/collectives/host_reduce.h"
#include "syrtos/collectives/layout.h"

namespace syrtos {

// What the communicators of one world share. Threads: any.
class MemoryHub {
 public:
  using Bytes = std::vector<uint8_t>;
  // What one member brought: per part the input, and where each position's block begins in it.
  struct Deposit {
    std::vector<Bytes> inputs;
    std::vector<Part> parts;
  };
  struct Meeting {
    std::map<int, Deposit> deposits;  // by position
    int left = 0;                     // members that have taken their result
  };

 private:
  friend class MemoryOperation;
  friend class MemoryCommunicator;

  Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Meeting>> meetings_ GUARDED_BY(mutex_);  // by sequence
};

class MemoryOperation : public Operation {
 public:
  MemoryOperation(std::shared_ptr<MemoryHub> hub, FailureLatch& failure,
                  const Collective& collective, std::vector<Part> parts)
      : hub_(std::move(hub)), failure_(failure), collective_(collective), parts_(std::move(parts)) {
    MemoryHub::Deposit deposit;
    for (const Part& part : parts_) {
      const bool reads =
          collective_.kind != CollectiveKind::kBroadcast || collective_.self == collective_.root;
      const auto elements = static_cast<size_t>(reads ? InputElements(collective_, part) : 0);
      const auto* input = static_cast<const uint8_t*>(part.input);
      deposit.inputs.emplace_back(input, input + elements * collective_.item_bytes);
    }
    deposit.parts = parts_;
    MutexLock lock(hub_->mutex_);
    std::shared_ptr<MemoryHub::Meeting>& meeting = hub_->meetings_[collective_.sequence];
    if (meeting == nullptr) meeting = std::make_shared<MemoryHub::Meeting>();
    meeting->deposits[collective_.self] = std::move(deposit);
    meeting_ = meeting;
  }

  Result<bool> Progress() override {
    SYRTOS_RETURN_IF_ERROR(failure_.Get());
    if (done_) return true;
    MutexLock lock(hub_->mutex_);
    const int members = ActiveCount(collective_);
    if (static_cast<int>(meeting_->deposits.size()) < members) return false;
    for (size_t i = 0; i < parts_.size(); ++i) Compute(i);
    if (++meeting_->left == members) hub_->meetings_.erase(collective_.sequence);
    done_ = true;
    return true;
  }

 private:
  const uint8_t* InputOf(int position, size_t part, int64_t element) const {
    const MemoryHub::Bytes& bytes = meeting_->deposits.at(position).inputs[part];
    return At(static_cast<const void*>(bytes.data()), element, collective_.item_bytes);
  }

  void Copy(size_t part, int from, int64_t begin, int64_t to, int64_t count) {
    if (count == 0) return;
    std::memcpy(At(parts_[part].output, to, collective_.item_bytes), InputOf(from, part, begin),
                static_cast<size_t>(count) * collective_.item_bytes);
  }

  void Reduce(size_t part, int64_t begin, int64_t count) {
    if (count == 0) return;
    const std::unique_ptr<Reducer> reducer = MakeReducer(collective_, count);
    bool first = true;
    for (const auto& [position, deposit] : meeting_->deposits) {
      if (first) reducer->Begin(InputOf(position, part, begin), count);
      if (!first) reducer->Add(InputOf(position, part, begin));
      first = false;
    }
    reducer->Finish(parts_[part].output);
  }

  void ReduceByAdasum(size_t part) {
    std::vector<RealVector> vectors(collective_.ranks.size(),
                                    RealVector(static_cast<size_t>(parts_[part].count)));
    for (const auto& [position, deposit] : meeting_->deposits) {
      vectors[static_cast<size_t>(position)] = DecodeAll(collective_.dtype, deposit.inputs[part]);
    }
    const MemoryHub::Bytes result = EncodeReals(
        collective_.dtype, AdasumByDefinition(collective_.dtype, std::move(vectors),
                                              collective_.prescale, collective_.postscale));
    if (!result.empty()) std::memcpy(parts_[part].output, result.data(), result.size());
  }

  void Compute(size_t i) {
    const Part& part = parts_[i];
    const auto self = static_cast<size_t>(collective_.self);
    switch (collective_.kind) {
      case CollectiveKind::kAllreduce:
        if (collective_.op == ReduceOp::kAdasum) return ReduceByAdasum(i);
        Reduce(i, 0, part.count);
        return;
      case CollectiveKind::kReduceScatter:
        Reduce(i, Offsets(part.counts)[self], part.counts[self]);
        return;
      case CollectiveKind::kBroadcast:
        Copy(i, collective_.root, 0, 0, part.count);
        return;
      case CollectiveKind::kAllgather:
        for (const auto& [position, deposit] : meeting_->deposits) {
          const auto p = static_cast<size_t>(position);
          Copy(i, position, 0, Offsets(part.counts)[p], part.counts[p]);
        }
        return;
      case CollectiveKind::kAlltoall:
        for (const auto& [position, deposit] : meeting_->deposits) {
          const auto p = static_cast<size_t>(position);
          Copy(i, position, Offsets(deposit.parts[i].counts)[self], Offsets(part.recv_counts)[p],
               part.recv_counts[p]);
        }
        return;
      case CollectiveKind::kBarrier:
      case CollectiveKind::kJoin:
      case CollectiveKind::kAddGroup:
      case CollectiveKind::kRemoveGroup:
        return;  // CheckParts refuses them
    }
  }

  const std::shared_ptr<MemoryHub> hub_;
  FailureLatch& failure_;
  const Collective collective_;
  const std::vector<Part> parts_;
  std::shared_ptr<MemoryHub::Meeting> meeting_;
  bool done_ = false;
};

class MemoryCommunicator : public Communicator {
 public:
  explicit MemoryCommunicator(std::shared_ptr<MemoryHub> hub, int score = 50)
      : hub_(std::move(hub)), score_(score) {}

  std::string_view name() const override { return "memory"; }
  int Score(const Collective& collective, int64_t) const override {
    return CanMove(collective) ? score_ : 0;
  }
  bool may_block() const override { return false; }
  bool needs_contiguous() const override { return false; }

  Result<std::unique_ptr<Operation>> Start(const Collective& collective,
                                           std::vector<Part> parts) override {
    SYRTOS_RETURN_IF_ERROR(failure_.Get());
    SYRTOS_RETURN_IF_ERROR(CheckParts(collective, parts));
    return std::unique_ptr<Operation>(
        std::make_unique<MemoryOperation>(hub_, failure_, collective, std::move(parts)));
  }

  void Abort(const Status& cause) override { static_cast<void>(failure_.Set(cause)); }

 private:
  const std::shared_ptr<MemoryHub> hub_;
  const int score_;
  FailureLatch failure_;
};

}  // namespace syrtos
