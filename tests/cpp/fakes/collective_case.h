// A collective described for all of its members at once: builds each member's memory, runs it on a
// communicator and compares the result with what the definition says.
#pragma once

#include <deque>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fakes/numbers.h"
#include "syrtos/collectives/communicator.h"

namespace syrtos {

// One tensor; what its numbers mean depends on the kind.
struct PartCase {
  int64_t count = 0;                         // allreduce, broadcast
  std::vector<int64_t> counts;               // allgather, reduce-scatter: per position
  std::vector<std::vector<int64_t>> matrix;  // alltoall: [from][to]
};

struct CollectiveCase {
  Collective collective;  // `self` and `sequence` are filled in by Run
  bool in_place = false;
  std::vector<PartCase> parts;

  bool Active(int position) const {
    return collective.active.empty() || collective.active[static_cast<size_t>(position)] != 0;
  }
};

inline CollectiveCase MakeCase(CollectiveKind kind, DType dtype, std::vector<int> ranks) {
  CollectiveCase c;
  c.collective.kind = kind;
  c.collective.dtype = dtype;
  c.collective.item_bytes = dtype == DType::kOpaque ? 3 : InfoOf(dtype).bytes;
  c.collective.divisor = static_cast<int64_t>(ranks.size());
  c.collective.active.assign(ranks.size(), 1);
  c.collective.ranks = std::move(ranks);
  return c;
}

// Element `i` of what `position` brings: small integers, exact in every dtype, different
// everywhere.
inline Value CaseValue(const CollectiveCase& c, int position, size_t part, int64_t i) {
  const int64_t mixed = position * 7 + static_cast<int64_t>(part) * 3 + i * 5 + i / 11;
  const DTypeClass kind = InfoOf(c.collective.dtype).kind;
  if (kind == DTypeClass::kBool) return Value(mixed % 3 == 0 ? 1 : 0);
  if (kind == DTypeClass::kUnsigned || kind == DTypeClass::kOpaque) return Value(mixed % 11);
  if (kind == DTypeClass::kComplex) return Value(mixed % 11 - 5, mixed % 7 - 3);
  return Value(mixed % 11 - 5);
}

inline std::vector<Value> CaseInput(const CollectiveCase& c, int position, size_t index) {
  const PartCase& part = c.parts[index];
  const auto p = static_cast<size_t>(position);
  int64_t elements = part.count;
  if (c.collective.kind == CollectiveKind::kAllgather) elements = part.counts[p];
  if (c.collective.kind == CollectiveKind::kReduceScatter) {
    elements = 0;
    for (int64_t n : part.counts) elements += n;
  }
  if (c.collective.kind == CollectiveKind::kAlltoall) {
    elements = 0;
    for (int64_t n : part.matrix[p]) elements += n;
  }
  std::vector<Value> input;
  input.reserve(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; ++i) input.push_back(CaseValue(c, position, index, i));
  return input;
}

inline Value CaseReduced(const CollectiveCase& c, size_t index, int64_t element) {
  std::vector<Value> values;
  for (int p = 0; p < c.collective.size(); ++p) {
    if (c.Active(p)) values.push_back(CaseValue(c, p, index, element));
  }
  return ReduceByDefinition(c.collective, values);
}

inline std::vector<Value> CaseOutput(const CollectiveCase& c, int self, size_t index) {
  const PartCase& part = c.parts[index];
  std::vector<Value> output;
  switch (c.collective.kind) {
    case CollectiveKind::kAllreduce:
      for (int64_t i = 0; i < part.count; ++i) output.push_back(CaseReduced(c, index, i));
      break;
    case CollectiveKind::kBroadcast:
      return CaseInput(c, c.collective.root, index);
    case CollectiveKind::kAllgather:
      for (int p = 0; p < c.collective.size(); ++p) {
        if (!c.Active(p)) continue;
        for (const Value& v : CaseInput(c, p, index)) output.push_back(v);
      }
      break;
    case CollectiveKind::kReduceScatter: {
      int64_t begin = 0;
      for (int p = 0; p < self; ++p) begin += part.counts[static_cast<size_t>(p)];
      for (int64_t i = 0; i < part.counts[static_cast<size_t>(self)]; ++i) {
        output.push_back(CaseReduced(c, index, begin + i));
      }
      break;
    }
    case CollectiveKind::kAlltoall:
      for (int p = 0; p < c.collective.size(); ++p) {
        if (!c.Active(p)) continue;
        const std::vector<int64_t>& row = part.matrix[static_cast<size_t>(p)];
        int64_t begin = 0;
        for (int q = 0; q < self; ++q) begin += row[static_cast<size_t>(q)];
        const std::vector<Value> input = CaseInput(c, p, index);
        for (int64_t i = 0; i < row[static_cast<size_t>(self)]; ++i) {
          output.push_back(input[static_cast<size_t>(begin + i)]);
        }
      }
      break;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kJoin:
    case CollectiveKind::kAddGroup:
    case CollectiveKind::kRemoveGroup:
      break;
  }
  return output;
}

using Bytes = std::vector<uint8_t>;

inline Bytes EncodeAll(const Collective& collective, const std::vector<Value>& values) {
  Bytes bytes(values.size() * collective.item_bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    Encode(collective.dtype, collective.item_bytes, values[i], &bytes[i * collective.item_bytes]);
  }
  return bytes;
}

// One part's memory on one member, with a fence on both sides of what may be written.
class CaseMemory {
 public:
  CaseMemory(const CollectiveCase& c, int self, size_t index)
      : in_place_(c.in_place),
        input_(EncodeAll(c.collective, CaseInput(c, self, index))),
        before_(input_),
        expected_(EncodeAll(c.collective, CaseOutput(c, self, index))) {
    const bool brings =
        c.collective.kind != CollectiveKind::kBroadcast || self == c.collective.root;
    const size_t space = std::max(expected_.size(), in_place_ ? input_.size() : 0);
    output_.assign(space + 2 * kFence, kFill);
    if (in_place_ && brings) std::copy(input_.begin(), input_.end(), output_.begin() + kFence);

    const PartCase& shape = c.parts[index];
    part_.count = shape.count;
    part_.counts = shape.counts;
    for (size_t p = 0; p < part_.counts.size(); ++p) {
      const bool gathers = c.collective.kind == CollectiveKind::kAllgather;
      if (gathers && !c.Active(static_cast<int>(p))) part_.counts[p] = 0;
    }
    if (c.collective.kind == CollectiveKind::kAlltoall) {
      part_.counts = shape.matrix[static_cast<size_t>(self)];
      for (int p = 0; p < c.collective.size(); ++p) {
        const int64_t n = shape.matrix[static_cast<size_t>(p)][static_cast<size_t>(self)];
        part_.recv_counts.push_back(c.Active(p) ? n : 0);
      }
    }
    part_.output = output_.data() + kFence;
    part_.input = in_place_ ? part_.output : brings ? input_.data() : nullptr;
  }

