#include "syrtos/engine/wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/metas.h"

namespace syrtos {
namespace {

using metas::ById;
using metas::Full;

RequestMeta RichMeta() {
  RequestMeta meta =
      metas::Meta(CollectiveKind::kAlltoall, "name \xc3\xa9 \"quoted\"", {3, 0, 1000000});
  meta.key.group = 70000;
  meta.key.call = (uint64_t{3} << 40) | 17;
  meta.op = ReduceOp::kMax;
  meta.prescale = 0.1;
  meta.postscale = -0.0;
  meta.root = -5;
  meta.ranks = {0, 1, 900};
  meta.average_active = true;
  meta.parts[0].name = "kernel";
  meta.parts[0].splits = {0, 3, -1, int64_t{1} << 62};
  meta.parts.push_back(metas::Part({}, DType::kComplex128));
  meta.parts.back().item_bytes = 0xffffffffu;
  meta.parts.push_back(metas::Part({-1, std::numeric_limits<int64_t>::min()}, DType::kOpaque));
  return meta;
}

PlanBatch RichBatch() {
  PlanBatch batch;
  Agreement cached;
  cached.cached = true;
  cached.cache_id = 41;
  cached.key.call = 9;
  Agreement full;
  full.key = {3, "gather", 0};
  full.cache_id = 42;
  full.rows = {{1, 0, 5}, {}, {int64_t{1} << 62}};
  full.absent = {1, 7};
  full.average_active = true;
  full.value = -1;
  Agreement failed;
  failed.key = {0, "", 10};
  failed.error = Status::Mismatch("no");
  batch.agreements = {cached, full, failed};
  batch.plans = {{5, 0, {{0, 0}, {0, 1}, {1, 0}}}, {9, 255, {{1, 2}, {1, 1}}}, {8, 1, {{2, 0}}}};
  batch.forgotten = {7, 8, 3, kNoCacheId - 1};
  batch.repost = {{7, 0}, {8, 12}};
  return batch;
}

TEST(WireTest, PostsComeBackAsTheyWere) {
  RequestMeta rich = RichMeta();
  std::vector<Post> posts = {Full(rich), ById(0), ById(kNoCacheId - 1, ~uint64_t{0}), ById(5, 1),
                             Full(metas::Control(CollectiveKind::kBarrier, ""))};
  auto back = DecodePosts(EncodePosts(posts));
  ASSERT_TRUE(back.ok()) << back.status().message();
  ASSERT_EQ(back->size(), posts.size());
  for (size_t i = 0; i < posts.size(); ++i) {
    EXPECT_EQ((*back)[i].cache_id, posts[i].cache_id) << i;
    EXPECT_EQ((*back)[i].call, posts[i].call) << i;
    EXPECT_TRUE((*back)[i].meta.SameSignature(posts[i].meta)) << i;
    EXPECT_EQ((*back)[i].meta.key, posts[i].meta.key) << i;
  }
  EXPECT_TRUE(std::signbit((*back)[0].meta.postscale));
  EXPECT_TRUE(DecodePosts(EncodePosts({})).value().empty());
}

TEST(WireTest, PlanBatchesComeBackAsTheyWere) {
  PlanBatch batch = RichBatch();
  auto back = DecodePlanBatch(EncodePlanBatch(batch));
  ASSERT_TRUE(back.ok()) << back.status().message();
  ASSERT_EQ(back->agreements.size(), batch.agreements.size());
  for (size_t i = 0; i < batch.agreements.size(); ++i) {
    EXPECT_EQ(metas::Text(back->agreements[i]), metas::Text(batch.agreements[i]));
    EXPECT_EQ(back->agreements[i].average_active, batch.agreements[i].average_active);
    EXPECT_EQ(back->agreements[i].cached, batch.agreements[i].cached);
    EXPECT_EQ(back->agreements[i].cache_id, batch.agreements[i].cache_id);
    EXPECT_EQ(back->agreements[i].error.code(), batch.agreements[i].error.code());
  }
  ASSERT_EQ(back->plans.size(), batch.plans.size());
  for (size_t i = 0; i < batch.plans.size(); ++i) {
    EXPECT_EQ(back->plans[i].sequence, batch.plans[i].sequence);
    EXPECT_EQ(back->plans[i].backend, batch.plans[i].backend);
    ASSERT_EQ(back->plans[i].entries.size(), batch.plans[i].entries.size());
    for (size_t j = 0; j < batch.plans[i].entries.size(); ++j) {
      EXPECT_EQ(back->plans[i].entries[j].agreement, batch.plans[i].entries[j].agreement);
      EXPECT_EQ(back->plans[i].entries[j].part, batch.plans[i].entries[j].part);
    }
  }
  EXPECT_EQ(back->forgotten, batch.forgotten);
  EXPECT_EQ(back->repost, batch.repost);
}

TEST(WireTest, CachedAgreementTravelsAsIdAndCallOnly) {
  Agreement known;
  known.key = {4, "a name that all ranks know", 0};
  known.cached = true;
  known.cache_id = 3;
  known.rows = {{1, 2, 3}};
  PlanBatch batch;
  batch.agreements = {known};
  auto back = DecodePlanBatch(EncodePlanBatch(batch));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->agreements[0].cache_id, 3u);
  EXPECT_TRUE(back->agreements[0].cached);
  EXPECT_TRUE(back->agreements[0].rows.empty());
  // With an error there is nothing to remember, so it travels in full.
  batch.agreements[0].error = Status::Internal("why");
  back = DecodePlanBatch(EncodePlanBatch(batch));
  ASSERT_TRUE(back.ok());
  EXPECT_FALSE(back->agreements[0].cached);
  EXPECT_EQ(back->agreements[0].cache_id, kNoCacheId);
  EXPECT_EQ(back->agreements[0].key.name, known.key.name);
  EXPECT_EQ(back->agreements[0].error.message(), "why");
}

TEST(WireTest, SteadyStepIsSmall) {
  std::vector<uint32_t> order(200);
  for (uint32_t i = 0; i < 200; ++i) order[i] = 5000 + i;
  for (bool shuffled : {false, true}) {
    if (shuffled) std::shuffle(order.begin(), order.end(), std::mt19937(1));
    std::vector<Post> named, unnamed;
    PlanBatch batch;
    batch.plans.resize(1);
    for (uint32_t i = 0; i < 200; ++i) {
      named.push_back(ById(order[i]));
      unnamed.push_back(ById(order[i], 100000 + i));
      Agreement agreement;
      agreement.cached = true;
      agreement.cache_id = order[i];
      batch.agreements.push_back(agreement);
      batch.plans[0].entries.push_back({i, 0});
    }
    EXPECT_LE(EncodePosts(named).size(), shuffled ? 410u : 210u);
    EXPECT_LE(EncodePosts(unnamed).size(), shuffled ? 620u : 420u);
    EXPECT_LE(EncodePlanBatch(batch).size(), shuffled ? 620u : 420u);
  }
}

TEST(WireTest, MalformedBytesAreRefused) {
  std::string posts = EncodePosts({Full(RichMeta()), ById(3)});
  std::string batch = EncodePlanBatch(RichBatch());
  for (size_t length = 0; length < posts.size(); ++length) {
    EXPECT_FALSE(DecodePosts(posts.substr(0, length)).ok()) << length;
  }
  for (size_t length = 0; length < batch.size(); ++length) {
    EXPECT_FALSE(DecodePlanBatch(batch.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(DecodePosts(posts + '\0').ok());
  EXPECT_FALSE(DecodePlanBatch(batch + '\0').ok());

  const std::vector<std::string> bad_posts = {
      "\x02" + posts.substr(1),                                // another version
      std::string("\x01\x7f\x00", 3),                          // more posts than bytes
      "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",          // a count beyond 64 bits
      std::string("\x01\x01\x05", 3),                          // in full with an id
      std::string("\x01\x01\x04", 3),                          // id -1
      std::string("\x01\x01\x01\x09\x00\x00\x01\x00\x00", 9),  // unknown kind
      std::string("\x01\x01\x01\x00\x00\x00\x09\x00\x00", 9),  // unknown op
      std::string("\x01\x01\x01\x00\x00\x00\x01\x10\x00", 9),  // unknown flag
  };
  for (size_t i = 0; i < bad_posts.size(); ++i) {
    auto decoded = DecodePosts(bad_posts[i]);
    ASSERT_FALSE(decoded.ok()) << i;
    EXPECT_EQ(decoded.status().code(), StatusCode::kInternal);
    EXPECT_EQ(decoded.status().message().rfind("malformed posts", 0), 0u);
  }
  // Well formed: one barrier.
  EXPECT_TRUE(DecodePosts(std::string("\x01\x01\x01\x05\x00\x00\x01\x00\x00", 9)).ok());

  PlanBatch dangling;
  dangling.plans = {{0, 0, {{0, 0}}}};
  auto decoded = DecodePlanBatch(EncodePlanBatch(dangling));
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.status().message().rfind("malformed plan batch", 0), 0u);
}

// Whatever is accepted is a value: it can be written again and read back.
TEST(WireTest, MutatedBytesNeverHarm) {
  std::mt19937 random(20240601);
  const std::string posts = EncodePosts({Full(RichMeta()), ById(3, 4), ById(9)});
  const std::string batch = EncodePlanBatch(RichBatch());
  int accepted = 0;
  for (int round = 0; round < 10000; ++round) {
    bool is_posts = round % 2 == 0;
    std::string bytes = is_posts ? posts : batch;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          bytes.insert(at, 1, static_cast<char>(random()));
          break;
        default:
          if (bytes.size() > 1) bytes.erase(at, 1 + random() % 3);
      }
      if (bytes.empty()) bytes = "\x01";
    }
    if (is_posts) {
      auto decoded = DecodePosts(bytes);
      if (!decoded.ok()) continue;
      std::string again = EncodePosts(*decoded);
      ASSERT_EQ(EncodePosts(DecodePosts(again).value()), again);
    } else {
      auto decoded = DecodePlanBatch(bytes);
      if (!decoded.ok()) continue;
      std::string again = EncodePlanBatch(*decoded);
      ASSERT_EQ(EncodePlanBatch(DecodePlanBatch(again).value()), again);
    }
    ++accepted;
  }
  EXPECT_GT(accepted, 500);
}

TEST(WireTest, RandomBytesNeverHarm) {
  std::mt19937 random(7);
  for (int round = 0; round < 10000; ++round) {
    std::string bytes(random() % 64, '\x01');
    for (size_t i = 1; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(random() % 3 == 0 ? random() : random() % 8);
    }
    static_cast<void>(DecodePosts(bytes).ok());
    static_cast<void>(DecodePlanBatch(bytes).ok());
  }
}

}  // namespace
}  // namespace syrtos
