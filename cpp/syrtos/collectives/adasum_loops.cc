#include "syrtos/collectives/adasum_loops.h"

#include <cstdlib>
#include <cstring>

#include "syrtos/collectives/half.h"

namespace syrtos {
namespace {

template <typename T>
struct Plain {
  using Stored = T;
  using Compute = double;
  static Compute Load(Stored value) { return value; }
  static Stored Store(Compute value) { return static_cast<T>(value); }
};

struct Half {
  using Stored = uint16_t;
  using Compute = float;
  static Compute Load(Stored value) { return HalfToFloat(value); }
  static Stored Store(Compute value) { return FloatToHalf(value); }
};

struct BFloat16 {
  using Stored = uint16_t;
  using Compute = float;
  static Compute Load(Stored value) { return BFloat16ToFloat(value); }
  static Stored Store(Compute value) { return FloatToBFloat16(value); }
};

// Calls body(Element()) with the element type of `dtype`.
template <typename Body>
auto WithElement(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kFloat16:
      return body(Half());
    case DType::kBFloat16:
      return body(BFloat16());
    case DType::kFloat32:
      return body(Plain<float>());
    case DType::kFloat64:
      return body(Plain<double>());
    case DType::kBool:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kOpaque:
      break;
  }
  std::abort();  // CheckReducible refuses it
}

// Several sums side by side: one chain of additions would take a vector unit's time for each
// element.
constexpr int64_t kLanes = 8;

template <typename Element>
AdasumProducts Products(const typename Element::Stored* a, const typename Element::Stored* b,
                        int64_t count) {
  double ab[kLanes] = {}, aa[kLanes] = {}, bb[kLanes] = {};
  const auto add = [&](int64_t i, int64_t lane) {
    const double x = static_cast<double>(Element::Load(a[i]));
    const double y = static_cast<double>(Element::Load(b[i]));
    ab[lane] += x * y;
    aa[lane] += x * x;
    bb[lane] += y * y;
  };
  const int64_t full = count - count % kLanes;
  for (int64_t i = 0; i < full; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (int64_t i = full; i < count; ++i) add(i, i - full);
  AdasumProducts sum;
  for (int64_t lane = 0; lane < kLanes; ++lane) sum.Add({ab[lane], aa[lane], bb[lane]});
  return sum;
}

// sqrt of the smallest normal double: a quotient by it keeps its digits.
constexpr double kSmallestSquare = 1.4916681462400413e-154;

double FactorOf(double product, double square) {
  return square < kSmallestSquare ? 1.0 : 1.0 - product / square * 0.5;
}

}  // namespace

AdasumProducts ProductsOf(DType dtype, const void* a, const void* b, int64_t count) {
  return WithElement(dtype, [&](auto element) {
    using Stored = typename decltype(element)::Stored;
    return Products<decltype(element)>(static_cast<const Stored*>(a), static_cast<const Stored*>(b),
                                       count);
  });
}

AdasumFactors FactorsOf(const AdasumProducts& whole) {
  return {FactorOf(whole.ab, whole.aa), FactorOf(whole.ab, whole.bb)};
}

void AddScaled(DType dtype, const AdasumFactors& factors, const void* a, const void* b, void* into,
               int64_t count) {
  WithElement(dtype, [&](auto element) {
    using Element = decltype(element);
    using Stored = typename Element::Stored;
    using Compute = typename Element::Compute;
    const auto fa = static_cast<Compute>(factors.a);
    const auto fb = static_cast<Compute>(factors.b);
    const auto* x = static_cast<const Stored*>(a);
    const auto* y = static_cast<const Stored*>(b);
    auto* out = static_cast<Stored*>(into);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = Element::Store(fa * Element::Load(x[i]) + fb * Element::Load(y[i]));
    }
  });
}

void CopyScaled(DType dtype, double factor, const void* from, void* into, int64_t count) {
  WithElement(dtype, [&](auto element) {
    using Element = decltype(element);
    using Stored = typename Element::Stored;
    if (factor == 1.0) {
      if (from != into && count > 0) {
        std::memcpy(into, from, static_cast<size_t>(count) * sizeof(Stored));
      }
      return;
    }
    const auto scale = static_cast<typename Element::Compute>(factor);
    const auto* x = static_cast<const Stored*>(from);
    auto* out = static_cast<Stored*>(into);
    for (int64_t i = 0; i < count; ++i) out[i] = Element::Store(scale * Element::Load(x[i]));
  });
}

}  // namespace syrtos
