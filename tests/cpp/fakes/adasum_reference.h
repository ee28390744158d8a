// Adasum by its definition: a recursion over pairs in long double, rounded to the dtype where a
// vector would be stored.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "fakes/numbers.h"

namespace syrtos {

using RealVector = std::vector<long double>;

// Of the dtypes that Adasum takes.
inline long double Decode(DType dtype, const uint8_t* bytes) {
  if (dtype == DType::kFloat16) return DecodeSmall(GetAs<uint16_t>(bytes), kHalfFormat);
  if (dtype == DType::kBFloat16) return DecodeSmall(GetAs<uint16_t>(bytes), kBFloat16Format);
  if (dtype == DType::kFloat32) return GetAs<float>(bytes);
  return GetAs<double>(bytes);
}

inline RealVector DecodeAll(DType dtype, const std::vector<uint8_t>& bytes) {
  RealVector values;
  const size_t item = InfoOf(dtype).bytes;
  for (size_t i = 0; i < bytes.size(); i += item) values.push_back(Decode(dtype, &bytes[i]));
  return values;
}

inline std::vector<uint8_t> EncodeReals(DType dtype, const RealVector& values) {
  const size_t item = InfoOf(dtype).bytes;
  std::vector<uint8_t> bytes(values.size() * item);
  for (size_t i = 0; i < values.size(); ++i) Encode(dtype, item, values[i], &bytes[i * item]);
  return bytes;
}

inline RealVector Scaled(DType dtype, const RealVector& values, double factor) {
  RealVector scaled = values;
  for (long double& value : scaled) value *= static_cast<long double>(factor);
  return DecodeAll(dtype, EncodeReals(dtype, scaled));
}

inline RealVector AdasumOfTwo(DType dtype, const RealVector& a, const RealVector& b) {
  long double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  if (aa == 0) return b;
  if (bb == 0) return a;
  RealVector sum;
  for (size_t i = 0; i < a.size(); ++i) {
    sum.push_back((1 - ab / (2 * aa)) * a[i] + (1 - ab / (2 * bb)) * b[i]);
  }
  return DecodeAll(dtype, EncodeReals(dtype, sum));
}

// `vectors`: one per position, a power of two; those of absent positions are zero.
inline RealVector AdasumByDefinition(DType dtype, std::vector<RealVector> vectors, double prescale,
                                     double postscale) {
  for (RealVector& vector : vectors) vector = Scaled(dtype, vector, prescale);
  while (vectors.size() > 1) {
    std::vector<RealVector> next;
    for (size_t i = 0; i < vectors.size(); i += 2) {
      next.push_back(AdasumOfTwo(dtype, vectors[i], vectors[i + 1]));
    }
    vectors = std::move(next);
  }
  return Scaled(dtype, vectors.front(), postscale);
}

// Numbers of one size but for the ranks' own, neither parallel nor orthogonal between ranks.
inline RealVector AdasumNumbers(DType dtype, int position, int64_t count) {
  RealVector values;
  for (int64_t i = 0; i < count; ++i) {
    const auto mixed = static_cast<uint32_t>(i * 40503 + position * 977) * 2654435761u;
    values.push_back((static_cast<long double>(mixed >> 16) / 65536 - 0.25L) *
                     static_cast<long double>(position + 1));
  }
  return DecodeAll(dtype, EncodeReals(dtype, values));
}

}  // namespace syrtos
