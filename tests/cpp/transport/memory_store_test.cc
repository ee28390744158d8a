#include "syrtos/transport/memory_store.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "syrtos/base/thread.h"
#include "syrtos/transport/store_values.h"

namespace syrtos {
namespace {

constexpr Seconds kLong{30.0};  // only reached if something hangs

TEST(MemoryStoreTest, GetReturnsTheLastValueSet) {
  MemoryStore store;
  ASSERT_TRUE(store.Set("key", "one").ok());
  ASSERT_TRUE(store.Set("key", "two").ok());
  EXPECT_EQ(store.Get("key", kLong).value(), "two");
}

TEST(MemoryStoreTest, GetTimesOutNamingKeyAndSeconds) {
  MemoryStore store;
  for (double seconds : {-1.0, 0.0, 0.05}) {
    const Result<std::string> value = store.Get("job/rank1", Seconds(seconds));
    ASSERT_FALSE(value.ok());
    EXPECT_EQ(value.status().code(), StatusCode::kTimeout);
    EXPECT_NE(value.status().message().find("\"job/rank1\""), std::string::npos);
  }
  EXPECT_NE(store.Get("k", Seconds(0.05)).status().message().find("0.05 s"), std::string::npos);
}

TEST(MemoryStoreTest, GetWaitsUntilAnotherThreadSetsOrAdds) {
  MemoryStore store;
  Result<std::string> text(Status::Internal("not run"));
  Result<std::string> number(Status::Internal("not run"));
  {
    Thread first("test-first", [&] { text = store.Get("text", kLong); });
    Thread second("test-second", [&] { number = store.Get("number", kLong); });
    ASSERT_TRUE(store.Set("text", "value").ok());
    ASSERT_TRUE(store.Add("number", 5).ok());
  }
  EXPECT_EQ(text.value(), "value");
  EXPECT_EQ(number.value(), "5");
}

TEST(MemoryStoreTest, AddsOfManyThreadsAddUp) {
  MemoryStore store;
  {
    std::vector<Thread> threads;
    threads.reserve(8);
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back("test-adder", [&store] {
        for (int k = 0; k < 100; ++k) EXPECT_TRUE(store.Add("sum", 2).ok());
      });
    }
  }
  EXPECT_EQ(store.Add("sum", -1600).value(), 0);
}

TEST(MemoryStoreTest, RemoveIsIdempotent) {
  MemoryStore store;
  ASSERT_TRUE(store.Set("key", "value").ok());
  EXPECT_TRUE(store.Remove("key").ok());
  EXPECT_TRUE(store.Remove("key").ok());
  EXPECT_EQ(store.Get("key", Seconds(0)).status().code(), StatusCode::kTimeout);
}

TEST(StoreValuesTest, CountersRefuseTextAndOverflow) {
  std::map<std::string, std::string> values;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(AddToCounter(values, "n", kMax).value(), kMax);
  EXPECT_EQ(AddToCounter(values, "n", 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(values["n"], std::to_string(kMax));
  for (const char* text : {"", "x", "1x", " 1", "99999999999999999999"}) {
    values["t"] = text;
    const Status status = AddToCounter(values, "t", 1).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(values["t"], text);
  }
}

}  // namespace
}  // namespace syrtos