  CaseMemory(const CaseMemory&) = delete;
  CaseMemory& operator=(const CaseMemory&) = delete;

  const Part& part() const { return part_; }

  // "" or what is wrong.
  std::string Check() const {
    if (!in_place_ && input_ != before_) return "the input was written to";
    const size_t bytes = expected_.size();
    for (size_t i = 0; i < kFence; ++i) {
      if (output_[i] != kFill || output_[output_.size() - 1 - i] != kFill) {
        return "memory beside the output was written to";
      }
    }
    for (size_t i = 0; i < bytes; ++i) {
      if (output_[kFence + i] == expected_[i]) continue;
      std::ostringstream text;
      text << "byte " << i << " of " << bytes << " is " << int{output_[kFence + i]} << ", not "
           << int{expected_[i]};
      return text.str();
    }
    return "";
  }

 private:
  static constexpr size_t kFence = 64;
  static constexpr uint8_t kFill = 0xa5;
  const bool in_place_;
  Bytes input_;
  const Bytes before_;
  const Bytes expected_;
  Bytes output_;
  Part part_;
};

inline Status Drive(Operation& operation) {
  for (;;) {
    SYRTOS_ASSIGN_OR_RETURN(const bool done, operation.Progress());
    if (done) return Status::Ok();
    std::this_thread::yield();
  }
}

inline std::string CaseName(const CollectiveCase& c) {
  std::ostringstream text;
  text << InfoOf(c.collective.kind).name << " " << InfoOf(c.collective.dtype).name;
  if (InfoOf(c.collective.kind).reduces) text << " " << ReduceOpName(c.collective.op);
  text << " parts=" << c.parts.size() << (c.in_place ? " in place" : "")
       << " root=" << c.collective.root << " members=";
  for (int p = 0; p < c.collective.size(); ++p) {
    text << (p > 0 ? "," : "") << c.collective.ranks[static_cast<size_t>(p)]
         << (c.Active(p) ? "" : "(absent)");
  }
  return text.str();
}

// Runs the case on this rank, if it is an active member: all ranks call it with the same arguments.
// Communicators that need contiguous memory get the parts one by one.
inline Status RunCase(Communicator& communicator, CollectiveCase c, int rank, uint64_t* sequence) {
  const size_t plans = communicator.needs_contiguous() ? c.parts.size() : 1;
  c.collective.sequence = *sequence;
  *sequence += plans;
  c.collective.self = -1;
  for (int p = 0; p < c.collective.size(); ++p) {
    if (c.collective.ranks[static_cast<size_t>(p)] == rank) c.collective.self = p;
  }
  if (c.collective.self < 0 || !c.Active(c.collective.self)) return Status::Ok();

  std::deque<CaseMemory> memory;  // they must not move: parts point into them
  for (size_t i = 0; i < c.parts.size(); ++i) memory.emplace_back(c, c.collective.self, i);
  std::vector<std::vector<Part>> lists(plans);
  for (size_t i = 0; i < memory.size(); ++i) lists[i % plans].push_back(memory[i].part());
  for (std::vector<Part>& list : lists) {
    SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Operation> operation,
                            communicator.Start(c.collective, std::move(list)));
    const Status status = Drive(*operation);
    if (!status.ok()) return status.WithPrefix(CaseName(c) + ": ");
    c.collective.sequence++;
  }
  for (size_t i = 0; i < memory.size(); ++i) {
    const std::string problem = memory[i].Check();
    if (!problem.empty()) {
      return Status::Internal(CaseName(c) + ": part " + std::to_string(i) + ": " + problem);
    }
  }
  return Status::Ok();
}

}  // namespace syrtos
