// Posts, agreements and groups.

#include "engine/coordinator_fixture.h"

namespace syrtos {
namespace {

using Kind = CollectiveKind;
using metas::Allreduce;
using metas::Control;

class CoordinatorTest : public CoordinatorFixture {};

TEST_F(CoordinatorTest, SettlesWhenAllHavePosted) {
  Start(3);
  Post(2, Allreduce("x"));
  Post(0, Allreduce("x"));
  EXPECT_TRUE(Take().empty());
  EXPECT_FALSE(coordinator_->idle());
  Post(1, Allreduce("x"));
  Settled settled = One();
  EXPECT_TRUE(settled.agreement.error.ok());
  EXPECT_EQ(settled.agreement.key.name, "x");
  EXPECT_FALSE(settled.agreement.cached);
  EXPECT_EQ(settled.members, (Ranks{0, 1, 2}));
  EXPECT_TRUE(settled.meta.SameSignature(Allreduce("x")));
  EXPECT_TRUE(coordinator_->idle());
  EXPECT_TRUE(Take().empty());
}

TEST_F(CoordinatorTest, SettlesInTheOrderOfCompletion) {
  Start(2);
  for (const char* name : {"a", "b", "c"}) Post(0, Allreduce(name));
  for (const char* name : {"c", "a", "b"}) Post(1, Allreduce(name));
  auto settled = Take();
  ASSERT_EQ(settled.size(), 3u);
  EXPECT_EQ(
      settled[0].agreement.key.name + settled[1].agreement.key.name + settled[2].agreement.key.name,
      "cab");
}

TEST_F(CoordinatorTest, UnnamedRequestsMeetByNumber) {
  Start(2);
  RequestMeta first = Allreduce("", {1}), second = Allreduce("", {2});
  first.key.call = 1;
  second.key.call = 2;
  Post(0, first);
  Post(0, second);
  Post(1, second);
  EXPECT_EQ(One().agreement.key.call, 2u);
  Post(1, first);
  EXPECT_EQ(One().agreement.key.call, 1u);
}

TEST_F(CoordinatorTest, MismatchTellsAllAndFreesTheKey) {
  Start(2);
  Post(0, Allreduce("x", {4}));
  Post(1, Allreduce("x", {5}));
  ExpectError(One(), StatusCode::kMismatch, "rank 1 (b) has shape (5,) but rank 0 (a)", {0, 1});
  EXPECT_TRUE(coordinator_->idle());
  PostAll(2, Allreduce("x"));
  EXPECT_TRUE(One().agreement.error.ok());
}

TEST_F(CoordinatorTest, GroupsTakeTheSmallestFreeId) {
  Start(3);
  auto add = [&](Ranks ranks) {
    PostAll(3, Control(Kind::kAddGroup, "add", ranks));
    return One();
  };
  auto remove = [&](int32_t id) {
    PostAll(3, Control(Kind::kRemoveGroup, "remove", {id}));
    return One();
  };
  EXPECT_EQ(coordinator_->Members(kWorldGroup), (Ranks{0, 1, 2}));
  EXPECT_EQ(add({0, 1}).agreement.value, 1);
  EXPECT_EQ(add({2}).agreement.value, 2);
  EXPECT_EQ(coordinator_->Members(1), (Ranks{0, 1}));
  ExpectError(add({0, 1}), StatusCode::kInvalidArgument,
              "a process set with the ranks [0, 1] exists already, with id 1. Use that one",
              {0, 1, 2});
  ExpectError(add({0, 1, 2}), StatusCode::kInvalidArgument, "(the global one)", {0, 1, 2});
  EXPECT_EQ(remove(1).agreement.value, 0);
  EXPECT_TRUE(coordinator_->Members(1).empty());
  EXPECT_EQ(add({1, 2}).agreement.value, 1);
  ExpectError(remove(7), StatusCode::kInvalidArgument, "there is no process set 7", {0, 1, 2});
  ExpectError(remove(0), StatusCode::kInvalidArgument, "cannot be removed", {0, 1, 2});
}

TEST_F(CoordinatorTest, OnlyMembersOfAKnownGroupMayCall) {
  Start(3);
  PostAll(3, Control(Kind::kAddGroup, "g", {0, 2}));
  Take();
  RequestMeta meta = Allreduce("x");
  meta.key.group = 1;
  Post(1, meta);
  ExpectError(One(), StatusCode::kInvalidArgument, "rank 1 (b) is not in process set 1", {1});
  meta.key.group = 9;
  Post(2, meta);
  ExpectError(One(), StatusCode::kInvalidArgument, "there is no process set 9", {2});
  RequestMeta join = Control(Kind::kJoin, "");
  join.key.group = 1;
  Post(2, join);
  ExpectError(One(), StatusCode::kInvalidArgument, "all ranks", {2});
  EXPECT_TRUE(coordinator_->idle());
}

TEST_F(CoordinatorTest, RemovingAGroupEndsItsRequestsAndItsIds) {
  Start(2);
  PostAll(2, Control(Kind::kAddGroup, "g", {1}));
  Take();
  RequestMeta alone = Allreduce("x");
  alone.key.group = 1;
  Post(1, alone);
  uint32_t id = One().agreement.cache_id;
  EXPECT_NE(id, kNoCacheId);
  PostAll(2, Control(Kind::kRemoveGroup, "r", {1}));
  EXPECT_TRUE(One().agreement.error.ok());
  EXPECT_EQ(coordinator_->TakeForgotten(), std::vector<uint32_t>{id});
  PostId(1, id);
  ExpectError(One(), StatusCode::kInvalidArgument, "there is no process set 1", {1});
  EXPECT_TRUE(coordinator_->TakeReposts(1).empty());
}

TEST_F(CoordinatorTest, RemovingAGroupFailsWhatIsHalfAsked) {
  Start(3);
  PostAll(3, Control(Kind::kAddGroup, "g", {0, 1}));
  Take();
  RequestMeta meta = Allreduce("x");
  meta.key.group = 1;
  Post(0, meta);
  PostAll(3, Control(Kind::kRemoveGroup, "r", {1}));
  auto settled = Take();
  ASSERT_EQ(settled.size(), 2u);
  ExpectError(settled[0], StatusCode::kInvalidArgument, "was removed", {0});
  EXPECT_TRUE(settled[1].agreement.error.ok());
  Post(1, meta);
  ExpectError(One(), StatusCode::kInvalidArgument, "there is no process set 1", {1});
}

}  // namespace
}  // namespace syrtos
