// Random programs of several ranks, driven through PlanCache, wire and Coordinator as the engine
// does it, and compared with the model.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "engine/coordinator_model.h"
#include "engine/random_programs.h"
#include "syrtos/engine/coordinator.h"
#include "syrtos/engine/plan_cache.h"
#include "syrtos/engine/wire.h"

namespace syrtos {
namespace programs {
namespace {

// The real thing, with messages that take their time.
class Cluster {
 public:
  Cluster(const Program& program, int64_t capacity)
      : coordinator_({program.size, capacity, {}}), outcomes(static_cast<size_t>(program.size)) {
    for (const auto& steps : program.ranks) ranks_.emplace_back(steps);
  }

  // Rank `rank` makes its next request, if it can.
  bool Step(size_t rank) {
    RequestMeta meta;
    Rank& self = ranks_[rank];
    if (!self.walker.Next(meta)) return false;
    Post post = self.cache.MakePost(meta);
    if (post.cache_id != kNoCacheId) self.posted_by_id[{post.cache_id, post.call}] = meta.key;
    self.asked[meta.key] = meta;
    self.to_root.push_back(EncodePosts({post}));
    return true;
  }

  bool DeliverToRoot(size_t rank) {
    if (ranks_[rank].to_root.empty()) return false;
    auto posts = DecodePosts(ranks_[rank].to_root.front());
    ranks_[rank].to_root.pop_front();
    EXPECT_TRUE(posts.ok());
    coordinator_.OnPosts(static_cast<int>(rank), std::move(posts).value(), TimePoint());
    Distribute();
    return true;
  }

  bool DeliverToRank(size_t rank) {
    Rank& self = ranks_[rank];
    if (self.from_root.empty()) return false;
    auto decoded = DecodePlanBatch(self.from_root.front());
    self.from_root.pop_front();
    EXPECT_TRUE(decoded.ok());
    PlanBatch batch = std::move(decoded).value();
    for (Agreement& agreement : batch.agreements) Accept(rank, agreement);
    for (uint32_t id : batch.forgotten) self.cache.Forget(id);
    for (const auto& id_and_call : batch.repost) {
      const RequestKey& key = self.posted_by_id.at(id_and_call);
      EXPECT_TRUE(self.walker.Asked(key));
      self.to_root.push_back(EncodePosts({metas::Full(self.asked.at(key))}));
      ++reposts;
    }
    return true;
  }

  // Until nothing is on its way.
  void DeliverAll() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        moved |= DeliverToRoot(rank) || DeliverToRank(rank);
      }
    }
  }

  bool done() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.walker.done(); });
  }
  bool idle() const { return coordinator_.idle(); }

 private:
  struct Rank {
    explicit Rank(const std::vector<struct Step>& steps) : walker(steps) {}
    Walker walker;
    PlanCache cache;
    std::map<std::pair<uint32_t, uint64_t>, RequestKey> posted_by_id;
    std::map<RequestKey, RequestMeta> asked;
    std::deque<std::string> to_root, from_root;
  };

  void Distribute() {
    std::vector<Settled> settled = coordinator_.TakeSettled();
    std::vector<uint32_t> forgotten = coordinator_.TakeForgotten();
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      PlanBatch batch;
      for (const Settled& one : settled) {
        auto r = static_cast<int32_t>(rank);
        const auto& absent = one.agreement.absent;
        bool told = std::count(one.members.begin(), one.members.end(), r) == 1 &&
                    std::count(absent.begin(), absent.end(), r) == 0;
        if (told) batch.agreements.push_back(one.agreement);
        if (told && one.agreement.error.ok()) {
          EXPECT_EQ(one.meta.key, one.agreement.key);
        }
      }
      batch.forgotten = forgotten;
      batch.repost = coordinator_.TakeReposts(static_cast<int>(rank));
      if (batch.agreements.empty() && forgotten.empty() && batch.repost.empty()) continue;
      ranks_[rank].from_root.push_back(EncodePlanBatch(batch));
    }
  }

  void Accept(size_t rank, Agreement& agreement) {
    Rank& self = ranks_[rank];
    if (agreement.cached) {
      const Agreement* full = self.cache.Find(agreement.cache_id);
      ASSERT_NE(full, nullptr);
      uint64_t call = agreement.key.call;
      agreement = *full;
      agreement.key.call = call;
      ++cached;
    } else if (agreement.cache_id != kNoCacheId && agreement.error.ok()) {
      self.cache.Remember(self.asked.at(agreement.key), agreement);
    }
    self.walker.Finish(agreement.key, OutcomeText(agreement, true), agreement.value,
                       outcomes[rank]);
  }

  Coordinator coordinator_;
  std::vector<Rank> ranks_;

 public:
  Outcomes outcomes;
  int cached = 0;
  int reposts = 0;
};

