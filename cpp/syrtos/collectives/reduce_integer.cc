// bool and the integers.
//
// Without scales a sum or product wraps in the dtype's own width, as NumPy's. A mean, and whatever
// is scaled, is accumulated in a wider type and cut to the dtype's width at the end, which for sums
// gives the same.
#include <cmath>
#include <cstdlib>
#include <type_traits>

#include "syrtos/collectives/reduce_loops.h"

namespace syrtos {
namespace {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

// The unsigned type of the same width: its arithmetic wraps and is defined to.
template <typename T>
struct UnsignedOf : std::make_unsigned<T> {};
template <>
struct UnsignedOf<Int128> {
  using type = UInt128;
};

template <typename T>
struct Truth {
  using Stored = T;
  using Acc = T;
  static Acc Load(Stored value) { return value != 0; }
  static Stored Store(Acc value) { return value; }
  static Acc Scale(Acc value, double) { return value; }  // a truth value has no size
  static Acc Divide(Acc value, int64_t) { return value; }
};

// Accumulated in the dtype's own width; never scaled nor divided.
template <typename T>
struct Narrow {
  using Stored = T;
  using Acc = T;
  static Acc Load(Stored value) { return value; }
  static Stored Store(Acc value) { return value; }
  static Acc Scale(Acc value, double) { return value; }
  static Acc Divide(Acc value, int64_t) { return value; }
};

// Toward zero; NaN is 0 and what does not fit becomes the nearest that does.
template <typename T>
T TruncateTo(double value) {
  constexpr int kBits = static_cast<int>(sizeof(T)) * 8 - 1;
  const double limit = std::ldexp(1.0, kBits);
  constexpr T kMax = static_cast<T>(~(typename UnsignedOf<T>::type{1} << kBits));
  if (value >= limit) return kMax;
  if (value < -limit) return static_cast<T>(-kMax - 1);
  return value == value ? static_cast<T>(value) : T{0};
}

template <typename T, typename WideT>
struct Wide {
  using Stored = T;
  using Acc = WideT;
  static Acc Load(Stored value) { return static_cast<Acc>(value); }
  static Stored Store(Acc value) { return static_cast<Stored>(value); }
  static Acc Scale(Acc value, double factor) {
    return TruncateTo<Acc>(static_cast<double>(value) * factor);
  }
  static Acc Divide(Acc value, int64_t divisor) {
    if constexpr (sizeof(Acc) > sizeof(int64_t)) {
      // A 128-bit division costs ten times a 64-bit one and is rarely needed.
      const auto low = static_cast<int64_t>(value);
      if (low == value) return low / divisor;
    }
    return value / divisor;
  }
};

struct Sum {
  template <typename T>
  static T Combine(T a, T b) {
    using U = typename UnsignedOf<T>::type;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  }
};

struct Product {
  template <typename T>
  static T Combine(T a, T b) {
    // At least 32 bits: two uint16_t would be promoted to int, whose overflow is undefined.
    using U = typename UnsignedOf<T>::type;
    using Safe = std::conditional_t<(sizeof(U) < sizeof(uint32_t)), uint32_t, U>;
    return static_cast<T>(static_cast<U>(static_cast<Safe>(a) * static_cast<Safe>(b)));
  }
};

struct Min {
  template <typename T>
  static T Combine(T a, T b) {
    return b < a ? b : a;
  }
};

struct Max {
  template <typename T>
  static T Combine(T a, T b) {
    return b > a ? b : a;
  }
};

struct Or {
  template <typename T>
  static T Combine(T a, T b) {
    return static_cast<T>(a | b);
  }
};

struct And {
  template <typename T>
  static T Combine(T a, T b) {
    return static_cast<T>(a & b);
  }
};

template <typename Element>
std::unique_ptr<Reducer> MakeFor(const Collective& collective, int64_t capacity) {
  switch (collective.op) {
    case ReduceOp::kAverage:
    case ReduceOp::kSum:
      return std::make_unique<LoopReducer<Element, Sum>>(collective, capacity);
    case ReduceOp::kMin:
      return std::make_unique<LoopReducer<Element, Min>>(collective, capacity);
    case ReduceOp::kMax:
      return std::make_unique<LoopReducer<Element, Max>>(collective, capacity);
    case ReduceOp::kProduct:
      return std::make_unique<LoopReducer<Element, Product>>(collective, capacity);
    case ReduceOp::kAdasum:
      break;
  }
  std::abort();  // CheckReducible refuses it for integers
}

template <typename T>
std::unique_ptr<Reducer> MakeInteger(const Collective& collective, int64_t capacity) {
  const bool scaled = collective.prescale != 1.0 || collective.postscale != 1.0;
  if (scaled || collective.op == ReduceOp::kAverage) {
    using WideT = std::conditional_t<(sizeof(T) < sizeof(int64_t)), int64_t, Int128>;
    return MakeFor<Wide<T, WideT>>(collective, capacity);
  }
  return MakeFor<Narrow<T>>(collective, capacity);
}

std::unique_ptr<Reducer> MakeBool(const Collective& collective, int64_t capacity) {
  const bool all = collective.op == ReduceOp::kMin || collective.op == ReduceOp::kProduct;
  if (all) return std::make_unique<LoopReducer<Truth<uint8_t>, And>>(collective, capacity);
  return std::make_unique<LoopReducer<Truth<uint8_t>, Or>>(collective, capacity);
}

}  // namespace

std::unique_ptr<Reducer> MakeIntegerReducer(const Collective& collective, int64_t capacity) {
  switch (collective.dtype) {
    case DType::kBool:
      return MakeBool(collective, capacity);
    case DType::kInt8:
      return MakeInteger<int8_t>(collective, capacity);
    case DType::kInt16:
      return MakeInteger<int16_t>(collective, capacity);
    case DType::kInt32:
      return MakeInteger<int32_t>(collective, capacity);
    case DType::kInt64:
      return MakeInteger<int64_t>(collective, capacity);
    case DType::kUInt8:
      return MakeInteger<uint8_t>(collective, capacity);
    case DType::kUInt16:
      return MakeInteger<uint16_t>(collective, capacity);
    case DType::kUInt32:
      return MakeInteger<uint32_t>(collective, capacity);
    case DType::kUInt64:
      return MakeInteger<uint64_t>(collective, capacity);
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kOpaque:
      break;
  }
  std::abort();  // MakeReducer sends no other dtype here
}

}  // namespace syrtos
