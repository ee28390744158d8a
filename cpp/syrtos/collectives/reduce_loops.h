// The loops behind MakeReducer: how one kind of element is loaded, combined and stored.
//
// Plain loops over restrict pointers that the compiler vectorises. A scale of exactly 1 takes a
// loop without a multiplication. The files reduce_float.cc and reduce_integer.cc instantiate them.
#pragma once

#include <cstdint>
#include <memory>

#include "syrtos/collectives/aligned_buffer.h"
#include "syrtos/collectives/collective.h"
#include "syrtos/collectives/host_reduce.h"

namespace syrtos {

// bool, int8 ... uint64.
std::unique_ptr<Reducer> MakeIntegerReducer(const Collective& collective, int64_t capacity);
// float16 ... float64, complex.
std::unique_ptr<Reducer> MakeFloatReducer(const Collective& collective, int64_t capacity);

// Element: Stored and Acc types, Load(Stored) -> Acc, Store(Acc) -> Stored,
//          Scale(Acc, double) -> Acc, Divide(Acc, int64_t) -> Acc.
// Op: Combine(Acc, Acc) -> Acc.
template <typename Element, typename Op>
class LoopReducer : public Reducer {
 public:
  using Stored = typename Element::Stored;
  using Acc = typename Element::Acc;

  // `group` elements of the loop make one of the tensor (2 for complex).
  LoopReducer(const Collective& collective, int64_t capacity, int64_t group = 1)
      : prescale_(collective.prescale),
        postscale_(collective.postscale),
        divisor_(collective.op == ReduceOp::kAverage ? collective.divisor : 1),
        group_(group) {
    buffer_.Reserve(static_cast<size_t>(capacity * group) * sizeof(Acc));
  }

  // Members are copied into locals: a store through an 8-bit pointer could change them for all that
  // the compiler knows, and the loop would not vectorise.
  void Begin(const void* data, int64_t count) override {
    const int64_t n = count_ = count * group_;
    const double scale = prescale_;
    const Stored* __restrict in = static_cast<const Stored*>(data);
    Acc* __restrict acc = accumulator();
    if (scale == 1.0) {
      for (int64_t i = 0; i < n; ++i) acc[i] = Element::Load(in[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) acc[i] = Element::Scale(Element::Load(in[i]), scale);
    }
  }

  void Add(const void* data) override {
    const int64_t n = count_;
    const double scale = prescale_;
    const Stored* __restrict in = static_cast<const Stored*>(data);
    Acc* __restrict acc = accumulator();
    if (scale == 1.0) {
      for (int64_t i = 0; i < n; ++i) acc[i] = Op::Combine(acc[i], Element::Load(in[i]));
    } else {
      for (int64_t i = 0; i < n; ++i) {
        acc[i] = Op::Combine(acc[i], Element::Scale(Element::Load(in[i]), scale));
      }
    }
  }

  void Finish(void* output) override {
    const int64_t n = count_;
    const int64_t divisor = divisor_;
    const double scale = postscale_;
    Acc* __restrict acc = accumulator();
    Stored* __restrict out = static_cast<Stored*>(output);
    if (divisor != 1) {
      for (int64_t i = 0; i < n; ++i) acc[i] = Element::Divide(acc[i], divisor);
    }
    if (scale == 1.0) {
      for (int64_t i = 0; i < n; ++i) out[i] = Element::Store(acc[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = Element::Store(Element::Scale(acc[i], scale));
    }
  }

 private:
  Acc* accumulator() { return reinterpret_cast<Acc*>(buffer_.data()); }

  const double prescale_;
  const double postscale_;
  const int64_t divisor_;
  const int64_t group_;
  int64_t count_ = 0;
  AlignedBuffer buffer_;
};

}  // namespace syrtos
