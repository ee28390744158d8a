#include "syrtos/engine/loop.h"

#include <algorithm>
#include <utility>

#include "syrtos/base/log.h"

namespace syrtos {
namespace {

// A communicator's error and the health channel's verdict on the same death arrive within
// microseconds of each other, in any order; the verdict names rank, host and cause, so it gets this
// long.
constexpr std::chrono::milliseconds kVerdictGrace{1000};
constexpr Seconds kGoodbyeTimeout{2.0};

}  // namespace

Loop::Loop(const Config& config, World world)
    : config_(config),
      backends_(std::move(world.backends)),
      health_peers_(std::move(world.health)),
      own_name_(world.own_name),
      groups_(config.size),
      negotiator_(std::make_unique<Negotiator>(
          config, std::move(world.control), std::move(world.hosts), backends_, pending_,
          [this](int rank) { return DepartureCause(rank); },
          [this](int rank, CollectiveKind kind, const RequestKey& key) {
            if (timeline_.on()) ShowReady(rank, kind, key);
          })),
      executor_(config.rank, backends_, timeline_) {}

Loop::~Loop() {
  backends_.AbortAll(Status::Shutdown("the engine is gone"));
  executor_.Clear();
}

Status Loop::Start() {
  SYRTOS_ASSIGN_OR_RETURN(Poller poller, Poller::Create());
  SYRTOS_ASSIGN_OR_RETURN(Event event, Event::Create());
  SYRTOS_RETURN_IF_ERROR(poller.Add(event.fd()));
  poller_ = std::move(poller);
  submitted_ = std::move(event);
  SYRTOS_RETURN_IF_ERROR(negotiator_->WatchWith(*poller_));
  SYRTOS_ASSIGN_OR_RETURN(liveness_, Liveness::Start(config_, own_name_, std::move(health_peers_),
                                                     [this](const Status& cause) {
                                                       // Runs on any thread, so it must not touch
                                                       // the loop: break the waits and wake it.
                                                       backends_.AbortAll(cause);
                                                       submitted_->Set();
                                                     }));
  return Status::Ok();
}

void Loop::RunOnce(bool may_block, Finished& finished) {
  submitted_->Clear();  // before draining, so that a later submit wakes again
  Status cause = liveness_->cause();
  if (!cause.ok()) return FailAll(cause, finished);
  TimePoint now = std::chrono::steady_clock::now();
  PostNewRequests();
  std::vector<PlanBatch> batches;
  Status exchanged = negotiator_->Exchange(now, batches);
  if (!exchanged.ok()) {
    return ReportFailure(exchanged.WithPrefix(own_name_ + " could not negotiate: "));
  }
  if (!batches.empty()) timeline_.Cycle();
  PublishCounters();  // before anyone is woken
  for (const PlanBatch& batch : batches) Accept(batch, finished);
  Execute(may_block, now, finished);
  JudgeSuspicions(now);
  if (now >= negotiator_->next_stall_check()) negotiator_->WatchStalls(now);
}

Status Loop::DepartureCause(int rank) const {
  return Status::Shutdown(liveness_->NameOf(rank) +
                          " has shut down or its script has ended, so no further collective can "
                          "include it. Do all ranks make the same calls?");
}

void Loop::PostNewRequests() {
  for (auto& pending : queue_.Drain()) {
    const RequestMeta& meta = pending->request.meta;
    timeline_.Posted(meta);
    negotiator_->AddPost(*pending);
    pending_.Insert(std::move(pending));
  }
}

// Of a request that this rank will hear the end of.
void Loop::ShowReady(int rank, CollectiveKind kind, const RequestKey& key) {
  const std::vector<int32_t> members = groups_.Ranks(key.group);
  if (std::find(members.begin(), members.end(), config_.rank) == members.end()) return;
  timeline_.RankReady(rank, kind, key);
}

void Loop::Accept(const PlanBatch& batch, Finished& finished) {
  std::vector<std::shared_ptr<PendingRequest>> own;
  for (const Agreement& agreement : batch.agreements) {
    own.push_back(pending_.Find(agreement.key));
    // Not ours: an error settled before this rank asked, or a joined rank's share of a common
    // message.
    if (own.back() != nullptr) {
      AcceptAgreement(own.back(), agreement, finished);
    } else {
      timeline_.AgreedByOthers(agreement.key);
    }
  }
  for (const Plan& plan : batch.plans) {
    ResolvedPlan resolved;
    resolved.sequence = plan.sequence;
    resolved.backend = plan.backend;
    for (const PlanEntry& entry : plan.entries) {
      const auto& pending = own[entry.agreement];
      if (pending != nullptr) resolved.entries.push_back({pending, entry.part});
    }
    if (resolved.entries.empty()) continue;
    // Looked up now: a later agreement may remove the group before the plan runs.
    resolved.ranks = groups_.Ranks(resolved.entries.front().pending->request.meta.key.group);
    executor_.Enqueue(std::move(resolved));
  }
}

void Loop::AcceptAgreement(const std::shared_ptr<PendingRequest>& own, const Agreement& agreement,
                           Finished& finished) {
  const RequestMeta& meta = own->request.meta;
  if (!agreement.error.ok()) return Finish(own, agreement.error, 0, finished);
  timeline_.Agreed(meta);
  if (InfoOf(meta.kind).moves_data) {
    own->agreement = agreement;
    own->parts_left = meta.parts.size();
    return;
  }
  if (meta.kind == CollectiveKind::kAddGroup) {
    queue_.OnGroupAdded(static_cast<uint32_t>(agreement.value));
    groups_.Add(static_cast<uint32_t>(agreement.value), meta.ranks);
  } else if (meta.kind == CollectiveKind::kRemoveGroup) {
    groups_.Remove(static_cast<uint32_t>(meta.ranks.at(0)));
  }
  Finish(own, Status::Ok(), agreement.value, finished);
}

void Loop::Execute(bool may_block, TimePoint now, Finished& finished) {
  if (!suspicion_.ok()) return;
  Finished done;
  Status status = executor_.Run(may_block, done);
  PublishCounters();
  for (const auto& pending : done) Finish(pending, Status::Ok(), 0, finished);
  if (status.ok()) return;
  suspicion_ = status.WithPrefix(own_name_ + " could not run a collective: ");
  suspicion_since_ = now;
}

void Loop::JudgeSuspicions(TimePoint now) {
  if (!suspicion_.ok()) {
    bool may_be_a_death = suspicion_.code() == StatusCode::kPeerLost;
    if (!may_be_a_death || now - suspicion_since_ >= kVerdictGrace) ReportFailure(suspicion_);
    return;
  }
  if (negotiator_->owes_answer() && executor_.idle()) negotiator_->AnswerLeavers(now);
  // Without rank 0 nobody coordinates: that ends everything here.
  if (negotiator_->root_left()) return ReportFailure(DepartureCause(0));
  auto lost = negotiator_->lost();
  if (lost && now - lost->since >= config_.peer_timeout) {
    ReportFailure(Status::PeerLost("rank " + std::to_string(lost->rank) +
                                   ": the control connection broke (" + lost->why + ")"));
  }
}

void Loop::Finish(const std::shared_ptr<PendingRequest>& pending, const Status& status,
                  int64_t value, Finished& finished) {
  const Request& request = pending->request;
  pending_.Erase(request.meta.key);
  queue_.Release(request.meta.key);
  timeline_.Ended(request.meta.key);
  request.completion->Finish(status, value);
  if (request.callback) finished.push_back(pending);
}

void Loop::FailAll(const Status& cause, Finished& finished) {
  queue_.Close(cause);
  backends_.AbortAll(cause);
  executor_.Clear();
  negotiator_->CloseChannels();  // nobody reads them any more, and the poller must not report them
  for (const auto& pending : queue_.Drain()) Finish(pending, cause, 0, finished);
  for (const auto& pending : pending_.TakeAll()) Finish(pending, cause, 0, finished);
}

std::optional<std::chrono::milliseconds> Loop::SleepLimit(TimePoint now) const {
  using std::chrono::milliseconds;
  if (!liveness_->cause().ok()) return std::nullopt;  // all is failed; only a submit matters
  if (!suspicion_.ok()) return milliseconds(10);
  if (!executor_.idle()) return milliseconds(0);
  if (negotiator_->lost()) return milliseconds(100);
  TimePoint check = negotiator_->next_stall_check();
  if (check == TimePoint::max()) return std::nullopt;
  auto left = std::chrono::duration_cast<milliseconds>(check - now) + milliseconds(1);
  return std::max(left, milliseconds(0));
}

bool Loop::ReadyToLeave() {
  if (!liveness_->cause().ok() || !suspicion_.ok()) return true;
  if (!executor_.idle()) return false;
  negotiator_->AnnounceLeaving(std::chrono::steady_clock::now());
  return negotiator_->may_go() && negotiator_->flushed();
}

void Loop::Leave() {
  liveness_->Leave(kGoodbyeTimeout);
  negotiator_->CloseChannels();
  backends_.AbortAll(Status::Shutdown("Syrtos has been shut down"));
}

std::vector<std::string> Loop::BackendNames() const {
  std::vector<std::string> names;
  for (int i = 0; i < backends_.size(); ++i) names.emplace_back(backends_.at(i).name());
  return names;
}

void Loop::PublishCounters() {
  plans_.store(executor_.plans(), std::memory_order_relaxed);
  parts_.store(executor_.parts(), std::memory_order_relaxed);
  cached_posts_.store(negotiator_->cached_posts(), std::memory_order_relaxed);
  full_posts_.store(negotiator_->full_posts(), std::memory_order_relaxed);
}

Engine::Counters Loop::counters() const {
  Engine::Counters counters;
  counters.plans = plans_.load(std::memory_order_relaxed);
  counters.parts = parts_.load(std::memory_order_relaxed);
  counters.cached_posts = cached_posts_.load(std::memory_order_relaxed);
  counters.full_posts = full_posts_.load(std::memory_order_relaxed);
  return counters;
}

}  // namespace syrtos
