// What every communicator must do: a new backend is one more row in fakes/backend_worlds.h.
#include <gtest/gtest.h>

#include <tuple>

#include "fakes/backend_worlds.h"
#include "fakes/collective_case.h"

namespace syrtos {
namespace {

constexpr CollectiveKind kDataKinds[] = {CollectiveKind::kAllreduce, CollectiveKind::kAllgather,
                                         CollectiveKind::kBroadcast, CollectiveKind::kAlltoall,
                                         CollectiveKind::kReduceScatter};

// A part with about `n` elements per block, ragged: blocks differ and some are empty.
PartCase Ragged(int members, int64_t n) {
  PartCase part;
  part.count = n;
  for (int p = 0; p < members; ++p) {
    part.counts.push_back(p % 3 == 1 ? 0 : n / (p + 1));
    std::vector<int64_t> row;
    for (int q = 0; q < members; ++q) row.push_back((p + 2 * q) % 4 == 3 ? 0 : n / (p + q + 1));
    part.matrix.push_back(row);
  }
  return part;
}

std::vector<int> World(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

class CommunicatorConformanceTest : public testing::TestWithParam<std::tuple<size_t, int>> {
 protected:
  void SetUp() override {
    if (backend().name != "gloo") return;
    const Status available = BuiltinBackend("gloo").available(GlooConfig({}));
    if (GlooPluginForTests().empty()) GTEST_SKIP() << "this build has no Gloo plug-in";
    ASSERT_TRUE(available.ok()) << available.ToString();
  }

  static const BackendWorld& backend() { return BackendWorlds()[std::get<0>(GetParam())]; }
  static int size() { return std::get<1>(GetParam()); }

  // All ranks run all cases, one after the other.
  static void RunAll(const std::vector<CollectiveCase>& cases) {
    const Joiner join = backend().make(size());
    const Status outcome = RunRanks(size(), [&](RankContext& context) -> Status {
      SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, join(context));
      uint64_t sequence = 1000;
      for (const CollectiveCase& c : cases) {
        SYRTOS_RETURN_IF_ERROR(RunCase(*communicator, c, context.rank, &sequence));
      }
      return Status::Ok();
    });
    EXPECT_TRUE(outcome.ok()) << outcome.ToString();
  }

  static CollectiveCase Case(CollectiveKind kind, DType dtype = DType::kFloat32) {
    return MakeCase(kind, dtype, World(size()));
  }
};

TEST_P(CommunicatorConformanceTest, ReducesEveryDTypeByEveryOp) {
  std::vector<CollectiveCase> cases;
  for (CollectiveKind kind : {CollectiveKind::kAllreduce, CollectiveKind::kReduceScatter}) {
    for (DType dtype : AllDTypes()) {
      for (ReduceOp op : AllOps()) {
        if (!CheckReducible(op, dtype).ok()) continue;
        CollectiveCase c = Case(kind, dtype);
        c.collective.op = op;
        c.parts = {Ragged(size(), 101)};
        cases.push_back(c);
      }
    }
  }
  ASSERT_EQ(cases.size(), 2u * (4 + 8 * 5 + 4 * 5 + 2 * 3));
  RunAll(cases);
}

TEST_P(CommunicatorConformanceTest, MovesEveryDType) {
  std::vector<CollectiveCase> cases;
  for (CollectiveKind kind :
       {CollectiveKind::kAllgather, CollectiveKind::kBroadcast, CollectiveKind::kAlltoall}) {
    for (DType dtype : AllDTypes()) {
      CollectiveCase c = Case(kind, dtype);
      c.parts = {Ragged(size(), 37)};
      cases.push_back(c);
    }
  }
  RunAll(cases);
}

TEST_P(CommunicatorConformanceTest, DoesEverySize) {
  std::vector<CollectiveCase> cases;
  for (CollectiveKind kind : kDataKinds) {
    for (int64_t n : {0, 1, 2, 3, 5, 64, 1023, 1024, 1025, 5000}) {
      CollectiveCase c = Case(kind);
      c.parts = {Ragged(size(), n)};
      cases.push_back(c);
    }
  }
  RunAll(cases);
}

// Many pieces for the worlds with small ones; gloo_test.cc has pieces of the usual size.
TEST_P(CommunicatorConformanceTest, DoesLargeTensorsInPieces) {
  std::vector<CollectiveCase> cases;
  for (CollectiveKind kind : kDataKinds) {
    CollectiveCase c = Case(kind, DType::kInt16);
    c.parts = {Ragged(size(), 20001)};
    cases.push_back(c);
    c.in_place = true;
    cases.push_back(c);
  }
  RunAll(cases);
}

TEST_P(CommunicatorConformanceTest, DoesListsOfRaggedTensors) {
  std::vector<CollectiveCase> cases;
  for (CollectiveKind kind : kDataKinds) {
    for (bool in_place : {false, true}) {
      CollectiveCase c = Case(kind, DType::kFloat64);
      c.in_place = in_place;
      for (int64_t n : {5, 0, 1, 300, 17}) c.parts.push_back(Ragged(size(), n));
      cases.push_back(c);
      c.parts = {Ragged(size(), 0), Ragged(size(), 0)};  // nothing at all
      cases.push_back(c);
    }
  }
  RunAll(cases);
}

TEST_P(CommunicatorConformanceTest, DoesListsOfOpaqueElements) {
  std::vector<CollectiveCase> cases;
  for (CollectiveKind kind :
       {CollectiveKind::kAllgather, CollectiveKind::kBroadcast, CollectiveKind::kAlltoall}) {
    CollectiveCase c = Case(kind, DType::kOpaque);
    for (int64_t n : {5, 0, 31}) c.parts.push_back(Ragged(size(), n));
    cases.push_back(c);
  }
  RunAll(cases);
}

TEST_P(CommunicatorConformanceTest, WorksInPlace) {
  std::vector<CollectiveCase> cases;
  for (CollectiveKind kind : kDataKinds) {
    for (int64_t n : {1, 7, 1000, 4001}) {
      CollectiveCase c = Case(kind);
      c.in_place = true;
      c.parts = {Ragged(size(), n)};
      cases.push_back(c);
    }
  }
  RunAll(cases);
}

TEST_P(CommunicatorConformanceTest, BroadcastsFromEveryRoot) {
  std::vector<CollectiveCase> cases;
  for (int root = 0; root < size(); ++root) {
    for (int64_t n : {3, 3000}) {
      CollectiveCase c = Case(CollectiveKind::kBroadcast, DType::kBool);
      c.collective.root = root;
      c.parts = {Ragged(size(), n), Ragged(size(), 2)};
      cases.push_back(c);
    }
  }
  RunAll(cases);
}

TEST_P(CommunicatorConformanceTest, AppliesScales) {
  std::vector<CollectiveCase> cases;
  for (CollectiveKind kind : {CollectiveKind::kAllreduce, CollectiveKind::kReduceScatter}) {
    for (DType dtype : AllDTypes()) {
      for (ReduceOp op : AllOps()) {
        if (!CheckReducible(op, dtype).ok()) continue;
        for (auto [prescale, postscale] : {std::pair(0.5, 1.0), {1.0, 0.25}, {2.0, -0.5}}) {
          const DTypeClass type = InfoOf(dtype).kind;
          if (postscale < 0 && type == DTypeClass::kUnsigned) continue;
          CollectiveCase c = Case(kind, dtype);
          c.collective.op = op;
          c.collective.prescale = prescale;
          c.collective.postscale = postscale;
          c.parts = {Ragged(size(), 23)};
          cases.push_back(c);
        }
      }
    }
  }
  RunAll(cases);
}

TEST_P(CommunicatorConformanceTest, LeavesAbsentRanksOut) {
  std::vector<CollectiveCase> cases;
  for (unsigned mask = 1; mask + 1 < (1u << size()); ++mask) {  // bit set: present
    if (backend().name == "local") break;
    for (CollectiveKind kind : kDataKinds) {
      CollectiveCase c = Case(kind, DType::kInt32);
      c.collective.op = ReduceOp::kAverage;
      for (int p = 0; p < size(); ++p) {
        c.collective.active[static_cast<size_t>(p)] = (mask >> p) & 1u;
        if ((mask >> p) & 1u) c.collective.root = p;
      }
      c.parts = {Ragged(size(), 41), Ragged(size(), 3000)};
      cases.push_back(c);
    }
  }
  RunAll(cases);
}

TEST_P(CommunicatorConformanceTest, ServesGroupsInAnyOrder) {
  std::vector<CollectiveCase> cases;
  const std::vector<std::vector<int>> groups = {{0}, {1, 0}, {2, 0}, {1, 2}, {3, 1}, {3, 0, 2}};
  for (const std::vector<int>& group : groups) {
    if (*std::max_element(group.begin(), group.end()) >= size()) continue;
    for (CollectiveKind kind : kDataKinds) {
      CollectiveCase c = MakeCase(kind, DType::kFloat16, group);
      c.collective.root = static_cast<int>(group.size()) - 1;
      c.parts = {Ragged(static_cast<int>(group.size()), 50),
                 Ragged(static_cast<int>(group.size()), 5)};
      cases.push_back(c);
    }
  }
  RunAll(cases);
}

// Values whose sum depends on the order, compared with a loop in the order of ranks.
TEST_P(CommunicatorConformanceTest, SumsInTheOrderOfRanksOnAllOfThem) {
  const int64_t count = 5003;
  const auto value = [](int rank, int64_t i) {
    return std::ldexp(
        static_cast<float>((i * 2654435761u + static_cast<uint32_t>(rank) * 40503u) % 9973) -
            5000.0f,
        static_cast<int>(i + rank * 5) % 24 - 12);
  };
  std::vector<float> expected(count);
  for (int64_t i = 0; i < count; ++i) {
    volatile float sum = value(0, i);  // volatile: one rounding per addition, whatever the compiler
    for (int rank = 1; rank < size(); ++rank) sum = sum + value(rank, i);
    expected[static_cast<size_t>(i)] = sum;
  }
  const Joiner join = backend().make(size());
  const Status outcome = RunRanks(size(), [&](RankContext& context) -> Status {
    SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, join(context));
    Collective collective;
    collective.ranks = World(size());
    collective.self = context.rank;
    std::vector<float> data(count);
    for (int64_t i = 0; i < count; ++i) data[static_cast<size_t>(i)] = value(context.rank, i);
    Part part;
    part.input = part.output = data.data();
    part.count = count;
    SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Operation> operation,
                            communicator->Start(collective, {part}));
    SYRTOS_RETURN_IF_ERROR(Drive(*operation));
    return data == expected ? Status::Ok() : Status::Internal("other bits than the loop");
  });
  EXPECT_TRUE(outcome.ok()) << outcome.ToString();
}

