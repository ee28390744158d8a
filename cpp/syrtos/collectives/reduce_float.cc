// float16, bfloat16, float32, float64, complex64 and complex128.
#include <cmath>
#include <cstdlib>

#include "syrtos/collectives/half.h"
#include "syrtos/collectives/reduce_loops.h"

namespace syrtos {
namespace {

template <typename T>
struct Plain {
  using Stored = T;
  using Acc = T;
  static Acc Load(Stored value) { return value; }
  static Stored Store(Acc value) { return value; }
  static Acc Scale(Acc value, double factor) { return value * static_cast<T>(factor); }
  // A true division: multiplying by 1/divisor would round twice.
  static Acc Divide(Acc value, int64_t divisor) { return value / static_cast<T>(divisor); }
};

struct Half : Plain<float> {
  using Stored = uint16_t;
  static Acc Load(Stored value) { return HalfToFloat(value); }
  static Stored Store(Acc value) { return FloatToHalf(value); }
};

struct BFloat16 : Plain<float> {
  using Stored = uint16_t;
  static Acc Load(Stored value) { return BFloat16ToFloat(value); }
  static Stored Store(Acc value) { return FloatToBFloat16(value); }
};

// Two numbers side by side; only for products, everything else works on the parts.
template <typename T>
struct Complex {
  struct Stored {
    T real;
    T imag;
  };
  using Acc = Stored;
  static Acc Load(Stored value) { return value; }
  static Stored Store(Acc value) { return value; }
  static Acc Scale(Acc value, double factor) {
    return {value.real * static_cast<T>(factor), value.imag * static_cast<T>(factor)};
  }
  static Acc Divide(Acc value, int64_t divisor) {
    return {value.real / static_cast<T>(divisor), value.imag / static_cast<T>(divisor)};
  }
};

struct Sum {
  template <typename T>
  static T Combine(T a, T b) {
    return a + b;
  }
};

struct Product {
  template <typename T>
  static T Combine(T a, T b) {
    return a * b;
  }
};

// The textbook formula, as NumPy's; without the repair of infinities that C99 describes.
struct ComplexProduct {
  template <typename T>
  static T Combine(T a, T b) {
    return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
  }
};

// NaN must win; | instead of || keeps the loop free of branches.
struct Min {
  template <typename T>
  static T Combine(T a, T b) {
    return ((b < a) | std::isnan(b)) ? b : a;
  }
};

struct Max {
  template <typename T>
  static T Combine(T a, T b) {
    return ((b > a) | std::isnan(b)) ? b : a;
  }
};

template <typename Element>
std::unique_ptr<Reducer> MakeReal(const Collective& collective, int64_t capacity) {
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
  std::abort();  // not element by element: adasum_loops.h
}

template <typename T>
std::unique_ptr<Reducer> MakeComplex(const Collective& collective, int64_t capacity) {
  if (collective.op == ReduceOp::kProduct) {
    return std::make_unique<LoopReducer<Complex<T>, ComplexProduct>>(collective, capacity);
  }
  // Sums and means act on the real and imaginary parts alike.
  return std::make_unique<LoopReducer<Plain<T>, Sum>>(collective, capacity, 2);
}

}  // namespace

std::unique_ptr<Reducer> MakeFloatReducer(const Collective& collective, int64_t capacity) {
  switch (collective.dtype) {
    case DType::kFloat16:
      return MakeReal<Half>(collective, capacity);
    case DType::kBFloat16:
      return MakeReal<BFloat16>(collective, capacity);
    case DType::kFloat32:
      return MakeReal<Plain<float>>(collective, capacity);
    case DType::kFloat64:
      return MakeReal<Plain<double>>(collective, capacity);
    case DType::kComplex64:
      return MakeComplex<float>(collective, capacity);
    case DType::kComplex128:
      return MakeComplex<double>(collective, capacity);
    case DType::kBool:
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
    case DType::kOpaque:
      break;
  }
  std::abort();  // MakeReducer sends no other dtype here
}

}  // namespace syrtos
