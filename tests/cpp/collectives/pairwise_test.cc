// What only the pairwise algorithms promise: whom they talk to, how they fail, what pieces change.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "fakes/backend_worlds.h"
#include "fakes/collective_case.h"

namespace syrtos {
namespace {

using Clock = std::chrono::steady_clock;

std::unique_ptr<Communicator> Join(const std::shared_ptr<MemoryNetwork>& network, int rank,
                                   PairwiseOptions options = {}) {
  return MakePairwiseCommunicator("pairwise", 10, std::make_unique<MemoryWire>(network, rank),
                                  options);
}

// An allreduce of `data` in place over all ranks of the network.
Status SumAll(Communicator& communicator, int rank, int size, std::vector<float>* data) {
  Collective collective;
  for (int r = 0; r < size; ++r) collective.ranks.push_back(r);
  collective.self = rank;
  Part part;
  part.input = part.output = data->data();
  part.count = static_cast<int64_t>(data->size());
  SYRTOS_ASSIGN_OR_RETURN(std::unique_ptr<Operation> operation,
                          communicator.Start(collective, {part}));
  return Drive(*operation);
}

TEST(PairwiseTest, PieceSizesDoNotChangeABit) {
  constexpr int kSize = 3;
  constexpr size_t kCount = 9973;
  std::vector<std::vector<float>> results;
  for (PairwiseOptions options :
       {PairwiseOptions{4, 0}, {64, 0}, {1000, 0}, {1 << 20, 0}, {1 << 20, 1 << 20}}) {
    const auto network = std::make_shared<MemoryNetwork>(kSize);
    std::vector<std::vector<float>> outputs(kSize);
    const Status outcome = RunRanks(kSize, [&](RankContext& context) {
      std::vector<float>& data = outputs[static_cast<size_t>(context.rank)];
      for (size_t i = 0; i < kCount; ++i) {
        data.push_back(
            std::ldexp(static_cast<float>(i % 991) + 0.1f * static_cast<float>(context.rank + 1),
                       static_cast<int>(i + static_cast<size_t>(context.rank) * 3) % 17));
      }
      return SumAll(*Join(network, context.rank, options), context.rank, kSize, &data);
    });
    ASSERT_TRUE(outcome.ok()) << outcome.ToString();
    for (const std::vector<float>& output : outputs) results.push_back(output);
  }
  for (const std::vector<float>& result : results) EXPECT_EQ(result, results.front());
}

TEST(PairwiseTest, SmallAllreduceTakesOneRound) {
  for (auto [count, messages] : {std::pair<size_t, int64_t>{1024, 6}, {1025, 12}, {0, 0}}) {
    const auto network = std::make_shared<MemoryNetwork>(3);
    const Status outcome = RunRanks(3, [&, count = count](RankContext& context) {
      std::vector<float> data(count, 1.0f);
      return SumAll(*Join(network, context.rank), context.rank, 3, &data);
    });
    ASSERT_TRUE(outcome.ok()) << outcome.ToString();
    EXPECT_EQ(network->messages(), messages) << count;
  }
}

TEST(PairwiseTest, NeverContactsAbsentMembersNorOutsiders) {
  const auto network = std::make_shared<MemoryNetwork>(5);
  const Status outcome = RunRanks(5, [&](RankContext& context) -> Status {
    const auto communicator = Join(network, context.rank, {64, 0});
    uint64_t sequence = 0;
    for (CollectiveKind kind :
         {CollectiveKind::kAllreduce, CollectiveKind::kAllgather, CollectiveKind::kBroadcast,
          CollectiveKind::kAlltoall, CollectiveKind::kReduceScatter}) {
      CollectiveCase c = MakeCase(kind, DType::kInt32, {3, 0, 1, 4});  // 2 is no member
      c.collective.active = {1, 0, 1, 1};                              // 0 has joined
      PartCase part;
      part.count = 100;
      part.counts = {40, 30, 20, 10};
      part.matrix.assign(4, {7, 8, 9, 10});
      c.parts = {part};
      SYRTOS_RETURN_IF_ERROR(RunCase(*communicator, c, context.rank, &sequence));
    }
    return Status::Ok();
  });
  EXPECT_TRUE(outcome.ok()) << outcome.ToString();
  EXPECT_FALSE(network->contacts().empty());
  for (const auto& [from, to] : network->contacts()) {
    EXPECT_TRUE(from != 0 && from != 2 && to != 0 && to != 2) << from << " -> " << to;
  }
}

TEST(PairwiseTest, AbortEndsABlockedProgressWithItsCause) {
  const auto network = std::make_shared<MemoryNetwork>(2);
  std::atomic<Communicator*> waiting{nullptr};
  const Status outcome = RunRanks(2, [&](RankContext& context) -> Status {
    if (context.rank == 1) {  // the watcher; as rank 1 it never takes part
      while (waiting.load() == nullptr) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      waiting.load()->Abort(Status::PeerLost("rank 1 fell silent"));
      waiting = nullptr;
      return Status::Ok();
    }
    const auto communicator = Join(network, 0);
    waiting = communicator.get();
    std::vector<float> data(100000, 1.0f);
    const auto begin = Clock::now();
    const Status status = SumAll(*communicator, 0, 2, &data);
    EXPECT_EQ(status.code(), StatusCode::kPeerLost);
    EXPECT_EQ(status.message(), "rank 1 fell silent");
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
    EXPECT_EQ(SumAll(*communicator, 0, 2, &data).message(), "rank 1 fell silent") << "for good";
    while (waiting.load() != nullptr) std::this_thread::yield();  // Abort has returned
    return Status::Ok();
  });
  EXPECT_TRUE(outcome.ok()) << outcome.ToString();
}

TEST(PairwiseTest, ALostPeerIsNamedAndIsTheCauseForGood) {
  const auto network = std::make_shared<MemoryNetwork>(3);
  const Status outcome = RunRanks(3, [&](RankContext& context) -> Status {
    const auto communicator = Join(network, context.rank);
    if (context.rank == 2) return Status::Ok();  // leaves without taking part
    std::vector<float> data(100000, 1.0f);
    for (int i = 0; i < 2; ++i) {
      const Status status = SumAll(*communicator, context.rank, 3, &data);
      EXPECT_EQ(status.code(), StatusCode::kPeerLost);
      // One of the two may leave before the other has noticed rank 2.
      if (context.rank == 0) {
        EXPECT_NE(status.message().find("lost rank"), std::string::npos);
      }
    }
    return Status::Ok();
  });
  EXPECT_TRUE(outcome.ok()) << outcome.ToString();
}

TEST(PackedTest, NestedCallsKeepTheirBuffersApart) {
  const auto network = std::make_shared<MemoryNetwork>(2);
  const Status outcome = RunRanks(2, [&](RankContext& context) -> Status {
    const auto communicator = MakePackedCommunicator(Join(network, context.rank));
    EXPECT_FALSE(communicator->needs_contiguous());
    EXPECT_TRUE(communicator->may_block());
    EXPECT_EQ(communicator->name(), "pairwise");
    Collective collective;
    collective.ranks = {0, 1};
    collective.self = context.rank;
    std::vector<std::vector<float>> data(6, std::vector<float>(100));
    std::vector<std::unique_ptr<Operation>> operations;
    for (size_t k = 0; k < 6; k += 2) {  // three lists of two in flight together
      std::vector<Part> parts(2);
      for (size_t i = 0; i < 2; ++i) {
        std::fill(data[k + i].begin(), data[k + i].end(), static_cast<float>(k + i));
        parts[i].input = parts[i].output = data[k + i].data();
        parts[i].count = 100;
      }
      collective.sequence = k;
      SYRTOS_ASSIGN_OR_RETURN(auto operation, communicator->Start(collective, parts));
      operations.push_back(std::move(operation));
    }
    for (auto& operation : operations) SYRTOS_RETURN_IF_ERROR(Drive(*operation));
    for (size_t k = 0; k < 6; ++k) {
      if (data[k] != std::vector<float>(100, 2.0f * static_cast<float>(k))) {
        return Status::Internal("mixed up");
      }
    }
    return Status::Ok();
  });
  EXPECT_TRUE(outcome.ok()) << outcome.ToString();
}

}  // namespace
}  // namespace syrtos
