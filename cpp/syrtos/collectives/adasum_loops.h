// CPU loops of Adasum, for the floating-point dtypes: lengths and angle of two vectors, and their
// sum with coefficients.
//
//   sum(a, b) = (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b
//
// so that parallel gradients give their mean and orthogonal ones their sum (S. Maleki et al.,
// "Scaling distributed training with adaptive summation", 2021). Products are formed and added in
// double; results are formed in double, of 16-bit dtypes in float32, and rounded once.
//
// Determinism: ProductsOf adds in an order that depends on `count` alone. Threads: any. No failure:
// callers checked CheckReducible.
#pragma once

#include <cstdint>

#include "syrtos/base/dtype.h"

namespace syrtos {

// Of one run of elements, or the sums over many of them.
struct AdasumProducts {
  double ab = 0;
  double aa = 0;
  double bb = 0;

  void Add(const AdasumProducts& other) {
    ab += other.ab;
    aa += other.aa;
    bb += other.bb;
  }
};

AdasumProducts ProductsOf(DType dtype, const void* a, const void* b, int64_t count);

struct AdasumFactors {
  double a = 1;
  double b = 1;
};

// Of the products of the whole vectors. A vector of zeros changes nothing: the other gets the
// factor 1. So does one whose square is too small to divide by (length below 1e-77, possible in
// float64 only). NaN and what overflows make the factors NaN.
AdasumFactors FactorsOf(const AdasumProducts& whole);

// into[i] = factors.a * a[i] + factors.b * b[i]; `into` may be `a` or `b`.
void AddScaled(DType dtype, const AdasumFactors& factors, const void* a, const void* b, void* into,
               int64_t count);
// into[i] = factor * from[i]; `into` may be `from`. A plain copy if the factor is 1.
void CopyScaled(DType dtype, double factor, const void* from, void* into, int64_t count);

}  // namespace syrtos
