#include "syrtos/engine/coordinator.h"

#include <algorithm>
#include <utility>

#include "syrtos/engine/coordinator_impl.h"
#include "syrtos/engine/rank_text.h"
#include "syrtos/engine/validate.h"

namespace syrtos {
namespace {

bool IsForWorldOnly(CollectiveKind kind) {
  return kind == CollectiveKind::kJoin || kind == CollectiveKind::kAddGroup ||
         kind == CollectiveKind::kRemoveGroup;
}

}  // namespace

Coordinator::Impl::Impl(Options options)
    : options_(std::move(options)),
      groups_(options_.size),
      cache_(options_.cache_capacity),
      departed_(static_cast<size_t>(options_.size)),
      reposts_(departed_.size()),
      owed_(departed_.size()),
      owed_joins_(departed_.size()),
      joined_(departed_.size()),
      join_keys_(departed_.size()),
      deferred_(departed_.size()) {}

void Coordinator::Impl::OnPosts(int rank, std::vector<Post> posts, TimePoint now) {
  if (rank < 0 || rank >= options_.size || departed_[static_cast<size_t>(rank)]) return;
  now_ = now;
  for (Post& post : posts) Take(rank, std::move(post));
}

void Coordinator::Impl::Take(int rank, Post post) {
  if (has_joined(rank) && !IsLateDescription(rank, post)) {
    deferred_[static_cast<size_t>(rank)].push_back(std::move(post));
    return;
  }
  Incoming in;
  if (!Resolve(rank, std::move(post), in)) return;
  const GroupState* group = groups_.Find(in.key.group);
  Status refused = Admit(rank, in, group);
  if (!refused.ok()) return Answer({rank}, in.kind, in.key, refused);
  if (in.kind == CollectiveKind::kJoin) {
    TakeJoin(rank, in);
  } else if (!PayOwed(rank, in)) {
    Enter(rank, *group, in);
  }
  if (all_joined()) EndJoin(Status::Ok(), /*owe=*/false);
}

Status Coordinator::Impl::Admit(int rank, const Incoming& in, const GroupState* group) const {
  bool misplaced = IsForWorldOnly(in.kind) && in.key.group != kWorldGroup;
  if (group != nullptr && group->Has(rank) && !misplaced && group->departed.ok()) {
    return Status::Ok();
  }
  std::string what = Describe(in.kind, in.key) + ": ";
  if (group == nullptr) {
    what += "there is no process set " + std::to_string(in.key.group) +
            "; it was never added, or has been removed.";
  } else if (!group->Has(rank)) {
    what += RankText(rank, options_.hosts) + " is not in process set " +
            std::to_string(in.key.group) + "; only its members may call it.";
  } else if (misplaced) {
    what += "it is a call of all ranks. Call it without a process set.";
  } else {
    return group->departed.WithPrefix(what);
  }
  return Status::InvalidArgument(what);
}

// False if nothing is known of the post but that it has to be made again.
bool Coordinator::Impl::Resolve(int rank, Post post, Incoming& in) {
  if (post.cache_id == kNoCacheId) {
    in.meta = std::make_shared<const RequestMeta>(std::move(post.meta));
    in.key = in.meta->key;
    in.kind = in.meta->kind;
    return true;
  }
  if (const AgreementCache::Entry* entry = cache_.Find(post.cache_id)) {
    const RequestMeta& meta = *entry->metas.front();
    in.cache_id = post.cache_id;
    in.key = meta.key;
    in.kind = meta.kind;
  } else if (const AgreementCache::Grave* grave = cache_.FindGrave(post.cache_id)) {
    in.forgotten_id = post.cache_id;
    in.key = grave->key;
    in.kind = grave->kind;
  } else {
    reposts_[static_cast<size_t>(rank)].emplace_back(post.cache_id, post.call);
    return false;
  }
  in.key.call = post.call;
  return true;
}

void Coordinator::Impl::Enter(int rank, const GroupState& group, const Incoming& in) {
  auto [found, is_new] = tallies_.try_emplace(in.key);
  Tally& tally = found->second;
  if (is_new) {
    tally.kind = in.kind;
    tally.arrival = next_arrival_++;
    tally.since = now_;
    tally.slots.resize(group.members.size());
    tally.common_id = in.cache_id;
  }
  Slot& slot = tally.slots[group.PositionOf(rank)];
  if (slot.state == SlotState::kPosted || (slot.state == SlotState::kAwaited && !in.meta)) {
    return FailEarly(
        in.key,
        Status::InvalidArgument(
            Describe(in.kind, in.key) + ": " + RankText(rank, options_.hosts) +
            " made a second request of the same name while its first was in flight. Wait "
            "for the first, or give each request a name of its own."),
        /*owe=*/true);
  }
  Record(rank, in, tally, slot);
  if (options_.on_post) options_.on_post(rank, in.kind, in.key);
  if (Ready(tally, group)) SettleTally(found);
}

void Coordinator::Impl::Record(int rank, const Incoming& in, Tally& tally, Slot& slot) {
  if (slot.state == SlotState::kAwaited) {
    --tally.awaited;
    --awaited_;
  } else {
    ++tally.own;
  }
  if (in.described()) {
    slot.state = SlotState::kPosted;
    slot.meta = in.meta;
    slot.cache_id = in.cache_id;
    if (in.cache_id != kNoCacheId) cache_.Pin(in.cache_id);
  } else {
    slot.state = SlotState::kAwaited;
    ++tally.awaited;
    ++awaited_;
    reposts_[static_cast<size_t>(rank)].emplace_back(in.forgotten_id, in.key.call);
  }
  if (slot.cache_id != tally.common_id) tally.common_id = kNoCacheId;
}

bool Coordinator::Impl::Ready(const Tally& tally, const GroupState& group) {
  size_t absent = static_cast<size_t>(group.joined) - tally.own_joined;
  return tally.awaited == 0 && tally.own + absent == group.members.size();
}

void Coordinator::Impl::SettleTally(TallyMap::iterator found) {
  const RequestKey key = found->first;
  const Tally tally = std::move(found->second);
  tallies_.erase(found);
  const GroupState& group = *groups_.Find(key.group);
  bool cached = tally.common_id != kNoCacheId && tally.own == group.members.size();
  Settled settled = cached ? SettleCached(key, tally, group) : SettleInFull(key, tally, group);
  if (settled.agreement.error.ok()) {
    last_progress_ = now_;
  } else {
    cache_.ForgetNamed(key);
  }
  settled_.push_back(std::move(settled));
}

Settled Coordinator::Impl::SettleCached(const RequestKey& key, const Tally& tally,
                                        const GroupState& group) {
  Settled settled;
  const AgreementCache::Entry& entry = *cache_.Find(tally.common_id);
  settled.agreement = entry.agreement;
  settled.agreement.key = key;
  settled.agreement.cached = true;
  settled.meta = *entry.MetaOf(0);
  settled.meta.key = key;
  settled.members = group.members;
  for (size_t i = 0; i < tally.own; ++i) cache_.Unpin(tally.common_id);
  return settled;
}

Settled Coordinator::Impl::SettleInFull(const RequestKey& key, const Tally& tally,
                                        const GroupState& group) {
  Settled settled;
  std::vector<SharedMeta> metas;
  std::vector<Asked> asked;
  std::vector<int32_t> posters;
  for (size_t i = 0; i < tally.slots.size(); ++i) {
    const Slot& slot = tally.slots[i];
    if (slot.state == SlotState::kMissing) continue;
    metas.push_back(slot.meta ? slot.meta : cache_.Find(slot.cache_id)->MetaOf(i));
    posters.push_back(group.members[i]);
    asked.push_back({group.members[i], metas.back().get()});
    if (slot.cache_id != kNoCacheId) cache_.Unpin(slot.cache_id);
  }
  settled.meta = *metas.front();
  settled.meta.key = key;  // the remembered one has the number of another call
  asked.front().meta = &settled.meta;
  settled.agreement = Settle(asked, group.members, options_.hosts);
  Agreement& agreement = settled.agreement;
  agreement.average_active = join_averages_active_ && !agreement.absent.empty();
  if (agreement.error.ok() && options_.strict_join) {
    agreement.error = RefuseWithoutJoined(settled.meta, agreement);
  }
  if (agreement.error.ok() && IsForWorldOnly(settled.meta.kind)) {
    agreement.error = ChangeGroups(settled.meta, agreement);
  } else if (agreement.error.ok() && agreement.absent.empty()) {
    cache_.Store(std::move(metas), agreement);
  }
  if (agreement.error.ok()) posters = group.members;
  settled.members = std::move(posters);
  return settled;
}

Status Coordinator::Impl::RefuseWithoutJoined(const RequestMeta& meta, const Agreement& agreement) {
  if (agreement.absent.empty() || IsForWorldOnly(meta.kind)) return Status::Ok();
  if (meta.kind == CollectiveKind::kAllreduce || meta.kind == CollectiveKind::kBarrier) {
    return Status::Ok();
  }
  return Status::Mismatch(
      Describe(meta.kind, meta.key) + ": " + RanksText(agreement.absent, options_.hosts) +
      " called join(), and with strict_join only allreduce goes on without a rank. Unset "
      "strict_join "
      "to let it count as one that sends nothing, or call this before any rank joins.");
}

Status Coordinator::Impl::ChangeGroups(const RequestMeta& meta, Agreement& agreement) {
  std::string what = Describe(meta.kind, meta.key) + ": ";
  if (!agreement.absent.empty()) {
    return Status::InvalidArgument(
        what + RanksText(agreement.absent, options_.hosts) +
        " called join(), and process sets can change only while all ranks "
        "work. Do it before the first rank joins.");
  }
  if (meta.kind == CollectiveKind::kRemoveGroup) return RemoveGroup(meta).WithPrefix(what);
  auto added = groups_.Add(meta.ranks);
  if (!added.ok()) return added.status().WithPrefix(what);
  agreement.value = *added;
  return Status::Ok();
}

Status Coordinator::Impl::RemoveGroup(const RequestMeta& meta) {
  auto id = static_cast<uint32_t>(meta.ranks.front());
  if (groups_.Find(id) != nullptr) {
    auto inside =
        TalliesWhere([id](const RequestKey& key, const Tally&) { return key.group == id; });
    for (const RequestKey& key : inside) {
      Status error = Status::InvalidArgument(Describe(tallies_.at(key).kind, key) +
                                             ": the process set was removed before all its members "
                                             "had made this call. Wait for what is "
                                             "in flight before removing it.");
      FailEarly(key, error, /*owe=*/false);
    }
    // The id may soon mean another group.
    cache_.ForgetGroup(id);
    for (auto& owed : owed_) {
      for (auto it = owed.begin(); it != owed.end();) {
        it = it->first.group == id ? owed.erase(it) : std::next(it);
      }
    }
  }
  return groups_.Remove(id);
}

void Coordinator::Impl::Answer(const std::vector<int32_t>& ranks, CollectiveKind kind,
                               const RequestKey& key, const Status& error) {
  Settled settled;
  settled.agreement.key = key;
  settled.agreement.error = error;
  settled.meta.kind = kind;
  settled.meta.key = key;
  settled.members = ranks;
  settled_.push_back(std::move(settled));
}

std::vector<RequestKey> Coordinator::Impl::TalliesWhere(const TallyFilter& filter) const {
  std::vector<std::pair<uint64_t, RequestKey>> found;
  for (const auto& [key, tally] : tallies_) {
    if (filter(key, tally)) found.emplace_back(tally.arrival, key);
  }
  std::sort(found.begin(), found.end());
  std::vector<RequestKey> keys;
  keys.reserve(found.size());
  for (auto& [arrival, key] : found) keys.push_back(std::move(key));
  return keys;
}

std::vector<Settled> Coordinator::Impl::TakeSettled() { return std::exchange(settled_, {}); }

std::vector<std::pair<uint32_t, uint64_t>> Coordinator::Impl::TakeReposts(int rank) {
  return std::exchange(reposts_.at(static_cast<size_t>(rank)), {});
}

std::vector<int32_t> Coordinator::Impl::Members(uint32_t group) const {
  const GroupState* state = groups_.Find(group);
  return state == nullptr ? std::vector<int32_t>() : state->members;
}

Coordinator::Coordinator(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Coordinator::~Coordinator() = default;

void Coordinator::OnPosts(int rank, std::vector<Post> posts, TimePoint now) {
  impl_->OnPosts(rank, std::move(posts), now);
}
void Coordinator::OnDeparted(int rank, const Status& cause) { impl_->OnDeparted(rank, cause); }
void Coordinator::ExpireOlderThan(TimePoint now, Seconds limit) {
  impl_->ExpireOlderThan(now, limit);
}
std::vector<Settled> Coordinator::TakeSettled() { return impl_->TakeSettled(); }
std::vector<uint32_t> Coordinator::TakeForgotten() { return impl_->TakeForgotten(); }
std::vector<std::pair<uint32_t, uint64_t>> Coordinator::TakeReposts(int rank) {
  return impl_->TakeReposts(rank);
}
std::vector<StallReport> Coordinator::Stalled(TimePoint now, Seconds older_than) const {
  return impl_->Stalled(now, older_than);
}
std::vector<int32_t> Coordinator::Members(uint32_t group) const { return impl_->Members(group); }
bool Coordinator::idle() const { return impl_->idle(); }

}  // namespace syrtos
