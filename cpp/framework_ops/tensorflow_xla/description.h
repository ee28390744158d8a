// One collective as Python writes it for XLA's older interface, which hands over bare pointers: the
// attributes, and the types and shapes of all arrays, as one line of text.
//
// Numbers and words with spaces between: kind, group, op, prescale, postscale (the bits of
// doubles), root, size, position, name, part names (hexadecimal, "-" if empty), the number of
// arrays, and for each its type (XLA's number), the number of dimensions and the dimensions of the
// input, and those of the result (syrtos/tensorflow/_xla_calls.py).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "framework_ops/xla/attributes.h"
#include "framework_ops/xla/xla_ffi.h"

namespace syrtos_tf_xla {

struct Description {
  syrtos_xla::Attributes attributes;
  // Without memory; their dimensions point into `dims`.
  std::vector<syrtos_xla::XlaBuffer> inputs;
  std::vector<syrtos_xla::XlaBuffer> outputs;
  std::vector<std::vector<int64_t>> dims;
};

// Nothing if the text is not of this form.
std::optional<Description> ReadDescription(const char* text, size_t length);

}  // namespace syrtos_tf_xla
