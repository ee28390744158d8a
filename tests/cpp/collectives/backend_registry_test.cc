#include "syrtos/collectives/backend_registry.h"

#include <gtest/gtest.h>

#include "fakes/backend_worlds.h"

namespace syrtos {
namespace {

Collective OverRanks(std::vector<int> ranks) {
  Collective collective;
  collective.ranks = std::move(ranks);
  return collective;
}

TEST(BackendRegistryTest, TheBestBidWinsAndTheFirstAmongEqualBids) {
  const auto hub = std::make_shared<MemoryHub>();
  BackendRegistry registry;
  registry.Add(MakeLocalCommunicator());
  registry.Add(std::make_unique<MemoryCommunicator>(hub, 50));
  registry.Add(std::make_unique<MemoryCommunicator>(hub, 60));
  registry.Add(std::make_unique<MemoryCommunicator>(hub, 60));
  EXPECT_EQ(registry.Choose(OverRanks({0, 1}), 4).value(), 2);
  EXPECT_EQ(registry.Choose(OverRanks({7}), 4).value(), 0) << "a group of one is a copy";
  Collective joined = OverRanks({0, 1, 2});
  joined.active = {0, 1, 0};
  EXPECT_EQ(registry.Choose(joined, 4).value(), 0);
  EXPECT_FALSE(registry.AnyMayBlock());
}

TEST(BackendRegistryTest, SaysWhatNobodyCanDo) {
  BackendRegistry registry;
  registry.Add(MakeLocalCommunicator());
  Collective collective = OverRanks({0, 1, 2});
  const Status status = registry.Choose(collective, 4).status();
  EXPECT_EQ(status.code(), StatusCode::kBackendUnavailable);
  for (const char* word : {"allreduce", "op=Sum", "float32", "3 ranks", "local"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
  collective.dtype = DType::kBool;
  collective.op = ReduceOp::kAverage;
  collective.ranks = {0};
  EXPECT_FALSE(registry.Choose(collective, 4).ok());
}

TEST(BackendRegistryTest, AbortReachesAll) {
  const auto hub = std::make_shared<MemoryHub>();
  BackendRegistry registry;
  registry.Add(MakeLocalCommunicator());
  registry.Add(std::make_unique<MemoryCommunicator>(hub));
  registry.AbortAll(Status::Shutdown("over"));
  for (int i = 0; i < registry.size(); ++i) {
    EXPECT_EQ(registry.at(i).Start(OverRanks({0}), {}).status().message(), "over");
  }
}

TEST(BuiltinBackendsTest, LocalIsAlwaysThere) {
  const BackendFactory& local = BuiltinBackend("local");
  EXPECT_FALSE(local.multi_rank);
  EXPECT_TRUE(local.available({}).ok());
  const Config config;
  const auto communicator = local.create({&config, nullptr});
  ASSERT_TRUE(communicator.ok());
  EXPECT_EQ((*communicator.value()).name(), "local");
}

TEST(BuiltinBackendsTest, AMissingGlooSaysHowToGetIt) {
  const BackendFactory& gloo = BuiltinBackend("gloo");
  EXPECT_TRUE(gloo.multi_rank);
  Config config;
  for (const char* path : {"", "/nowhere/libsyrtos_gloo.so", "/etc/hostname"}) {
    config.gloo_plugin_path = path;
    const Status status = gloo.available(config);
    EXPECT_EQ(status.code(), StatusCode::kBackendUnavailable);
    EXPECT_NE(status.message().find("apt-get install libgloo"), std::string::npos)
        << status.message();
    EXPECT_EQ(gloo.create({&config, nullptr}).status().code(), StatusCode::kBackendUnavailable);
  }
}

}  // namespace
}  // namespace syrtos
