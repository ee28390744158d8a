// What is to be done: the collective operations and THE table of their rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "syrtos/base/dtype.h"
#include "syrtos/base/status.h"

namespace syrtos {

// Numbers travel on the wire and through the C API: append only.
enum class CollectiveKind : uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kAlltoall = 3,
  kReduceScatter = 4,
  // Negotiated like the others, but with nothing to move: complete as soon as all have asked.
  kBarrier = 5,
  kJoin = 6,
  kAddGroup = 7,
  kRemoveGroup = 8,
};

// Horovod's codes.
enum class ReduceOp : uint8_t {
  kAverage = 0,
  kSum = 1,
  kAdasum = 2,
  kMin = 3,
  kMax = 4,
  kProduct = 5
};

struct CollectiveInfo {
  CollectiveKind kind;
  const char* name;  // "allreduce"
  bool moves_data;   // false: the agreement itself is the operation
  bool reduces;      // op, prescale and postscale mean something
  bool has_root;
  bool same_shape;  // all ranks must bring the same shape
  bool needs_axis;  // a scalar is an error
  bool fuses;       // parts of several requests may share one plan
};

const CollectiveInfo& InfoOf(CollectiveKind kind);
bool IsValidCollectiveKind(uint8_t number);
const char* ReduceOpName(ReduceOp op);
bool IsValidReduceOp(uint8_t number);
// Ok, or why `op` makes no sense for `dtype` (mean of bool, min of complex, any of opaque).
Status CheckReducible(ReduceOp op, DType dtype);
// As CheckReducible, and also why `kind` over `group_size` ranks cannot do `op`: Adasum needs an
// allreduce and a number of ranks that is a power of two.
Status CheckReduction(CollectiveKind kind, ReduceOp op, DType dtype, int group_size);

class Activities;

// One collective over a list of parts, as a communicator sees it. All counts are elements.
struct Collective {
  CollectiveKind kind = CollectiveKind::kAllreduce;
  DType dtype = DType::kFloat32;
  size_t item_bytes = 4;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int64_t divisor = 1;          // of kAverage: the ranks of the group that count
  int root = 0;                 // position in `ranks`
  uint64_t sequence = 0;        // the plan's number in the world-wide order; unique per engine
  std::vector<int> ranks;       // global ranks of the group, in order
  std::vector<uint8_t> active;  // per position: 0 = has joined, is not contacted; empty: all are
  int self = 0;                 // own position in `ranks`; always active
  // Is told what is being done (activities.h) and outlives the operation; null: nobody listens.
  Activities* activities = nullptr;

  int size() const { return static_cast<int>(ranks.size()); }
};

// The memory of one tensor in a collective. `input` and `output` may be the same pointer (in place)
// and are otherwise disjoint; both live until the operation has ended. Never written: input.
//   allreduce, broadcast: `count` elements in and out (broadcast reads input on the root only).
//   allgather:      counts[position] elements from each; input holds counts[self], output all.
//   alltoall:       counts[position] to each position, recv_counts[position] from each.
//   reduce-scatter: counts[position] of the reduced whole go to each; output holds counts[self].
// Absent (not active) positions contribute nothing: for allgather and alltoall their counts are 0
// in what is received; what alltoall would send to them is dropped.
struct Part {
  const void* input = nullptr;
  void* output = nullptr;
  int64_t count = 0;
  std::vector<int64_t> counts;
  std::vector<int64_t> recv_counts;
  // Allreduce with kAdasum, which treats each tensor as a vector: the lengths of the tensors that
  // lie in this part one after the other. Empty: it is one tensor.
  std::vector<int64_t> segments;
};

}  // namespace syrtos
