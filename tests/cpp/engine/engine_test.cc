// The engine as its users see it, over every communicator: values, orders, errors, life.
#include "syrtos/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>

#include "engine_fixture.h"

namespace syrtos {
namespace {

struct Backend {
  const char* name;
  bool memory;  // the non-blocking fake: callers drive
};

class EngineTest : public ::testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  WorldOptions options() {
    WorldOptions options;
    if (std::get<0>(GetParam()).memory) options.backends = &MemoryBackends();
    return options;
  }
  void Run(const std::function<void(RankEngine&)>& body) { RunWorld(size(), options(), body); }
};

std::vector<float> Filled(size_t n, float value) { return std::vector<float>(n, value); }

TEST_P(EngineTest, SumsAcrossRanks) {
  Run([](RankEngine& self) {
    for (size_t n : {size_t{0}, size_t{1}, size_t{1000}, size_t{300000}}) {
      auto input = Filled(n, static_cast<float>(self.rank + 1));
      std::vector<float> output(n, -1.0f);
      Request request = MakeRequest(CollectiveKind::kAllreduce, "sum");
      AddPart(request, DType::kFloat32, {static_cast<int64_t>(n)}, input, &output);
      ASSERT_TRUE(self.Await(self.engine->Submit(std::move(request))).ok());
      float expected = static_cast<float>(self.size * (self.size + 1)) / 2;
      EXPECT_EQ(output, Filled(n, expected));
      EXPECT_EQ(input, Filled(n, static_cast<float>(self.rank + 1)));
    }
  });
}

TEST_P(EngineTest, NamedRequestsMayComeInAnyOrder) {
  Run([](RankEngine& self) {
    constexpr int kTensors = 200;
    std::vector<int> order(kTensors);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(self.rank)));
    for (int step = 0; step < 3; ++step) {
      std::vector<std::vector<float>> in(kTensors), out(kTensors);
      std::vector<Result<std::shared_ptr<Completion>>> handles;
      for (int i : order) {
        size_t k = static_cast<size_t>(i);
        in[k] = Filled(k % 7 + 1, static_cast<float>(i + self.rank));
        out[k].resize(in[k].size());
        Request request = MakeRequest(CollectiveKind::kAllreduce, "t" + std::to_string(i));
        AddPart(request, DType::kFloat32, {static_cast<int64_t>(in[k].size())}, in[k], &out[k]);
        handles.push_back(self.engine->Submit(std::move(request)));
      }
      for (auto& handle : handles) ASSERT_TRUE(self.Await(handle).ok());
      for (int i = 0; i < kTensors; ++i) {
        float expected = static_cast<float>(self.size * i + self.size * (self.size - 1) / 2);
        EXPECT_EQ(out[static_cast<size_t>(i)][0], expected);
      }
    }
    if (self.size > 1) {
      // The first step is posted in full, the others by id.
      EXPECT_EQ(self.engine->counters().full_posts, 200u);
      EXPECT_EQ(self.engine->counters().cached_posts, 400u);
    }
  });
}

TEST_P(EngineTest, AllgatherTakesRaggedRows) {
  Run([](RankEngine& self) {
    for (int round = 0; round < 3; ++round) {
      int64_t rows = (self.rank + round) % 3;  // changes each round, and may be 0
      std::vector<int32_t> input(static_cast<size_t>(rows) * 2, self.rank);
      Request request = MakeRequest(CollectiveKind::kAllgather, "ragged");
      AddPart<int32_t>(request, DType::kInt32, {rows, 2}, input, nullptr);
      auto handle = self.engine->Submit(std::move(request));
      ASSERT_TRUE(self.Await(handle).ok());
      std::vector<int32_t> expected;
      for (int r = 0; r < self.size; ++r) {
        expected.insert(expected.end(), static_cast<size_t>((r + round) % 3) * 2, r);
      }
      EXPECT_EQ(ResultOf<int32_t>(**handle), expected);
    }
  });
}

TEST_P(EngineTest, AlltoallSendsRowsAndReportsSplits) {
  Run([](RankEngine& self) {
    // Rank r sends r + p rows to position p.
    std::vector<int64_t> splits, expected;
    std::vector<int64_t> input;
    for (int p = 0; p < self.size; ++p) {
      splits.push_back(self.rank + p);
      input.insert(input.end(), static_cast<size_t>(self.rank + p), self.rank * 100 + p);
      expected.insert(expected.end(), static_cast<size_t>(self.rank + p), p * 100 + self.rank);
    }
    Request request = MakeRequest(CollectiveKind::kAlltoall, "");
    AddPart<int64_t>(request, DType::kInt64, {static_cast<int64_t>(input.size())}, input, nullptr);
    request.meta.parts[0].splits = splits;
    auto handle = self.engine->Submit(std::move(request));
    ASSERT_TRUE(self.Await(handle).ok());
    EXPECT_EQ(ResultOf<int64_t>(**handle), expected);
    EXPECT_EQ((*handle)->results()[0].received_splits, splits);
  });
}

