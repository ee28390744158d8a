// The attributes of an op, read once when TensorFlow makes its kernel.
//
// A new set of attribute values makes a new kernel, which TensorFlow keeps for its own life:
// nothing that changes from call to call may be an attribute.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework_ops/tensorflow/tf_symbols.h"

namespace syrtos_tf {

struct Attributes {
  std::string op_name;                    // "": unnamed, matched by call order
  std::vector<std::string> tensor_names;  // as many as tensors, or none
  uint32_t group = 0;
  int32_t op = 1;
  double prescale = 1.0;
  double postscale = 1.0;
  int32_t root = 0;
};

// Declares on an op definition what ReadAttributes reads.
void DeclareAttributes(TF_OpDefinitionBuilder* builder);

// The attribute `group` alone, read likewise.
std::optional<uint32_t> ReadGroup(TF_OpKernelConstruction* construction);
// Nothing if an attribute cannot be read; `construction` has then been told why.
std::optional<Attributes> ReadAttributes(TF_OpKernelConstruction* construction);

}  // namespace syrtos_tf
