// What ends before all have posted, and what takes suspiciously long.

#include <algorithm>
#include <cstdio>
#include <utility>

#include "syrtos/engine/coordinator_impl.h"
#include "syrtos/engine/rank_text.h"
#include "syrtos/engine/validate.h"

namespace syrtos {
namespace {

std::string SecondsText(Seconds seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds.count() < 10 ? "%.1f s" : "%.0f s", seconds.count());
  return text;
}

}  // namespace

void Coordinator::Impl::FailEarly(const RequestKey& key, const Status& error, bool owe) {
  auto found = tallies_.find(key);
  const Tally tally = std::move(found->second);
  tallies_.erase(found);
  awaited_ -= tally.awaited;
  const GroupState& group = *groups_.Find(key.group);
  std::vector<int32_t> posters;
  for (size_t i = 0; i < tally.slots.size(); ++i) {
    const Slot& slot = tally.slots[i];
    int rank = group.members[i];
    auto index = static_cast<size_t>(rank);
    if (slot.cache_id != kNoCacheId) cache_.Unpin(slot.cache_id);
    if (departed_[index]) continue;
    bool reposting = slot.state == SlotState::kAwaited;
    if (slot.state == SlotState::kPosted) {
      posters.push_back(rank);
    } else if (owe && (reposting || !joined_[index])) {
      owed_[index][key].push_back({error, reposting});
    }
  }
  cache_.ForgetNamed(key);
  if (!posters.empty()) Answer(posters, tally.kind, key, error);
}

bool Coordinator::Impl::PayOwed(int rank, const Incoming& in) {
  auto& owed = owed_[static_cast<size_t>(rank)];
  auto found = owed.find(in.key);
  if (found == owed.end()) return false;
  Answer({rank}, in.kind, in.key, found->second.front().error);
  found->second.pop_front();
  if (found->second.empty()) owed.erase(found);
  return true;
}

void Coordinator::Impl::OnDeparted(int rank, const Status& cause) {
  if (rank < 0 || rank >= options_.size || departed_[static_cast<size_t>(rank)]) return;
  auto index = static_cast<size_t>(rank);
  departed_[index] = true;
  owed_[index].clear();
  owed_joins_[index].clear();
  deferred_[index].clear();
  reposts_[index].clear();
  for (auto& [id, group] : groups_.all()) {
    if (group.Has(rank) && group.departed.ok()) group.departed = cause;
  }
  auto hopeless = TalliesWhere([this](const RequestKey& key, const Tally&) {
    return !groups_.Find(key.group)->departed.ok();
  });
  for (const RequestKey& key : hopeless) {
    Status error = cause.WithPrefix(Describe(tallies_.at(key).kind, key) + ": ");
    FailEarly(key, error, /*owe=*/false);
  }
  if (joined_count_ > 0) EndJoin(cause.WithPrefix("join: "), /*owe=*/false);
}

void Coordinator::Impl::ExpireOlderThan(TimePoint now, Seconds limit) {
  auto expired = TalliesWhere(
      [&](const RequestKey&, const Tally& tally) { return now - tally.since > limit; });
  auto timeout = [&](const StallReport& report) {
    return Status::Timeout(Describe(report.kind, report.key) + ": " +
                           RanksText(report.missing, options_.hosts) + " did not call it within " +
                           SecondsText(limit) + " of " + RanksText(report.have, options_.hosts) +
                           ". Make the same calls on every rank, or raise the stall limit.");
  };
  for (const RequestKey& key : expired) {
    FailEarly(key, timeout(ReportOn(key, tallies_.at(key), now)), /*owe=*/true);
  }
  if (joined_count_ == 0) return;
  if (all_joined()) {
    EndJoin(Status::Ok(), /*owe=*/false);
  } else if (now - JoinWaitsSince() > limit) {
    EndJoin(timeout(ReportOnJoin(now)), /*owe=*/true);
  }
}

// As long as others work, a joined rank does not wait in vain.
TimePoint Coordinator::Impl::JoinWaitsSince() const {
  return std::max(joined_since_, last_progress_);
}

std::vector<StallReport> Coordinator::Impl::Stalled(TimePoint now, Seconds older_than) const {
  std::vector<StallReport> reports;
  auto stalled = TalliesWhere(
      [&](const RequestKey&, const Tally& tally) { return now - tally.since > older_than; });
  reports.reserve(stalled.size() + 1);
  for (const RequestKey& key : stalled) reports.push_back(ReportOn(key, tallies_.at(key), now));
  if (joined_count_ > 0 && now - JoinWaitsSince() > older_than)
    reports.push_back(ReportOnJoin(now));
  for (StallReport& report : reports) {
    report.text =
        Describe(report.kind, report.key) + ": " + RanksText(report.have, options_.hosts) +
        " waiting for " + RanksText(report.missing, options_.hosts) + ", for " +
        SecondsText(report.age) +
        " by now. A rank that is busy (reading data, compiling) catches up by itself; else "
        "see that every rank makes the same calls, and where the missing ones are.";
  }
  return reports;
}

StallReport Coordinator::Impl::ReportOn(const RequestKey& key, const Tally& tally,
                                        TimePoint now) const {
  StallReport report;
  report.key = key;
  report.kind = tally.kind;
  report.age = now - tally.since;
  const GroupState& group = *groups_.Find(key.group);
  for (size_t i = 0; i < tally.slots.size(); ++i) {
    int rank = group.members[i];
    if (tally.slots[i].state != SlotState::kMissing) {
      report.have.push_back(rank);
    } else if (!has_joined(rank)) {
      report.missing.push_back(rank);
    }
  }
  return report;
}

StallReport Coordinator::Impl::ReportOnJoin(TimePoint now) const {
  StallReport report;
  report.kind = CollectiveKind::kJoin;
  report.age = now - JoinWaitsSince();
  for (int rank = 0; rank < options_.size; ++rank) {
    (has_joined(rank) ? report.have : report.missing).push_back(rank);
  }
  report.key = join_keys_[static_cast<size_t>(report.have.front())];
  return report;
}

}  // namespace syrtos
