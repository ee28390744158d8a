#include "syrtos/collectives/host_reduce.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "fakes/numbers.h"

namespace syrtos {
namespace {

Collective Spec(DType dtype, ReduceOp op, int64_t divisor = 1, double prescale = 1,
                double postscale = 1) {
  Collective collective;
  collective.dtype = dtype;
  collective.item_bytes = InfoOf(dtype).bytes;
  collective.op = op;
  collective.divisor = divisor;
  collective.prescale = prescale;
  collective.postscale = postscale;
  return collective;
}

template <typename T>
std::vector<T> Reduce(const Collective& collective, const std::vector<std::vector<T>>& inputs) {
  const auto count = static_cast<int64_t>(inputs.front().size());
  const std::unique_ptr<Reducer> reducer = MakeReducer(collective, count);
  reducer->Begin(inputs.front().data(), count);
  for (size_t i = 1; i < inputs.size(); ++i) reducer->Add(inputs[i].data());
  std::vector<T> output(inputs.front().size());
  reducer->Finish(output.data());
  return output;
}

// One number per rank.
template <typename T>
T ReduceOne(const Collective& collective, const std::vector<T>& values) {
  std::vector<std::vector<T>> inputs;
  for (T value : values) inputs.push_back({value});
  return Reduce(collective, inputs).front();
}

class HostReduceTest : public testing::TestWithParam<DType> {};

// Small integers are exact in every dtype, so that the definition leaves no choice.
TEST_P(HostReduceTest, MatchesTheDefinition) {
  const DType dtype = GetParam();
  const DTypeClass kind = InfoOf(dtype).kind;
  const size_t item = InfoOf(dtype).bytes;
  for (ReduceOp op : AllOps()) {
    if (!CheckReducible(op, dtype).ok()) continue;
    for (auto [pre, post] : {std::pair(1.0, 1.0), {0.5, 1.0}, {1.0, 0.25}, {2.0, 1.5}}) {
      for (int64_t count : {1, 2, 7, 33, 1000}) {  // heads and tails of vector loops
        const Collective collective = Spec(dtype, op, 3, pre, post);
        std::vector<std::vector<uint8_t>> inputs;
        std::vector<std::vector<Value>> values(static_cast<size_t>(count));
        for (int rank = 0; rank < 3; ++rank) {
          std::vector<uint8_t> bytes(static_cast<size_t>(count) * item);
          for (int64_t i = 0; i < count; ++i) {
            const auto k = static_cast<size_t>(i);
            long double v = (i * 5 + rank * 7) % 11;
            if (kind == DTypeClass::kBool) v = (i + rank) % 3 == 0;
            if (kind != DTypeClass::kBool && kind != DTypeClass::kUnsigned) v -= 5;
            values[k].emplace_back(v, kind == DTypeClass::kComplex ? (i * 3 + rank) % 7 - 3 : 0);
            Encode(dtype, item, values[k].back(), &bytes[k * item]);
          }
          inputs.push_back(bytes);
        }
        std::vector<uint8_t> expected(static_cast<size_t>(count) * item);
        for (size_t k = 0; k < values.size(); ++k) {
          Encode(dtype, item, ReduceByDefinition(collective, values[k]), &expected[k * item]);
        }
        const std::unique_ptr<Reducer> reducer = MakeReducer(collective, count);
        std::vector<uint8_t> output(expected.size());
        for (int round = 0; round < 2; ++round) {  // a Reducer can be used again
          reducer->Begin(inputs[0].data(), count);
          reducer->Add(inputs[1].data());
          reducer->Add(inputs[2].data());
          reducer->Finish(output.data());
          ASSERT_EQ(output, expected)
              << ReduceOpName(op) << " x" << pre << " x" << post << " n=" << count;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, HostReduceTest,
                         testing::ValuesIn(AllDTypes().begin(), AllDTypes().end() - 1),
                         [](const testing::TestParamInfo<DType>& info) {
                           return std::string(InfoOf(info.param).name);
                         });

TEST(IntegerMeanTest, DividesExactlyAndTruncatesTowardZero) {
  const auto mean = [](const std::vector<int32_t>& values, int64_t divisor) {
    return ReduceOne(Spec(DType::kInt32, ReduceOp::kAverage, divisor), values);
  };
  EXPECT_EQ(mean({49, 0}, 49), 1) << "49 * (1.0 / 49) is 0.999...";
  EXPECT_EQ(mean({98, 0}, 49), 2);
  EXPECT_EQ(mean({3, 3}, 2), 3);
  EXPECT_EQ(mean({3, 4}, 2), 3);
  EXPECT_EQ(mean({-3, -4}, 2), -3);
  EXPECT_EQ(mean({-1, 0}, 2), 0);
}

TEST(IntegerMeanTest, SumsBeyondTheDTypeDoNotWrap) {
  EXPECT_EQ(ReduceOne<int8_t>(Spec(DType::kInt8, ReduceOp::kAverage, 3), {127, 127, 126}), 126);
  EXPECT_EQ(ReduceOne<uint8_t>(Spec(DType::kUInt8, ReduceOp::kAverage, 2), {255, 255}), 255);
  EXPECT_EQ(
      ReduceOne<uint32_t>(Spec(DType::kUInt32, ReduceOp::kAverage, 2), {4294967295u, 4294967293u}),
      4294967294u);
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  const Collective mean3 = Spec(DType::kInt64, ReduceOp::kAverage, 3);
  EXPECT_EQ(ReduceOne<int64_t>(mean3, {kMax, kMax, kMax}), kMax);
  EXPECT_EQ(ReduceOne<int64_t>(mean3, {kMax, kMax - 1, kMax - 2}), kMax - 1);
  EXPECT_EQ(ReduceOne<int64_t>(mean3, {kMin, kMin, kMin}), kMin);
  EXPECT_EQ(ReduceOne<int64_t>(mean3, {kMin, kMin, kMin + 1}), kMin + 1) << "toward zero";
  EXPECT_EQ(
      ReduceOne<int64_t>(Spec(DType::kInt64, ReduceOp::kAverage, 2), {(int64_t{1} << 40) + 1, 0}),
      int64_t{1} << 39);
  constexpr uint64_t kUMax = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(ReduceOne<uint64_t>(Spec(DType::kUInt64, ReduceOp::kAverage, 2), {kUMax, kUMax - 2}),
            kUMax - 1);
}

TEST(IntegerSumTest, WrapsAsNumPy) {
  EXPECT_EQ(ReduceOne<int32_t>(Spec(DType::kInt32, ReduceOp::kSum), {2147483647, 1}), INT32_MIN);
  EXPECT_EQ(ReduceOne<int8_t>(Spec(DType::kInt8, ReduceOp::kSum), {100, 100}), -56);
  EXPECT_EQ(ReduceOne<uint16_t>(Spec(DType::kUInt16, ReduceOp::kSum), {65535, 2}), 1);
  EXPECT_EQ(ReduceOne<int64_t>(Spec(DType::kInt64, ReduceOp::kSum), {INT64_MAX, 1}), INT64_MIN);
  // Products too: uint16 * uint16 overflows an int.
  EXPECT_EQ(ReduceOne<uint16_t>(Spec(DType::kUInt16, ReduceOp::kProduct), {65535, 65535}), 1);
  EXPECT_EQ(ReduceOne<int64_t>(Spec(DType::kInt64, ReduceOp::kProduct), {INT64_MAX, 2}), -2);
}

TEST(IntegerScaleTest, TruncatesTowardZeroAndClampsWhatHasNoInteger) {
  const auto sum = [](const std::vector<int32_t>& values, double pre, double post) {
    return ReduceOne(Spec(DType::kInt32, ReduceOp::kSum, 1, pre, post), values);
  };
  EXPECT_EQ(sum({3, 3}, 0.5, 1), 2) << "each input is cut: 1 + 1";
  EXPECT_EQ(sum({3, 3}, 1, 0.5), 3);
  EXPECT_EQ(sum({-3, -4}, 1, 0.5), -3);
  EXPECT_EQ(sum({100, 100}, 1e300, 0), 0) << "no undefined conversion";
  EXPECT_EQ(sum({5, 5}, std::nan(""), 1), 0);
}

template <typename T>
void CheckNan(DType dtype, T nan, T small, T large, bool (*is_nan)(T)) {
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kSum, ReduceOp::kProduct}) {
    for (const std::vector<T>& values :
         {std::vector<T>{nan, small, large}, {small, nan, large}, {small, large, nan}}) {
      EXPECT_TRUE(is_nan(ReduceOne(Spec(dtype, op), values)))
          << InfoOf(dtype).name << ReduceOpName(op);
    }
  }
  EXPECT_EQ(ReduceOne<T>(Spec(dtype, ReduceOp::kMin), {large, small, large}), small);
  EXPECT_EQ(ReduceOne<T>(Spec(dtype, ReduceOp::kMax), {small, large, small}), large);
}

TEST(FloatMinMaxTest, NanInAnyInputGivesNan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  CheckNan<float>(DType::kFloat32, std::nanf(""), -kInf, kInf,
                  [](float v) { return std::isnan(v); });
  CheckNan<double>(DType::kFloat64, std::nan(""), -2.0, 5.0,
                   [](double v) { return std::isnan(v); });
  CheckNan<uint16_t>(DType::kFloat16, 0x7e01, 0xfc00, 0x7c00,
                     [](uint16_t v) { return (v & 0x7fff) > 0x7c00; });
  CheckNan<uint16_t>(DType::kBFloat16, 0xffc1, 0xff80, 0x7f80,
                     [](uint16_t v) { return (v & 0x7fff) > 0x7f80; });
}

TEST(FloatSumTest, InfinitiesFollowIeee) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ReduceOne<float>(Spec(DType::kFloat32, ReduceOp::kSum), {kInf, 1.0f}), kInf);
  EXPECT_TRUE(std::isnan(ReduceOne<float>(Spec(DType::kFloat32, ReduceOp::kSum), {kInf, -kInf})));
  EXPECT_EQ(ReduceOne<uint16_t>(Spec(DType::kFloat16, ReduceOp::kSum), {0x7bff, 0x7bff}), 0x7c00);
}

TEST(FloatMeanTest, DividesInsteadOfMultiplyingByAReciprocal) {
  std::mt19937 random(3);  // NOLINT(bugprone-random-generator-seed): the same in every run
  for (int divisor : {3, 7, 49}) {
    for (int i = 0; i < 10000; ++i) {
      const float value = static_cast<float>(random()) / 1000.0f;
      const float mean =
          ReduceOne<float>(Spec(DType::kFloat32, ReduceOp::kAverage, divisor), {value});
      ASSERT_EQ(mean, static_cast<float>(static_cast<double>(value) / divisor)) << value;
    }
  }
}

TEST(HalfSumTest, AccumulatesInFloat32) {
  // 2048 + 1 is not a half, so that a sum in halves would stay at 2048.
  const std::vector<uint16_t> values = {0x6800 /* 2048 */, 0x3c00, 0x3c00, 0x3c00, 0x3c00};
  EXPECT_EQ(ReduceOne(Spec(DType::kFloat16, ReduceOp::kSum), values),
            EncodeSmall(2052, kHalfFormat));
  // The sum overflows a half, the mean does not.
  EXPECT_EQ(ReduceOne<uint16_t>(Spec(DType::kFloat16, ReduceOp::kAverage, 2), {0x7bff, 0x7bff}),
            0x7bff);
  const std::vector<uint16_t> bf = {0x4380 /* 256 */, 0x3f80, 0x3f80};
  EXPECT_EQ(ReduceOne(Spec(DType::kBFloat16, ReduceOp::kSum), bf),
            EncodeSmall(258, kBFloat16Format));
}

TEST(ComplexTest, MultipliesByTheTextbookFormula) {
  using C = std::complex<float>;
  EXPECT_EQ(ReduceOne<C>(Spec(DType::kComplex64, ReduceOp::kProduct), {C(1, 2), C(3, 4)}),
            C(-5, 10));
  EXPECT_EQ(ReduceOne<C>(Spec(DType::kComplex64, ReduceOp::kAverage, 2, 1, 3), {C(1, 2), C(3, -4)}),
            C(6, -3));
}

TEST(BoolTest, AnyByteButZeroIsTrueAndScalesDoNotMatter) {
  EXPECT_EQ(ReduceOne<uint8_t>(Spec(DType::kBool, ReduceOp::kSum), {2, 4}), 1);
  EXPECT_EQ(ReduceOne<uint8_t>(Spec(DType::kBool, ReduceOp::kMin), {2, 4}), 1);
  EXPECT_EQ(ReduceOne<uint8_t>(Spec(DType::kBool, ReduceOp::kProduct), {2, 0}), 0);
  EXPECT_EQ(ReduceOne<uint8_t>(Spec(DType::kBool, ReduceOp::kMax, 1, 0.1, 0.1), {1, 0}), 1);
}

TEST(ReducerTest, WorksInPlaceAndOnShortPieces) {
  const std::unique_ptr<Reducer> reducer = MakeReducer(Spec(DType::kInt32, ReduceOp::kSum), 100);
  std::vector<int32_t> data = {1, 2, 3, 77};
  const std::vector<int32_t> other = {10, 20, 30};
  reducer->Begin(data.data(), 3);
  reducer->Add(other.data());
  reducer->Finish(data.data());
  EXPECT_EQ(data, (std::vector<int32_t>{11, 22, 33, 77}));
}

}  // namespace
}  // namespace syrtos
