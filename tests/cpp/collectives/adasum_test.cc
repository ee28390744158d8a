// Adasum over every communicator, against its definition.

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <tuple>

#include "fakes/adasum_reference.h"
#include "fakes/backend_worlds.h"
#include "fakes/collective_case.h"

namespace syrtos {
namespace {

constexpr DType kDTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};

// Distance of neighbouring numbers beside 1.
long double Epsilon(DType dtype) {
  const int digits = dtype == DType::kFloat16    ? 10
                     : dtype == DType::kBFloat16 ? 7
                     : dtype == DType::kFloat32  ? 23
                                                 : 52;
  return std::ldexp(1.0L, -digits);
}

// What one rank brings and gets: one entry per part.
using PartBytes = std::vector<Bytes>;

struct AdasumRun {
  Collective collective;          // `self` and `sequence` are filled in
  std::vector<PartBytes> inputs;  // per position
  bool in_place = false;
};

AdasumRun MakeRun(DType dtype, std::vector<int> ranks, const std::vector<int64_t>& counts) {
  AdasumRun run;
  run.collective.dtype = dtype;
  run.collective.item_bytes = InfoOf(dtype).bytes;
  run.collective.op = ReduceOp::kAdasum;
  run.collective.active.assign(ranks.size(), 1);
  run.collective.ranks = std::move(ranks);
  for (int position = 0; position < run.collective.size(); ++position) {
    PartBytes parts;
    for (size_t i = 0; i < counts.size(); ++i) {
      parts.push_back(
          EncodeReals(dtype, AdasumNumbers(dtype, position + static_cast<int>(i), counts[i])));
    }
    run.inputs.push_back(std::move(parts));
  }
  return run;
}

std::vector<int> World(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

RealVector Expected(const AdasumRun& run, size_t part) {
  std::vector<RealVector> vectors;
  for (size_t p = 0; p < run.inputs.size(); ++p) {
    vectors.push_back(DecodeAll(run.collective.dtype, run.inputs[p][part]));
    if (run.collective.active[p] == 0) vectors.back().assign(vectors.back().size(), 0);
  }
  return AdasumByDefinition(run.collective.dtype, std::move(vectors), run.collective.prescale,
                            run.collective.postscale);
}

class AdasumTest : public testing::TestWithParam<std::tuple<size_t, int>> {
 protected:
  void SetUp() override {
    if (backend().name == "gloo" && GlooPluginForTests().empty()) {
      GTEST_SKIP() << "this build has no Gloo plug-in";
    }
  }

  static const BackendWorld& backend() { return BackendWorlds()[std::get<0>(GetParam())]; }
  static int size() { return std::get<1>(GetParam()); }

  static Status RunOne(Communicator& communicator, const AdasumRun& run, int rank,
                       uint64_t* sequence, PartBytes* outputs) {
    Collective collective = run.collective;
    const size_t plans = communicator.needs_contiguous() ? run.inputs.front().size() : 1;
    collective.sequence = *sequence;
    *sequence += plans;
    collective.self = -1;
    for (int p = 0; p < collective.size(); ++p) {
      if (collective.ranks[static_cast<size_t>(p)] == rank) collective.self = p;
    }
    if (collective.self < 0 || !IsActive(collective, collective.self)) return Status::Ok();
    PartBytes inputs = run.inputs[static_cast<size_t>(collective.self)];
    for (const Bytes& input : inputs) {
      outputs->push_back(run.in_place ? input : Bytes(input.size(), 0xa5));
    }
    std::vector<std::vector<Part>> lists(plans);
    for (size_t i = 0; i < inputs.size(); ++i) {
      Part part;
      part.output = (*outputs)[i].data();
      part.input = run.in_place ? part.output : inputs[i].data();
      part.count = static_cast<int64_t>(inputs[i].size() / collective.item_bytes);
      lists[i % plans].push_back(std::move(part));
    }
    for (std::vector<Part>& list : lists) {
      SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Operation> operation,
                              communicator.Start(collective, std::move(list)));
      SYRTOS_RETURN_IF_ERROR(Drive(*operation));
      collective.sequence++;
    }
    if (inputs != run.inputs[static_cast<size_t>(collective.self)]) {
      return Status::Internal("the input was written to");
    }
    return Status::Ok();
  }

  // What the members got, who must agree: one list of parts per run.
  static std::vector<PartBytes> RunAll(const std::vector<AdasumRun>& runs) {
    std::vector<std::vector<PartBytes>> outputs(static_cast<size_t>(size()),
                                                std::vector<PartBytes>(runs.size()));
    const Joiner join = backend().make(size());
    const Status outcome = RunRanks(size(), [&](RankContext& context) -> Status {
      SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, join(context));
      uint64_t sequence = 7;
      for (size_t i = 0; i < runs.size(); ++i) {
        SYRTOS_RETURN_IF_ERROR(RunOne(*communicator, runs[i], context.rank, &sequence,
                                      &outputs[static_cast<size_t>(context.rank)][i]));
      }
      return Status::Ok();
    });
    EXPECT_TRUE(outcome.ok()) << outcome.ToString();
    std::vector<PartBytes> common(runs.size());
    for (size_t i = 0; i < runs.size(); ++i) {
      for (const std::vector<PartBytes>& one : outputs) {
        if (one[i].empty()) continue;
        if (common[i].empty()) common[i] = one[i];
        EXPECT_EQ(one[i], common[i]) << "ranks have different bits, run " << i;
      }
      EXPECT_FALSE(common[i].empty());
    }
    return common;
  }

