#include "framework_ops/tensorflow/call.h"

#include <utility>

#include "framework_ops/tensorflow/mapping.h"

namespace syrtos_tf {
namespace {

// Stands for the memory of a tensor without elements, for which TensorFlow may give a null pointer.
void* NotNull(void* data) {
  alignas(64) static char nothing[64];
  return data != nullptr ? data : nothing;
}

}  // namespace

Call::Call(TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done)
    : context_(context),
      continuation_(*reinterpret_cast<Continuation*>(done)),
      tensors_(static_cast<size_t>(Tf().TF_NumInputs(context))) {}

Call::~Call() { ReleaseTensors(); }

bool Call::Take(int index, bool same_shape) {
  const TfSymbols& tf = Tf();
  Taken& taken = tensors_[Index(index)];
  TfStatus status;
  auto get_input = [&] {
    tf.TF_GetInput(context_, index, &taken.input, status.get());
    if (!status.ok()) tf.TF_OpKernelContext_Failure(context_, status.get());
    return status.ok();
  };
  if (!get_input()) return false;
  taken.type = tf.TF_TensorType(taken.input);
  const int rank = tf.TF_NumDims(taken.input);
  taken.dims.resize(static_cast<size_t>(rank));
  for (int d = 0; d < rank; ++d) taken.dims[Index(d)] = tf.TF_Dim(taken.input, d);
  if (!same_shape) return true;

  // A reference of ours would make the buffer a shared one, which TensorFlow never forwards. So let
  // go of the input, ask for the output, and take the input again: it may now be the output's
  // buffer.
  tf.TF_DeleteTensor(taken.input);
  taken.input = nullptr;
  int forwarded = -1;
  taken.output = tf.TF_ForwardInputOrAllocateOutput(context_, &index, 1, index, taken.dims.data(),
                                                    rank, &forwarded, status.get());
  if (!status.ok()) {
    tf.TF_OpKernelContext_Failure(context_, status.get());
    return false;
  }
  return get_input();
}

void* Call::Allocate(int index, const int64_t* dims, int rank) {
  const TfSymbols& tf = Tf();
  Taken& taken = tensors_[Index(index)];
  uint64_t bytes = ItemBytes(taken.type);
  for (int d = 0; d < rank; ++d) bytes *= static_cast<uint64_t>(dims[d]);
  TfStatus status;
  taken.output = tf.TF_AllocateOutput(context_, index, taken.type, dims, rank, bytes, status.get());
  if (!status.ok()) {
    tf.TF_OpKernelContext_Failure(context_, status.get());
    return nullptr;
  }
  return output(index);
}

const void* Call::input(int index) const {
  return NotNull(Tf().TF_TensorData(tensors_[Index(index)].input));
}

void* Call::output(int index) const {
  TF_Tensor* tensor = tensors_[Index(index)].output;
  return tensor != nullptr ? NotNull(Tf().TF_TensorData(tensor)) : nullptr;
}

void Call::Fail(int32_t syrtos_code, const char* message) {
  TfStatus status;
  status.Set(ToTfCode(syrtos_code), message);
  Tf().TF_OpKernelContext_Failure(context_, status.get());
}

void Call::ReleaseTensors() {
  for (Taken& taken : tensors_) {
    if (taken.input != nullptr) Tf().TF_DeleteTensor(taken.input);
    if (taken.output != nullptr) Tf().TF_DeleteTensor(taken.output);
    taken.input = taken.output = nullptr;
  }
}

void Call::Finish(Call* call) {
  // After the continuation the context is dead, and a tensor that we still held would keep the ops
  // that follow from working in place.
  call->ReleaseTensors();
  const Continuation continuation = std::move(call->continuation_);
  delete call;
  continuation();
}

}  // namespace syrtos_tf
