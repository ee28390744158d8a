// What happens when ranks die, leave, stall or disagree at the start.
#include <gtest/gtest.h>

#include <atomic>

#include "engine_fixture.h"
#include "syrtos/base/log.h"

namespace syrtos {
namespace {

Request SmallSum(const std::string& name, std::vector<float>& in, std::vector<float>& out) {
  Request request = MakeRequest(CollectiveKind::kAllreduce, name);
  AddPart(request, DType::kFloat32, {static_cast<int64_t>(in.size())}, in, &out);
  return request;
}

// Ranks of a test wait here for each other without the engine under test.
void Meet(std::atomic<int>& arrived, int all) {
  ++arrived;
  while (arrived.load() < all) std::this_thread::yield();
}

class EngineFailureTest : public ::testing::TestWithParam<bool> {
 protected:
  WorldOptions options() {
    WorldOptions options;
    if (GetParam()) options.backends = &MemoryBackends();
    return options;
  }
};

TEST_P(EngineFailureTest, TheFirstCauseReachesAllRanks) {
  std::atomic<int> worked{0};
  RunWorld(3, options(), [&worked](RankEngine& self) {
    std::vector<float> in(4, 1.0f), out(4);
    EXPECT_TRUE(self.Await(self.engine->Submit(SmallSum("ok", in, out))).ok());
    Meet(worked, self.size);
    if (self.rank == 1) {
      self.engine->Abort(Status::PeerLost("rank 1 (test): ValueError: the planted cause"));
      return;
    }
    Status status = self.Await(self.engine->Submit(SmallSum("never", in, out)));
    EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.ToString();
    EXPECT_NE(status.message().find("the planted cause"), std::string::npos) << status.ToString();
    // And so does every later call.
    EXPECT_NE(self.Await(self.engine->Submit(SmallSum("later", in, out))).message().find("planted"),
              std::string::npos);
  });
}

TEST_P(EngineFailureTest, ARankThatLeavesWakesThoseThatNeedIt) {
  for (int leaver : {0, 1, 2}) {
    std::atomic<int> told{0};
    RunWorld(3, options(), [leaver, &told](RankEngine& self) {
      std::vector<float> in(4, 1.0f), out(4);
      EXPECT_TRUE(self.Await(self.engine->Submit(SmallSum("ok", in, out))).ok());
      if (self.rank == leaver) {
        self.engine->Close();
        return;
      }
      Status status = self.Await(self.engine->Submit(SmallSum("needs all", in, out)));
      EXPECT_EQ(status.code(), StatusCode::kShutdown) << status.ToString();
      std::string who = "rank " + std::to_string(leaver) + " ";
      EXPECT_NE(status.message().find(who), std::string::npos) << status.ToString();
      Meet(told, self.size - 1);  // leaving earlier would itself be what the other one hears
    });
  }
}

TEST_P(EngineFailureTest, AgreedWorkEndsAlthoughARankLeavesAtOnce) {
  for (int round = 0; round < 30; ++round) {
    WorldOptions with_epoch = options();
    with_epoch.configure = [round](Config& config) { config.epoch = static_cast<uint64_t>(round); };
    RunWorld(3, with_epoch, [](RankEngine& self) {
      std::vector<float> in(50000, 1.0f);
      std::vector<std::vector<float>> out(4, std::vector<float>(50000));
      std::vector<Result<std::shared_ptr<Completion>>> handles;
      for (size_t i = 0; i < out.size(); ++i) {
        handles.push_back(self.engine->Submit(SmallSum("t" + std::to_string(i), in, out[i])));
      }
      for (auto& handle : handles) {
        Status status = self.Await(handle);
        ASSERT_TRUE(status.ok()) << "rank " << self.rank << ": " << status.ToString();
      }
      self.engine->Close();
    });
  }
}

TEST_P(EngineFailureTest, StallLimitRaisesNamingTheMissingRank) {
  WorldOptions limited = options();
  limited.configure = [](Config& config) {
    config.stall_warning = Seconds(0.1);
    config.stall_limit = Seconds(0.4);
  };
  std::atomic<int> expired{0}, answered{0};
  RunWorld(2, limited, [&expired, &answered](RankEngine& self) {
    std::vector<float> in(4, 1.0f), out(4);
    if (self.rank == 0) {
      Status status = self.Await(self.engine->Submit(SmallSum("late_tensor", in, out)));
      EXPECT_EQ(status.code(), StatusCode::kTimeout);
      EXPECT_NE(status.message().find("late_tensor"), std::string::npos) << status.ToString();
      EXPECT_NE(status.message().find("1"), std::string::npos);
      Meet(expired, self.size);
    } else {
      Meet(expired, self.size);
      // The late post is answered with the same error, and the engine goes on.
      EXPECT_EQ(self.Await(self.engine->Submit(SmallSum("late_tensor", in, out))).code(),
                StatusCode::kTimeout);
    }
    Meet(answered, self.size);  // or "next" itself would be late for one of them
    ASSERT_TRUE(self.Await(self.engine->Submit(SmallSum("next", in, out))).ok());
  });
}

TEST_P(EngineFailureTest, UnequalSettingsAreNamedOnBothSides) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Config config = TestConfig(rank, 2);
      config.start_timeout = Seconds(10);
      config.fusion_threshold_bytes = rank == 0 ? 1024 : 2048;
      auto engine = Engine::Create(config, store, options().backends);
      ASSERT_FALSE(engine.ok());
      EXPECT_EQ(engine.status().code(), StatusCode::kMismatch) << engine.status().ToString();
      for (const char* word : {"fusion_threshold_bytes", "1024", "2048"}) {
        EXPECT_NE(engine.status().message().find(word), std::string::npos)
            << engine.status().ToString();
      }
    });
  }
  for (auto& thread : ranks) thread.join();
}

TEST_P(EngineFailureTest, ARankThatNeverComesIsNamed) {
  auto store = std::make_shared<MemoryStore>();
  Config config = TestConfig(0, 3);
  config.start_timeout = Seconds(0.3);
  auto engine = Engine::Create(config, store, options().backends);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kTimeout);
  EXPECT_NE(engine.status().message().find("1, 2"), std::string::npos)
      << engine.status().ToString();
}

TEST_P(EngineFailureTest, ShutdownFailsWhatIsPending) {
  RunWorld(2, options(), [](RankEngine& self) {
    std::vector<float> in(4, 1.0f), out(4);
    if (self.rank == 0) {
      auto handle = self.engine->Submit(SmallSum("alone", in, out));
      self.engine->Close();
      EXPECT_EQ(self.Await(handle).code(), StatusCode::kShutdown);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, EngineFailureTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "memory" : "gloo"; });

}  // namespace
}  // namespace syrtos
