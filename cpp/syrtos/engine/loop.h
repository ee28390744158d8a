// The engine's state and one turn of its loop: queue -> negotiate -> plan -> execute -> complete.
//
// Owner: the engine. Threads: RunOnce, SleepLimit and drained by the holder of the progress baton;
// what is marked (any) by any thread. Failure: a fatal cause is handed to liveness, which tells all
// ranks; the next turn fails everything that is pending with it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "syrtos/engine/bootstrap.h"
#include "syrtos/engine/engine.h"
#include "syrtos/engine/executor.h"
#include "syrtos/engine/group.h"
#include "syrtos/engine/liveness.h"
#include "syrtos/engine/negotiator.h"
#include "syrtos/engine/pending_table.h"
#include "syrtos/engine/request_queue.h"
#include "syrtos/engine/timeline.h"

namespace syrtos {

class Loop {
 public:
  using Finished = std::vector<std::shared_ptr<PendingRequest>>;

  Loop(const Config& config, World world);
  ~Loop();
  Status Start();

  // One turn. Requests that ended and have a callback are appended to `finished`; the others'
  // waiters are woken at once. `may_block`: blocking communicators may be entered (the engine
  // thread).
  void RunOnce(bool may_block, Finished& finished);
  // How long the driver may sleep in poller(): zero = not at all, nullopt = until something
  // happens.
  std::optional<std::chrono::milliseconds> SleepLimit(TimePoint now) const;
  // On the way out, asked turn by turn: true when this rank may close its connections, because all
  // plans that were agreed have run here and on the ranks that share them (or all has failed
  // anyway).
  bool ReadyToLeave();
  // Fails everything pending; the loop is then at its end.
  void FailAll(const Status& cause, Finished& finished);
  // Says goodbye to the other ranks and closes the communicators. After the last turn.
  void Leave();

  void Kick() { submitted_->Set(); }  // (any) wakes whoever sleeps in poller()
  Poller& poller() { return *poller_; }
  void ReportFailure(const Status& cause) { liveness_->Report(cause); }        // (any)
  void AbortCommunicators(const Status& cause) { backends_.AbortAll(cause); }  // (any)
  Status cause() const { return liveness_->cause(); }                          // (any)
  bool callers_may_drive() const { return !backends_.AnyMayBlock(); }          // (any)
  RequestQueue& queue() { return queue_; }                                     // (any)
  const GroupTable& groups() const { return groups_; }                         // (any)
  Timeline& timeline() { return timeline_; }                                   // (any)
  std::vector<std::string> BackendNames() const;                               // (any)
  Engine::Counters counters() const;                                           // (any)

 private:
  void PostNewRequests();
  void ShowReady(int rank, CollectiveKind kind, const RequestKey& key);
  void Accept(const PlanBatch& batch, Finished& finished);
  void AcceptAgreement(const std::shared_ptr<PendingRequest>& own, const Agreement& agreement,
                       Finished& finished);
  void Execute(bool may_block, TimePoint now, Finished& finished);
  void JudgeSuspicions(TimePoint now);
  Status DepartureCause(int rank) const;
  void Finish(const std::shared_ptr<PendingRequest>& pending, const Status& status, int64_t value,
              Finished& finished);
  void PublishCounters();

  const Config& config_;
  // Fixed after Start.
  BackendRegistry backends_;
  std::optional<Poller> poller_;
  std::optional<Event> submitted_;
  std::vector<Peer> health_peers_;
  std::string own_name_;
  // These lock themselves.
  RequestQueue queue_;
  GroupTable groups_;
  Timeline timeline_;
  std::unique_ptr<Liveness> liveness_;
  // The holder of the baton only.
  PendingTable pending_;
  std::unique_ptr<Negotiator> negotiator_;
  Executor executor_;
  // A communicator failed: liveness usually knows better why within a moment.
  Status suspicion_;
  TimePoint suspicion_since_;
  std::atomic<uint64_t> plans_{0}, parts_{0}, cached_posts_{0}, full_posts_{0};
};

}  // namespace syrtos
