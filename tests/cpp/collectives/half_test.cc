#include "syrtos/collectives/half.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <random>

#include "fakes/numbers.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace syrtos {
namespace {

TEST(HalfTest, Decodes65536Values) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float got = HalfToFloat(half);
    const double expected = DecodeSmall(half, kHalfFormat);
    ASSERT_EQ(std::isnan(got), std::isnan(expected)) << bits;
    ASSERT_EQ(std::signbit(got), (bits & 0x8000) != 0) << bits;
    if (!std::isnan(expected)) {
      ASSERT_EQ(static_cast<double>(got), expected) << bits;
    }
  }
}

TEST(HalfTest, RoundTrips65536Values) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const bool nan = (bits & 0x7fff) > 0x7c00;
    // NaN keeps sign and payload and becomes quiet.
    ASSERT_EQ(FloatToHalf(HalfToFloat(half)), nan ? half | 0x200 : half) << bits;
  }
}

TEST(BFloat16Test, RoundTrips65536Values) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    const float decoded = BFloat16ToFloat(value);
    const double expected = DecodeSmall(value, kBFloat16Format);
    ASSERT_EQ(std::isnan(decoded), std::isnan(expected)) << bits;
    if (!std::isnan(expected)) {
      ASSERT_EQ(static_cast<double>(decoded), expected) << bits;
    }
    const bool nan = (bits & 0x7fff) > 0x7f80;
    ASSERT_EQ(FloatToBFloat16(decoded), nan ? value | 0x40 : value) << bits;
  }
}

// Every midpoint between neighbours, and the floats beside it.
void CheckRounding(uint16_t (*encode)(float), SmallFormat format) {
  const auto infinity = static_cast<uint32_t>(format.top_exponent << format.fraction);
  for (uint32_t bits = 0; bits < infinity; ++bits) {
    const double low = DecodeSmall(static_cast<uint16_t>(bits), format);
    // The neighbour of the largest finite value is where the next one would be.
    const double high = bits + 1 < infinity ? DecodeSmall(static_cast<uint16_t>(bits + 1), format)
                                            : std::ldexp(1.0, format.top_exponent - format.bias);
    const auto middle = static_cast<float>((low + high) / 2);
    for (float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) {
      ASSERT_EQ(encode(value), EncodeSmall(value, format)) << value;
      ASSERT_EQ(encode(-value), EncodeSmall(-static_cast<double>(value), format)) << value;
    }
  }
}

TEST(HalfTest, RoundsToNearestEven) { CheckRounding(FloatToHalf, kHalfFormat); }

TEST(BFloat16Test, RoundsToNearestEven) { CheckRounding(FloatToBFloat16, kBFloat16Format); }

TEST(HalfTest, EncodesAnyFloat) {
  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed): the same in every run
  for (int i = 0; i < 2000000; ++i) {
    const float value = FloatFromBits(static_cast<uint32_t>(random()));
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
      ASSERT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(value))));
      continue;
    }
    ASSERT_EQ(FloatToHalf(value), EncodeSmall(value, kHalfFormat)) << FloatBits(value);
    ASSERT_EQ(FloatToBFloat16(value), EncodeSmall(value, kBFloat16Format)) << FloatBits(value);
  }
}

TEST(HalfTest, KnowsTheLandmarks) {
  EXPECT_EQ(FloatToHalf(1.0f), 0x3c00);
  EXPECT_EQ(FloatToHalf(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(std::ldexp(1.0f, -24)), 0x0001);
  EXPECT_EQ(FloatToHalf(std::ldexp(1.0f, -25)), 0x0000) << "a tie goes to even";
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
  EXPECT_EQ(FloatToBFloat16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBFloat16(3.4e38f), 0x7f80) << "rounds up to infinity";
}

#if defined(__SSE2__)
// A library built with -ffast-math sets these bits for the whole thread.
TEST(HalfTest, SubnormalsSurviveFlushToZero) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);  // FTZ and DAZ
  uint32_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (FloatToHalf(HalfToFloat(half)) != half) ++wrong;
  }
  _mm_setcsr(before);
  EXPECT_EQ(wrong, 0u);
}
#endif

}  // namespace
}  // namespace syrtos
