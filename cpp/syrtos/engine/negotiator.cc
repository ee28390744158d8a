#include "syrtos/engine/negotiator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "syrtos/base/log.h"
#include "syrtos/engine/batching.h"
#include "syrtos/engine/planner.h"
#include "syrtos/engine/wire.h"
#include "syrtos/transport/bytes.h"

namespace syrtos {
namespace {

// The first byte of every frame on a control channel (docs/wire_format.md).
enum class Frame : char {
  kPosts = 'P',   // rank -> 0: posts
  kBatch = 'B',   // 0 -> rank: a plan batch
  kLeave = 'L',   // rank -> 0: I leave; 0 -> rank: that rank leaves (its number follows)
  kAnswer = 'A',  // rank -> 0: I have run all that I had agreed with that rank
  kGo = 'G',      // 0 -> rank: all have answered, go
};

bool IsFrame(const std::string& message, Frame frame) {
  return !message.empty() && message[0] == static_cast<char>(frame);
}

std::string MakeFrame(Frame frame, const std::string& body = "") {
  return static_cast<char>(frame) + body;
}

std::string RankBody(int rank) {
  ByteWriter writer;
  writer.Varint(static_cast<uint64_t>(rank));
  return writer.Take();
}

// The rank in a leave or answer frame; kInternal if it is none of `size`.
Result<int> RankIn(const std::string& message, int size) {
  ByteReader reader(std::string_view(message).substr(1));
  uint64_t rank = reader.Varint();
  if (!reader.done() || rank >= static_cast<uint64_t>(size)) {
    return Status::Internal("malformed leave message");
  }
  return static_cast<int>(rank);
}

}  // namespace

Negotiator::Negotiator(
    const Config& config, std::vector<std::unique_ptr<Channel>> channels,
    std::vector<std::string> hosts, const BackendRegistry& backends, const PendingTable& pending,
    std::function<Status(int rank)> departure_cause,
    std::function<void(int rank, CollectiveKind kind, const RequestKey& key)> on_post)
    : config_(config),
      channels_(std::move(channels)),
      backends_(backends),
      pending_(pending),
      departure_cause_(std::move(departure_cause)),
      ended_(channels_.size(), false),
      departed_(channels_.size(), false),
      write_watched_(channels_.size(), false) {
  if (is_root()) {
    coordinator_ = std::make_unique<Coordinator>(
        Coordinator::Options{config.size, config.cache_capacity, std::move(hosts),
                             config.strict_join, std::move(on_post)});
  }
}

Status Negotiator::WatchWith(Poller& poller) {
  poller_ = &poller;
  for (const auto& channel : channels_) SYRTOS_RETURN_IF_ERROR(poller.Add(channel->fd()));
  return Status::Ok();
}

void Negotiator::AddPost(PendingRequest& pending) {
  const RequestMeta& meta = pending.request.meta;
  Post post = cache_.MakePost(meta);
  pending.posted_id = post.cache_id;
  if (post.cache_id == kNoCacheId) {
    ++full_posts_;
  } else {
    ++cached_posts_;
    posted_by_id_[{post.cache_id, post.call}] = meta.key;
  }
  outgoing_.push_back(std::move(post));
}

void Negotiator::AnnounceLeaving(TimePoint now) {
  if (leaving_) return;
  leaving_ = true;
  if (is_root()) {
    BeginDeparture(0, now);
  } else {
    SendTo(0, MakeFrame(Frame::kLeave, RankBody(config_.rank)), now);
  }
}

bool Negotiator::may_go() const {
  if (config_.size == 1) return true;
  // Rank 0 stays until it has let everybody go who asked.
  return is_root() ? released_ && departures_.empty() : released_ || ended_[0];
}

void Negotiator::BeginDeparture(int rank, TimePoint now) {
  coordinator_->OnDeparted(rank, departure_cause_(rank));
  std::set<int> others;
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (RankOf(i) == rank || ended_[i]) continue;
    others.insert(RankOf(i));
    SendTo(i, MakeFrame(Frame::kLeave, RankBody(rank)), now);
  }
  if (rank != 0) {
    others.insert(0);
    departed_[IndexOf(rank)] = true;
    departures_.Heard(rank);
  }
  bool alone = others.empty();
  departures_.Begin(rank, std::move(others));
  if (alone) LetGo(departures_.Answer(rank, rank), now);
}

void Negotiator::LetGo(const std::vector<int>& ranks, TimePoint now) {
  for (int rank : ranks) {
    if (rank == 0) {
      released_ = true;
    } else {
      SendTo(IndexOf(rank), MakeFrame(Frame::kGo), now);
    }
  }
}

void Negotiator::AnswerLeavers(TimePoint now) {
  for (int leaver : departures_.TakeUnanswered()) {
    if (is_root()) {
      LetGo(departures_.Answer(0, leaver), now);
    } else {
      SendTo(0, MakeFrame(Frame::kAnswer, RankBody(leaver)), now);
      if (leaver == 0) root_leaving_ = true;
    }
  }
  FlushAll(now);
}