  static void ExpectDefinition(const std::vector<AdasumRun>& runs) {
    const std::vector<PartBytes> results = RunAll(runs);
    if (HasFailure()) return;
    for (size_t i = 0; i < runs.size(); ++i) {
      const DType dtype = runs[i].collective.dtype;
      for (size_t part = 0; part < results[i].size(); ++part) {
        const RealVector expected = Expected(runs[i], part);
        const RealVector got = DecodeAll(dtype, results[i][part]);
        ASSERT_EQ(got.size(), expected.size());
        long double largest = 0;
        for (long double value : expected) largest = std::max(largest, std::fabs(value));
        for (size_t k = 0; k < got.size(); ++k) {
          ASSERT_LE(std::fabs(got[k] - expected[k]), 4 * Epsilon(dtype) * largest)
              << InfoOf(dtype).name << " run " << i << " part " << part << " element " << k << ": "
              << got[k] << " not " << expected[k];
        }
      }
    }
  }
};

TEST_P(AdasumTest, MatchesItsDefinitionInEveryDTypeAndSize) {
  std::vector<AdasumRun> runs;
  for (DType dtype : kDTypes) {
    for (int64_t count : {0, 1, 3, 1000, 4095, 4096, 4097, 40001}) {
      runs.push_back(MakeRun(dtype, World(size()), {count}));
      runs.back().in_place = count % 2 == 1;
    }
  }
  ExpectDefinition(runs);
}

TEST_P(AdasumTest, ScalesBeforeAndAfter) {
  std::vector<AdasumRun> runs;
  for (DType dtype : kDTypes) {
    for (auto [prescale, postscale] : {std::pair(0.3, 1.0), {1.0, -1.7}, {2.0, 0.25}}) {
      runs.push_back(MakeRun(dtype, World(size()), {9000}));
      runs.back().collective.prescale = prescale;
      runs.back().collective.postscale = postscale;
    }
  }
  ExpectDefinition(runs);
}