TEST_P(CommunicatorConformanceTest, KeepsSeveralOperationsApart) {
  const Joiner join = backend().make(size());
  const Status outcome = RunRanks(size(), [&](RankContext& context) -> Status {
    SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, join(context));
    Collective collective;
    collective.dtype = DType::kInt64;
    collective.item_bytes = 8;
    collective.ranks = World(size());
    collective.self = context.rank;
    std::vector<std::vector<int64_t>> data;
    for (int64_t k = 0; k < 5; ++k)
      data.emplace_back(700 * static_cast<size_t>(k) + 1, k + context.rank);
    std::vector<std::unique_ptr<Operation>> operations;
    for (std::vector<int64_t>& tensor : data) {
      Part part;
      part.input = part.output = tensor.data();
      part.count = static_cast<int64_t>(tensor.size());
      collective.sequence++;
      SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Operation> operation,
                              communicator->Start(collective, {part}));
      operations.push_back(std::move(operation));
    }
    for (std::unique_ptr<Operation>& operation : operations) {
      SYRTOS_RETURN_IF_ERROR(Drive(*operation));
      // Asking again changes nothing.
      SYRTOS_RETURN_IF_ERROR(Drive(*operation));
    }
    for (size_t k = 0; k < data.size(); ++k) {
      const int64_t sum = static_cast<int64_t>(k) * size() + size() * (size() - 1) / 2;
      if (data[k] != std::vector<int64_t>(data[k].size(), sum))
        return Status::Internal("wrong sum");
    }
    return Status::Ok();
  });
  EXPECT_TRUE(outcome.ok()) << outcome.ToString();
}