void Negotiator::End(size_t index, const Status& why, TimePoint now) {
  if (ended_[index]) return;
  ended_[index] = true;
  poller_->Remove(channels_[index]->fd());
  if (!departed_[index] && !root_leaving_) losses_.push_back({RankOf(index), now, why.message()});
  if (is_root()) LetGo(departures_.Gone(RankOf(index)), now);
}

void Negotiator::CloseChannels() {
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (!ended_[i]) poller_->Remove(channels_[i]->fd());
    ended_[i] = true;
    channels_[i]->Close();
  }
  losses_.clear();
}

std::optional<Negotiator::Lost> Negotiator::lost() const {
  if (losses_.empty()) return std::nullopt;
  return losses_.front();
}

void Negotiator::SendTo(size_t index, const std::string& bytes, TimePoint now) {
  if (ended_[index]) return;
  Status sent = channels_[index]->Send(bytes);
  if (!sent.ok()) End(index, sent, now);
}

void Negotiator::SendPosts(TimePoint now) {
  if (outgoing_.empty()) return;
  std::vector<Post> posts = std::exchange(outgoing_, {});
  SendTo(0, MakeFrame(Frame::kPosts, EncodePosts(posts)), now);
}

Status Negotiator::HandleFromRank(int rank, const std::string& message, TimePoint now) {
  if (IsFrame(message, Frame::kPosts)) {
    SYRTOS_ASSIGN_OR_RETURN(auto posts, DecodePosts(std::string_view(message).substr(1)));
    coordinator_->OnPosts(rank, std::move(posts), now);
    return Status::Ok();
  }
  if (IsFrame(message, Frame::kLeave)) {
    BeginDeparture(rank, now);
    return Status::Ok();
  }
  if (IsFrame(message, Frame::kAnswer)) {
    SYRTOS_ASSIGN_OR_RETURN(int leaver, RankIn(message, config_.size));
    LetGo(departures_.Answer(rank, leaver), now);
    return Status::Ok();
  }
  return Status::Internal("a control message of an unknown kind");
}

Status Negotiator::ReceiveFromRanks(TimePoint now) {
  if (!outgoing_.empty()) coordinator_->OnPosts(0, std::exchange(outgoing_, {}), now);
  for (size_t i = 0; i < channels_.size(); ++i) {
    while (!ended_[i]) {
      auto message = channels_[i]->Receive();
      if (!message.ok()) {
        End(i, message.status(), now);
        break;
      }
      if (!*message) break;
      Status handled = HandleFromRank(RankOf(i), **message, now);
      if (!handled.ok()) return handled.WithPrefix("from rank " + std::to_string(RankOf(i)) + ": ");
    }
  }
  return Status::Ok();
}

Status Negotiator::ReceiveFromRoot(TimePoint now, std::vector<PlanBatch>& batches) {
  while (!ended_[0]) {
    auto message = channels_[0]->Receive();
    if (!message.ok()) {
      End(0, message.status(), now);
      break;
    }
    if (!*message) break;
    if (IsFrame(**message, Frame::kBatch)) {
      SYRTOS_ASSIGN_OR_RETURN(PlanBatch batch,
                              DecodePlanBatch(std::string_view(**message).substr(1)));
      SYRTOS_RETURN_IF_ERROR(Deliver(std::move(batch), batches));
    } else if (IsFrame(**message, Frame::kLeave)) {
      SYRTOS_ASSIGN_OR_RETURN(int leaver, RankIn(**message, config_.size));
      departures_.Heard(leaver);
    } else if (IsFrame(**message, Frame::kGo)) {
      released_ = true;
    } else {
      return Status::Internal("a control message of an unknown kind from rank 0");
    }
  }
  return Status::Ok();
}

Status Negotiator::PlanSettled(TimePoint now, std::vector<PlanBatch>& batches) {
  std::vector<Settled> settled = coordinator_->TakeSettled();
  PlannerOptions options;
  options.fusion_threshold_bytes = config_.fusion_threshold_bytes;
  options.first_sequence = next_sequence_;
  options.choose = [this](const Collective& c, int64_t bytes) {
    return backends_.Choose(c, bytes);
  };
  Planned planned = MakePlans(settled, options);
  next_sequence_ = planned.next_sequence;
  return Distribute(now, settled, planned.plans, batches);
}

