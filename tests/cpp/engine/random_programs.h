// Random programs of several ranks: what each asks for, in which order, and where it waits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/metas.h"

namespace syrtos {
namespace programs {

using Kind = CollectiveKind;
using Random = std::mt19937;

struct Step {
  RequestMeta meta;     // key.group: an index into the program's groups, 0 = world
  bool waits = false;   // for this request, before the next step
  bool drains = false;  // waits for all requests before this one
};

struct Program {
  int size = 0;
  std::vector<std::vector<Step>> ranks;
};

// What a rank sees of step i: the agreement in words, or nothing yet.
using Outcomes = std::vector<std::map<size_t, std::string>>;

inline RequestMeta RandomMeta(Random& random, int size) {
  const DType dtypes[] = {DType::kFloat32, DType::kInt32};
  RequestMeta meta;
  meta.kind = static_cast<Kind>(random() % 6);
  if (meta.kind == Kind::kBarrier) return meta;
  int64_t rows = static_cast<int64_t>(random() % 3) * size;
  meta.parts.push_back(metas::Part({rows, 2}, dtypes[random() % 8 == 0]));
  if (random() % 4 == 0) meta.parts.push_back(metas::Part({rows}));
  meta.root = random() % 4 == 0 ? static_cast<int32_t>(random() % static_cast<unsigned>(size)) : 0;
  if (random() % 10 == 0) meta.op = ReduceOp::kMax;
  return meta;
}

// One rank's own variation: where shapes may differ they do, and now and then one is wrong.
inline void Vary(Random& random, RequestMeta& meta, int errors_in_1000) {
  if (meta.parts.empty()) return;
  if (meta.kind == Kind::kAllgather && random() % 3 == 0) {
    meta.parts[0].shape[0] = static_cast<int64_t>(random() % 4);
  }
  if (static_cast<int>(random() % 1000) >= errors_in_1000) return;
  switch (random() % 5) {
    case 0:
      meta.parts[0].dtype = DType::kInt8;
      break;
    case 1:
      meta.parts[0].shape.push_back(1);
      break;
    case 2:
      meta.op = ReduceOp::kMin;
      break;
    case 3:
      meta.root = 1;
      break;
    default:
      meta.parts[0].splits = {1};
  }
}

struct Shape3 {  // how wild a program is
  int size, rounds, names, errors_in_1000;
  bool joins, groups;
};

class Writer {
 public:
  Writer(Random& random, const Shape3& shape) : random_(random), shape_(shape) {
    program_.size = shape.size;
    program_.ranks.resize(static_cast<size_t>(shape.size));
    for (int i = 0; i < shape.names; ++i) common_.push_back(RandomMeta(random_, shape.size));
  }

  Program Write() {
    for (int round = 0; round < shape_.rounds; ++round) {
      if (shape_.groups && random_() % 4 == 0) ChangeGroups(round);
      WriteRound();
      if (shape_.joins && random_() % 3 == 0) WriteJoin();
    }
    return std::move(program_);
  }

 private:
  template <typename Make>
  void OnAll(Make make) {
    for (int rank = 0; rank < shape_.size; ++rank)
      make(rank, program_.ranks[static_cast<size_t>(rank)]);
  }

  // Every rank waits for all it has asked, so that groups change in one order everywhere.
  void ChangeGroups(int round) {
    bool adds = groups_.empty() || random_() % 2 == 0;
    std::vector<int32_t> ranks;
    uint32_t removed = 0;
    if (adds) {
      for (int rank = 0; rank < shape_.size; ++rank) {
        if (random_() % 2 == 0) ranks.push_back(rank);
      }
      // Some cannot be added: empty ones, and those that exist. Nobody uses them.
      std::set<int32_t> members(ranks.begin(), ranks.end());
      bool exists = static_cast<int>(ranks.size()) == shape_.size;
      for (const auto& [index, others] : groups_) exists |= others == members;
      ++last_group_;
      if (!ranks.empty() && !exists) groups_[last_group_] = members;
    } else {
      auto it = groups_.begin();
      std::advance(it, random_() % groups_.size());
      removed = it->first;
      groups_.erase(it);
    }
    OnAll([&](int, std::vector<Step>& steps) {
      Step step;
      step.meta = metas::Control(adds ? Kind::kAddGroup : Kind::kRemoveGroup,
                                 "group change " + std::to_string(round), ranks);
      if (!adds) step.meta.ranks = {static_cast<int32_t>(removed)};
      step.waits = true;
      step.drains = true;
      steps.push_back(step);
    });
  }