TEST_P(CommunicatorConformanceTest, RefusesWhatMakesNoSenseAndGoesOn) {
  const Joiner join = backend().make(size());
  const Status outcome = RunRanks(size(), [&](RankContext& context) -> Status {
    SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, join(context));
    CollectiveCase good = Case(CollectiveKind::kAllreduce);
    good.parts = {Ragged(size(), 3)};
    Collective bad = good.collective;
    bad.self = context.rank;
    float data[3] = {};
    Part part;
    part.input = part.output = data;
    part.count = -1;
    const auto refused = [&] {
      return communicator->Start(bad, {part}).status().code() == StatusCode::kInvalidArgument;
    };
    EXPECT_TRUE(refused()) << "a negative count";
    part.count = 3;
    bad.dtype = DType::kOpaque;
    EXPECT_TRUE(refused()) << "a sum of opaque elements";
    EXPECT_EQ(communicator->Score(bad, 12), 0);
    bad = good.collective;
    bad.self = context.rank;
    bad.kind = CollectiveKind::kBarrier;
    EXPECT_TRUE(refused()) << "a barrier";
    EXPECT_EQ(communicator->Score(bad, 12), 0);
    bad.kind = CollectiveKind::kAllgather;
    EXPECT_TRUE(refused()) << "no counts";
    EXPECT_GT(communicator->Score(good.collective, 12), 0);
    uint64_t sequence = 1;
    return RunCase(*communicator, good, context.rank, &sequence);
  });
  EXPECT_TRUE(outcome.ok()) << outcome.ToString();
}

