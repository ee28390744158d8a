// Ranks that have run out of data.

#include "engine/coordinator_fixture.h"

namespace syrtos {
namespace {

using Kind = CollectiveKind;
using metas::Allgather;
using metas::Allreduce;
using metas::Control;

class CoordinatorJoinTest : public CoordinatorFixture {};

TEST_F(CoordinatorJoinTest, JoinReturnsTheLastRank) {
  Start(3);
  for (int round = 0; round < 2; ++round) {
    Post(0, Control(Kind::kJoin, "j"));
    Post(2, Control(Kind::kJoin, "j"));
    EXPECT_TRUE(Take().empty());
    EXPECT_FALSE(coordinator_->idle());
    Post(1, Control(Kind::kJoin, "j"));
    Settled settled = One();
    EXPECT_EQ(settled.agreement.value, 1);
    EXPECT_EQ(settled.meta.kind, Kind::kJoin);
    EXPECT_EQ(settled.members, (Ranks{0, 1, 2}));
    EXPECT_TRUE(coordinator_->idle());
  }
}

TEST_F(CoordinatorJoinTest, JoinsOfDifferentNumbersAreOneJoin) {
  Start(3);
  for (int rank = 0; rank < 3; ++rank) {
    RequestMeta join = Control(Kind::kJoin, "");
    join.key.call = rank == 1 ? 5 : 2;
    Post(rank, join);
  }
  auto settled = Take();
  ASSERT_EQ(settled.size(), 2u);
  EXPECT_EQ(settled[0].members, (Ranks{0, 2}));
  EXPECT_EQ(settled[0].agreement.key.call, 2u);
  EXPECT_EQ(settled[1].members, Ranks{1});
  EXPECT_EQ(settled[1].agreement.key.call, 5u);
  EXPECT_EQ(settled[0].agreement.value, 2);
  EXPECT_EQ(settled[1].agreement.value, 2);
}

TEST_F(CoordinatorJoinTest, StrictJoinLetsOnlyAllreduceGoOn) {
  Start(3, 100, /*strict_join=*/true);
  Learn(3, Allgather("g", {2}));
  Post(1, Control(Kind::kJoin, ""));
  for (int rank : {0, 2}) Post(rank, Allreduce("x"));
  Settled reduced = One();
  EXPECT_TRUE(reduced.agreement.error.ok()) << reduced.agreement.error.message();
  EXPECT_EQ(reduced.agreement.absent, Ranks{1});
  for (int rank : {0, 2}) Post(rank, Control(Kind::kBarrier, "b"));
  EXPECT_TRUE(One().agreement.error.ok());
  for (int round = 0; round < 2; ++round) {
    for (int rank : {0, 2}) Post(rank, Allgather("g", {2}));
    ExpectError(One(), StatusCode::kMismatch, "rank 1 (b) called join()", Ranks{0, 2});
  }
  for (int rank : {0, 2}) Post(rank, Control(Kind::kJoin, ""));
  EXPECT_TRUE(One().agreement.error.ok());
  Learn(3, Allgather("g", {2}));
}

RequestMeta JoinCountingActive() {
  RequestMeta join = Control(Kind::kJoin, "");
  join.average_active = true;
  return join;
}

TEST_F(CoordinatorJoinTest, AveragesOverActiveRanksLastAsLongAsTheJoin) {
  Start(3);
  Learn(3, Allreduce("x"));
  Post(1, JoinCountingActive());
  for (int rank : {0, 2}) Post(rank, Allreduce("x"));
  Settled during = One();
  EXPECT_TRUE(during.agreement.average_active);
  EXPECT_EQ(DivisorOf(during.agreement, 3), 2);
  for (int rank : {0, 2}) Post(rank, JoinCountingActive());
  ASSERT_TRUE(One().agreement.error.ok());
  for (int rank : {0, 1, 2}) Post(rank, Allreduce("x"));
  Settled after = One();
  EXPECT_FALSE(after.agreement.average_active);
  EXPECT_EQ(DivisorOf(after.agreement, 3), 3);
  // The next join may want the other divisor.
  Post(0, Control(Kind::kJoin, ""));
  for (int rank : {1, 2}) Post(rank, Allreduce("x"));
  Settled full = One();
  EXPECT_EQ(full.agreement.absent, Ranks{0});
  EXPECT_EQ(DivisorOf(full.agreement, 3), 3);
}

TEST_F(CoordinatorJoinTest, RanksThatPostedBeforeTheirJoinCountInAverages) {
  Start(3);
  Post(1, Allreduce("x"));
  Post(1, JoinCountingActive());
  for (int rank : {0, 2}) Post(rank, Allreduce("x"));
  Settled settled = One();
  EXPECT_TRUE(settled.agreement.absent.empty());
  EXPECT_EQ(DivisorOf(settled.agreement, 3), 3);
}

TEST_F(CoordinatorJoinTest, DifferentDivisorsAreAnErrorForAll) {
  Start(3);
  Post(2, JoinCountingActive());
  Post(0, Control(Kind::kJoin, ""));
  ExpectError(One(), StatusCode::kMismatch,
              "rank 0 (a) called join(average_active=False) but rank 2 (c) called "
              "join(average_active=True)",
              Ranks{0, 2});
  Post(1, JoinCountingActive());
  ExpectError(One(), StatusCode::kMismatch, "average_active", Ranks{1});
  EXPECT_TRUE(coordinator_->idle());
  for (int rank : {0, 1, 2}) Post(rank, Allreduce("x"));
  EXPECT_TRUE(One().agreement.absent.empty());
}

TEST_F(CoordinatorJoinTest, JoinedRanksCountAsHavingPosted) {
  Start(3);
  uint32_t id = Learn(3, Allreduce("x"));
  PostId(0, id);
  PostId(2, id);
  Post(1, Control(Kind::kJoin, ""));
  Settled settled = One();
  EXPECT_TRUE(settled.agreement.error.ok());
  EXPECT_EQ(settled.agreement.absent, Ranks{1});
  EXPECT_FALSE(settled.agreement.cached);
  EXPECT_EQ(settled.agreement.cache_id, kNoCacheId);
  EXPECT_EQ(settled.members, (Ranks{0, 1, 2}));
  // Another shape while rank 1 is away: of no consequence later.
  Post(0, Allreduce("x", {9}));
  Post(2, Allreduce("x", {9}));
  EXPECT_EQ(One().agreement.cache_id, kNoCacheId);
  Post(0, Control(Kind::kJoin, ""));
  Post(2, Control(Kind::kJoin, ""));
  EXPECT_EQ(One().agreement.value, 2);
  for (int rank = 0; rank < 3; ++rank) PostId(rank, id);
  settled = One();
  EXPECT_TRUE(settled.agreement.cached);
  EXPECT_EQ(settled.meta.parts[0].shape, Shape{4});
}

TEST_F(CoordinatorJoinTest, OwnPostsFromBeforeTheJoinStayValid) {
  Start(2);
  Post(0, Allgather("x", {5}));
  Post(0, Control(Kind::kJoin, ""));
  EXPECT_TRUE(Take().empty());
  Post(1, Allgather("x", {6}));
  Settled settled = One();
  EXPECT_TRUE(settled.agreement.absent.empty());
  EXPECT_EQ(settled.agreement.rows[0], (std::vector<int64_t>{5, 6}));
  Post(0, Allgather("y", {1}));
  Post(1, Control(Kind::kJoin, ""));
  auto both = Take();
  ASSERT_EQ(both.size(), 1u);  // y comes after the join
  EXPECT_EQ(both[0].meta.kind, Kind::kJoin);
  Post(1, Allgather("y", {2}));
  EXPECT_EQ(One().agreement.rows[0], (std::vector<int64_t>{1, 2}));
}

TEST_F(CoordinatorJoinTest, LastJoinSettlesWhatWasPending) {
  Start(2);
  Post(0, Allreduce("x"));
  Post(0, Control(Kind::kJoin, ""));
  Post(1, Control(Kind::kJoin, ""));
  auto settled = Take();
  ASSERT_EQ(settled.size(), 2u);
  EXPECT_EQ(settled[0].agreement.key.name, "x");
  EXPECT_EQ(settled[0].agreement.absent, Ranks{1});
  EXPECT_EQ(settled[1].meta.kind, Kind::kJoin);
}

TEST_F(CoordinatorJoinTest, JoinAfterJoinIsTheNextRound) {
  Start(2);
  for (int i = 0; i < 3; ++i) Post(0, Control(Kind::kJoin, "j" + std::to_string(i)));
  for (int i = 0; i < 3; ++i) Post(1, Control(Kind::kJoin, "j" + std::to_string(i)));
  auto settled = Take();
  ASSERT_EQ(settled.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(settled[i].agreement.key.name, "j" + std::to_string(i));
    EXPECT_EQ(settled[i].members, (Ranks{0, 1}));
  }
  EXPECT_EQ(settled[0].agreement.value, 1);
}

TEST_F(CoordinatorJoinTest, AloneAJoinIsOverAtOnce) {
  Start(1);
  for (int i = 0; i < 200; ++i) {
    Post(0, Control(Kind::kJoin, ""));
    EXPECT_EQ(One().agreement.value, 0);
  }
}

TEST_F(CoordinatorJoinTest, JoinedRanksAreAbsentFromGroupsToo) {
  Start(3);
  PostAll(3, Control(Kind::kAddGroup, "g", {1, 2}));
  uint32_t group = static_cast<uint32_t>(One().agreement.value);
  RequestMeta meta = Allreduce("x");
  meta.key.group = group;
  Post(1, meta);
  Post(2, Control(Kind::kJoin, ""));
  Settled settled = One();
  EXPECT_EQ(settled.agreement.absent, Ranks{2});
  EXPECT_EQ(settled.members, (Ranks{1, 2}));
}

TEST_F(CoordinatorJoinTest, GroupsCannotChangeWhileARankHasJoined) {
  Start(2);
  Post(1, Control(Kind::kJoin, ""));
  Post(0, Control(Kind::kAddGroup, "g", {0}));
  ExpectError(One(), StatusCode::kInvalidArgument, "rank 1 (b) called join()", {0});
  EXPECT_TRUE(coordinator_->Members(1).empty());
}

TEST_F(CoordinatorJoinTest, BroadcastFromAJoinedRootFails) {
  Start(2);
  Post(0, Control(Kind::kJoin, ""));
  Post(1, metas::Meta(Kind::kBroadcast, "w", {1}));
  ExpectError(One(), StatusCode::kMismatch, "join", {1});
}

// Rank 1 posted by an id that rank 0 had just forgotten, and then joined: it did ask.
TEST_F(CoordinatorJoinTest, AwaitedPostIsNotTakenForAnAbsentOne) {
  Start(2, 1);
  uint32_t x = Learn(2, Allreduce("x"));
  Learn(2, Allreduce("y"));
  EXPECT_EQ(coordinator_->TakeForgotten(), std::vector<uint32_t>{x});
  PostId(1, x);
  Post(1, Control(Kind::kJoin, ""));
  Post(0, Allreduce("x"));
  Post(0, Control(Kind::kJoin, ""));
  EXPECT_TRUE(Take().empty());
  EXPECT_EQ(coordinator_->TakeReposts(1), (Reposts{{x, 0}}));
  Post(1, Allreduce("x"));
  auto settled = Take();
  ASSERT_EQ(settled.size(), 2u);
  EXPECT_EQ(settled[0].agreement.key.name, "x");
  EXPECT_TRUE(settled[0].agreement.absent.empty());
  EXPECT_EQ(settled[1].meta.kind, Kind::kJoin);
  EXPECT_TRUE(coordinator_->idle());
}

}  // namespace
}  // namespace syrtos
