#include "syrtos/engine/plan_cache.h"

#include <gtest/gtest.h>

#include "engine/metas.h"

namespace syrtos {
namespace {

Agreement WithId(uint32_t id, int64_t value = 0) {
  Agreement agreement;
  agreement.cache_id = id;
  agreement.value = value;
  return agreement;
}

TEST(PlanCacheTest, PostsInFullUntilAnAgreementIsKnown) {
  PlanCache cache;
  RequestMeta meta = metas::Allreduce("w");
  Post first = cache.MakePost(meta);
  EXPECT_EQ(first.cache_id, kNoCacheId);
  EXPECT_TRUE(first.meta.SameSignature(meta));
  cache.Remember(meta, WithId(7, 3));
  Post second = cache.MakePost(meta);
  EXPECT_EQ(second.cache_id, 7u);
  ASSERT_NE(cache.Find(7), nullptr);
  EXPECT_EQ(cache.Find(7)->value, 3);
  EXPECT_EQ(cache.Find(8), nullptr);
}

TEST(PlanCacheTest, AnotherSignatureIsPostedInFull) {
  PlanCache cache;
  cache.Remember(metas::Allreduce("w", {4}), WithId(7));
  EXPECT_EQ(cache.MakePost(metas::Allreduce("w", {5})).cache_id, kNoCacheId);
  EXPECT_EQ(cache.MakePost(metas::Allreduce("v", {4})).cache_id, kNoCacheId);
  RequestMeta scaled = metas::Allreduce("w", {4});
  scaled.prescale = 2;
  EXPECT_EQ(cache.MakePost(scaled).cache_id, kNoCacheId);
  RequestMeta elsewhere = metas::Allreduce("w", {4});
  elsewhere.key.group = 1;
  EXPECT_EQ(cache.MakePost(elsewhere).cache_id, kNoCacheId);
  EXPECT_EQ(cache.MakePost(metas::Allreduce("w", {4})).cache_id, 7u);
}

TEST(PlanCacheTest, NamedRequestKeepsItsIdWhenItsShapeChanges) {
  PlanCache cache;
  cache.Remember(metas::Allgather("w", {4}), WithId(7));
  cache.Remember(metas::Allgather("w", {5}), WithId(7));
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_EQ(cache.MakePost(metas::Allgather("w", {5})).cache_id, 7u);
  EXPECT_EQ(cache.MakePost(metas::Allgather("w", {4})).cache_id, kNoCacheId);
}

TEST(PlanCacheTest, UnnamedRequestsAreFoundBySignature) {
  PlanCache cache;
  RequestMeta a = metas::Allreduce("", {4});
  a.key.call = 1;
  RequestMeta b = metas::Allreduce("", {5});
  b.key.call = 2;
  cache.Remember(a, WithId(1));
  cache.Remember(b, WithId(2));
  a.key.call = 3;
  Post post = cache.MakePost(a);
  EXPECT_EQ(post.cache_id, 1u);
  EXPECT_EQ(post.call, 3u);
  b.key.call = 4;
  EXPECT_EQ(cache.MakePost(b).cache_id, 2u);
}

TEST(PlanCacheTest, OlderIdOfASignatureStaysKnownAndForgettingItHarmsNothing) {
  PlanCache cache;
  RequestMeta meta = metas::Allgather("", {4});
  cache.Remember(meta, WithId(1, 10));
  cache.Remember(meta, WithId(2, 20));  // the others' shapes were different ones
  EXPECT_EQ(cache.MakePost(meta).cache_id, 2u);
  ASSERT_NE(cache.Find(1), nullptr);  // posts by it may be in flight
  EXPECT_EQ(cache.Find(1)->value, 10);
  cache.Forget(1);
  EXPECT_EQ(cache.Find(1), nullptr);
  EXPECT_EQ(cache.MakePost(meta).cache_id, 2u);
}

TEST(PlanCacheTest, ForgottenIsPostedInFullAgain) {
  PlanCache cache;
  RequestMeta meta = metas::Allreduce("w");
  cache.Remember(meta, WithId(7));
  cache.Forget(7);
  cache.Forget(7);
  cache.Forget(1234);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(cache.Find(7), nullptr);
  EXPECT_EQ(cache.MakePost(meta).cache_id, kNoCacheId);
}

TEST(PlanCacheTest, NameCannotBeTakenForAGroupOrASignature) {
  PlanCache cache;
  RequestMeta odd = metas::Allreduce("1:w");
  RequestMeta other = metas::Allreduce("w");
  other.key.group = 1;
  cache.Remember(odd, WithId(1));
  cache.Remember(other, WithId(2));
  EXPECT_EQ(cache.MakePost(odd).cache_id, 1u);
  EXPECT_EQ(cache.MakePost(other).cache_id, 2u);
}

}  // namespace
}  // namespace syrtos