TEST_P(AdasumTest, TensorsOfAListKeepTheirOwnAnglesToTheLastBit) {
  const std::vector<int64_t> counts = {5, 0, 9000, 1, 4096, 20001, 3};
  std::vector<AdasumRun> runs = {MakeRun(DType::kFloat32, World(size()), counts)};
  for (size_t i = 0; i < counts.size(); ++i) {  // each by itself
    AdasumRun run = runs.front();
    for (PartBytes& parts : run.inputs) parts = {parts[i]};
    runs.push_back(run);
  }
  ExpectDefinition(runs);
  const std::vector<PartBytes> results = RunAll(runs);
  for (size_t i = 0; i < counts.size(); ++i) {
    EXPECT_EQ(results[0][i], results[1 + i][0]) << "part " << i;
  }
}

TEST_P(AdasumTest, ParallelVectorsGiveTheirMeanAndOrthogonalOnesTheirSum) {
  AdasumRun parallel = MakeRun(DType::kFloat64, World(size()), {6000});
  AdasumRun orthogonal = parallel;
  RealVector mean(6000), sum(6000);
  for (int p = 0; p < size(); ++p) {
    RealVector same(6000), own(6000);
    for (int i = 0; i < 6000; ++i) {
      const auto k = static_cast<size_t>(i);
      same[k] = i % 13 - 6;
      mean[k] = same[k];
      own[k] = i % size() == p ? i % 7 + p : 0;
      sum[k] += own[k];
    }
    parallel.inputs[static_cast<size_t>(p)] = {EncodeReals(DType::kFloat64, same)};
    orthogonal.inputs[static_cast<size_t>(p)] = {EncodeReals(DType::kFloat64, own)};
  }
  const std::vector<PartBytes> results = RunAll({parallel, orthogonal});
  EXPECT_EQ(DecodeAll(DType::kFloat64, results[0][0]), mean);
  EXPECT_EQ(DecodeAll(DType::kFloat64, results[1][0]), sum);
}

TEST_P(AdasumTest, ZerosChangeNothingAndNaNSpreads) {
  AdasumRun zeros = MakeRun(DType::kFloat32, World(size()), {5000});
  AdasumRun one = zeros;
  AdasumRun nan = MakeRun(DType::kFloat16, World(size()), {5000, 5000});
  for (int p = 0; p < size(); ++p) {
    const auto position = static_cast<size_t>(p);
    zeros.inputs[position][0].assign(20000, 0);
    if (p != size() - 1) one.inputs[position][0].assign(20000, 0);
  }
  Encode(DType::kFloat16, 2, Value(std::numeric_limits<long double>::quiet_NaN()),
         &nan.inputs[0][0][6000]);
  const std::vector<PartBytes> results = RunAll({zeros, one, nan});
  EXPECT_EQ(results[0][0], Bytes(20000, 0));
  EXPECT_EQ(results[1][0], one.inputs.back()[0]);
  const RealVector spread = DecodeAll(DType::kFloat16, results[2][0]);
  EXPECT_TRUE(std::isnan(spread[3000]));
  if (size() > 1) {
    EXPECT_TRUE(std::isnan(spread[0])) << "the angle to a vector with NaN is none";
  }
  for (long double value : DecodeAll(DType::kFloat16, results[2][1])) {
    ASSERT_FALSE(std::isnan(value)) << "the tensor beside it";
  }
}

TEST_P(AdasumTest, AbsentRanksCountAsZeros) {
  std::vector<AdasumRun> runs;
  for (unsigned mask = 1; mask < (1u << size()); ++mask) {  // bit set: present
    runs.push_back(MakeRun(DType::kFloat32, World(size()), {30001, 2}));
    for (int p = 0; p < size(); ++p) {
      runs.back().collective.active[static_cast<size_t>(p)] = (mask >> p) & 1u;
    }
  }
  ExpectDefinition(runs);
}

TEST_P(AdasumTest, GroupsPairTheirOwnPositions) {
  std::vector<AdasumRun> runs;
  const std::vector<std::vector<int>> groups = {{0}, {1, 0}, {0, 2}, {3, 1}, {2, 3, 1, 0}};
  for (const std::vector<int>& group : groups) {
    if (*std::max_element(group.begin(), group.end()) >= size()) continue;
    runs.push_back(MakeRun(DType::kFloat64, group, {8200, 17}));
  }
  ExpectDefinition(runs);
}

