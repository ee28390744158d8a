// The coordinator's state; see coordinator.h for the contract. Sources: coordinator.cc (posts and
// settling), coordinator_join.cc, coordinator_faults.cc (what fails before all have posted,
// stalls).
//
// Who is told. Each post gets exactly one answer. An agreement answers all who posted it. An error
// that comes before all have posted answers those that have; every other member *owes* the request:
// its post, when it comes, is answered with that same error and counts for nothing else. So a
// rank's next use of the key can never be taken for its late first one, whatever is on its way.
//
// A rank that posts after its own join speaks of the time after all have joined: such posts are
// deferred until then.
//
// A post by an id that was forgotten is *awaited*: it counts as made, and its description comes
// with the repost. Nothing settles on it before, not even the join of all.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "syrtos/engine/agreement_cache.h"
#include "syrtos/engine/coordinator.h"
#include "syrtos/engine/group_registry.h"

namespace syrtos {

class Coordinator::Impl {
 public:
  explicit Impl(Options options);
  void OnPosts(int rank, std::vector<Post> posts, TimePoint now);
  void OnDeparted(int rank, const Status& cause);
  void ExpireOlderThan(TimePoint now, Seconds limit);
  std::vector<Settled> TakeSettled();
  std::vector<uint32_t> TakeForgotten() { return cache_.TakeForgotten(); }
  std::vector<std::pair<uint32_t, uint64_t>> TakeReposts(int rank);
  std::vector<StallReport> Stalled(TimePoint now, Seconds older_than) const;
  std::vector<int32_t> Members(uint32_t group) const;
  bool idle() const { return tallies_.empty() && joined_count_ == 0; }

 private:
  struct KeyHash {
    size_t operator()(const RequestKey& key) const {
      return std::hash<std::string>()(key.name) ^ (key.call * 0x9e3779b97f4a7c15u) ^
             (size_t{key.group} << 48);
    }
  };
  // A post whose key is known. Without id and description it is one by a forgotten id.
  struct Incoming {
    RequestKey key;
    CollectiveKind kind = CollectiveKind::kAllreduce;
    uint32_t cache_id = kNoCacheId;
    SharedMeta meta;
    uint32_t forgotten_id = kNoCacheId;
    bool described() const { return meta != nullptr || cache_id != kNoCacheId; }
  };
  enum class SlotState : uint8_t { kMissing, kAwaited, kPosted };
  struct Slot {  // one member's post
    SlotState state = SlotState::kMissing;
    uint32_t cache_id = kNoCacheId;
    SharedMeta meta;
  };
  struct Tally {                                       // one pending request
    CollectiveKind kind = CollectiveKind::kAllreduce;  // of the first post
    uint64_t arrival = 0;
    TimePoint since;
    std::vector<Slot> slots;  // per position of the group
    size_t own = 0;           // slots not missing
    size_t own_joined = 0;    // those of ranks that have joined since
    size_t awaited = 0;
    uint32_t common_id = kNoCacheId;  // all posts so far were by this id
  };
  struct Owed {
    Status error;
    bool reposting = false;  // the post was made, its description is on its way
  };
  using TallyMap = std::unordered_map<RequestKey, Tally, KeyHash>;
  using TallyFilter = std::function<bool(const RequestKey&, const Tally&)>;

  // coordinator.cc
  void Take(int rank, Post post);
  bool Resolve(int rank, Post post, Incoming& in);
  Status Admit(int rank, const Incoming& in, const GroupState* group) const;
  void Enter(int rank, const GroupState& group, const Incoming& in);
  void Record(int rank, const Incoming& in, Tally& tally, Slot& slot);
  static bool Ready(const Tally& tally, const GroupState& group);
  void SettleTally(TallyMap::iterator found);
  Settled SettleCached(const RequestKey& key, const Tally& tally, const GroupState& group);
  Settled SettleInFull(const RequestKey& key, const Tally& tally, const GroupState& group);
  Status RefuseWithoutJoined(const RequestMeta& meta, const Agreement& agreement);
  Status ChangeGroups(const RequestMeta& meta, Agreement& agreement);
  Status RemoveGroup(const RequestMeta& meta);
  void Answer(const std::vector<int32_t>& ranks, CollectiveKind kind, const RequestKey& key,
              const Status& error);
  // In the order in which they came up.
  std::vector<RequestKey> TalliesWhere(const TallyFilter& filter) const;

  // coordinator_join.cc
  bool has_joined(int rank) const { return joined_[static_cast<size_t>(rank)]; }
  bool all_joined() const { return joined_count_ == options_.size && awaited_ == 0; }
  bool IsLateDescription(int rank, const Post& post) const;
  void TakeJoin(int rank, const Incoming& in);
  Status AverageMismatch(int rank, bool average_active) const;
  void CountAsPosted(int rank);
  // Ends the join for those that have joined; they are active again.
  void EndJoin(const Status& error, bool owe);

  // coordinator_faults.cc
  void FailEarly(const RequestKey& key, const Status& error, bool owe);
  bool PayOwed(int rank, const Incoming& in);
  StallReport ReportOn(const RequestKey& key, const Tally& tally, TimePoint now) const;
  StallReport ReportOnJoin(TimePoint now) const;
  TimePoint JoinWaitsSince() const;

  const Options options_;
  TimePoint now_{};            // of the last posts
  TimePoint last_progress_{};  // when a request last settled well
  GroupRegistry groups_;
  AgreementCache cache_;
  TallyMap tallies_;
  uint64_t next_arrival_ = 0;
  size_t awaited_ = 0;  // in all tallies
  std::vector<Settled> settled_;

  // Per rank.
  std::vector<bool> departed_;
  std::vector<std::vector<std::pair<uint32_t, uint64_t>>> reposts_;
  std::vector<std::unordered_map<RequestKey, std::deque<Owed>, KeyHash>> owed_;
  std::vector<std::deque<Status>> owed_joins_;
  std::vector<bool> joined_;
  std::vector<RequestKey> join_keys_;  // of those that have joined
  std::vector<std::vector<Post>> deferred_;

  int joined_count_ = 0;
  int last_joined_ = 0;
  bool join_averages_active_ = false;  // what those that have joined asked for
  TimePoint joined_since_{};
};

}  // namespace syrtos