TEST_P(EngineTest, ReduceScatterGivesTheFirstRanksTheExtraRows) {
  Run([](RankEngine& self) {
    int64_t rows = 2 * self.size + 1;
    std::vector<float> input;
    for (int64_t i = 0; i < rows; ++i) input.push_back(static_cast<float>(i));
    Request request = MakeRequest(CollectiveKind::kReduceScatter, "rs");
    AddPart<float>(request, DType::kFloat32, {rows}, input, nullptr);
    auto handle = self.engine->Submit(std::move(request));
    ASSERT_TRUE(self.Await(handle).ok());
    std::vector<float> expected;
    int64_t first = self.rank == 0 ? 0 : 2 * self.rank + 1;
    int64_t count = self.rank == 0 ? 3 : 2;
    for (int64_t i = first; i < first + count; ++i)
      expected.push_back(static_cast<float>(i * self.size));
    EXPECT_EQ(ResultOf<float>(**handle), expected);
  });
}

TEST_P(EngineTest, MismatchRaisesOnAllRanksAndTheEngineGoesOn) {
  if (size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  Run([](RankEngine& self) {
    for (int round = 0; round < 5; ++round) {
      std::vector<float> input = Filled(self.rank == 1 ? 7 : 8, 1.0f), output(8);
      Request wrong = MakeRequest(CollectiveKind::kAllreduce, "kernel");
      AddPart(wrong, DType::kFloat32, {static_cast<int64_t>(input.size())}, input, &output);
      Status status = self.Await(self.engine->Submit(std::move(wrong)));
      EXPECT_EQ(status.code(), StatusCode::kMismatch);
      for (const char* word : {"kernel", "rank 0", "rank 1", "(7,)", "(8,)"}) {
        EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
      }
      std::vector<float> good = Filled(8, 1.0f);
      Request right = MakeRequest(CollectiveKind::kAllreduce, "kernel");
      AddPart(right, DType::kFloat32, {8}, good, &output);
      ASSERT_TRUE(self.Await(self.engine->Submit(std::move(right))).ok());
      EXPECT_EQ(output, Filled(8, static_cast<float>(self.size)));
    }
  });
}

TEST_P(EngineTest, SecondRequestOfANameInFlightIsRefusedAndTheFirstCompletes) {
  Run([](RankEngine& self) {
    std::vector<float> a = Filled(4, 1.0f), out(4);
    // Rank 0 holds the first one open until the second was refused on every rank.
    Request gate = MakeRequest(CollectiveKind::kBarrier, "gate");
    auto first = MakeRequest(CollectiveKind::kAllreduce, "x");
    AddPart(first, DType::kFloat32, {4}, a, &out);
    if (self.rank != 0 || self.size == 1) {
      auto handle = self.engine->Submit(std::move(first));
      if (self.size > 1) {
        Request second = MakeRequest(CollectiveKind::kAllreduce, "x");
        AddPart(second, DType::kFloat32, {4}, a, &out);
        auto refused = self.engine->Submit(std::move(second));
        ASSERT_FALSE(refused.ok());
        EXPECT_NE(refused.status().message().find("same name"), std::string::npos);
      }
      ASSERT_TRUE(self.Await(self.engine->Submit(std::move(gate))).ok());
      ASSERT_TRUE(self.Await(handle).ok());
    } else {
      ASSERT_TRUE(self.Await(self.engine->Submit(std::move(gate))).ok());
      ASSERT_TRUE(self.Await(self.engine->Submit(std::move(first))).ok());
    }
    EXPECT_EQ(out, Filled(4, static_cast<float>(self.size)));
  });
}

TEST_P(EngineTest, GroupsOverlapWithoutWaitingInACircle) {
  if (size() < 3) GTEST_SKIP() << "needs three ranks";
  Run([](RankEngine& self) {
    std::vector<std::vector<int32_t>> members = {{0, 1}, {1, 2}, {0, 2}};
    std::vector<uint32_t> ids;
    for (const auto& ranks : members) {
      Request add = MakeRequest(CollectiveKind::kAddGroup, "");
      add.meta.ranks = ranks;
      auto handle = self.engine->Submit(std::move(add));
      ASSERT_TRUE(self.Await(handle).ok());
      ids.push_back(static_cast<uint32_t>((*handle)->value()));
      EXPECT_EQ(self.engine->GroupRanks(ids.back()), ranks);
    }
    std::vector<float> one = Filled(1000, 1.0f);
    std::vector<std::vector<float>> outs;
    for (int round = 0; round < 20; ++round) {
      std::vector<Result<std::shared_ptr<Completion>>> handles;
      outs.assign(3, std::vector<float>(1000));
      // Each rank walks the groups in another order.
      for (int i = 0; i < 3; ++i) {
        size_t g = static_cast<size_t>((i + self.rank + round) % 3);
        if (std::count(members[g].begin(), members[g].end(), self.rank) == 0) continue;
        Request request = MakeRequest(CollectiveKind::kAllreduce, "g");
        request.meta.key.group = ids[g];
        AddPart(request, DType::kFloat32, {1000}, one, &outs[g]);
        handles.push_back(self.engine->Submit(std::move(request)));
      }
      for (auto& handle : handles) ASSERT_TRUE(self.Await(handle).ok());
    }
    Request foreign = MakeRequest(CollectiveKind::kBarrier, "");
    foreign.meta.key.group = 77;
    EXPECT_EQ(self.engine->Submit(std::move(foreign)).status().code(),
              StatusCode::kInvalidArgument);
    for (uint32_t id : ids) {
      Request remove = MakeRequest(CollectiveKind::kRemoveGroup, "");
      remove.meta.ranks = {static_cast<int32_t>(id)};
      ASSERT_TRUE(self.Await(self.engine->Submit(std::move(remove))).ok());
    }
    EXPECT_EQ(self.engine->Groups(), std::vector<uint32_t>{kWorldGroup});
  });
}

TEST_P(EngineTest, UnnamedCallsOfAGroupCountAnewWhenItsIdIsReused) {
  if (size() < 3) GTEST_SKIP() << "needs three ranks";
  Run([](RankEngine& self) {
    for (const std::vector<int32_t>& mine : {std::vector<int32_t>{0, 1}, {1, 2}, {0, 2}}) {
      Request add = MakeRequest(CollectiveKind::kAddGroup, "");
      add.meta.ranks = mine;
      auto added = self.engine->Submit(std::move(add));
      ASSERT_TRUE(self.Await(added).ok());
      EXPECT_EQ((*added)->value(), 1);  // the smallest free id, again and again
      for (int i = 0; i < 3 && std::count(mine.begin(), mine.end(), self.rank) > 0; ++i) {
        Request barrier = MakeRequest(CollectiveKind::kBarrier, "");
        barrier.meta.key.group = 1;
        ASSERT_TRUE(self.Await(self.engine->Submit(std::move(barrier))).ok());
      }
      Request remove = MakeRequest(CollectiveKind::kRemoveGroup, "");
      remove.meta.ranks = {1};
      ASSERT_TRUE(self.Await(self.engine->Submit(std::move(remove))).ok());
    }
  });
}

TEST_P(EngineTest, JoinedRanksAreLeftOutAndAllLearnWhoCameLast) {
  Run([](RankEngine& self) {
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 2 + 3 * self.rank; ++i) {
        std::vector<float> input = Filled(10, 1.0f), output(10);
        Request request = MakeRequest(CollectiveKind::kAllreduce, "");
        AddPart(request, DType::kFloat32, {10}, input, &output);
        ASSERT_TRUE(self.Await(self.engine->Submit(std::move(request))).ok());
        int active = 0;
        for (int r = 0; r < self.size; ++r) active += i < 2 + 3 * r;
        EXPECT_EQ(output, Filled(10, static_cast<float>(active)));
      }
      auto handle = self.engine->Submit(MakeRequest(CollectiveKind::kJoin, ""));
      ASSERT_TRUE(self.Await(handle).ok());
      EXPECT_EQ((*handle)->value(), self.size - 1);
    }
  });
}

