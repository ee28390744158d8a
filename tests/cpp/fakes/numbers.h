// Every dtype to and from long double, and reductions of them, written without the code under test:
// by definition instead of by bit tricks.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "syrtos/base/dtype.h"
#include "syrtos/collectives/collective.h"

namespace syrtos {

__extension__ using TestInt128 = __int128;

using Value = std::complex<long double>;

// A binary floating-point format of 16 bits, by its numbers of exponent and fraction bits.
struct SmallFormat {
  int fraction;
  int bias;
  int top_exponent;  // the encoded exponent of infinity
};
constexpr SmallFormat kHalfFormat{10, 15, 31};
constexpr SmallFormat kBFloat16Format{7, 127, 255};

inline double DecodeSmall(uint16_t bits, SmallFormat format) {
  const int fraction = bits & ((1 << format.fraction) - 1);
  const int exponent = (bits & 0x7fff) >> format.fraction;
  double magnitude = 0;
  if (exponent == format.top_exponent) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, 1 - format.bias - format.fraction);
  } else {
    magnitude =
        std::ldexp((1 << format.fraction) + fraction, exponent - format.bias - format.fraction);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// Round to nearest, ties to even. NaN becomes the quiet NaN without payload.
inline uint16_t EncodeSmall(double value, SmallFormat format) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = format.top_exponent << format.fraction;
  const double magnitude = std::fabs(value);
  if (std::isnan(value))
    return static_cast<uint16_t>(sign | infinity | (1 << (format.fraction - 1)));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
  if (magnitude == 0) return static_cast<uint16_t>(sign);
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
  // In units of the last place: nearbyint rounds to even. The carry runs into the exponent by
  // itself.
  const auto units =
      static_cast<int>(std::nearbyint(std::ldexp(magnitude, format.fraction - exponent)));
  const int bits = ((exponent + format.bias - 1) << format.fraction) + units;
  return static_cast<uint16_t>(sign | std::min(bits, infinity));
}

template <typename T>
void PutAs(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <typename T>
T GetAs(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Integers wrap.
template <typename T>
void PutInteger(void* to, long double value) {
  PutAs<T>(to, static_cast<T>(static_cast<TestInt128>(value)));
}

inline void Encode(DType dtype, size_t item_bytes, Value value, void* to) {
  const long double v = value.real();
  const auto d = static_cast<double>(v);
  switch (dtype) {
    case DType::kBool:
      return PutAs<uint8_t>(to, v != 0);
    case DType::kInt8:
      return PutInteger<int8_t>(to, v);
    case DType::kInt16:
      return PutInteger<int16_t>(to, v);
    case DType::kInt32:
      return PutInteger<int32_t>(to, v);
    case DType::kInt64:
      return PutInteger<int64_t>(to, v);
    case DType::kUInt8:
      return PutInteger<uint8_t>(to, v);
    case DType::kUInt16:
      return PutInteger<uint16_t>(to, v);
    case DType::kUInt32:
      return PutInteger<uint32_t>(to, v);
    case DType::kUInt64:
      return PutInteger<uint64_t>(to, v);
    // What is computed in float32 is rounded to it first.
    case DType::kFloat16:
      return PutAs(to, EncodeSmall(static_cast<float>(v), kHalfFormat));
    case DType::kBFloat16:
      return PutAs(to, EncodeSmall(static_cast<float>(v), kBFloat16Format));
    case DType::kFloat32:
      return PutAs(to, static_cast<float>(v));
    case DType::kFloat64:
      return PutAs(to, d);
    case DType::kComplex64:
      return PutAs(to,
                   std::complex<float>(static_cast<float>(v), static_cast<float>(value.imag())));
    case DType::kComplex128:
      return PutAs(to, std::complex<double>(d, static_cast<double>(value.imag())));
    case DType::kOpaque:
      for (size_t i = 0; i < item_bytes; ++i) {
        static_cast<uint8_t*>(to)[i] =
            static_cast<uint8_t>(static_cast<int>(v) * 17 + static_cast<int>(i));
      }
      return;
  }
}

inline long double Truncate(long double value) { return std::trunc(value); }

// postscale * (op over i of (prescale * inputs[i]) / divisor), in long double; integers exactly.
inline Value ReduceByDefinition(const Collective& c, const std::vector<Value>& inputs) {
  const DTypeClass kind = InfoOf(c.dtype).kind;
  const bool integer = kind == DTypeClass::kSigned || kind == DTypeClass::kUnsigned;
  const auto scale = [&](Value x, double factor) {
    if (factor == 1.0 || kind == DTypeClass::kBool) return x;
    x *= static_cast<long double>(factor);
    return integer ? Value(Truncate(x.real())) : x;
  };
  Value total = scale(inputs.front(), c.prescale);
  for (size_t i = 1; i < inputs.size(); ++i) {
    const Value x = scale(inputs[i], c.prescale);
    switch (c.op) {
      case ReduceOp::kAverage:
      case ReduceOp::kSum:
        total += x;
        break;
      case ReduceOp::kProduct:
        total *= x;
        break;
      case ReduceOp::kMin:
        total = x.real() < total.real() ? x : total;
        break;
      case ReduceOp::kMax:
        total = x.real() > total.real() ? x : total;
        break;
      case ReduceOp::kAdasum:
        break;  // not element by element: adasum_reference.h
    }
  }
  if (c.op == ReduceOp::kAverage) {
    total /= static_cast<long double>(c.divisor);
    if (integer) total = Truncate(total.real());
  }
  return scale(total, c.postscale);
}

inline const std::vector<DType>& AllDTypes() {
  static const std::vector<DType> all = [] {
    std::vector<DType> list;
    for (uint8_t i = 0; IsValidDType(i); ++i) list.push_back(static_cast<DType>(i));
    return list;
  }();
  return all;
}

inline const std::vector<ReduceOp>& AllOps() {
  static const std::vector<ReduceOp> all = {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kMin,
                                            ReduceOp::kMax, ReduceOp::kProduct};
  return all;
}

}  // namespace syrtos
