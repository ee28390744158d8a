// CPU loops that combine tensors, for every dtype.
//
// A Reducer combines one slice at a time: Begin with the first rank's data, Add for each further
// rank in order, Finish writes the result. The accumulator is wider than the data where that
// matters: fp16/bf16 in fp32; means of integers exactly (64-bit sums for up to 32 bits, 128-bit for
// 64-bit integers) and truncated toward zero; integer sums wrap as NumPy's. NaN in any input of min
// or max gives NaN. bool: sum and max = or, product and min = and, scales do not matter. prescale
// is applied to each input and postscale to the result (of a mean: after the division), in the
// accumulator's type; integers are multiplied as double and truncated toward zero, what no integer
// can hold is clamped. Adasum is not among them, see adasum_loops.h. Threads: one per Reducer. No
// failure: callers checked CheckReducible.
#pragma once

#include <cstdint>
#include <memory>

#include "syrtos/collectives/collective.h"

namespace syrtos {

class Reducer {
 public:
  virtual ~Reducer() = default;
  // `count` elements, at most the capacity given to MakeReducer.
  virtual void Begin(const void* data, int64_t count) = 0;
  virtual void Add(const void* data) = 0;
  virtual void Finish(void* output) = 0;
};

// For the dtype, op, scales and divisor of `collective`; holds an accumulator of `capacity`
// elements.
std::unique_ptr<Reducer> MakeReducer(const Collective& collective, int64_t capacity);

}  // namespace syrtos