std::string WithoutMessage(const std::string& outcome) {
  size_t at = outcome.rfind(" mismatch: ");
  if (at != std::string::npos) return "error 2";
  at = outcome.rfind(" invalid argument: ");
  return at == std::string::npos ? outcome : "error 1";
}

void ExpectLikeTheModel(const Program& program, const Outcomes& real, const Outcomes& model) {
  for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
    ASSERT_EQ(real[rank].size(), program.ranks[rank].size()) << "rank " << rank;
    for (const auto& [step, outcome] : real[rank]) {
      ASSERT_EQ(WithoutMessage(outcome), model[rank].at(step))
          << "rank " << rank << " step " << step;
    }
  }
}

constexpr int64_t kCapacities[] = {0, 1, 4, 1000};

// Every post arrives at once, so that the order, and with it who is absent, is the same in all
// worlds.
TEST(CoordinatorRandomTest, GivesWhatTheModelGivesWithAnyCache) {
  int cached = 0, errors = 0, absent = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Shape3 shape{
        2 + static_cast<int>(seed % 4), 12, 8, seed % 3 == 0 ? 30 : 2, seed % 2 == 0, seed % 4 > 1};
    Program program = Writer(random, shape).Write();
    std::vector<size_t> order;
    Model model(program);
    for (bool stuck = false; !stuck;) {
      stuck = true;
      for (int tries = 0; tries < 20; ++tries) {
        size_t rank = random() % program.ranks.size();
        if (!model.Step(rank)) continue;
        order.push_back(rank);
        stuck = false;
      }
      for (size_t rank = 0; stuck && rank < program.ranks.size(); ++rank) {
        if (!model.Step(rank)) continue;
        order.push_back(rank);
        stuck = false;
      }
    }
    ASSERT_TRUE(model.done());
    Outcomes first;
    for (int64_t capacity : kCapacities) {
      SCOPED_TRACE(capacity);
      Cluster cluster(program, capacity);
      for (size_t rank : order) {
        ASSERT_TRUE(cluster.Step(rank));
        cluster.DeliverAll();
      }
      ASSERT_TRUE(cluster.done());
      ASSERT_TRUE(cluster.idle());
      ExpectLikeTheModel(program, cluster.outcomes, model.outcomes);
      if (capacity == 0) first = cluster.outcomes;
      ASSERT_EQ(cluster.outcomes, first);  // texts included
      ASSERT_TRUE(capacity > 0 || cluster.cached == 0);
      cached += cluster.cached;
    }
    for (const auto& rank : model.outcomes) {
      for (const auto& [step, outcome] : rank) {
        errors += outcome.rfind("error", 0) == 0;
        absent += outcome.find("absent= ") == std::string::npos && outcome[0] != 'e';
      }
    }
  }
  EXPECT_GT(cached, 4000);
  EXPECT_GT(errors, 200);
  EXPECT_GT(absent, 200);
}

// Posts and batches take their time, so ids are forgotten while posts by them are on their way.
TEST(CoordinatorRandomTest, NothingIsLostWhileMessagesAreOnTheirWay) {
  int cached = 0, reposts = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    bool joins = seed % 2 == 0;
    Shape3 shape{2 + static_cast<int>(seed % 4), 12,    8,
                 seed % 3 == 0 ? 30 : 2,         joins, seed % 4 > 1};
    Program program = Writer(random, shape).Write();
    Cluster cluster(program, kCapacities[1 + random() % 3]);
    for (int idle = 0; idle < 2000;) {
      size_t rank = random() % program.ranks.size();
      unsigned what = random() % 3;
      bool moved = what == 0   ? cluster.Step(rank)
                   : what == 1 ? cluster.DeliverToRoot(rank)
                               : cluster.DeliverToRank(rank);
      idle = moved ? 0 : idle + 1;
    }
    ASSERT_TRUE(cluster.done());
    ASSERT_TRUE(cluster.idle());
    cached += cluster.cached;
    reposts += cluster.reposts;
    if (joins) continue;  // who is absent depends on the order; without joins nothing does
    Model model(program);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < program.ranks.size(); ++rank) moved |= model.Step(rank);
    }
    ASSERT_TRUE(model.done());
    ExpectLikeTheModel(program, cluster.outcomes, model.outcomes);
  }
  EXPECT_GT(cached, 2500);
  EXPECT_GT(reposts, 30);
}

}  // namespace
}  // namespace programs
}  // namespace syrtos
