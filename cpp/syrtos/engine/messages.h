// What ranks tell each other: plain values, without memory or behaviour. Bytes: wire.h.
//
// Words. A *request* is one call of the user: a kind, a name, options and one or more parts
// (tensors). A *post* tells rank 0 that a rank has made it. When all active members have posted,
// the coordinator settles the *agreement*: the error for all, or what each must know to go on. A
// *plan* is one collective over parts of one or several agreements; its place in the world-wide
// order is its sequence number.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "syrtos/base/dtype.h"
#include "syrtos/base/shape.h"
#include "syrtos/base/status.h"
#include "syrtos/collectives/collective.h"

namespace syrtos {

constexpr uint32_t kWorldGroup = 0;
constexpr uint32_t kNoCacheId = 0xffffffffu;

struct PartMeta {
  std::string name;  // may be empty
  DType dtype = DType::kFloat32;
  uint32_t item_bytes = 4;
  Shape shape;
  std::vector<int64_t> splits;  // alltoall: rows for each position of the group
  bool operator==(const PartMeta& o) const {
    return dtype == o.dtype && item_bytes == o.item_bytes && shape == o.shape &&
           splits == o.splits && name == o.name;
  }
};

// A pending request is identified by this, on all ranks. Named: call == 0. Unnamed: name is empty
// and call counts the unnamed requests of the group on each rank (its upper 24 bits count joins).
struct RequestKey {
  uint32_t group = kWorldGroup;
  std::string name;
  uint64_t call = 0;
  bool operator==(const RequestKey& o) const {
    return group == o.group && call == o.call && name == o.name;
  }
  bool operator<(const RequestKey& o) const {
    return std::tie(group, call, name) < std::tie(o.group, o.call, o.name);
  }
};

struct RequestMeta {
  CollectiveKind kind = CollectiveKind::kAllreduce;
  RequestKey key;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  int32_t root = 0;  // a global rank
  std::vector<PartMeta> parts;
  std::vector<int32_t> ranks;   // kAddGroup: its members; kRemoveGroup: {group id}
  bool average_active = false;  // kJoin: averages divide by the number of ranks that still work

  // Equal in all but the call number: what the plan cache compares.
  bool SameSignature(const RequestMeta& o) const;
};

// "rank r has made this request", in full or by the id of an agreement that rank 0 remembers.
struct Post {
  uint32_t cache_id = kNoCacheId;
  uint64_t call = 0;  // with a cache id: which call of an unnamed request
  RequestMeta meta;   // without a cache id
};

struct Agreement {
  RequestKey key;
  uint32_t cache_id = kNoCacheId;  // remember this agreement under that id (or: it is that one)
  bool cached = false;             // by id only: all but `key.call` is as remembered
  Status error;                    // not ok: all members raise it
  std::vector<int32_t> absent;     // joined ranks of the group (global), which take no part
  bool average_active = false;     // the absent ones do not count in averages; never if none is
  // kAddGroup: the new id; kJoin: the rank that joined last; else 0.
  int64_t value = 0;
  // Per part. allgather: rows of each position. alltoall: rows[from * size + to]. Else empty.
  std::vector<std::vector<int64_t>> rows;
};

// What an average over `members` ranks divides by.
inline int64_t DivisorOf(const Agreement& agreement, size_t members) {
  size_t uncounted = agreement.average_active ? agreement.absent.size() : 0;
  return static_cast<int64_t>(members - uncounted);
}

struct PlanEntry {
  uint32_t agreement = 0;  // index into PlanBatch::agreements
  uint32_t part = 0;
};

struct Plan {
  uint64_t sequence = 0;
  uint8_t backend = 0;  // index into the agreed list of communicators
  std::vector<PlanEntry> entries;
};

// What rank 0 sends to a member: only agreements and plans of groups it belongs to. To be taken in
// the order of the fields: an id may be given or used by an agreement and forgotten in one batch.
struct PlanBatch {
  std::vector<Agreement> agreements;
  std::vector<Plan> plans;          // agreements without data (barrier, errors) have none
  std::vector<uint32_t> forgotten;  // cache ids that must not be used from now on
  // Posts by cache id that arrived after the id was forgotten: post them again in full.
  std::vector<std::pair<uint32_t, uint64_t>> repost;  // (cache id, call)
};

}  // namespace syrtos
