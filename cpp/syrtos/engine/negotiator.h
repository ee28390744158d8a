// The I/O around the coordinator: posts travel to rank 0, plan batches come back.
//
// A star of control channels today; ranks of one host and trees of hosts can come behind the same
// interface. Nothing here blocks. Owner: the engine. Threads: the holder of the baton.
// Failure: a malformed message is returned by Exchange and is fatal for the engine. A channel that
// ends is no verdict: whether its rank left in good order or died is the liveness thread's to say;
// `lost` tells since when the engine has been waiting for that word.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "syrtos/base/config.h"
#include "syrtos/collectives/backend_registry.h"
#include "syrtos/engine/coordinator.h"
#include "syrtos/engine/departures.h"
#include "syrtos/engine/pending_table.h"
#include "syrtos/engine/plan_cache.h"
#include "syrtos/transport/channel.h"
#include "syrtos/transport/poller.h"

namespace syrtos {

class Negotiator {
 public:
  // `channels`: on rank 0 one per other rank (index rank - 1), else the one to rank 0. `hosts` per
  // rank and `on_post` (see Coordinator): rank 0 only. The references outlive the negotiator.
  Negotiator(const Config& config, std::vector<std::unique_ptr<Channel>> channels,
             std::vector<std::string> hosts, const BackendRegistry& backends,
             const PendingTable& pending, std::function<Status(int rank)> departure_cause,
             std::function<void(int rank, CollectiveKind kind, const RequestKey& key)> on_post);
  // Every channel is watched by `poller`, which outlives the negotiator.
  Status WatchWith(Poller& poller);

  // Queues the post for a request of this rank.
  void AddPost(PendingRequest& pending);
  // This rank leaves: tells rank 0 (or, as rank 0, all). Then turn on until may_go().
  void AnnounceLeaving(TimePoint now);
  // All others have run what they had agreed with this rank.
  bool may_go() const;
  // Some rank leaves and is to be told when this one has run all that has arrived so far.
  bool owes_answer() const { return departures_.owes_answer(); }
  void AnswerLeavers(TimePoint now);
  // Rank 0 has left in good order, after all had answered, and this rank stays: nobody coordinates
  // any more.
  bool root_left() const { return root_leaving_ && ended_[0] && !leaving_; }
  // Sends what is queued, reads what has come, and on rank 0 settles and plans. Appends batches for
  // this rank, their agreements in full.
  Status Exchange(TimePoint now, std::vector<PlanBatch>& batches);
  // rank 0: logs what has been waiting too long and expires what passed the limit.
  void WatchStalls(TimePoint now);
  // When WatchStalls is to be called next; max() if nothing waits.
  TimePoint next_stall_check() const;
  struct Lost {
    int rank = 0;
    TimePoint since;
    std::string why;
  };
  // The first channel that ended without its rank being known to have left.
  std::optional<Lost> lost() const;
  // No more reading or writing: the engine has failed or is leaving.
  void CloseChannels();
  // Nothing of ours is left in an outbox.
  bool flushed() const;
  uint64_t cached_posts() const { return cached_posts_; }
  uint64_t full_posts() const { return full_posts_; }

 private:
  bool is_root() const { return config_.rank == 0; }
  size_t IndexOf(int rank) const { return is_root() ? static_cast<size_t>(rank - 1) : 0; }
  int RankOf(size_t index) const { return is_root() ? static_cast<int>(index) + 1 : 0; }
  void End(size_t index, const Status& why, TimePoint now);
  void SendTo(size_t index, const std::string& bytes, TimePoint now);
  void SendPosts(TimePoint now);
  Status ReceiveFromRanks(TimePoint now);
  Status HandleFromRank(int rank, const std::string& message, TimePoint now);
  Status ReceiveFromRoot(TimePoint now, std::vector<PlanBatch>& batches);
  Status PlanSettled(TimePoint now, std::vector<PlanBatch>& batches);
  Status Distribute(TimePoint now, const std::vector<Settled>& settled,
                    const std::vector<Plan>& plans, std::vector<PlanBatch>& batches);
  Status Deliver(PlanBatch batch, std::vector<PlanBatch>& batches);
  Status Expand(Agreement& agreement);
  void BeginDeparture(int rank, TimePoint now);
  void LetGo(const std::vector<int>& ranks, TimePoint now);
  void FlushAll(TimePoint now);

  const Config& config_;
  const std::vector<std::unique_ptr<Channel>> channels_;
  const BackendRegistry& backends_;
  const PendingTable& pending_;
  const std::function<Status(int)> departure_cause_;
  Poller* poller_ = nullptr;
  std::unique_ptr<Coordinator> coordinator_;  // rank 0 only
  PlanCache cache_;
  std::vector<Post> outgoing_;
  // Own requests that were posted by id, in case the id turns out to be forgotten.
  std::map<std::pair<uint32_t, uint64_t>, RequestKey> posted_by_id_;
  std::vector<bool> ended_;     // no longer read or written
  std::vector<bool> departed_;  // left in good order
  std::vector<Lost> losses_;
  Departures departures_;
  bool leaving_ = false;   // this rank has announced it
  bool released_ = false;  // and may go
  bool root_leaving_ = false;
  std::vector<bool> write_watched_;
  uint64_t next_sequence_ = 1;
  TimePoint next_stall_check_ = TimePoint::max();
  uint64_t cached_posts_ = 0;
  uint64_t full_posts_ = 0;
};

}  // namespace syrtos
