// Ranks that have run out of data.

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "syrtos/engine/coordinator_impl.h"
#include "syrtos/engine/rank_text.h"
#include "syrtos/engine/validate.h"

namespace syrtos {

// The description of a request that a joined rank made before its join, by an id then forgotten.
bool Coordinator::Impl::IsLateDescription(int rank, const Post& post) const {
  if (post.cache_id != kNoCacheId) return false;
  const RequestKey& key = post.meta.key;
  auto found = tallies_.find(key);
  if (found != tallies_.end()) {
    size_t position = groups_.Find(key.group)->PositionOf(rank);
    if (position < found->second.slots.size() &&
        found->second.slots[position].state == SlotState::kAwaited) {
      return true;
    }
  }
  const auto& owed = owed_[static_cast<size_t>(rank)];
  auto owing = owed.find(key);
  return owing != owed.end() && owing->second.front().reposting;
}

void Coordinator::Impl::TakeJoin(int rank, const Incoming& in) {
  const RequestKey& key = in.key;
  const bool average_active = in.meta && in.meta->average_active;
  auto index = static_cast<size_t>(rank);
  if (!owed_joins_[index].empty()) {
    Answer({rank}, CollectiveKind::kJoin, key, owed_joins_[index].front());
    owed_joins_[index].pop_front();
    return;
  }
  if (joined_count_ == 0) {
    joined_since_ = now_;
    join_averages_active_ = average_active;
  }
  Status mismatch = AverageMismatch(rank, average_active);
  joined_[index] = true;
  join_keys_[index] = key;
  ++joined_count_;
  last_joined_ = rank;
  // Joining counts as having posted everything, so also what this rank still owed.
  auto& owed = owed_[index];
  for (auto it = owed.begin(); it != owed.end();) {
    auto& errors = it->second;
    errors.erase(std::remove_if(errors.begin(), errors.end(),
                                [](const Owed& error) { return !error.reposting; }),
                 errors.end());
    it = errors.empty() ? owed.erase(it) : std::next(it);
  }
  if (!mismatch.ok()) return EndJoin(mismatch, /*owe=*/true);
  CountAsPosted(rank);
}

// Not ok if `rank` joins with another wish for the divisor of averages than those before it.
Status Coordinator::Impl::AverageMismatch(int rank, bool average_active) const {
  if (average_active == join_averages_active_) return Status::Ok();
  auto before = std::find(joined_.begin(), joined_.end(), true) - joined_.begin();
  auto text = [](bool active) {
    return std::string(" called join(average_active=") + (active ? "True)" : "False)");
  };
  return Status::Mismatch("join: " + RankText(rank, options_.hosts) + text(average_active) +
                          " but " + RankText(static_cast<int>(before), options_.hosts) +
                          text(join_averages_active_) +
                          ". Give the same average_active on all ranks.");
}

void Coordinator::Impl::CountAsPosted(int rank) {
  for (auto& [id, group] : groups_.all()) {
    if (group.Has(rank)) ++group.joined;
  }
  auto concerned = TalliesWhere([this, rank](const RequestKey& key, const Tally&) {
    return groups_.Find(key.group)->Has(rank);
  });
  for (const RequestKey& key : concerned) {
    auto found = tallies_.find(key);
    if (found == tallies_.end()) continue;
    const GroupState& group = *groups_.Find(key.group);
    Tally& tally = found->second;
    if (tally.slots[group.PositionOf(rank)].state != SlotState::kMissing) ++tally.own_joined;
    if (Ready(tally, group)) SettleTally(found);
  }
}

void Coordinator::Impl::EndJoin(const Status& error, bool owe) {
  // Unnamed joins have different numbers where ranks have made different numbers of calls before.
  std::map<RequestKey, std::vector<int32_t>> by_key;
  for (int rank = 0; rank < options_.size; ++rank) {
    auto index = static_cast<size_t>(rank);
    if (departed_[index]) continue;
    if (joined_[index]) {
      by_key[join_keys_[index]].push_back(rank);
    } else if (owe) {
      owed_joins_[index].push_back(error);
    }
  }
  for (auto& [key, ranks] : by_key) {
    Answer(ranks, CollectiveKind::kJoin, key, error);
    settled_.back().agreement.value = error.ok() ? last_joined_ : 0;
  }
  joined_count_ = 0;
  join_averages_active_ = false;
  joined_.assign(joined_.size(), false);
  for (auto& [id, group] : groups_.all()) group.joined = 0;
  for (auto& [key, tally] : tallies_) tally.own_joined = 0;
  auto deferred = std::exchange(deferred_, std::vector<std::vector<Post>>(deferred_.size()));
  for (int rank = 0; rank < options_.size; ++rank) {
    for (Post& post : deferred[static_cast<size_t>(rank)]) Take(rank, std::move(post));
  }
}

}  // namespace syrtos