Status Negotiator::Distribute(TimePoint now, const std::vector<Settled>& settled,
                              const std::vector<Plan>& plans, std::vector<PlanBatch>& batches) {
  std::vector<uint32_t> forgotten = coordinator_->TakeForgotten();
  bool for_all = std::all_of(settled.begin(), settled.end(), [this](const Settled& s) {
    return static_cast<int>(s.members.size()) == config_.size && s.agreement.absent.empty();
  });
  std::string shared;  // the same bytes for every rank, in the common case encoded once
  // Rank 0's own batch comes last: it may end in a blocking plan, and the others should not wait
  // for it.
  for (int rank = config_.size - 1; rank >= 0; --rank) {
    auto reposts = coordinator_->TakeReposts(rank);
    if (settled.empty() && forgotten.empty() && reposts.empty()) continue;
    bool same_for_all = for_all && reposts.empty();
    if (rank != 0 && same_for_all && !shared.empty()) {
      SendTo(IndexOf(rank), shared, now);
      continue;
    }
    PlanBatch batch = BatchFor(rank, settled, plans);
    batch.forgotten = forgotten;
    batch.repost = std::move(reposts);
    if (batch.agreements.empty() && batch.forgotten.empty() && batch.repost.empty()) continue;
    if (rank == 0) {
      SYRTOS_RETURN_IF_ERROR(Deliver(std::move(batch), batches));
      continue;
    }
    std::string bytes = MakeFrame(Frame::kBatch, EncodePlanBatch(batch));
    if (same_for_all) shared = bytes;
    SendTo(IndexOf(rank), bytes, now);
  }
  return Status::Ok();
}

Status Negotiator::Expand(Agreement& agreement) {
  if (agreement.cached) {
    posted_by_id_.erase({agreement.cache_id, agreement.key.call});
    const Agreement* full = cache_.Find(agreement.cache_id);
    if (full == nullptr) {
      return Status::Internal("rank 0 named cached agreement " +
                              std::to_string(agreement.cache_id) + ", which this rank never had");
    }
    uint64_t call = agreement.key.call;
    agreement = *full;
    agreement.key.call = call;
    return Status::Ok();
  }
  auto own = pending_.Find(agreement.key);
  if (own == nullptr) return Status::Ok();  // joined: took no part
  // Posted by id perhaps, and settled in full after all: another rank posted in full, or an error.
  posted_by_id_.erase({own->posted_id, agreement.key.call});
  if (agreement.cache_id == kNoCacheId || !agreement.error.ok()) return Status::Ok();
  cache_.Remember(own->request.meta, agreement);
  return Status::Ok();
}

Status Negotiator::Deliver(PlanBatch batch, std::vector<PlanBatch>& batches) {
  for (Agreement& agreement : batch.agreements) SYRTOS_RETURN_IF_ERROR(Expand(agreement));
  for (uint32_t id : batch.forgotten) cache_.Forget(id);
  for (const auto& id_and_call : batch.repost) {
    auto posted = posted_by_id_.find(id_and_call);
    if (posted == posted_by_id_.end()) continue;
    auto own = pending_.Find(posted->second);
    posted_by_id_.erase(posted);
    if (own == nullptr) continue;
    Post post;
    post.meta = own->request.meta;
    outgoing_.push_back(std::move(post));
    ++full_posts_;
  }
  batches.push_back(std::move(batch));
  return Status::Ok();
}

void Negotiator::FlushAll(TimePoint now) {
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (ended_[i]) continue;
    if (channels_[i]->wants_write()) {
      Status flushed = channels_[i]->Flush();
      if (!flushed.ok()) {
        End(i, flushed, now);
        continue;
      }
    }
    bool wants = channels_[i]->wants_write();
    if (wants != write_watched_[i]) poller_->WatchWrite(channels_[i]->fd(), wants);
    write_watched_[i] = wants;
  }
}

Status Negotiator::Exchange(TimePoint now, std::vector<PlanBatch>& batches) {
  if (is_root()) {
    do {
      SYRTOS_RETURN_IF_ERROR(ReceiveFromRanks(now));
      SYRTOS_RETURN_IF_ERROR(PlanSettled(now, batches));
      // Rank 0 may have been asked to post again: that goes round once more.
    } while (!outgoing_.empty());
    if (coordinator_->idle()) {
      next_stall_check_ = TimePoint::max();
    } else if (next_stall_check_ == TimePoint::max()) {
      WatchStalls(now);
    }
  } else {
    SendPosts(now);
    SYRTOS_RETURN_IF_ERROR(ReceiveFromRoot(now, batches));
    SendPosts(now);
  }
  FlushAll(now);
  return Status::Ok();
}

void Negotiator::WatchStalls(TimePoint now) {
  if (!is_root()) return;
  Seconds period = config_.stall_warning;
  if (config_.stall_limit.count() > 0) {
    coordinator_->ExpireOlderThan(now, config_.stall_limit);
    period = period.count() > 0 ? std::min(period, config_.stall_limit) : config_.stall_limit;
  }
  if (period.count() <= 0) return;
  if (config_.stall_warning.count() > 0) {
    for (const StallReport& report : coordinator_->Stalled(now, config_.stall_warning)) {
      SYRTOS_LOG(kWarning, "stall") << report.text;
    }
  }
  next_stall_check_ = now + std::chrono::duration_cast<TimePoint::duration>(period);
}

TimePoint Negotiator::next_stall_check() const { return next_stall_check_; }

bool Negotiator::flushed() const {
  if (!outgoing_.empty()) return false;
  for (size_t i = 0; i < channels_.size(); ++i) {
    if (!ended_[i] && channels_[i]->wants_write()) return false;
  }
  return true;
}

}  // namespace syrtos
