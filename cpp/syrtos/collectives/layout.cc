#include "syrtos/collectives/layout.h"

#include <string>

namespace syrtos {
namespace {

Status Refuse(const Collective& collective, const std::string& why) {
  return Status::InvalidArgument(std::string(InfoOf(collective.kind).name) + ": " + why);
}

Status CheckCounts(const Collective& collective, const std::vector<int64_t>& counts,
                   const char* name) {
  if (counts.size() != collective.ranks.size()) {
    return Refuse(collective, std::string(name) + " has " + std::to_string(counts.size()) +
                                  " entries for a group of " + std::to_string(collective.size()));
  }
  int64_t sum = 0;
  for (int64_t count : counts) {
    if (count < 0 || __builtin_add_overflow(sum, count, &sum)) {
      return Refuse(collective, std::string(name) +
                                    " has an entry or a sum that is negative or "
                                    "beyond 2^63-1");
    }
  }
  return Status::Ok();
}

Status CheckMemory(const Collective& collective, const char* name, const void* memory,
                   int64_t elements) {
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, static_cast<int64_t>(collective.item_bytes), &bytes)) {
    return Refuse(collective, std::string(name) + " has more than 2^63-1 bytes");
  }
  if (bytes > 0 && memory == nullptr) {
    return Refuse(collective, std::string(name) + " has " + std::to_string(elements) +
                                  " elements but no memory");
  }
  return Status::Ok();
}

Status CheckSegments(const Collective& collective, const Part& part) {
  if (part.segments.empty()) return Status::Ok();
  int64_t left = part.count;
  for (int64_t segment : part.segments) {
    if (segment < 0 || segment > left) return Refuse(collective, "segments do not fit the count");
    left -= segment;
  }
  return left == 0 ? Status::Ok() : Refuse(collective, "segments do not fill the count");
}

Status CheckPart(const Collective& collective, const Part& part) {
  const auto self = static_cast<size_t>(collective.self);
  switch (collective.kind) {
    case CollectiveKind::kAllreduce:
      SYRTOS_RETURN_IF_ERROR(CheckSegments(collective, part));
      [[fallthrough]];
    case CollectiveKind::kBroadcast:
      if (part.count < 0) return Refuse(collective, "count is negative");
      break;
    case CollectiveKind::kAlltoall:
      SYRTOS_RETURN_IF_ERROR(CheckCounts(collective, part.recv_counts, "recv_counts"));
      SYRTOS_RETURN_IF_ERROR(CheckCounts(collective, part.counts, "counts"));
      if (part.counts[self] != part.recv_counts[self]) {
        return Refuse(collective, "what this rank keeps differs between counts and recv_counts");
      }
      break;
    case CollectiveKind::kAllgather:
    case CollectiveKind::kReduceScatter:
      SYRTOS_RETURN_IF_ERROR(CheckCounts(collective, part.counts, "counts"));
      break;
    case CollectiveKind::kBarrier:
    case CollectiveKind::kJoin:
    case CollectiveKind::kAddGroup:
    case CollectiveKind::kRemoveGroup:
      return Refuse(collective, "moves no data and is no work for a communicator");
  }
  const bool reads =
      collective.kind != CollectiveKind::kBroadcast || collective.self == collective.root;
  if (reads) {
    SYRTOS_RETURN_IF_ERROR(
        CheckMemory(collective, "input", part.input, InputElements(collective, part)));
  }
  return CheckMemory(collective, "output", part.output, OutputElements(collective, part));
}

}  // namespace

bool IsActive(const Collective& collective, int position) {
  return collective.active.empty() || collective.active[static_cast<size_t>(position)] != 0;
}

int ActiveCount(const Collective& collective) {
  int count = 0;
  for (int position = 0; position < collective.size(); ++position) {
    count += IsActive(collective, position) ? 1 : 0;
  }
  return count;
}

