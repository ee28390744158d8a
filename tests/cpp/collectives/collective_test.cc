#include "syrtos/collectives/collective.h"

#include <gtest/gtest.h>

#include <set>

#include "fakes/numbers.h"

namespace syrtos {
namespace {

TEST(CollectiveTest, TableHasOneRowPerKind) {
  std::set<std::string> names;
  uint8_t kinds = 0;
  for (; IsValidCollectiveKind(kinds); ++kinds) {
    const CollectiveInfo& info = InfoOf(static_cast<CollectiveKind>(kinds));
    EXPECT_EQ(static_cast<uint8_t>(info.kind), kinds);
    names.insert(info.name);
    // What moves nothing has nothing to fuse, reduce or root.
    if (!info.moves_data) {
      EXPECT_FALSE(info.reduces || info.has_root || info.fuses) << info.name;
    }
  }
  EXPECT_EQ(kinds, 9);
  EXPECT_EQ(names.size(), 9u);
  EXPECT_FALSE(IsValidCollectiveKind(255));
}

TEST(CollectiveTest, OpsHaveHorovodsNumbersAndNames) {
  const char* names[] = {"Average", "Sum", "Adasum", "Min", "Max", "Product"};
  for (uint8_t number = 0; number < 6; ++number) {
    EXPECT_TRUE(IsValidReduceOp(number));
    EXPECT_STREQ(ReduceOpName(static_cast<ReduceOp>(number)), names[number]);
  }
  EXPECT_FALSE(IsValidReduceOp(6));
}

TEST(CollectiveTest, RefusesReductionsWithoutMeaning) {
  for (DType dtype : AllDTypes()) {
    const DTypeClass kind = InfoOf(dtype).kind;
    for (ReduceOp op : AllOps()) {
      bool sensible = kind != DTypeClass::kOpaque;
      if (kind == DTypeClass::kBool && op == ReduceOp::kAverage) sensible = false;
      if (kind == DTypeClass::kComplex && (op == ReduceOp::kMin || op == ReduceOp::kMax))
        sensible = false;
      const Status status = CheckReducible(op, dtype);
      EXPECT_EQ(status.ok(), sensible) << InfoOf(dtype).name << " " << ReduceOpName(op);
      if (status.ok()) continue;
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_NE(status.message().find(ReduceOpName(op)), std::string::npos) << status.message();
    }
    EXPECT_EQ(CheckReducible(ReduceOp::kAdasum, dtype).ok(), kind == DTypeClass::kFloat);
  }
}

TEST(CollectiveTest, SaysWhatToDoInstead) {
  const auto text = [](ReduceOp op, DType dtype) { return CheckReducible(op, dtype).message(); };
  EXPECT_NE(text(ReduceOp::kAverage, DType::kBool).find("convert to float32"), std::string::npos);
  EXPECT_NE(text(ReduceOp::kMin, DType::kComplex64).find("complex64"), std::string::npos);
  EXPECT_NE(text(ReduceOp::kSum, DType::kOpaque).find("allgather"), std::string::npos);
}

TEST(CollectiveTest, AdasumNeedsAnAllreduceOverAPowerOfTwo) {
  const auto check = [](CollectiveKind kind, int size) {
    return CheckReduction(kind, ReduceOp::kAdasum, DType::kFloat16, size);
  };
  for (int size : {1, 2, 4, 8, 1024}) EXPECT_TRUE(check(CollectiveKind::kAllreduce, size).ok());
  for (int size : {3, 5, 6, 7, 12}) {
    const Status status = check(CollectiveKind::kAllreduce, size);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("here it is " + std::to_string(size) + "."), std::string::npos)
        << status.message();
    EXPECT_TRUE(
        CheckReduction(CollectiveKind::kAllreduce, ReduceOp::kSum, DType::kInt8, size).ok());
  }
  const Status scattered = check(CollectiveKind::kReduceScatter, 2);
  EXPECT_EQ(scattered.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(scattered.message().find("reducescatter"), std::string::npos) << scattered.message();
}

}  // namespace
}  // namespace syrtos
