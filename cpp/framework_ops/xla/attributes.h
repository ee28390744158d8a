// What Python has written into a compiled program for one collective (syrtos/jax/primitive.py,
// syrtos/tensorflow/_xla_calls.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework_ops/xla/mapping.h"
#include "framework_ops/xla/xla_ffi.h"

namespace syrtos_xla {

struct Attributes {
  Kind kind = Kind::kAllreduce;
  uint32_t group = 0;
  int32_t op = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  int32_t root = 0;
  // The world that shapes in the program depend on; a size of 0: on none.
  int32_t size = 0;
  int32_t position = 0;
  std::string name;                     // for messages; "" without one
  std::vector<std::string> part_names;  // as many as tensors, or none
};

// Reads the attributes of a call into `attributes`. The name of one that is missing or of another
// type than expected, or null.
const char* ReadAttributes(const XlaAttributes& from, Attributes* attributes);

// Reads the attribute `group` alone. False if it is missing.
bool ReadGroup(const XlaAttributes& from, uint32_t* group);

// The names that Python has joined into one attribute; "" is no names.
std::vector<std::string> SplitNames(const std::string& joined);

}  // namespace syrtos_xla
