// Rank 0's pure state machine: who has posted what, who disagrees, what is ready. No I/O, no clock
// (times are handed in), no threads of its own. Serves all groups of the engine, so agreements come
// out in one world-wide order.
//
// The cache: an agreement whose request was right gets an id; rank 0 remembers what each rank
// posted for it. A rank whose next request has the same signature posts the id alone. All ids equal
// and nothing changed: ready without validation. One rank posts in full (another shape in an
// allgather, say): its stored description is replaced and the whole validated again. Works for
// every kind. Entries beyond `cache_capacity` are dropped, least recently used and not pending
// first.
//
// Joined ranks count as having posted everything, in every group; they take no part. What a rank
// posts after its own join waits until all have joined.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "syrtos/base/config.h"
#include "syrtos/engine/messages.h"

namespace syrtos {

using TimePoint = std::chrono::steady_clock::time_point;

// One request that is settled, with what the planner needs to know of it.
struct Settled {
  Agreement agreement;
  RequestMeta meta;  // of the lowest active rank; meaningful if !error
  // Who is to hear of it, global ranks ascending. The whole group; of an error, those members whose
  // posts it answers (a rank that has not posted yet gets its answer when it does: see
  // coordinator_impl.h).
  std::vector<int32_t> members;
};

struct StallReport {
  RequestKey key;
  CollectiveKind kind;
  std::vector<int32_t> have;  // ranks that have posted it
  std::vector<int32_t> missing;
  Seconds age{0};
  std::string text;  // one line for the user: tensor, who has it, who lacks it, since when
};

class Coordinator {
 public:
  struct Options {
    int size = 1;
    int64_t cache_capacity = 0;
    std::vector<std::string> hosts;  // per rank, for messages; may be empty
    bool strict_join = false;        // only allreduce, barrier and join go on without a joined rank
    // Told of each post that is entered, before anything that it settles.
    std::function<void(int rank, CollectiveKind kind, const RequestKey& key)> on_post = nullptr;
  };
  explicit Coordinator(Options options);
  ~Coordinator();

  // Takes the posts of `rank` in order. A post it cannot understand (unknown group, duplicate of a
  // pending one) settles that request with an error for its members.
  void OnPosts(int rank, std::vector<Post> posts, TimePoint now);
  // `rank` has left: all pending requests of its groups are settled with `cause`, and so is every
  // later one.
  void OnDeparted(int rank, const Status& cause);
  // Settles everything pending longer than `limit` with kTimeout.
  void ExpireOlderThan(TimePoint now, Seconds limit);
  // What became settled since the last call, in the order in which it did.
  std::vector<Settled> TakeSettled();
  // Ids forgotten since the last call; every rank must hear of them.
  std::vector<uint32_t> TakeForgotten();
  // Posts of `rank` to be made again in full, since the last call.
  std::vector<std::pair<uint32_t, uint64_t>> TakeReposts(int rank);
  // Requests waiting longer than `older_than`.
  std::vector<StallReport> Stalled(TimePoint now, Seconds older_than) const;
  // Members of a group, empty if unknown.
  std::vector<int32_t> Members(uint32_t group) const;
  bool idle() const;  // nothing pending

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace syrtos
