// What ends before all have posted, and what takes suspiciously long.

#include "engine/coordinator_fixture.h"

namespace syrtos {
namespace {

using Kind = CollectiveKind;
using metas::Allreduce;
using metas::Control;

class CoordinatorFaultsTest : public CoordinatorFixture {};

TEST_F(CoordinatorFaultsTest, ExpiredRequestAnswersLatePostsOnce) {
  Start(3);
  Post(0, Allreduce("x"), At(0));
  Post(1, Allreduce("x"), At(5));
  coordinator_->ExpireOlderThan(At(10), Seconds(10));
  EXPECT_TRUE(Take().empty());
  coordinator_->ExpireOlderThan(At(11), Seconds(10));
  ExpectError(One(), StatusCode::kTimeout,
              "allreduce \"x\": rank 2 (c) did not call it within 10 s of ranks 0 (a), 1 (b). Make",
              {0, 1});
  EXPECT_TRUE(coordinator_->idle());
  // The others go on with the same name; rank 2's late first call is not their second.
  Post(0, Allreduce("x", {7}), At(12));
  Post(1, Allreduce("x", {7}), At(12));
  Post(2, Allreduce("x", {4}), At(12));
  ExpectError(One(), StatusCode::kTimeout, "within 10 s", {2});
  Post(2, Allreduce("x", {7}), At(13));
  EXPECT_TRUE(One().agreement.error.ok());
}

TEST_F(CoordinatorFaultsTest, EveryExpiryIsOwedInOrder) {
  Start(2);
  for (int i = 1; i <= 2; ++i) {
    Post(0, Allreduce("x"), At(0));
    coordinator_->ExpireOlderThan(At(10 * i), Seconds(i));
    ExpectError(One(), StatusCode::kTimeout, "", {0});
  }
  for (int i = 1; i <= 2; ++i) {
    Post(1, Allreduce("x"), At(0));
    ExpectError(One(), StatusCode::kTimeout, "within " + std::to_string(i) + ".0 s", {1});
  }
  PostAll(2, Allreduce("x"));
  EXPECT_TRUE(One().agreement.error.ok());
}

TEST_F(CoordinatorFaultsTest, JoiningPaysWhatIsOwed) {
  Start(2);
  Post(0, Allreduce("x"), At(0));
  coordinator_->ExpireOlderThan(At(10), Seconds(1));
  Take();
  Post(1, Control(Kind::kJoin, ""));
  Post(0, Control(Kind::kJoin, ""));
  Take();
  PostAll(2, Allreduce("x"));
  EXPECT_TRUE(One().agreement.error.ok());
}

TEST_F(CoordinatorFaultsTest, OwedPostByAForgottenIdIsAnsweredAtOnce) {
  Start(2);
  uint32_t id = Learn(2, Allreduce("x"));
  PostId(0, id);
  coordinator_->ExpireOlderThan(At(10), Seconds(1));
  ExpectError(One(), StatusCode::kTimeout, "", {0});
  EXPECT_EQ(coordinator_->TakeForgotten(), std::vector<uint32_t>{id});
  PostId(1, id);
  ExpectError(One(), StatusCode::kTimeout, "", {1});
  EXPECT_TRUE(coordinator_->TakeReposts(1).empty());
}

TEST_F(CoordinatorFaultsTest, ExpiredWhileADescriptionIsAwaited) {
  Start(3, 1);
  uint32_t x = Learn(3, Allreduce("x"));
  Learn(3, Allreduce("y"));
  Post(0, Allreduce("x"));
  PostId(1, x);
  Post(1, Control(Kind::kJoin, ""));
  coordinator_->ExpireOlderThan(At(10), Seconds(1));
  auto settled = Take();
  ASSERT_EQ(settled.size(), 2u);  // x, and the join
  ExpectError(settled[0], StatusCode::kTimeout, "rank 2 (c) did not call it", {0});
  ExpectError(settled[1], StatusCode::kTimeout, "join", {1});
  EXPECT_EQ(coordinator_->TakeReposts(1), (Reposts{{x, 0}}));
  Post(1, Allreduce("x"));
  ExpectError(One(), StatusCode::kTimeout, "", {1});
  Post(2, Allreduce("x"));
  ExpectError(One(), StatusCode::kTimeout, "", {2});
  Post(2, Control(Kind::kJoin, ""));
  ExpectError(One(), StatusCode::kTimeout, "join", {2});
  PostAll(3, Allreduce("x"));
  EXPECT_TRUE(One().agreement.error.ok());
}

TEST_F(CoordinatorFaultsTest, SecondRequestOfAPendingNameFailsForAll) {
  Start(3);
  Post(0, Allreduce("x"));
  Post(1, Allreduce("x"));
  Post(1, Allreduce("x"));
  ExpectError(One(), StatusCode::kInvalidArgument,
              "allreduce \"x\": rank 1 (b) made a second request of the same name", {0, 1});
  Post(2, Allreduce("x"));
  ExpectError(One(), StatusCode::kInvalidArgument, "same name", {2});
  PostAll(3, Allreduce("x"));
  EXPECT_TRUE(One().agreement.error.ok());
}

TEST_F(CoordinatorFaultsTest, DepartedRankEndsItsGroupsButNotTheOthers) {
  Start(3);
  PostAll(3, Control(Kind::kAddGroup, "g", {0, 1}));
  Take();
  RequestMeta inside = Allreduce("in");
  inside.key.group = 1;
  Post(0, inside);
  Post(0, Allreduce("x"));
  Post(2, Allreduce("x"));
  Post(1, Control(Kind::kJoin, ""));
  Take();  // the join has completed both
  Post(0, Allreduce("y"));
  Post(2, Control(Kind::kJoin, ""));
  Take();
  Post(0, Allreduce("w"));
  Take();
  coordinator_->OnDeparted(2, Status::Shutdown("rank 2 (c) has shut down."));
  ExpectError(One(), StatusCode::kShutdown, "join: rank 2 (c) has shut down.", {1});
  EXPECT_TRUE(coordinator_->idle());
  Post(0, Allreduce("z"));
  ExpectError(One(), StatusCode::kShutdown, "allreduce \"z\": rank 2 (c) has shut down.", {0});
  Post(1, Allreduce("z"));
  ExpectError(One(), StatusCode::kShutdown, "allreduce \"z\": rank 2 (c) has shut down.", {1});
  Post(0, Control(Kind::kJoin, ""));
  ExpectError(One(), StatusCode::kShutdown, "rank 2 (c)", {0});
  // Group 1 is whole.
  Post(1, inside);
  Post(0, inside);
  EXPECT_TRUE(One().agreement.error.ok());
  // A second departure ends it; the world keeps its first cause.
  Post(0, inside);
  coordinator_->OnDeparted(1, Status::Shutdown("rank 1 (b) has shut down."));
  ExpectError(One(), StatusCode::kShutdown, "rank 1 (b)", {0});
  Post(0, Allreduce("z"));
  ExpectError(One(), StatusCode::kShutdown, "rank 2 (c)", {0});
}

TEST_F(CoordinatorFaultsTest, DepartureAnswersThoseWhoAskedAndTheRestWhenTheyDo) {
  Start(3);
  uint32_t id = Learn(3, Allreduce("x"));
  Post(0, Allreduce("x"));
  Post(1, Allreduce("y"));
  coordinator_->OnDeparted(1, Status::Shutdown("gone"));
  ExpectError(One(), StatusCode::kShutdown, "allreduce \"x\": gone", {0});
  PostId(2, id);
  ExpectError(One(), StatusCode::kShutdown, "allreduce \"x\": gone", {2});
  Post(1, Allreduce("y"));  // from beyond
  coordinator_->OnDeparted(1, Status::Shutdown("again"));
  EXPECT_TRUE(Take().empty());
}

TEST_F(CoordinatorFaultsTest, PostsAfterAFailedJoinAreAnswered) {
  Start(2);
  Post(0, Control(Kind::kJoin, ""));
  Post(0, Allreduce("after"));
  coordinator_->OnDeparted(1, Status::Shutdown("gone"));
  auto settled = Take();
  ASSERT_EQ(settled.size(), 2u);
  ExpectError(settled[0], StatusCode::kShutdown, "join: gone", {0});
  ExpectError(settled[1], StatusCode::kShutdown, "allreduce \"after\": gone", {0});
}

TEST_F(CoordinatorFaultsTest, StallReportSaysWhoHasItAndWhoLacksIt) {
  Start(4);
  Post(0, Allreduce("x"), At(0));
  Post(2, Allreduce("x"), At(50));
  Post(1, Allreduce("y"), At(59));
  EXPECT_TRUE(coordinator_->Stalled(At(60), Seconds(60)).empty());
  auto reports = coordinator_->Stalled(At(61), Seconds(60));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].key.name, "x");
  EXPECT_EQ(reports[0].kind, Kind::kAllreduce);
  EXPECT_EQ(reports[0].have, (Ranks{0, 2}));
  EXPECT_EQ(reports[0].missing, (Ranks{1, 3}));
  EXPECT_DOUBLE_EQ(reports[0].age.count(), 61);
  EXPECT_EQ(
      reports[0].text.rfind("allreduce \"x\": ranks 0 (a), 2 (c) waiting for ranks 1 (b), 3 (d), "
                            "for 61 s by now.",
                            0),
      0u)
      << reports[0].text;
  EXPECT_EQ(reports[0].text.find('\n'), std::string::npos);
}

