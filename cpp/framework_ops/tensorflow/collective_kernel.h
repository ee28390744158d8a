// The kernel of all ops: one asynchronous collective over the tensors of one call.
//
// TensorFlow calls Create once per set of attributes, ComputeAsync from any of its threads (several
// at a time), and goes on without waiting; Syrtos's engine thread finishes the call.
#pragma once

#include "framework_ops/tensorflow/mapping.h"
#include "framework_ops/tensorflow/tf_symbols.h"

namespace syrtos_tf {

// What TensorFlow needs to build kernels for a kind of collective.
struct KernelFunctions {
  CreateFunction create;
  ComputeAsyncFunction compute;
  DeleteFunction destroy;
};

KernelFunctions KernelFunctionsOf(Kind kind);

}  // namespace syrtos_tf