TEST_P(AdasumTest, RepeatsItsBits) {
  const AdasumRun run = MakeRun(DType::kFloat32, World(size()), {50001, 11});
  const std::vector<PartBytes> results = RunAll({run, run, run});
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

std::vector<std::tuple<size_t, int>> WorldsOf(const std::vector<int>& sizes) {
  std::vector<std::tuple<size_t, int>> worlds;
  for (size_t i = 0; i < BackendWorlds().size(); ++i) {
    for (int size : sizes) {
      if (size <= BackendWorlds()[i].max_ranks) worlds.emplace_back(i, size);
    }
  }
  return worlds;
}

std::string WorldName(const testing::TestParamInfo<std::tuple<size_t, int>>& info) {
  return BackendWorlds()[std::get<0>(info.param)].name + "_" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Backends, AdasumTest, testing::ValuesIn(WorldsOf({1, 2, 4})), WorldName);

class AdasumRefusalTest : public AdasumTest {};

TEST_P(AdasumRefusalTest, ThreeRanksAreNoPowerOfTwo) {
  const Joiner join = backend().make(3);
  const Status outcome = RunRanks(3, [&](RankContext& context) -> Status {
    SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, join(context));
    AdasumRun run = MakeRun(DType::kFloat32, World(3), {10});
    EXPECT_EQ(communicator->Score(run.collective, 40), 0);
    uint64_t sequence = 1;
    PartBytes outputs;
    const Status status = RunOne(*communicator, run, context.rank, &sequence, &outputs);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("power of two, but here it is 3"), std::string::npos)
        << status.message();
    // Two of them are.
    run = MakeRun(DType::kFloat32, {0, 2}, {10});
    outputs.clear();
    return RunOne(*communicator, run, context.rank, &sequence, &outputs);
  });
  EXPECT_TRUE(outcome.ok()) << outcome.ToString();
}

INSTANTIATE_TEST_SUITE_P(Backends, AdasumRefusalTest, testing::ValuesIn(WorldsOf({3})), WorldName);

// Eight ranks, and what travels: half a vector and less at each level, partners only.
TEST(AdasumPairwiseTest, TakesLogarithmicallyManyPartners) {
  constexpr int kSize = 8;
  const auto network = std::make_shared<MemoryNetwork>(kSize);
  std::vector<RealVector> vectors;
  for (int p = 0; p < kSize; ++p) vectors.push_back(AdasumNumbers(DType::kFloat64, p, 100000));
  const RealVector expected = AdasumByDefinition(DType::kFloat64, vectors, 1, 1);
  const Status outcome = RunRanks(kSize, [&](RankContext& context) -> Status {
    const auto communicator = MakePairwiseCommunicator(
        "pairwise", 10, std::make_unique<MemoryWire>(network, context.rank));
    Collective collective;
    collective.dtype = DType::kFloat64;
    collective.item_bytes = 8;
    collective.op = ReduceOp::kAdasum;
    collective.ranks = World(kSize);
    collective.self = context.rank;
    Bytes data = EncodeReals(DType::kFloat64, vectors[static_cast<size_t>(context.rank)]);
    Part part;
    part.input = part.output = data.data();
    part.count = 100000;
    SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Operation> operation,
                            communicator->Start(collective, {part}));
    SYRTOS_RETURN_IF_ERROR(Drive(*operation));
    const RealVector got = DecodeAll(DType::kFloat64, data);
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::fabs(got[i] - expected[i]) > 1e-13L) return Status::Internal("wrong value");
    }
    return Status::Ok();
  });
  EXPECT_TRUE(outcome.ok()) << outcome.ToString();
  // Vectors: 3 levels down and 3 up. Products of 1, 1 + 2 and 1 + 2 + 4 members.
  EXPECT_EQ(network->messages(), kSize * (3 + 3 + 1 + 3 + 7));
}

}  // namespace
}  // namespace syrtos