TEST_P(CommunicatorConformanceTest, RepeatsTheFirstCauseAfterAbort) {
  const Joiner join = backend().make(size());
  const Status outcome = RunRanks(size(), [&](RankContext& context) -> Status {
    SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, join(context));
    CollectiveCase c = Case(CollectiveKind::kAllreduce);
    c.parts = {Ragged(size(), 3)};
    c.collective.self = context.rank;
    CaseMemory memory(c, context.rank, 0);
    SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Operation> operation,
                            communicator->Start(c.collective, {memory.part()}));
    communicator->Abort(Status::PeerLost("the first cause"));
    communicator->Abort(Status::Internal("the second"));
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(operation->Progress().status().message(), "the first cause");
      EXPECT_EQ(communicator->Start(c.collective, {memory.part()}).status().message(),
                "the first cause");
    }
    return Status::Ok();
  });
  EXPECT_TRUE(outcome.ok()) << outcome.ToString();
}

std::vector<std::tuple<size_t, int>> AllWorlds() {
  std::vector<std::tuple<size_t, int>> worlds;
  for (size_t i = 0; i < BackendWorlds().size(); ++i) {
    for (int size = 1; size <= BackendWorlds()[i].max_ranks; ++size) worlds.emplace_back(i, size);
  }
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(
    Backends, CommunicatorConformanceTest, testing::ValuesIn(AllWorlds()),
    [](const testing::TestParamInfo<CommunicatorConformanceTest::ParamType>& info) {
      return BackendWorlds()[std::get<0>(info.param)].name + "_" +
             std::to_string(std::get<1>(info.param));
    });

}  // namespace
}  // namespace syrtos
