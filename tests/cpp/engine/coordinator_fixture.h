// What the tests of the coordinator share: a coordinator, and short ways to post and to look.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/metas.h"
#include "syrtos/engine/coordinator.h"

namespace syrtos {

using Ranks = std::vector<int32_t>;
using Reposts = std::vector<std::pair<uint32_t, uint64_t>>;

constexpr TimePoint kStart{};
inline TimePoint At(double seconds) {
  return kStart + std::chrono::duration_cast<TimePoint::duration>(Seconds(seconds));
}

class CoordinatorFixture : public ::testing::Test {
 protected:
  void Start(int size, int64_t capacity = 100, bool strict_join = false) {
    coordinator_ = std::make_unique<Coordinator>(
        Coordinator::Options{size, capacity, {"a", "b", "c", "d", "e"}, strict_join});
  }
  void Post(int rank, RequestMeta meta, TimePoint now = kStart) {
    coordinator_->OnPosts(rank, {metas::Full(std::move(meta))}, now);
  }
  void PostId(int rank, uint32_t id, uint64_t call = 0) {
    coordinator_->OnPosts(rank, {metas::ById(id, call)}, kStart);
  }
  void PostAll(int size, const RequestMeta& meta) {
    for (int rank = 0; rank < size; ++rank) Post(rank, meta);
  }
  std::vector<Settled> Take() { return coordinator_->TakeSettled(); }
  Settled One() {
    auto settled = Take();
    EXPECT_EQ(settled.size(), 1u);
    return settled.empty() ? Settled() : settled[0];
  }
  // The id that all ranks get for `meta`.
  uint32_t Learn(int size, const RequestMeta& meta) {
    PostAll(size, meta);
    Settled settled = One();
    EXPECT_TRUE(settled.agreement.error.ok()) << settled.agreement.error.message();
    EXPECT_NE(settled.agreement.cache_id, kNoCacheId);
    return settled.agreement.cache_id;
  }
  void ExpectError(const Settled& settled, StatusCode code, const std::string& text,
                   const Ranks& told) {
    EXPECT_EQ(settled.agreement.error.code(), code);
    EXPECT_NE(settled.agreement.error.message().find(text), std::string::npos)
        << settled.agreement.error.message();
    EXPECT_EQ(settled.members, told);
    EXPECT_EQ(settled.agreement.cache_id, kNoCacheId);
  }
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace syrtos