TEST_P(EngineTest, AveragesDividedByActiveRanksAreThoseOfTheWorkingOnes) {
  Run([](RankEngine& self) {
    for (bool average_active : {true, false}) {
      for (int i = 0; i < 2 + self.rank; ++i) {
        std::vector<float> input(3, static_cast<float>(self.rank)), output(3);
        Request request = MakeRequest(CollectiveKind::kAllreduce, "");
        request.meta.op = ReduceOp::kAverage;
        AddPart(request, DType::kFloat32, {3}, input, &output);
        ASSERT_TRUE(self.Await(self.engine->Submit(std::move(request))).ok());
        float sum = 0, active = 0;
        for (int r = 0; r < self.size; ++r) {
          if (i >= 2 + r) continue;
          sum += static_cast<float>(r);
          active += 1;
        }
        float divisor = average_active ? active : static_cast<float>(self.size);
        EXPECT_EQ(output, std::vector<float>(3, sum / divisor));
      }
      Request join = MakeRequest(CollectiveKind::kJoin, "");
      join.meta.average_active = average_active;
      ASSERT_TRUE(self.Await(self.engine->Submit(std::move(join))).ok());
    }
  });
}

TEST_P(EngineTest, ManyThreadsSubmitAtOnce) {
  Run([](RankEngine& self) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&self, t] {
        for (int i = 0; i < 50; ++i) {
          std::vector<double> input(3, t + i), output(3);
          Request request = MakeRequest(CollectiveKind::kAllreduce,
                                        "t" + std::to_string(t) + "." + std::to_string(i % 5));
          AddPart(request, DType::kFloat64, {3}, input, &output);
          ASSERT_TRUE(self.Await(self.engine->Submit(std::move(request))).ok());
          EXPECT_EQ(output, std::vector<double>(3, self.size * (t + i)));
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

TEST_P(EngineTest, CallbacksRunOnceAndMaySubmit) {
  Run([](RankEngine& self) {
    std::atomic<int> calls{0};
    std::vector<float> in = Filled(5, 2.0f), out(5), out2(5);
    std::shared_ptr<Completion> second;
    Mutex mutex;
    Request request = MakeRequest(CollectiveKind::kAllreduce, "first");
    AddPart(request, DType::kFloat32, {5}, in, &out);
    request.callback = [&](const Completion& completion) {
      EXPECT_TRUE(completion.status().ok());
      Request next = MakeRequest(CollectiveKind::kAllreduce, "second");
      AddPart(next, DType::kFloat32, {5}, in, &out2);
      MutexLock lock(mutex);
      second = self.engine->Submit(std::move(next)).value();
      ++calls;
    };
    ASSERT_TRUE(self.Await(self.engine->Submit(std::move(request))).ok());
    while (calls.load() == 0) std::this_thread::yield();
    std::shared_ptr<Completion> handle;
    {
      MutexLock lock(mutex);
      handle = second;
    }
    ASSERT_TRUE(self.Await(handle).ok());
    EXPECT_EQ(out2, Filled(5, 2.0f * static_cast<float>(self.size)));
    EXPECT_EQ(calls.load(), 1);
  });
}

TEST_P(EngineTest, MixedDTypesInOneRequest) {
  Run([](RankEngine& self) {
    std::vector<float> f = Filled(3, 1.5f), fo(3);
    std::vector<int32_t> i(4, 7), io(4);
    std::vector<float> g = Filled(2, 2.5f), go(2);
    Request request = MakeRequest(CollectiveKind::kAllreduce, "mixed");
    AddPart(request, DType::kFloat32, {3}, f, &fo);
    AddPart(request, DType::kInt32, {4}, i, &io);
    AddPart(request, DType::kFloat32, {2}, g, &go);
    ASSERT_TRUE(self.Await(self.engine->Submit(std::move(request))).ok());
    EXPECT_EQ(fo, Filled(3, 1.5f * static_cast<float>(self.size)));
    EXPECT_EQ(io, std::vector<int32_t>(4, 7 * self.size));
    EXPECT_EQ(go, Filled(2, 2.5f * static_cast<float>(self.size)));
    EXPECT_EQ(self.engine->counters().plans, 2u);
  });
}

TEST_P(EngineTest, EngineClosesAndOpensAgain) {
  auto store = std::make_shared<MemoryStore>();
  for (uint64_t epoch = 1; epoch <= 5; ++epoch) {
    WorldOptions with_epoch = options();
    with_epoch.configure = [epoch](Config& config) { config.epoch = epoch; };
    RunWorld(size(), with_epoch, [](RankEngine& self) {
      std::vector<float> in = Filled(3, 1.0f), out(3);
      Request request = MakeRequest(CollectiveKind::kAllreduce, "again");
      AddPart(request, DType::kFloat32, {3}, in, &out);
      ASSERT_TRUE(self.Await(self.engine->Submit(std::move(request))).ok());
      self.engine->Close();
      Request late = MakeRequest(CollectiveKind::kBarrier, "late");
      EXPECT_EQ(self.engine->Submit(std::move(late)).status().code(), StatusCode::kShutdown);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, EngineTest,
                         ::testing::Combine(::testing::Values(Backend{"memory", true},
                                                              Backend{"gloo", false}),
                                            ::testing::Values(1, 2, 3)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace syrtos
