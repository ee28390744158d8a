#include "syrtos/collectives/adasum_loops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fakes/adasum_reference.h"

namespace syrtos {
namespace {

constexpr DType kDTypes[] = {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(AdasumLoopsTest, MultipliesInDouble) {
  for (DType dtype : kDTypes) {
    for (int64_t count : {0, 1, 7, 8, 9, 4096}) {
      const RealVector a = AdasumNumbers(dtype, 0, count), b = AdasumNumbers(dtype, 1, count);
      const std::vector<uint8_t> x = EncodeReals(dtype, a), y = EncodeReals(dtype, b);
      const AdasumProducts products = ProductsOf(dtype, x.data(), y.data(), count);
      long double ab = 0, aa = 0, bb = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        ab += a[i] * b[i];
        aa += a[i] * a[i];
        bb += b[i] * b[i];
      }
      const long double tolerance = 1e-12L * (aa + bb);
      EXPECT_NEAR(static_cast<double>(ab - static_cast<long double>(products.ab)), 0.0,
                  static_cast<double>(tolerance));
      EXPECT_NEAR(static_cast<double>(aa - static_cast<long double>(products.aa)), 0.0,
                  static_cast<double>(tolerance));
      EXPECT_NEAR(static_cast<double>(bb - static_cast<long double>(products.bb)), 0.0,
                  static_cast<double>(tolerance));
    }
  }
}

TEST(AdasumLoopsTest, FactorsFollowTheFormulaAndZerosChangeNothing) {
  AdasumFactors factors = FactorsOf({6, 4, 9});
  EXPECT_EQ(factors.a, 1 - 6.0 / 8);
  EXPECT_EQ(factors.b, 1 - 6.0 / 18);
  factors = FactorsOf({0, 0, 9});
  EXPECT_EQ(factors.a, 1);
  EXPECT_EQ(factors.b, 1);
  // So small that the square has no digits left.
  factors = FactorsOf({1e-300, 1e-310, 4});
  EXPECT_EQ(factors.a, 1);
  EXPECT_EQ(factors.b, 1);
  EXPECT_TRUE(std::isnan(FactorsOf({std::nan(""), std::nan(""), 1}).a));
  EXPECT_TRUE(std::isnan(FactorsOf({std::nan(""), std::nan(""), 1}).b));
  EXPECT_TRUE(std::isnan(FactorsOf({kInfinity, kInfinity, 1}).a));
}

TEST(AdasumLoopsTest, AddsScaledInPlaceOfEither) {
  for (DType dtype : kDTypes) {
    for (int64_t count : {0, 1, 9, 1000}) {
      const RealVector a = AdasumNumbers(dtype, 0, count), b = AdasumNumbers(dtype, 1, count);
      RealVector sum;
      for (size_t i = 0; i < a.size(); ++i) sum.push_back(0.75L * a[i] - 0.5L * b[i]);
      const std::vector<uint8_t> expected = EncodeReals(dtype, sum);
      const std::vector<uint8_t> x = EncodeReals(dtype, a), y = EncodeReals(dtype, b);
      std::vector<uint8_t> into_a = x, into_b = y;
      AddScaled(dtype, {0.75, -0.5}, into_a.data(), y.data(), into_a.data(), count);
      AddScaled(dtype, {0.75, -0.5}, x.data(), into_b.data(), into_b.data(), count);
      EXPECT_EQ(into_a, into_b);
      const RealVector got = DecodeAll(dtype, into_a);
      for (size_t i = 0; i < got.size(); ++i) {
        // Computed in double (16 bit: float), then rounded once: at most one step away.
        ASSERT_NEAR(static_cast<double>(got[i]), static_cast<double>(sum[i]),
                    std::ldexp(1.0, dtype == DType::kBFloat16 ? -8 : -11))
            << InfoOf(dtype).name;
      }
      if (dtype == DType::kFloat32) {
        EXPECT_EQ(into_a, expected);
      }
    }
  }
}

TEST(AdasumLoopsTest, CopiesAndScales) {
  for (DType dtype : kDTypes) {
    const std::vector<uint8_t> x = EncodeReals(dtype, {1, -2.5L, 0, 3});
    std::vector<uint8_t> out(x.size());
    CopyScaled(dtype, 1.0, x.data(), out.data(), 4);
    EXPECT_EQ(out, x);
    CopyScaled(dtype, -2.0, out.data(), out.data(), 4);
    EXPECT_EQ(DecodeAll(dtype, out), (RealVector{-2, 5, 0, -6}));
  }
}

}  // namespace
}  // namespace syrtos
