// Posts by id.

#include <chrono>
#include <string>
#include <vector>

#include "engine/coordinator_fixture.h"

namespace syrtos {
namespace {

using Kind = CollectiveKind;
using metas::Allgather;
using metas::Allreduce;
using metas::ById;
using metas::Control;
using metas::Full;

class CoordinatorCacheTest : public CoordinatorFixture {};

TEST_F(CoordinatorCacheTest, AllPostsByIdNeedNoValidation) {
  Start(2);
  uint32_t id = Learn(2, Allreduce("x"));
  for (int round = 0; round < 3; ++round) {
    PostId(1, id);
    PostId(0, id);
    Settled settled = One();
    EXPECT_TRUE(settled.agreement.cached);
    EXPECT_EQ(settled.agreement.cache_id, id);
    EXPECT_EQ(settled.agreement.key.name, "x");
    EXPECT_TRUE(settled.meta.SameSignature(Allreduce("x")));
    EXPECT_EQ(settled.members, (Ranks{0, 1}));
  }
  EXPECT_TRUE(coordinator_->TakeForgotten().empty());
}

TEST_F(CoordinatorCacheTest, CachedRowsAreThereForThePlanner) {
  Start(2);
  Post(0, Allgather("x", {1}));
  Post(1, Allgather("x", {3}));
  uint32_t id = One().agreement.cache_id;
  PostId(0, id);
  PostId(1, id);
  Settled settled = One();
  EXPECT_TRUE(settled.agreement.cached);
  EXPECT_EQ(settled.agreement.rows, (std::vector<std::vector<int64_t>>{{1, 3}}));
}

TEST_F(CoordinatorCacheTest, OneFullPostIsValidatedAgainstTheRemembered) {
  Start(3);
  for (int rank = 0; rank < 3; ++rank) Post(rank, Allgather("x", {rank}));
  uint32_t id = One().agreement.cache_id;
  PostId(0, id);
  Post(1, Allgather("x", {7}));
  PostId(2, id);
  Settled settled = One();
  EXPECT_FALSE(settled.agreement.cached);
  EXPECT_EQ(settled.agreement.cache_id, id);
  EXPECT_EQ(settled.agreement.rows[0], (std::vector<int64_t>{0, 7, 2}));
  // The description of rank 1 is replaced, not those of the others.
  for (int rank = 0; rank < 3; ++rank) PostId(rank, id);
  settled = One();
  EXPECT_TRUE(settled.agreement.cached);
  EXPECT_EQ(settled.agreement.rows[0], (std::vector<int64_t>{0, 7, 2}));
}

TEST_F(CoordinatorCacheTest, NameMayChangeItsKindAndKeepItsId) {
  Start(2);
  uint32_t id = Learn(2, Allreduce("x"));
  EXPECT_EQ(Learn(2, Allgather("x", {2})), id);
  PostId(0, id);
  PostId(1, id);
  EXPECT_EQ(One().meta.kind, Kind::kAllgather);
}

TEST_F(CoordinatorCacheTest, ErrorForgetsTheName) {
  Start(2);
  uint32_t id = Learn(2, Allreduce("x"));
  PostId(0, id);
  Post(1, Allreduce("x", {9}));
  ExpectError(One(), StatusCode::kMismatch, "has shape (9,)", {0, 1});
  EXPECT_EQ(coordinator_->TakeForgotten(), std::vector<uint32_t>{id});
  EXPECT_TRUE(coordinator_->TakeForgotten().empty());
  EXPECT_NE(Learn(2, Allreduce("x")), id);
}

TEST_F(CoordinatorCacheTest, PostByAForgottenIdIsAskedForAgain) {
  Start(2);
  uint32_t id = Learn(2, Allreduce("x"));
  PostId(0, id);
  Post(1, Allreduce("x", {9}));
  Take();
  // Rank 0 asked again before it heard of the error.
  PostId(0, id);
  EXPECT_EQ(coordinator_->TakeReposts(0), (Reposts{{id, 0}}));
  EXPECT_TRUE(coordinator_->TakeReposts(0).empty());
  EXPECT_TRUE(coordinator_->TakeReposts(1).empty());
  Post(1, Allreduce("x"));
  EXPECT_TRUE(Take().empty());
  Post(0, Allreduce("x"));
  EXPECT_TRUE(One().agreement.error.ok());
}

TEST_F(CoordinatorCacheTest, IdNeverKnownIsAskedForAgain) {
  Start(2);
  PostId(1, 77, 5);
  EXPECT_EQ(coordinator_->TakeReposts(1), (Reposts{{77, 5}}));
  EXPECT_TRUE(coordinator_->idle());
}

TEST_F(CoordinatorCacheTest, UnnamedEntriesAreFoundBySignature) {
  Start(2);
  RequestMeta meta = Allreduce("");
  meta.key.call = 1;
  uint32_t id = Learn(2, meta);
  meta.key.call = 2;
  EXPECT_EQ(Learn(2, meta), id);
  // Several calls of one signature in flight.
  PostId(0, id, 3);
  PostId(0, id, 4);
  PostId(1, id, 4);
  Settled settled = One();
  EXPECT_TRUE(settled.agreement.cached);
  EXPECT_EQ(settled.agreement.key.call, 4u);
  EXPECT_EQ(settled.meta.key.call, 4u);
  PostId(1, id, 3);
  EXPECT_EQ(One().agreement.key.call, 3u);
}

// Ranks may use an id before they hear that their signature has met others since: what an unnamed
// id stands for must never change.
TEST_F(CoordinatorCacheTest, UnnamedCombinationsHaveIdsOfTheirOwn) {
  Start(2);
  RequestMeta mine = Allgather("", {1});
  auto call = [&](uint64_t number, RequestMeta theirs) {
    mine.key.call = theirs.key.call = number;
    Post(0, mine);
    Post(1, theirs);
    return One().agreement.cache_id;
  };
  uint32_t small = call(1, Allgather("", {2}));
  uint32_t large = call(2, Allgather("", {3}));
  EXPECT_NE(small, large);
  PostId(0, large, 3);
  PostId(1, small, 3);  // rank 1 means 2 rows
  Settled settled = One();
  EXPECT_FALSE(settled.agreement.cached);
  EXPECT_EQ(settled.agreement.cache_id, small);
  EXPECT_EQ(settled.agreement.rows[0], (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(settled.agreement.key.call, 3u);
}

TEST_F(CoordinatorCacheTest, LeastRecentlyUsedIsEvicted) {
  Start(2, 2);
  uint32_t a = Learn(2, Allreduce("a"));
  uint32_t b = Learn(2, Allreduce("b"));
  PostId(0, a);
  PostId(1, a);
  Take();
  uint32_t c = Learn(2, Allreduce("c"));
  EXPECT_EQ(coordinator_->TakeForgotten(), std::vector<uint32_t>{b});
  EXPECT_TRUE(c != a && c != b);
}

TEST_F(CoordinatorCacheTest, PendingEntriesAreNotEvicted) {
  Start(2, 1);
  uint32_t a = Learn(2, Allreduce("a"));
  PostId(0, a);
  PostAll(2, Allreduce("b"));
  EXPECT_EQ(One().agreement.cache_id, kNoCacheId);  // no room
  EXPECT_TRUE(coordinator_->TakeForgotten().empty());
  PostId(1, a);
  EXPECT_TRUE(One().agreement.cached);
  EXPECT_NE(Learn(2, Allreduce("b")), a);
  EXPECT_EQ(coordinator_->TakeForgotten(), std::vector<uint32_t>{a});
}

TEST_F(CoordinatorCacheTest, CapacityZeroRemembersNothing) {
  Start(2, 0);
  PostAll(2, Allreduce("a"));
  EXPECT_EQ(One().agreement.cache_id, kNoCacheId);
}

TEST_F(CoordinatorCacheTest, OnlyCallsThatChangeNothingAreRemembered) {
  Start(2);
  EXPECT_NE(Learn(2, Control(Kind::kBarrier, "b")), kNoCacheId);
  for (RequestMeta meta : {Control(Kind::kAddGroup, "add", {0}),
                           Control(Kind::kRemoveGroup, "del", {1}), Control(Kind::kJoin, "join")}) {
    PostAll(2, meta);
    EXPECT_EQ(One().agreement.cache_id, kNoCacheId);
  }
}

TEST_F(CoordinatorCacheTest, ThousandRanksWithTwoHundredTensorsAreQuick) {
  constexpr int kSize = 1000, kTensors = 200;
  Start(kSize, 1000);
  auto begin = std::chrono::steady_clock::now();
  std::vector<uint32_t> ids;
  for (int round = 0; round < 3; ++round) {
    for (int rank = 0; rank < kSize; ++rank) {
      std::vector<syrtos::Post> posts;
      for (int i = 0; i < kTensors; ++i) {
        posts.push_back(round == 0 ? Full(Allreduce("layer/" + std::to_string(i)))
                                   : ById(ids[static_cast<size_t>(i)]));
      }
      coordinator_->OnPosts(rank, std::move(posts), kStart);
    }
    auto settled = Take();
    ASSERT_EQ(settled.size(), static_cast<size_t>(kTensors));
    ids.clear();
    for (const Settled& one : settled) {
      ASSERT_TRUE(one.agreement.error.ok());
      ASSERT_EQ(one.agreement.cached, round > 0);
      ids.push_back(one.agreement.cache_id);
    }
  }
  // A wide limit, for sanitizers: an algorithm that scans what is pending would take minutes.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace syrtos
