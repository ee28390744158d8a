// What only the Gloo plug-in promises: how it starts, fails and goes away.
#include <dirent.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>

#include "fakes/backend_worlds.h"
#include "fakes/collective_case.h"

namespace syrtos {
namespace {

using Clock = std::chrono::steady_clock;

int EntriesOf(const char* folder) {
  DIR* directory = opendir(folder);
  int entries = 0;
  while (readdir(directory) != nullptr) ++entries;
  closedir(directory);
  return entries;
}

Status Sum(Communicator& communicator, const RankContext& context, uint64_t sequence,
           std::vector<int16_t>* data) {
  Collective collective;
  collective.dtype = DType::kInt16;
  collective.item_bytes = 2;
  collective.sequence = sequence;
  for (int r = 0; r < context.size; ++r) collective.ranks.push_back(r);
  collective.self = context.rank;
  Part part;
  part.input = part.output = data->data();
  part.count = static_cast<int64_t>(data->size());
  SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Operation> operation,
                          communicator.Start(collective, {part}));
  return Drive(*operation);
}

class GlooTest : public testing::Test {
 protected:
  void SetUp() override {
    if (GlooPluginForTests().empty()) GTEST_SKIP() << "this build has no Gloo plug-in";
  }
};

TEST_F(GlooTest, SumsManyPieces) {
  const Status outcome = RunRanks(3, [](RankContext& context) -> Status {
    SYRTOS_ASSIGN_OR_RETURN(auto communicator, JoinGloo(context));
    std::vector<int16_t> data(5000003, static_cast<int16_t>(context.rank + 1));
    SYRTOS_RETURN_IF_ERROR(Sum(*communicator, context, 1, &data));
    return data == std::vector<int16_t>(data.size(), 6) ? Status::Ok()
                                                        : Status::Internal("wrong sum");
  });
  EXPECT_TRUE(outcome.ok()) << outcome.ToString();
}

TEST_F(GlooTest, ComesAndGoesWithoutATrace) {
  const auto store = std::make_shared<MemoryStore>();
  int threads = 0;
  int descriptors = 0;
  for (int cycle = 0; cycle < 51; ++cycle) {
    const Status outcome = RunRanks(
        2,
        [cycle](RankContext& context) -> Status {
          Config config = GlooConfig(context);
          config.epoch = static_cast<uint64_t>(cycle);
          SYRTOS_ASSIGN_OR_RETURN(auto communicator,
                                  BuiltinBackend("gloo").create({&config, context.store}));
          std::vector<int16_t> data(3, 1);
          return Sum(*communicator, context, 1, &data);
        },
        store);
    ASSERT_TRUE(outcome.ok()) << "cycle " << cycle << ": " << outcome.ToString();
    if (cycle == 0) {  // after the library has been loaded
      threads = EntriesOf("/proc/self/task");
      descriptors = EntriesOf("/proc/self/fd");
    }
  }
  // The kernel lists a thread for a moment after it has been joined.
  for (int i = 0; i < 500 && EntriesOf("/proc/self/task") > threads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(EntriesOf("/proc/self/task"), threads);
  EXPECT_EQ(EntriesOf("/proc/self/fd"), descriptors);
}

TEST_F(GlooTest, LeavesNoKeysInTheStore) {
  // Ranks remove what they published once all have read it, so that a second start under the same
  // keys works.
  const auto store = std::make_shared<MemoryStore>();
  for (int round = 0; round < 2; ++round) {
    const Status outcome = RunRanks(
        3,
        [](RankContext& context) -> Status {
          SYRTOS_ASSIGN_OR_RETURN(auto communicator, JoinGloo(context));
          return Status::Ok();
        },
        store);
    EXPECT_TRUE(outcome.ok()) << outcome.ToString();
    for (const char* key : {"0", "1", "2", "rank_0", "rank_2"}) {
      EXPECT_FALSE(store->Get(std::string("test/0/gloo/") + key, Seconds(0)).ok()) << key;
    }
  }
}

TEST_F(GlooTest, AbortEndsABlockedProgressWithItsCause) {
  for (size_t count : {10u, 4000000u}) {
    std::atomic<Communicator*> waiting{nullptr};
    std::atomic<bool> over{false};
    const Status outcome = RunRanks(2, [&](RankContext& context) -> Status {
      SYRTOS_ASSIGN_OR_RETURN(auto communicator, JoinGloo(context));
      if (context.rank == 1) {  // silent; watches over rank 0
        while (waiting.load() == nullptr) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        waiting.load()->Abort(Status::PeerLost("rank 1 fell silent"));
        waiting = nullptr;
        while (!over) std::this_thread::yield();
        return Status::Ok();
      }
      waiting = communicator.get();
      const auto begin = Clock::now();
      {
        std::vector<int16_t> data(count, 1);
        EXPECT_EQ(Sum(*communicator, context, 1, &data).message(), "rank 1 fell silent");
      }  // the memory goes while the communicator lives on
      EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
      std::vector<int16_t> data(count, 1);
      EXPECT_EQ(Sum(*communicator, context, 2, &data).message(), "rank 1 fell silent")
          << "for good";
      while (waiting.load() != nullptr) std::this_thread::yield();  // Abort has returned
      over = true;
      return Status::Ok();
    });
    EXPECT_TRUE(outcome.ok()) << outcome.ToString();
  }
}

// Abort while the message is half way through: its memory must not be touched afterwards.
TEST_F(GlooTest, MemoryIsFreeAfterAnAbortInTheMiddle) {
  for (int round = 0; round < 8; ++round) {
    std::array<std::atomic<Communicator*>, 2> ranks{};
    const Status outcome = RunRanks(3, [&](RankContext& context) -> Status {
      if (context.rank == 2) {  // the watcher
        while (ranks[0] == nullptr || ranks[1] == nullptr) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
        for (auto& rank : ranks) rank.load()->Abort(Status::Timeout("enough"));
        ranks[0] = ranks[1] = nullptr;
        return Status::Ok();
      }
      RankContext pair{context.rank, 2, context.store};
      SYRTOS_ASSIGN_OR_RETURN(auto communicator, JoinGloo(pair));
      ranks[static_cast<size_t>(context.rank)] = communicator.get();
      for (uint64_t sequence = 1;; ++sequence) {
        std::vector<int16_t> data(3000000, 1);
        const Status status = Sum(*communicator, pair, sequence, &data);
        if (status.ok()) continue;
        // The other rank's connections may close before our own Abort is called.
        EXPECT_TRUE(status.code() == StatusCode::kTimeout || status.code() == StatusCode::kPeerLost)
            << status.ToString();
        break;
      }
      while (ranks[0] != nullptr) std::this_thread::yield();
      return Status::Ok();
    });
    EXPECT_TRUE(outcome.ok()) << outcome.ToString();
  }
}

TEST_F(GlooTest, ALostPeerIsNamed) {
  const Status outcome = RunRanks(2, [](RankContext& context) -> Status {
    SYRTOS_ASSIGN_OR_RETURN(auto communicator, JoinGloo(context));
    if (context.rank == 1) return Status::Ok();  // leaves
    std::vector<int16_t> data(10, 1);
    const Status status = Sum(*communicator, context, 1, &data);
    EXPECT_EQ(status.code(), StatusCode::kPeerLost);
    EXPECT_NE(status.message().find("rank 0 lost its Gloo connection to rank 1"), std::string::npos)
        << status.message();
    EXPECT_EQ(Sum(*communicator, context, 2, &data).message(), status.message()) << "for good";
    return Status::Ok();
  });
  EXPECT_TRUE(outcome.ok()) << outcome.ToString();
}

// A rank may leave as soon as its own last collective is over: what it sent must still arrive.
TEST_F(GlooTest, LastMessagesArriveAlthoughTheSenderHasLeft) {
  for (int round = 0; round < 5; ++round) {
    const Status outcome = RunRanks(2, [](RankContext& context) -> Status {
      SYRTOS_ASSIGN_OR_RETURN(auto communicator, JoinGloo(context));
      CollectiveCase c = MakeCase(CollectiveKind::kBroadcast, DType::kUInt8, {0, 1});
      PartCase part;
      part.count = 200000;
      c.parts = {part};
      uint64_t sequence = 1;
      return RunCase(*communicator, c, context.rank, &sequence);
    });
    EXPECT_TRUE(outcome.ok()) << outcome.ToString();
  }
}

TEST_F(GlooTest, AMissingRankIsNamedWhenTheStartTimeIsOver) {
  for (int rank : {0, 1}) {
    Config config = GlooConfig({rank, 2, nullptr});
    config.start_timeout = Seconds(0.3);
    const auto begin = Clock::now();
    const Status status =
        BuiltinBackend("gloo").create({&config, std::make_shared<MemoryStore>()}).status();
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.ToString();
    EXPECT_NE(status.message().find("rank " + std::to_string(1 - rank)), std::string::npos)
        << status.message();
  }
}

TEST_F(GlooTest, AnAddressThatIsNoneIsRefused) {
  Config config = GlooConfig({0, 1, nullptr});
  const auto store = std::make_shared<MemoryStore>();
  config.address = "no such host!";
  const Status unknown = BuiltinBackend("gloo").create({&config, store}).status();
  EXPECT_EQ(unknown.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.message().find("\"no such host!\""), std::string::npos) << unknown.message();
  config.address = "192.0.2.1";  // for documentation only: no interface of this host has it
  const Status foreign = BuiltinBackend("gloo").create({&config, store}).status();
  EXPECT_EQ(foreign.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(foreign.message().find("\"192.0.2.1\""), std::string::npos) << foreign.message();
}

}  // namespace
}  // namespace syrtos
