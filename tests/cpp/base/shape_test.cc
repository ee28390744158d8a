#include "syrtos/base/shape.h"

#include <gtest/gtest.h>

#include <limits>

namespace syrtos {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(ShapeTest, ElementCountIsTheProduct) {
  EXPECT_EQ(ElementCount({}).value(), 1);
  EXPECT_EQ(ElementCount({0}).value(), 0);
  EXPECT_EQ(ElementCount({7}).value(), 7);
  EXPECT_EQ(ElementCount({2, 3, 4}).value(), 24);
  EXPECT_EQ(ElementCount({2, 0, 4}).value(), 0);
  EXPECT_EQ(ElementCount({kMax}).value(), kMax);
  EXPECT_EQ(ElementCount({int64_t{1} << 31, int64_t{1} << 31}).value(), int64_t{1} << 62);
}

TEST(ShapeTest, ElementCountRefusesOverflow) {
  for (const Shape& shape : {Shape{kMax, 2}, Shape{int64_t{1} << 32, int64_t{1} << 31},
                             Shape{3, kMax, kMax}, Shape{0, kMax, 2}, Shape{kMax, 2, 0}}) {
    const Result<int64_t> count = ElementCount(shape);
    ASSERT_FALSE(count.ok()) << ShapeToString(shape);
    EXPECT_EQ(count.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(count.status().message().find(ShapeToString(shape)), std::string::npos);
  }
}

TEST(ShapeTest, ElementCountRefusesNegativeDimensions) {
  for (const Shape& shape : {Shape{-1}, Shape{0, -1}, Shape{4, -2, -2}}) {
    const Result<int64_t> count = ElementCount(shape);
    ASSERT_FALSE(count.ok());
    EXPECT_EQ(count.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(count.status().message().find("negative"), std::string::npos);
  }
}

TEST(ShapeTest, RowElementsLeavesOutTheFirstDimension) {
  EXPECT_EQ(RowElements({}), 1);
  EXPECT_EQ(RowElements({9}), 1);
  EXPECT_EQ(RowElements({0, 3, 4}), 12);
  EXPECT_EQ(RowElements({5, 0}), 0);
}

TEST(ShapeTest, PrintsAsNumPyDoes) {
  EXPECT_EQ(ShapeToString({}), "()");
  EXPECT_EQ(ShapeToString({3}), "(3,)");
  EXPECT_EQ(ShapeToString({4, 8}), "(4, 8)");
  EXPECT_EQ(ShapeToString({1, -2, 3}), "(1, -2, 3)");
}

TEST(ShapeTest, EvenRowsGivesTheFirstMembersOneMore) {
  EXPECT_EQ(EvenRows(10, 4, 0), 3);
  EXPECT_EQ(EvenRows(10, 4, 1), 3);
  EXPECT_EQ(EvenRows(10, 4, 2), 2);
  EXPECT_EQ(EvenRows(10, 4, 3), 2);
  EXPECT_EQ(EvenRows(2, 3, 2), 0);
  EXPECT_EQ(EvenRows(0, 3, 0), 0);
}

TEST(ShapeTest, EvenRowsAddUpAndNeverGrow) {
  for (int members = 1; members <= 9; ++members) {
    for (int64_t rows = 0; rows <= 30; ++rows) {
      int64_t sum = 0;
      for (int i = 0; i < members; ++i) {
        sum += EvenRows(rows, members, i);
        if (i > 0) {
          EXPECT_LE(EvenRows(rows, members, i), EvenRows(rows, members, i - 1));
        }
      }
      EXPECT_EQ(sum, rows) << rows << " rows, " << members << " members";
      EXPECT_LE(EvenRows(rows, members, 0) - EvenRows(rows, members, members - 1), 1);
    }
  }
}

}  // namespace
}  // namespace syrtos