  void WriteRound() {
    std::vector<RequestMeta> requests;
    for (size_t i = 0; i < common_.size(); ++i) {
      if (random_() % 20 == 0) common_[i] = RandomMeta(random_, shape_.size);
      if (random_() % 4 == 0) continue;
      RequestMeta meta = common_[i];
      if (i % 3 != 0) meta.key.name = "t" + std::to_string(i);
      if (!groups_.empty() && i % 4 == 0) {
        auto it = groups_.begin();
        std::advance(it, random_() % groups_.size());
        meta.key.group = it->first;
      }
      requests.push_back(meta);
    }
    OnAll([&](int rank, std::vector<Step>& steps) {
      std::vector<RequestMeta> mine;
      for (const RequestMeta& meta : requests) {
        uint32_t group = meta.key.group;
        if (group == 0 || groups_.at(group).count(rank) != 0) mine.push_back(meta);
      }
      // Named ones in any order, unnamed ones in theirs.
      std::vector<RequestMeta> unnamed;
      for (const RequestMeta& meta : mine) {
        if (meta.key.name.empty()) unnamed.push_back(meta);
      }
      std::shuffle(mine.begin(), mine.end(), random_);
      size_t next = 0;
      for (RequestMeta& meta : mine) {
        if (meta.key.name.empty()) meta = unnamed[next++];
        Vary(random_, meta, shape_.errors_in_1000);
        steps.push_back({meta, false, false});
      }
    });
  }

  // Each rank drops some of its last steps and joins instead.
  void WriteJoin() {
    bool named = random_() % 2 == 0;
    OnAll([&](int, std::vector<Step>& steps) {
      for (size_t drop = random_() % 4; drop > 0 && !steps.empty(); --drop) {
        if (!InfoOf(steps.back().meta.kind).moves_data) break;
        steps.pop_back();
      }
      steps.push_back(
          {metas::Control(Kind::kJoin, named ? "join" : ""), random_() % 2 == 0, false});
    });
  }

  Random& random_;
  Shape3 shape_;
  Program program_;
  std::vector<RequestMeta> common_;
  std::map<uint32_t, std::set<int32_t>> groups_;  // by index in the program
  uint32_t last_group_ = 0;
};

// A rank on its way through its program.
class Walker {
 public:
  explicit Walker(const std::vector<Step>& steps) : steps_(steps) {}

  // The next request, if the rank may make it now.
  bool Next(RequestMeta& meta) {
    if (next_ == steps_.size() || waiting_) return false;
    if (steps_[next_].drains && !steps_by_key_.empty()) return false;
    meta = steps_[next_].meta;
    if (meta.kind == Kind::kRemoveGroup) {
      meta.ranks = {static_cast<int32_t>(ids_[static_cast<uint32_t>(meta.ranks[0])])};
    }
    meta.key.group = meta.key.group == 0 ? 0 : ids_[meta.key.group];
    if (!meta.key.name.empty() && steps_by_key_.count(meta.key) != 0) return false;  // in flight
    if (meta.key.name.empty()) meta.key.call = (era_ << 40) | ++calls_[meta.key.group];
    if (meta.kind == Kind::kJoin) {
      ++era_;
      calls_.clear();
    }
    if (meta.kind == Kind::kAddGroup) ++groups_made_;
    waiting_ = steps_[next_].waits;
    steps_by_key_[meta.key] = next_++;
    return true;
  }

  void Finish(const RequestKey& key, const std::string& outcome, int64_t value,
              std::map<size_t, std::string>& outcomes) {
    auto found = steps_by_key_.find(key);
    ASSERT_NE(found, steps_by_key_.end()) << outcome;
    size_t step = found->second;
    steps_by_key_.erase(found);
    ASSERT_TRUE(outcomes.emplace(step, outcome).second);
    if (steps_[step].meta.kind == Kind::kAddGroup) {
      ids_[groups_made_] = value > 0 ? static_cast<uint32_t>(value) : 1000;
      calls_.erase(ids_[groups_made_]);  // the id may have been another group's
    }
    if (waiting_ && step + 1 == next_) waiting_ = false;
  }

  bool Asked(const RequestKey& key) const { return steps_by_key_.count(key) != 0; }
  bool done() const { return next_ == steps_.size() && steps_by_key_.empty(); }

 private:
  const std::vector<Step>& steps_;
  size_t next_ = 0;
  bool waiting_ = false;
  uint64_t era_ = 0;
  std::map<uint32_t, uint64_t> calls_;
  std::map<RequestKey, size_t> steps_by_key_;
  std::map<uint32_t, uint32_t> ids_;  // of the program's groups
  uint32_t groups_made_ = 0;
};

inline std::string OutcomeText(const Agreement& agreement, bool with_message) {
  std::string text = metas::Text(agreement);
  if (with_message || agreement.error.ok()) return text;
  return "error " + std::to_string(static_cast<int>(agreement.error.code()));
}

}  // namespace programs
}  // namespace syrtos
