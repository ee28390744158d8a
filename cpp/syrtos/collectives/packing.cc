#include "syrtos/collectives/packing.h"

#include <cstring>

#include "syrtos/collectives/layout.h"

namespace syrtos {
namespace {

constexpr size_t kAlignment = 64;

bool InPlace(CollectiveKind kind) {
  return kind == CollectiveKind::kAllreduce || kind == CollectiveKind::kBroadcast;
}

// Copies runs one after the other out of or into the buffer.
class Packer {
 public:
  Packer(uint8_t* buffer, size_t item_bytes) : next_(buffer), item_(item_bytes) {}
  void Append(const void* base, const Span& run) {
    const size_t bytes = static_cast<size_t>(run.count) * item_;
    if (bytes > 0) std::memcpy(next_, At(base, run.begin, item_), bytes);
    next_ += bytes;
  }

 private:
  uint8_t* next_;
  size_t item_;
};

class Unpacker {
 public:
  Unpacker(const uint8_t* buffer, size_t item_bytes) : next_(buffer), item_(item_bytes) {}
  void Take(void* base, const Span& run) {
    const size_t bytes = static_cast<size_t>(run.count) * item_;
    if (bytes > 0) std::memcpy(At(base, run.begin, item_), next_, bytes);
    next_ += bytes;
  }

 private:
  const uint8_t* next_;
  size_t item_;
};

std::vector<std::vector<int64_t>> AllOffsets(const std::vector<Part>& parts,
                                             std::vector<int64_t> Part::* counts) {
  std::vector<std::vector<int64_t>> offsets;
  offsets.reserve(parts.size());
  for (const Part& part : parts) offsets.push_back(Offsets(part.*counts));
  return offsets;
}

// One block per active position, in it one run per part.
void PackBlocks(const Collective& collective, const std::vector<Part>& parts, uint8_t* input) {
  const auto offsets = AllOffsets(parts, &Part::counts);
  Packer packer(input, collective.item_bytes);
  for (int position = 0; position < collective.size(); ++position) {
    if (!IsActive(collective, position)) continue;
    const auto p = static_cast<size_t>(position);
    for (size_t i = 0; i < parts.size(); ++i) {
      packer.Append(parts[i].input, {offsets[i][p], parts[i].counts[p]});
    }
  }
}

void UnpackBlocks(const Collective& collective, const std::vector<Part>& parts,
                  std::vector<int64_t> Part::* counts, const uint8_t* output) {
  const auto offsets = AllOffsets(parts, counts);
  Unpacker unpacker(output, collective.item_bytes);
  for (int position = 0; position < collective.size(); ++position) {
    if (!IsActive(collective, position)) continue;
    const auto p = static_cast<size_t>(position);
    for (size_t i = 0; i < parts.size(); ++i) {
      unpacker.Take(parts[i].output, {offsets[i][p], (parts[i].*counts)[p]});
    }
  }
}

std::vector<int64_t> SumCounts(const Collective& collective, const std::vector<Part>& parts,
                               std::vector<int64_t> Part::* counts) {
  std::vector<int64_t> sums(collective.ranks.size(), 0);
  for (const Part& part : parts) {
    for (size_t p = 0; p < (part.*counts).size(); ++p) {
      if (IsActive(collective, static_cast<int>(p))) sums[p] += (part.*counts)[p];
    }
  }
  return sums;
}

}  // namespace

Part PackedPart(const Collective& collective, const std::vector<Part>& parts) {
  Part whole;
  if (InPlace(collective.kind)) {
    for (const Part& part : parts) {
      whole.count += part.count;
      if (collective.op == ReduceOp::kAdasum) whole.segments.push_back(part.count);
    }
    return whole;
  }
  whole.counts = SumCounts(collective, parts, &Part::counts);
  if (collective.kind == CollectiveKind::kAlltoall) {
    whole.recv_counts = SumCounts(collective, parts, &Part::recv_counts);
  }
  return whole;
}

PackedRegions RegionsOf(const Collective& collective, const Part& whole) {
  const size_t input =
      static_cast<size_t>(InputElements(collective, whole)) * collective.item_bytes;
  if (InPlace(collective.kind)) return {0, input};
  const size_t begin = (input + kAlignment - 1) / kAlignment * kAlignment;
  return {begin,
          begin + static_cast<size_t>(OutputElements(collective, whole)) * collective.item_bytes};
}

void Pack(const Collective& collective, const std::vector<Part>& parts, uint8_t* input) {
  switch (collective.kind) {
    case CollectiveKind::kBroadcast:
      if (collective.self != collective.root) return;
      [[fallthrough]];
    case CollectiveKind::kAllreduce:
    case CollectiveKind::kAllgather: {
      Packer packer(input, collective.item_bytes);
      for (const Part& part : parts)
        packer.Append(part.input, {0, InputElements(collective, part)});
      return;
    }
    case CollectiveKind::kAlltoall:
    case CollectiveKind::kReduceScatter:
      PackBlocks(collective, parts, input);
      return;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kJoin:
    case CollectiveKind::kAddGroup:
    case CollectiveKind::kRemoveGroup:
      return;  // CheckParts refuses them
  }
}

void Unpack(const Collective& collective, const std::vector<Part>& parts, const uint8_t* output) {
  switch (collective.kind) {
    case CollectiveKind::kAllreduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduceScatter: {
      Unpacker unpacker(output, collective.item_bytes);
      for (const Part& part : parts) {
        unpacker.Take(part.output, {0, OutputElements(collective, part)});
      }
      return;
    }
    case CollectiveKind::kAllgather:
      UnpackBlocks(collective, parts, &Part::counts, output);
      return;
    case CollectiveKind::kAlltoall:
      UnpackBlocks(collective, parts, &Part::recv_counts, output);
      return;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kJoin:
    case CollectiveKind::kAddGroup:
    case CollectiveKind::kRemoveGroup:
      return;  // CheckParts refuses them
  }
}

}  // namespace syrtos
