#include "syrtos/engine/planner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "engine/metas.h"

namespace syrtos {
namespace {

using Kind = CollectiveKind;

Settled Of(RequestMeta meta, std::vector<int32_t> members = {0, 1}) {
  Settled settled;
  settled.agreement.key = meta.key;
  settled.members = std::move(members);
  settled.meta = std::move(meta);
  return settled;
}

// Allreduce of `bytes` float32 bytes.
Settled Reduce(int64_t bytes, DType dtype = DType::kFloat32) {
  auto item = static_cast<int64_t>(InfoOf(dtype).bytes);
  return Of(metas::Allreduce("x", {bytes / item}, dtype));
}

PlannerOptions Options(int64_t threshold) {
  PlannerOptions options;
  options.fusion_threshold_bytes = threshold;
  options.choose = [](const Collective&, int64_t) { return Result<int>(0); };
  return options;
}

// "0.0 1.0 | 2.0": agreement.part of the entries, plan by plan.
std::string Text(const std::vector<Plan>& plans) {
  std::string text;
  for (const Plan& plan : plans) {
    if (!text.empty()) text += " |";
    for (const PlanEntry& entry : plan.entries) {
      text += (text.empty() ? "" : " ") + std::to_string(entry.agreement) + "." +
              std::to_string(entry.part);
    }
  }
  return text;
}

std::string PlanText(std::vector<Settled> settled, int64_t threshold) {
  return Text(MakePlans(settled, Options(threshold)).plans);
}

TEST(PlannerTest, FusesSameDtypeUpToThreshold) {
  EXPECT_EQ(PlanText({Reduce(40), Reduce(40), Reduce(20)}, 100), "0.0 1.0 2.0");
  EXPECT_EQ(PlanText({Reduce(40), Reduce(40), Reduce(24)}, 100), "0.0 1.0 | 2.0");
  EXPECT_EQ(PlanText({}, 100), "");
}

TEST(PlannerTest, LooksAheadPastOtherSignatures) {
  EXPECT_EQ(
      PlanText({Reduce(40), Reduce(40, DType::kFloat16), Reduce(40), Reduce(4, DType::kFloat16)},
               100),
      "0.0 2.0 | 1.0 3.0");
}

TEST(PlannerTest, LargerThanTheThresholdTravelsAloneAndKeepsTheBucketOpen) {
  EXPECT_EQ(PlanText({Reduce(40), Reduce(104), Reduce(40)}, 100), "0.0 2.0 | 1.0");
  EXPECT_EQ(PlanText({Reduce(100), Reduce(0)}, 100), "0.0 1.0");
}

TEST(PlannerTest, ThresholdZeroFusesNothing) {
  RequestMeta grouped = metas::Allreduce("g");
  grouped.parts.push_back(grouped.parts[0]);
  EXPECT_EQ(PlanText({Reduce(0), Reduce(4), Of(grouped)}, 0), "0.0 | 1.0 | 2.0 | 2.1");
}

TEST(PlannerTest, EachOptionKeepsApart) {
  const std::vector<std::pair<const char*, void (*)(Settled&)>> changes = {
      {"kind", [](Settled& s) { s.meta.kind = Kind::kReduceScatter; }},
      {"group", [](Settled& s) { s.meta.key.group = 1; }},
      {"dtype", [](Settled& s) { s.meta.parts[0].dtype = DType::kInt32; }},
      {"item size", [](Settled& s) { s.meta.parts[0].item_bytes = 8; }},
      {"op", [](Settled& s) { s.meta.op = ReduceOp::kMax; }},
      {"prescale", [](Settled& s) { s.meta.prescale = 2; }},
      {"postscale", [](Settled& s) { s.meta.postscale = std::nan(""); }},
      {"absent", [](Settled& s) { s.agreement.absent = {1}; }},
      {"divisor", [](Settled& s) { s.agreement.average_active = true; }},
  };
  for (const auto& [label, change] : changes) {
    std::vector<Settled> settled = {Reduce(4), Reduce(4), Reduce(4)};
    change(settled[1]);
    EXPECT_EQ(PlanText(settled, 100), "0.0 2.0 | 1.0") << label;
    change(settled[0]);
    change(settled[2]);
    EXPECT_EQ(PlanText(settled, 100), "0.0 1.0 2.0") << label;
  }
}

TEST(PlannerTest, OptionsWithoutMeaningDoNotKeepApart) {
  Settled a = Of(metas::Meta(Kind::kBroadcast, "x", {1}));
  Settled b = a;
  b.meta.op = ReduceOp::kMax;
  b.meta.prescale = 3;
  EXPECT_EQ(PlanText({a, b}, 100), "0.0 1.0");
  b.meta.root = 1;
  EXPECT_EQ(PlanText({a, b}, 100), "0.0 | 1.0");
  Settled c = Reduce(4), d = Reduce(4);
  d.meta.root = 1;
  EXPECT_EQ(PlanText({c, d}, 100), "0.0 1.0");
}

TEST(PlannerTest, MixedDtypesOfOneRequestBecomeSeveralPlans) {
  RequestMeta grouped = metas::Allreduce("g", {2});
  grouped.parts.push_back(metas::Part({2}, DType::kFloat64));
  grouped.parts.push_back(metas::Part({3}));
  EXPECT_EQ(PlanText({Of(grouped), Reduce(4)}, 100), "0.0 0.2 1.0 | 0.1");
}

TEST(PlannerTest, NothingToMoveHasNoPlan) {
  Settled failed = Reduce(4);
  failed.agreement.error = Status::Mismatch("no");
  std::vector<Settled> settled = {failed,
                                  Of(metas::Control(Kind::kBarrier, "b")),
                                  Of(metas::Control(Kind::kJoin, "")),
                                  Of(metas::Control(Kind::kAddGroup, "", {0})),
                                  Of(metas::Control(Kind::kRemoveGroup, "", {1})),
                                  Reduce(4)};
  EXPECT_EQ(PlanText(settled, 100), "5.0");
}

TEST(PlannerTest, SequenceCountsPlans) {
  PlannerOptions options = Options(4);
  options.first_sequence = 10;
  std::vector<Settled> settled = {Reduce(4), Reduce(4), Reduce(4)};
  Planned planned = MakePlans(settled, options);
  ASSERT_EQ(planned.plans.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(planned.plans[i].sequence, 10 + i);
  EXPECT_EQ(planned.next_sequence, 13u);
  std::vector<Settled> none;
  EXPECT_EQ(MakePlans(none, options).next_sequence, 10u);
}

TEST(PlannerTest, ChoiceSeesTheWholePlan) {
  Settled gather = Of(metas::Meta(Kind::kAllgather, "x", {2, 3}, DType::kInt16), {1, 4, 6});
  gather.agreement.rows = {{2, 0, 5}};
  gather.agreement.absent = {4};
  Settled cast = Of(metas::Meta(Kind::kBroadcast, "x", {10}), {1, 4, 6});
  cast.meta.root = 4;
  Settled all = Of(metas::Meta(Kind::kAlltoall, "x", {3}, DType::kInt8));
  all.agreement.rows = {{1, 2, 4, 0}};
  RequestMeta mean = metas::Allreduce("x", {8});
  mean.op = ReduceOp::kAverage;
  Settled active = Of(mean, {1, 4, 6});
  active.agreement.absent = {4};
  active.agreement.average_active = true;
  std::vector<Settled> settled = {gather, cast, all, Of(mean), Of(mean), active};
  std::vector<std::pair<Collective, int64_t>> seen;
  PlannerOptions options = Options(1000);
  options.choose = [&seen](const Collective& c, int64_t bytes) {
    seen.emplace_back(c, bytes);
    return Result<int>(bytes > 50 ? 2 : 1);
  };
  Planned planned = MakePlans(settled, options);
  ASSERT_EQ(planned.plans.size(), 5u);
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen[0].second, 7 * 3 * 2);
  EXPECT_EQ(seen[0].first.ranks, (std::vector<int>{1, 4, 6}));
  EXPECT_EQ(seen[0].first.active, (std::vector<uint8_t>{1, 0, 1}));
  EXPECT_EQ(seen[0].first.item_bytes, 2u);
  EXPECT_EQ(seen[1].first.root, 1);
  EXPECT_EQ(seen[1].second, 40);
  EXPECT_EQ(seen[2].second, 5);  // rank 0 receives 5 rows
  EXPECT_EQ(seen[3].second, 64);
  EXPECT_EQ(seen[3].first.op, ReduceOp::kAverage);
  EXPECT_EQ(seen[3].first.divisor, 2);
  EXPECT_EQ(seen[4].first.divisor, 2);  // of three, one is absent
  EXPECT_EQ(planned.plans[0].backend, 1);
  EXPECT_EQ(planned.plans[3].backend, 2);
}

TEST(PlannerTest, RefusedRequestHasNoPartInAnyPlan) {
  RequestMeta grouped = metas::Allreduce("g", {1});
  grouped.parts.push_back(metas::Part({1}, DType::kFloat64));
  std::vector<Settled> settled = {Reduce(4), Of(grouped), Reduce(8, DType::kFloat64), Reduce(4)};
  settled[1].agreement.cache_id = 5;
  settled[1].agreement.cached = true;
  settled[2].agreement.cache_id = 6;
  PlannerOptions options = Options(100);
  options.first_sequence = 1;
  options.choose = [](const Collective& c, int64_t bytes) -> Result<int> {
    if (c.dtype == DType::kFloat64) return Status::BackendUnavailable("no float64 today");
    return static_cast<int>(bytes);
  };
  Planned planned = MakePlans(settled, options);
  EXPECT_EQ(Text(planned.plans), "0.0 3.0");
  EXPECT_EQ(planned.plans[0].backend, 8);
  EXPECT_EQ(planned.plans[0].sequence, 1u);
  EXPECT_EQ(planned.next_sequence, 2u);
  EXPECT_TRUE(settled[0].agreement.error.ok());
  for (size_t i : {1, 2}) {
    EXPECT_EQ(settled[i].agreement.error.code(), StatusCode::kBackendUnavailable);
    EXPECT_FALSE(settled[i].agreement.cached);
    EXPECT_EQ(settled[i].agreement.cache_id, kNoCacheId);
  }
  EXPECT_EQ(settled[1].agreement.error.message(), "allreduce \"g\": no float64 today");
}

TEST(PlannerTest, BackendNumberMustFitTheWire) {
  std::vector<Settled> settled = {Reduce(4)};
  PlannerOptions options = Options(100);
  options.choose = [](const Collective&, int64_t) { return Result<int>(256); };
  EXPECT_TRUE(MakePlans(settled, options).plans.empty());
  EXPECT_EQ(settled[0].agreement.error.code(), StatusCode::kInternal);
}

// Each part of each good request is in exactly one plan; plans are homogeneous, within the
// threshold and in the order of their first entries.
TEST(PlannerTest, RandomRequestsKeepTheRules) {
  std::mt19937 random(3);
  const DType dtypes[] = {DType::kFloat32, DType::kInt8, DType::kFloat64};
  for (int round = 0; round < 200; ++round) {
    std::vector<Settled> settled;
    for (size_t n = random() % 20; n > 0; --n) {
      RequestMeta meta =
          metas::Control(random() % 5 == 0 ? Kind::kBroadcast : Kind::kAllreduce, "x");
      for (size_t parts = 1 + random() % 3; parts > 0; --parts) {
        meta.parts.push_back(metas::Part({int64_t(random() % 30)}, dtypes[random() % 3]));
      }
      settled.push_back(Of(meta));
      if (random() % 10 == 0) settled.back().agreement.error = Status::Mismatch("no");
    }
    int64_t threshold = random() % 200;
    Planned planned = MakePlans(settled, Options(threshold));
    std::map<std::pair<uint32_t, uint32_t>, int> seen;
    std::pair<uint32_t, uint32_t> last_first{0, 0};
    for (const Plan& plan : planned.plans) {
      ASSERT_FALSE(plan.entries.empty());
      std::pair<uint32_t, uint32_t> first{plan.entries[0].agreement, plan.entries[0].part};
      ASSERT_LE(last_first, first);
      last_first = first;
      int64_t bytes = 0;
      for (const PlanEntry& entry : plan.entries) {
        const Settled& one = settled[entry.agreement];
        const PartMeta& part = one.meta.parts[entry.part];
        ASSERT_TRUE(one.agreement.error.ok());
        ASSERT_EQ(one.meta.kind, settled[first.first].meta.kind);
        ASSERT_EQ(part.dtype, settled[first.first].meta.parts[first.second].dtype);
        bytes += part.shape[0] * part.item_bytes;
        ++seen[{entry.agreement, entry.part}];
      }
      ASSERT_TRUE(plan.entries.size() == 1 || bytes <= threshold);
    }
    size_t expected = 0;
    for (const Settled& one : settled)
      expected += one.agreement.error.ok() ? one.meta.parts.size() : 0;
    ASSERT_EQ(seen.size(), expected);
    for (const auto& [entry, count] : seen) ASSERT_EQ(count, 1);
  }
}

}  // namespace
}  // namespace syrtos