Members MembersOf(const Collective& collective) {
  Members members;
  for (int position = 0; position < collective.size(); ++position) {
    if (position == collective.self) members.self = members.size();
    if (IsActive(collective, position)) members.positions.push_back(position);
  }
  return members;
}

Span EvenSlice(int64_t count, int parts, int index) {
  const int64_t base = count / parts;
  const int64_t longer = count % parts;  // this many slices have one more
  const int64_t before = index < longer ? index : longer;
  return {base * index + before, base + (index < longer ? 1 : 0)};
}

int64_t PieceCount(int64_t count, int64_t piece) {
  return count / piece + (count % piece != 0 ? 1 : 0);
}

Span PieceOf(const Span& slice, int64_t piece, int64_t index) {
  if (index >= PieceCount(slice.count, piece)) return {slice.begin + slice.count, 0};
  const int64_t skipped = index * piece;
  const int64_t left = slice.count - skipped;
  return {slice.begin + skipped, left < piece ? left : piece};
}

std::vector<int64_t> Offsets(const std::vector<int64_t>& counts) {
  std::vector<int64_t> offsets(counts.size() + 1, 0);
  for (size_t i = 0; i < counts.size(); ++i) offsets[i + 1] = offsets[i] + counts[i];
  return offsets;
}

int64_t InputElements(const Collective& collective, const Part& part) {
  switch (collective.kind) {
    case CollectiveKind::kAllgather:
      return part.counts[static_cast<size_t>(collective.self)];
    case CollectiveKind::kAlltoall:
    case CollectiveKind::kReduceScatter:
      return Offsets(part.counts).back();
    case CollectiveKind::kAllreduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kBarrier:
    case CollectiveKind::kJoin:
    case CollectiveKind::kAddGroup:
    case CollectiveKind::kRemoveGroup:
      break;
  }
  return part.count;
}

int64_t OutputElements(const Collective& collective, const Part& part) {
  switch (collective.kind) {
    case CollectiveKind::kAllgather:
      return Offsets(part.counts).back();
    case CollectiveKind::kAlltoall:
      return Offsets(part.recv_counts).back();
    case CollectiveKind::kReduceScatter:
      return part.counts[static_cast<size_t>(collective.self)];
    case CollectiveKind::kAllreduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kBarrier:
    case CollectiveKind::kJoin:
    case CollectiveKind::kAddGroup:
    case CollectiveKind::kRemoveGroup:
      break;
  }
  return part.count;
}

bool CanMove(const Collective& collective) {
  const CollectiveInfo& info = InfoOf(collective.kind);
  return info.moves_data &&
         (!info.reduces ||
          CheckReduction(collective.kind, collective.op, collective.dtype, collective.size()).ok());
}

Status CheckParts(const Collective& collective, const std::vector<Part>& parts) {
  const int size = collective.size();
  if (!collective.active.empty() && collective.active.size() != collective.ranks.size()) {
    return Refuse(collective, "active has " + std::to_string(collective.active.size()) +
                                  " entries for a group of " + std::to_string(size));
  }
  if (collective.self < 0 || collective.self >= size || !IsActive(collective, collective.self)) {
    return Refuse(collective, "this rank is no active member of the group");
  }
  const CollectiveInfo& info = InfoOf(collective.kind);
  if (info.has_root &&
      (collective.root < 0 || collective.root >= size || !IsActive(collective, collective.root))) {
    return Refuse(collective, "root position " + std::to_string(collective.root) +
                                  " is no active member of the group of " + std::to_string(size));
  }
  if (info.reduces) {
    SYRTOS_RETURN_IF_ERROR(CheckReduction(collective.kind, collective.op, collective.dtype, size));
    if (collective.divisor < 1) return Refuse(collective, "the divisor of a mean is below 1");
  }
  for (const Part& part : parts) SYRTOS_RETURN_IF_ERROR(CheckPart(collective, part));
  return Status::Ok();
}

}  // namespace syrtos