TEST_F(CoordinatorFaultsTest, StallReportOfManyRanksIsShort) {
  Start(2000);
  for (int rank = 0; rank < 2000; ++rank) {
    if (rank != 700 && rank != 1999) Post(rank, Allreduce("x"), At(0));
  }
  auto reports = coordinator_->Stalled(At(61), Seconds(60));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_NE(reports[0].text.find("ranks 0-699, 701-1998 (1998 ranks) waiting for ranks 700, 1999"),
            std::string::npos)
      << reports[0].text;
}

TEST_F(CoordinatorFaultsTest, JoinIsNoStallWhileTheOthersWork) {
  Start(3);
  Post(0, Control(Kind::kJoin, ""), At(0));
  Post(1, Allreduce("x"), At(100));
  Post(2, Allreduce("x"), At(100));
  Take();
  EXPECT_TRUE(coordinator_->Stalled(At(120), Seconds(60)).empty());
  coordinator_->ExpireOlderThan(At(120), Seconds(60));
  EXPECT_TRUE(Take().empty());
  auto reports = coordinator_->Stalled(At(161), Seconds(60));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].kind, Kind::kJoin);
  EXPECT_EQ(reports[0].have, Ranks{0});
  EXPECT_EQ(reports[0].missing, (Ranks{1, 2}));
  // A joined rank is not what others wait for.
  Post(1, Allreduce("y"), At(200));
  reports = coordinator_->Stalled(At(300), Seconds(99));
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports[0].missing, Ranks{2});
}

TEST_F(CoordinatorFaultsTest, ExpiredJoinIsOwedToTheRest) {
  Start(2);
  Post(0, Control(Kind::kJoin, ""), At(0));
  coordinator_->ExpireOlderThan(At(2), Seconds(1));
  ExpectError(One(), StatusCode::kTimeout, "rank 1 (b) did not call it within 1.0 s of rank 0 (a)",
              {0});
  EXPECT_TRUE(coordinator_->idle());
  Post(0, Control(Kind::kJoin, ""), At(3));
  Post(1, Control(Kind::kJoin, ""), At(3));
  ExpectError(One(), StatusCode::kTimeout, "join", {1});
  Post(1, Control(Kind::kJoin, ""), At(3));
  EXPECT_EQ(One().agreement.value, 1);
}

TEST_F(CoordinatorFaultsTest, StrangersAreIgnored) {
  Start(2);
  Post(-1, Allreduce("x"));
  Post(2, Allreduce("x"));
  coordinator_->OnDeparted(2, Status::Shutdown("who"));
  coordinator_->OnDeparted(-1, Status::Shutdown("who"));
  EXPECT_TRUE(Take().empty());
  EXPECT_TRUE(coordinator_->idle());
}

}  // namespace
}  // namespace syrtos
