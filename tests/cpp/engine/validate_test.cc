#include "syrtos/engine/validate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "engine/metas.h"

namespace syrtos {
namespace {

using Kind = CollectiveKind;
using metas::Allgather;
using metas::Allreduce;
using metas::Control;
using metas::Meta;

const std::vector<std::string> kHosts = {"node-a", "node-a", "node-b", "node-b"};

// `metas[i]` is the request of rank i; the ranks in `skip` have joined.
Agreement SettleAll(const std::vector<RequestMeta>& metas, const std::vector<int32_t>& skip = {},
                    const std::vector<std::string>& hosts = kHosts) {
  std::vector<int32_t> members(metas.size());
  std::iota(members.begin(), members.end(), 0);
  std::vector<Asked> asked;
  for (int32_t rank : members) {
    if (std::find(skip.begin(), skip.end(), rank) == skip.end()) {
      asked.push_back({rank, &metas[static_cast<size_t>(rank)]});
    }
  }
  return Settle(asked, members, hosts);
}

using Change = std::function<void(RequestMeta&)>;

RequestMeta Changed(RequestMeta meta, const Change& change) {
  change(meta);
  return meta;
}

RequestMeta Grouped(std::vector<std::string> names) {
  RequestMeta meta = Control(Kind::kAllreduce, "grads");
  for (auto& name : names) {
    meta.parts.push_back(metas::Part({2}));
    meta.parts.back().name = std::move(name);
  }
  return meta;
}

struct MismatchCase {
  const char* label;
  RequestMeta meta;
  Change change;  // on rank 2
  const char* message;
};

std::vector<MismatchCase> MismatchCases() {
  return {
      {"shape", Allreduce("grad/dense/kernel", {4, 7}), [](auto& m) { m.parts[0].shape = {4, 8}; },
       "allreduce \"grad/dense/kernel\": rank 2 (node-b) has shape (4, 8) but rank 0 (node-a) has "
       "shape "
       "(4, 7). Build the model identically on every rank, or use allgather if the first dimension "
       "may "
       "differ."},
      {"kind", Allreduce("x"), [](auto& m) { m.kind = Kind::kAllgather; },
       "allreduce \"x\": rank 2 (node-b) calls allgather but rank 0 (node-a) calls allreduce. Make "
       "the "
       "same call under one name on every rank."},
      {"kind, unnamed", Allreduce(""), [](auto& m) { m.kind = Kind::kBarrier; },
       "allreduce (unnamed call 0): rank 2 (node-b) calls barrier but rank 0 (node-a) calls "
       "allreduce. "
       "Make unnamed calls in the same order on every rank, or name them."},
      {"number of parts", Allreduce("x"), [](auto& m) { m.parts.push_back(m.parts[0]); },
       "allreduce \"x\": rank 2 (node-b) has 2 tensors but rank 0 (node-a) has 1 tensor. Pass the "
       "same "
       "list of tensors on every rank."},
      {"a part is missing", Grouped({"kernel", "bias", "scale"}),
       [](auto& m) { m.parts.erase(m.parts.begin() + 1); },
       "allreduce \"grads\": rank 2 (node-b) has 2 tensors but rank 0 (node-a) has 3 tensors; "
       "\"bias\" is missing on rank 2 (node-b). Pass the same list of tensors on every rank."},
      {"a part is too much", Grouped({"kernel"}),
       [](auto& m) {
         m.parts.push_back(m.parts[0]);
         m.parts[1].name = "bias";
       },
       "allreduce \"grads\": rank 2 (node-b) has 2 tensors but rank 0 (node-a) has 1 tensor; "
       "\"bias\" is missing on rank 0 (node-a). Pass the same list of tensors on every rank."},
      {"part name", Grouped({"kernel", "bias"}), [](auto& m) { m.parts[1].name = "scale"; },
       "allreduce \"grads\", part 2 of 2 \"bias\": rank 2 (node-b) has \"scale\" there but rank 0 "
       "(node-a) "
       "has \"bias\" there. Pass the tensors in the same order on every rank."},
      {"dtype", Allreduce("x"), [](auto& m) { m.parts[0].dtype = DType::kFloat16; },
       "allreduce \"x\": rank 2 (node-b) has dtype float16 but rank 0 (node-a) has dtype float32. "
       "Convert "
       "to one dtype on every rank."},
      {"item size", Meta(Kind::kBroadcast, "x", {2}, DType::kOpaque),
       [](auto& m) { m.parts[0].item_bytes = 3; },
       "broadcast \"x\": rank 2 (node-b) has dtype opaque (3 bytes each) but rank 0 (node-a) has "
       "dtype "
       "opaque (0 bytes each). Convert to one dtype on every rank."},
      {"op", Allreduce("x"), [](auto& m) { m.op = ReduceOp::kMax; },
       "allreduce \"x\": rank 2 (node-b) asks for op=Max but rank 0 (node-a) asks for op=Sum. Pass "
       "the "
       "same op on every rank."},
      {"prescale", Allreduce("x"), [](auto& m) { m.prescale = 0.5; },
       "allreduce \"x\": rank 2 (node-b) asks for prescale_factor=0.5 but rank 0 (node-a) asks for "
       "prescale_factor=1. Pass the same prescale_factor on every rank."},
      {"postscale", Meta(Kind::kReduceScatter, "x", {4}), [](auto& m) { m.postscale = 2; },
       "reducescatter \"x\": rank 2 (node-b) asks for postscale_factor=2 but rank 0 (node-a) asks "
       "for "
       "postscale_factor=1. Pass the same postscale_factor on every rank."},
      {"root", Meta(Kind::kBroadcast, "x", {4}), [](auto& m) { m.root = 3; },
       "broadcast \"x\": rank 2 (node-b) asks for root_rank 3 but rank 0 (node-a) asks for "
       "root_rank 0. "
       "Pass the same root_rank on every rank."},
      {"broadcast shape", Meta(Kind::kBroadcast, "x", {4}), [](auto& m) { m.parts[0].shape = {}; },
       "broadcast \"x\": rank 2 (node-b) has shape () but rank 0 (node-a) has shape (4,). Give "
       "every rank "
       "a tensor of the root's shape."},
      {"reducescatter shape", Meta(Kind::kReduceScatter, "x", {4}),
       [](auto& m) { m.parts[0].shape = {5}; },
       "reducescatter \"x\": rank 2 (node-b) has shape (5,) but rank 0 (node-a) has shape (4,). "
       "Build the "
       "model identically on every rank, or use allgather if the first dimension may differ."},
      {"allgather trailing", Allgather("x", {4, 2}), [](auto& m) { m.parts[0].shape = {9, 3}; },
       "allgather \"x\": rank 2 (node-b) has shape (9, 3) but rank 0 (node-a) has shape (4, 2). "
       "Only the "
       "first dimension may differ in allgather; make the others equal on every rank."},
      {"allgather rank", Allgather("x", {4}), [](auto& m) { m.parts[0].shape = {4, 1}; },
       "allgather \"x\": rank 2 (node-b) has shape (4, 1) but rank 0 (node-a) has shape (4,). Only "
       "the "
       "first dimension may differ in allgather; make the others equal on every rank."},
      {"allgather of a scalar on one rank", Allgather("x", {4}),
       [](auto& m) { m.parts[0].shape = {}; },
       "allgather \"x\": rank 2 (node-b) has shape () but rank 0 (node-a) has shape (4,). Only the "
       "first "
       "dimension may differ in allgather; make the others equal on every rank."},
      {"alltoall trailing", Meta(Kind::kAlltoall, "x", {4, 2}),
       [](auto& m) { m.parts[0].shape = {4, 3}; },
       "alltoall \"x\": rank 2 (node-b) has shape (4, 3) but rank 0 (node-a) has shape (4, 2). "
       "Only the "
       "first dimension may differ in alltoall; make the others equal on every rank."},
      {"new group", Control(Kind::kAddGroup, "g", {0, 1}), [](auto& m) { m.ranks = {0, 2}; },
       "add_process_set \"g\": rank 2 (node-b) lists the ranks [0, 2] but rank 0 (node-a) lists "
       "the ranks "
       "[0, 1]. Every rank must add the same process set, members or not."},
      {"removed group", Control(Kind::kRemoveGroup, "g", {1}), [](auto& m) { m.ranks = {2}; },
       "remove_process_set \"g\": rank 2 (node-b) asks for id [2] but rank 0 (node-a) asks for id "
       "[1]. "
       "Every rank must remove the same process set, members or not."},
  };
}

TEST(ValidateTest, MismatchNamesTensorRanksValuesAndRemedy) {
  for (const MismatchCase& c : MismatchCases()) {
    RequestMeta odd = Changed(c.meta, c.change);
    Agreement agreement = SettleAll({c.meta, c.meta, odd, c.meta});
    EXPECT_EQ(agreement.error.code(), StatusCode::kMismatch) << c.label;
    EXPECT_EQ(agreement.error.message(), c.message) << c.label;
    EXPECT_EQ(agreement.key.name, c.meta.key.name) << c.label;
    EXPECT_TRUE(agreement.rows.empty()) << c.label;
    // Rank 0 as the odd one out fails as well.
    EXPECT_EQ(SettleAll({odd, c.meta, c.meta}).error.code(), StatusCode::kMismatch) << c.label;
  }
}

TEST(ValidateTest, FirstDifferenceInTheWrittenOrderWins) {
  RequestMeta base = Grouped({"a", "b"});
  const std::vector<std::pair<Change, const char*>> in_order = {
      {[](auto& m) { m.kind = Kind::kReduceScatter; }, "calls reducescatter"},
      {[](auto& m) { m.parts.pop_back(); }, "has 1 tensor "},
      {[](auto& m) { m.parts[0].name = "z"; }, "has \"z\""},
      {[](auto& m) { m.parts[0].dtype = DType::kInt8; }, "has dtype int8"},
      {[](auto& m) { m.op = ReduceOp::kMin; }, "op=Min"},
      {[](auto& m) { m.prescale = 3; }, "prescale_factor=3"},
      {[](auto& m) { m.postscale = 4; }, "postscale_factor=4"},
      {[](auto& m) { m.parts[0].shape = {9}; }, "has shape (9,)"},
  };
  RequestMeta odd = base;
  for (size_t i = in_order.size(); i-- > 0;) {
    in_order[i].first(odd);
    std::string message = SettleAll({base, odd}).error.message();
    EXPECT_NE(message.find(in_order[i].second), std::string::npos) << message;
  }
}

TEST(ValidateTest, OptionsWithoutMeaningForTheKindMayDiffer) {
  RequestMeta gather = Allgather("x", {2});
  RequestMeta other = gather;
  other.op = ReduceOp::kMax;
  other.prescale = 7;
  other.root = 3;
  EXPECT_TRUE(SettleAll({gather, other}).error.ok());
  RequestMeta named = Grouped({"a", ""});
  EXPECT_TRUE(SettleAll({named, Grouped({"", "b"})}).error.ok());
  RequestMeta nan = Allreduce("x");
  nan.prescale = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(SettleAll({nan, nan}).error.ok());
  EXPECT_TRUE(nan.SameSignature(nan));
}

TEST(ValidateTest, HostsAndGroupsAreNamedWhereKnown) {
  RequestMeta a = Allreduce("x", {1}), b = Allreduce("x", {2});
  a.key.group = b.key.group = 5;
  EXPECT_EQ(SettleAll({a, b}, {}, {}).error.message(),
            "allreduce \"x\" of process set 5: rank 1 has shape (2,) but rank 0 has shape (1,). "
            "Build the "
            "model identically on every rank, or use allgather if the first dimension may differ.");
  EXPECT_EQ(Describe(Kind::kAllreduce, {0, "grad/kernel", 0}), "allreduce \"grad/kernel\"");
  EXPECT_EQ(Describe(Kind::kAllgather, {0, "", (uint64_t{2} << 40) | 7}),
            "allgather (unnamed call 7)");
  EXPECT_EQ(Describe(Kind::kBarrier, {3, "", 7}), "barrier (unnamed call 7) of process set 3");
}

struct InvalidCase {
  const char* label;
  RequestMeta meta;
  const char* message;
};

RequestMeta WithSplits(Shape shape, std::vector<int64_t> splits) {
  RequestMeta meta = Meta(Kind::kAlltoall, "x", std::move(shape));
  meta.parts[0].splits = std::move(splits);
  return meta;
}

TEST(ValidateTest, ImpossibleRequestsAreInvalidOnAllRanks) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const std::vector<InvalidCase> cases = {
      {"scalar", Allgather("x", {}),
       "allgather \"x\": allgather works along the first dimension, but the tensor is a scalar of "
       "shape "
       "(). Reshape it to (1,) first."},
      {"scalar", Meta(Kind::kReduceScatter, "x", {}),
       "reducescatter \"x\": reducescatter works along"},
      {"mean of bool",
       Changed(Allreduce("x", {2}, DType::kBool), [](auto& m) { m.op = ReduceOp::kAverage; }),
       "allreduce \"x\": op=Average is not defined for dtype bool"},
      {"adasum of integers",
       Changed(Allreduce("x", {2}, DType::kInt32), [](auto& m) { m.op = ReduceOp::kAdasum; }),
       "allreduce \"x\": op=Adasum is not defined for dtype int32"},
      {"adasum of rows",
       Changed(Meta(Kind::kReduceScatter, "x", {2}), [](auto& m) { m.op = ReduceOp::kAdasum; }),
       "reducescatter \"x\": op=Adasum is not possible in reducescatter"},
      {"root", Changed(Meta(Kind::kBroadcast, "x", {2}), [](auto& m) { m.root = 9; }),
       "broadcast \"x\": root_rank 9 is not among ranks 0, 1. Give the global rank of one of "
       "them."},
      {"negative root", Changed(Meta(Kind::kBroadcast, "x", {2}), [](auto& m) { m.root = -1; }),
       "broadcast \"x\": root_rank -1 is not among ranks 0, 1."},
      {"odd rows", WithSplits({3}, {}),
       "alltoall \"x\": rank 0 (node-a) has 3 rows, which cannot be split evenly over 2 ranks. "
       "Pass "
       "splits, one number of rows per rank."},
      {"split count", WithSplits({3}, {3}),
       "alltoall \"x\": rank 0 (node-a) passed 1 splits for 2 ranks. Pass one number of rows per "
       "rank."},
      {"negative split", WithSplits({3}, {4, -1}),
       "alltoall \"x\": rank 0 (node-a) passed the negative split -1. Splits are numbers of rows, "
       "0 or "
       "more."},
      {"split sum", WithSplits({3}, {1, 1}),
       "alltoall \"x\": rank 0 (node-a) passed splits of 2 rows together, but its tensor has 3. "
       "The splits "
       "must add up to the first dimension."},
      {"split overflow", WithSplits({3}, {kHuge, kHuge}),
       "alltoall \"x\": the result would have more than 2^63-1 bytes. Send it in pieces."},
      {"negative dimension", Allreduce("x", {-2}),
       "allreduce \"x\": rank 0 (node-a): shape (-2,) has a negative dimension."},
      {"too large", Allgather("x", {kHuge}),
       "allgather \"x\": the result would have more than 2^63-1"},
      {"empty group", Control(Kind::kAddGroup, "g"),
       "add_process_set \"g\": the list of ranks [] is empty. Pass each member once, from 0 to 1."},
      {"unknown rank", Control(Kind::kAddGroup, "g", {0, 2}),
       "add_process_set \"g\": the list of ranks [0, 2] names rank 2, which does not exist. Pass"},
      {"double rank", Control(Kind::kAddGroup, "g", {1, 1}),
       "add_process_set \"g\": the list of ranks [1, 1] names rank 1 twice. Pass"},
      {"unsorted", Control(Kind::kAddGroup, "g", {1, 0}),
       "add_process_set \"g\": the list of ranks [1, 0] is not in ascending order. Pass"},
      {"world", Control(Kind::kRemoveGroup, "g", {0}),
       "remove_process_set \"g\": the global process set (id 0) cannot be removed. Pass"},
      {"no id", Control(Kind::kRemoveGroup, "g", {}),
       "remove_process_set \"g\": there is no process set []. Pass"},
  };
  for (const InvalidCase& c : cases) {
    Agreement agreement = SettleAll({c.meta, c.meta});
    EXPECT_EQ(agreement.error.code(), StatusCode::kInvalidArgument) << c.label;
    EXPECT_EQ(agreement.error.message().rfind(c.message, 0), 0u)
        << c.label << ": " << agreement.error.message();
    EXPECT_TRUE(agreement.rows.empty()) << c.label;
  }
}

TEST(ValidateTest, FaultOfOneRankNamesThatRank) {
  EXPECT_EQ(
      SettleAll(
          {WithSplits({4}, {}), WithSplits({4}, {}), WithSplits({4}, {4}), WithSplits({4}, {})})
          .error.message(),
      "alltoall \"x\": rank 2 (node-b) passed 1 splits for 4 ranks. Pass one number of rows per "
      "rank.");
}

TEST(ValidateTest, AllgatherRowsArePerPosition) {
  Agreement agreement =
      SettleAll({Allgather("x", {3, 2}), Allgather("x", {0, 2}), Allgather("x", {5, 2})});
  ASSERT_TRUE(agreement.error.ok()) << agreement.error.message();
  EXPECT_EQ(agreement.rows, (std::vector<std::vector<int64_t>>{{3, 0, 5}}));
  EXPECT_TRUE(agreement.absent.empty());
}

TEST(ValidateTest, EveryPartHasItsRows) {
  RequestMeta a = Allgather("x", {1});
  a.parts.push_back(metas::Part({2, 3}));
  RequestMeta b = Allgather("x", {4});
  b.parts.push_back(metas::Part({5, 3}));
  EXPECT_EQ(SettleAll({a, b}).rows, (std::vector<std::vector<int64_t>>{{1, 4}, {2, 5}}));
}

TEST(ValidateTest, AlltoallRowsAreATable) {
  Agreement agreement =
      SettleAll({WithSplits({6}, {}), WithSplits({3}, {0, 3, 0}), WithSplits({0}, {})});
  ASSERT_TRUE(agreement.error.ok()) << agreement.error.message();
  EXPECT_EQ(agreement.rows, (std::vector<std::vector<int64_t>>{{2, 2, 2, 0, 3, 0, 0, 0, 0}}));
}

TEST(ValidateTest, OtherKindsHaveNoRows) {
  for (Kind kind : {Kind::kAllreduce, Kind::kBroadcast, Kind::kReduceScatter}) {
    Agreement agreement = SettleAll({Meta(kind, "x", {4}), Meta(kind, "x", {4})});
    EXPECT_TRUE(agreement.error.ok());
    EXPECT_TRUE(agreement.rows.empty());
  }
  EXPECT_TRUE(SettleAll({Allreduce("x", {}), Allreduce("x", {})}).error.ok());
  EXPECT_TRUE(SettleAll({Allreduce("x", {0, 5})}).error.ok());
}

TEST(ValidateTest, JoinedRanksBringNothing) {
  RequestMeta gather = Allgather("x", {2});
  Agreement agreement = SettleAll({gather, gather, gather}, {1});
  EXPECT_EQ(agreement.absent, std::vector<int32_t>{1});
  EXPECT_EQ(agreement.rows[0], (std::vector<int64_t>{2, 0, 2}));
  RequestMeta all = Meta(Kind::kAlltoall, "x", {3});
  agreement = SettleAll({all, all, all}, {0});
  EXPECT_EQ(agreement.absent, std::vector<int32_t>{0});
  EXPECT_EQ(agreement.rows[0], (std::vector<int64_t>{0, 0, 0, 1, 1, 1, 1, 1, 1}));
}

TEST(ValidateTest, BroadcastFromAJoinedRootNamesJoin) {
  RequestMeta meta = Meta(Kind::kBroadcast, "w", {2});
  meta.root = 2;
  Agreement agreement = SettleAll({meta, meta, meta}, {2});
  EXPECT_EQ(agreement.error.code(), StatusCode::kMismatch);
  EXPECT_EQ(agreement.error.message(),
            "broadcast \"w\": its root, rank 2 (node-b), has called join() and sends no more data. "
            "Choose a "
            "root that is still working, or broadcast before the first rank joins.");
  meta.root = 0;
  EXPECT_TRUE(SettleAll({meta, meta, meta}, {2}).error.ok());
}

TEST(ValidateTest, PositionsAreThoseOfTheGroup) {
  RequestMeta a = Allgather("x", {1}), b = Allgather("x", {2});
  Agreement agreement = Settle({{3, &a}, {8, &b}}, {3, 5, 8}, {});
  EXPECT_EQ(agreement.rows[0], (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(agreement.absent, std::vector<int32_t>{5});
  RequestMeta cast = Meta(Kind::kBroadcast, "x", {1});
  cast.root = 8;
  EXPECT_TRUE(Settle({{3, &cast}, {5, &cast}, {8, &cast}}, {3, 5, 8}, {}).error.ok());
  cast.root = 0;
  EXPECT_EQ(Settle({{3, &cast}, {5, &cast}, {8, &cast}}, {3, 5, 8}, {}).error.message(),
            "broadcast \"x\": root_rank 0 is not among ranks 3, 5, 8. Give the global rank of one "
            "of them.");
}

TEST(ValidateTest, AdasumCountsTheRanksOfTheGroupAbsentOnesIncluded) {
  const RequestMeta meta = Changed(Allreduce("x", {2}), [](auto& m) { m.op = ReduceOp::kAdasum; });
  const Agreement three = SettleAll({meta, meta, meta});
  EXPECT_EQ(three.error.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(three.error.message().find("allreduce \"x\": op=Adasum combines ranks in pairs, so "
                                       "their number must be a power of two, but here it is 3."),
            std::string::npos)
      << three.error.message();
  EXPECT_TRUE(SettleAll({meta, meta, meta, meta}).error.ok());
  EXPECT_TRUE(SettleAll({meta, meta, meta, meta}, {2}).error.ok());
}

}  // namespace
}  // namespace syrtos
