// Registers the ops when TensorFlow loads this library (tf.load_op_library).
#include <string>

#include "framework_ops/tensorflow/attributes.h"
#include "framework_ops/tensorflow/collective_kernel.h"
#include "framework_ops/tensorflow/group_kernel.h"
#include "framework_ops/tensorflow/mapping.h"
#include "framework_ops/tensorflow/shape_functions.h"
#include "framework_ops/tensorflow/tf_symbols.h"

// How the types of the ops begin. CMake builds this library once for each prefix, since code
// written for Horovod looks for op types that begin with that word.
#ifndef SYRTOS_OP_PREFIX
#define SYRTOS_OP_PREFIX "Syrtos"
#endif

namespace syrtos_tf {
namespace {

struct OpRow {
  const char* name;
  Kind kind;
  ShapeFunction shapes;
};

constexpr OpRow kOps[] = {
    {SYRTOS_OP_PREFIX "Allreduce", Kind::kAllreduce, SameShapes},
    {SYRTOS_OP_PREFIX "Allgather", Kind::kAllgather, FreeFirstDimension},
    {SYRTOS_OP_PREFIX "Broadcast", Kind::kBroadcast, SameShapes},
    {SYRTOS_OP_PREFIX "Alltoall", Kind::kAlltoall, FreeFirstDimension},
    {SYRTOS_OP_PREFIX "Reducescatter", Kind::kReducescatter, FreeFirstDimension},
    {SYRTOS_OP_PREFIX "Barrier", Kind::kBarrier, SameShapes},
};

// Each returns an empty text, or what went wrong.
std::string RegisterOp(const OpRow& op) {
  const TfSymbols& tf = Tf();
  TF_OpDefinitionBuilder* builder = tf.TF_NewOpDefinitionBuilder(op.name);
  if (op.kind == Kind::kAlltoall) {
    // Splits are an input, since they change from call to call. Empty: the same number for each
    // rank.
    tf.TF_OpDefinitionBuilderAddInput(builder, "tensor: T");
    tf.TF_OpDefinitionBuilderAddInput(builder, "splits: int64");
    tf.TF_OpDefinitionBuilderAddOutput(builder, "output: T");
    tf.TF_OpDefinitionBuilderAddOutput(builder, "received_splits: int64");
    tf.TF_OpDefinitionBuilderAddAttr(builder, ("T: " + std::string(kSupportedTypes)).c_str());
  } else if (op.kind != Kind::kBarrier) {  // which has no tensors
    // One op takes tensors of several types, so that a training step needs one op only.
    tf.TF_OpDefinitionBuilderAddInput(builder, "tensors: T");
    tf.TF_OpDefinitionBuilderAddOutput(builder, "outputs: T");
    tf.TF_OpDefinitionBuilderAddAttr(
        builder, ("T: list(" + std::string(kSupportedTypes) + ") >= 1").c_str());
  }
  DeclareAttributes(builder);
  // Stateful: never pruned, merged nor moved; a tf.function runs such ops in the order of its text.
  tf.TF_OpDefinitionBuilderSetIsStateful(builder, true);
  tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, op.shapes);
  TfStatus status;
  tf.TF_RegisterOpDefinition(builder, status.get());  // takes the builder
  return status.ok() ? "" : std::string("op ") + op.name + ": " + status.message();
}

std::string RegisterKernel(const OpRow& op) {
  const KernelFunctions functions = KernelFunctionsOf(op.kind);
  TF_KernelBuilder* builder = Tf().TF_NewAsyncKernelBuilder(op.name, "CPU", functions.create,
                                                            functions.compute, functions.destroy);
  TfStatus status;
  Tf().TF_RegisterKernelBuilder(op.name, builder, status.get());  // takes the builder
  return status.ok() ? "" : std::string("kernel of ") + op.name + ": " + status.message();
}

std::string RegisterGroupOp() {
  constexpr const char* kName = SYRTOS_OP_PREFIX "Group";
  const TfSymbols& tf = Tf();
  TF_OpDefinitionBuilder* op = tf.TF_NewOpDefinitionBuilder(kName);
  tf.TF_OpDefinitionBuilderAddOutput(op, "size: int32");
  tf.TF_OpDefinitionBuilderAddOutput(op, "rank: int32");
  tf.TF_OpDefinitionBuilderAddAttr(op, "group: int = 0");
  tf.TF_OpDefinitionBuilderSetIsStateful(op, true);  // no constant to be folded
  tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(op, TwoScalars);
  TfStatus status;
  tf.TF_RegisterOpDefinition(op, status.get());
  if (!status.ok()) return std::string("op ") + kName + ": " + status.message();
  TF_KernelBuilder* kernel =
      tf.TF_NewKernelBuilder(kName, "CPU", CreateGroupKernel, ComputeGroup, DestroyGroupKernel);
  tf.TF_RegisterKernelBuilder(kName, kernel, status.get());
  return status.ok() ? "" : std::string("kernel of ") + kName + ": " + status.message();
}

std::string RegisterAll() {
  if (!Tf().problem().empty()) return Tf().problem();
  if (HasKernels(kOps[0].name)) {
    return "another library has registered ops of these names already: only one installation of "
           "syrtos may be used in a process, and its ops under Horovod's names not beside Horovod";
  }
  for (const OpRow& op : kOps) {
    std::string problem = RegisterOp(op);
    if (problem.empty()) problem = RegisterKernel(op);
    if (!problem.empty()) return problem;
  }
  return RegisterGroupOp();
}

const std::string& RegistrationProblem() {
  static const std::string problem = RegisterAll();
  return problem;
}

// Runs while the library is loaded: tf.load_op_library makes Python wrappers for what is registered
// in that moment. Out of memory is all that could be thrown.
// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
[[maybe_unused]] const bool kRegistered = RegistrationProblem().empty();

}  // namespace
}  // namespace syrtos_tf

extern "C" __attribute__((visibility("default"))) const char* syrtos_tensorflow_problem() {
  return syrtos_tf::RegistrationProblem().c_str();
}
