// An independent model of the coordinator: no cache, no bytes, no time; it counts by brute force.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "engine/random_programs.h"

namespace syrtos {
namespace programs {

inline bool SameTail(const Shape& a, const Shape& b) {
  return a.size() == b.size() && std::equal(a.begin() + 1, a.end(), b.begin() + 1);
}

class Model {
 public:
  explicit Model(const Program& program)
      : size_(static_cast<size_t>(program.size)),
        joined_(size_),
        deferred_(size_),
        outcomes(size_) {
    for (const auto& steps : program.ranks) walkers_.emplace_back(steps);
    for (size_t i = 0; i < size_; ++i) groups_[0].push_back(static_cast<int32_t>(i));
  }

  bool Step(size_t rank) {
    RequestMeta meta;
    if (!walkers_[rank].Next(meta)) return false;
    Ask(rank, meta);
    return true;
  }
  bool done() const {
    return std::all_of(walkers_.begin(), walkers_.end(), [](const Walker& w) { return w.done(); });
  }

 private:
  using Asked = std::map<int32_t, RequestMeta>;

  void Ask(size_t rank, const RequestMeta& meta) {
    if (joined_[rank]) {
      deferred_[rank].push_back(meta);
      return;
    }
    if (meta.kind == Kind::kJoin) {
      joined_[rank] = true;
      join_keys_[static_cast<int32_t>(rank)] = meta.key;
      last_ = static_cast<int64_t>(rank);
    } else {
      pending_[meta.key][static_cast<int32_t>(rank)] = meta;
    }
    Sweep();
  }

  void Sweep() {
    for (auto it = pending_.begin(); it != pending_.end();) {
      const std::vector<int32_t> members = groups_.at(it->first.group);
      bool complete = std::all_of(members.begin(), members.end(), [&](int32_t rank) {
        return it->second.count(rank) != 0 || joined_[static_cast<size_t>(rank)];
      });
      if (!complete) {
        ++it;
        continue;
      }
      Agreement agreement = Agree(it->second, members);
      agreement.key = it->first;
      for (const auto& [rank, meta] : it->second) Tell(rank, agreement);
      it = pending_.erase(it);
    }
    if (std::count(joined_.begin(), joined_.end(), true) < static_cast<int64_t>(size_)) return;
    for (const auto& [rank, key] : join_keys_) {
      Agreement agreement;
      agreement.key = key;
      agreement.value = last_;
      Tell(rank, agreement);
    }
    joined_.assign(size_, false);
    join_keys_.clear();
    auto deferred = std::exchange(deferred_, std::vector<std::vector<RequestMeta>>(size_));
    for (size_t rank = 0; rank < size_; ++rank) {
      for (const RequestMeta& meta : deferred[rank]) Ask(rank, meta);
    }
  }

  void Tell(int32_t rank, const Agreement& agreement) {
    auto index = static_cast<size_t>(rank);
    walkers_[index].Finish(agreement.key, OutcomeText(agreement, false), agreement.value,
                           outcomes[index]);
  }

  Agreement Agree(const Asked& asked, const std::vector<int32_t>& members) {
    Agreement agreement;
    for (int32_t member : members) {
      if (asked.count(member) == 0) agreement.absent.push_back(member);
    }
    const RequestMeta& first = asked.begin()->second;
    for (const auto& [rank, meta] : asked) {
      if (Differ(first, meta)) agreement.error = Status::Mismatch("");
    }
    if (!agreement.error.ok()) return agreement;
    if (first.kind == Kind::kAddGroup || first.kind == Kind::kRemoveGroup) {
      agreement.error = ChangeGroups(first, agreement);
      return agreement;
    }
    if (first.kind == Kind::kBroadcast) {
      bool member = std::count(members.begin(), members.end(), first.root) != 0;
      if (!member) agreement.error = Status::InvalidArgument("");
      if (member && asked.count(first.root) == 0) agreement.error = Status::Mismatch("");
    }
    if (!agreement.error.ok()) return agreement;
    for (size_t part = 0; part < first.parts.size(); ++part) {
      FillRows(asked, members, part, agreement);
    }
    return agreement;
  }

  static bool Differ(const RequestMeta& a, const RequestMeta& b) {
    if (a.kind != b.kind || a.parts.size() != b.parts.size() || a.ranks != b.ranks) return true;
    bool reduces = a.kind == Kind::kAllreduce || a.kind == Kind::kReduceScatter;
    bool same_shape = reduces || a.kind == Kind::kBroadcast;
    if (reduces && a.op != b.op) return true;
    if (a.kind == Kind::kBroadcast && a.root != b.root) return true;
    for (size_t i = 0; i < a.parts.size(); ++i) {
      const PartMeta &p = a.parts[i], &q = b.parts[i];
      if (p.dtype != q.dtype || p.item_bytes != q.item_bytes) return true;
      if (same_shape ? p.shape != q.shape : !SameTail(p.shape, q.shape)) return true;
    }
    return false;
  }

  Status ChangeGroups(const RequestMeta& meta, Agreement& agreement) {
    if (!agreement.absent.empty()) return Status::InvalidArgument("");
    if (meta.kind == Kind::kRemoveGroup) {
      auto id = static_cast<uint32_t>(meta.ranks[0]);
      if (id == 0 || groups_.count(id) == 0) return Status::InvalidArgument("");
      groups_.erase(id);
      return Status::Ok();
    }
    if (meta.ranks.empty()) return Status::InvalidArgument("");
    for (const auto& [id, members] : groups_) {
      if (members == meta.ranks) return Status::InvalidArgument("");
    }
    uint32_t id = 1;
    while (groups_.count(id) != 0) ++id;
    groups_[id] = meta.ranks;
    agreement.value = id;
    return Status::Ok();
  }

  static void FillRows(const Asked& asked, const std::vector<int32_t>& members, size_t part,
                       Agreement& agreement) {
    auto n = static_cast<int64_t>(members.size());
    Kind kind = asked.begin()->second.kind;
    if (kind != Kind::kAllgather && kind != Kind::kAlltoall) return;
    std::vector<int64_t> rows;
    for (int32_t member : members) {
      auto found = asked.find(member);
      const PartMeta* mine = found == asked.end() ? nullptr : &found->second.parts[part];
      if (kind == Kind::kAllgather) {
        rows.push_back(mine == nullptr ? 0 : mine->shape[0]);
        continue;
      }
      bool even = mine == nullptr || mine->splits.empty();
      bool bad = mine != nullptr && (even ? mine->shape[0] % n != 0
                                          : static_cast<int64_t>(mine->splits.size()) != n ||
                                                mine->splits[0] != mine->shape[0]);
      if (bad) agreement.error = Status::InvalidArgument("");
      if (bad) continue;
      for (int64_t to = 0; to < n; ++to) {
        rows.push_back(mine == nullptr ? 0 : even ? mine->shape[0] / n : mine->splits[size_t(to)]);
      }
    }
    agreement.rows.push_back(rows);
  }

  size_t size_;
  std::vector<Walker> walkers_;
  std::map<RequestKey, Asked> pending_;
  std::map<uint32_t, std::vector<int32_t>> groups_;
  std::vector<bool> joined_;
  std::map<int32_t, RequestKey> join_keys_;
  int64_t last_ = 0;
  std::vector<std::vector<RequestMeta>> deferred_;

 public:
  Outcomes outcomes;
};

}  // namespace programs
}  // namespace syrtos
