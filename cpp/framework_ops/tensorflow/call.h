// One run of an op: its tensors and TensorFlow's continuation, held until the collective has ended.
//
// Owner: ComputeAsync until it is submitted, then the engine, which hands it back through Done.
// Threads: one at a time. Failure: the first error goes to TensorFlow; Finish is called in any
// case.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "framework_ops/tensorflow/tf_symbols.h"

namespace syrtos_tf {

// What a TF_AsyncOpKernelDoneCallback is on all supported releases.
using Continuation = std::function<void()>;

class Call {
 public:
  // `done` points into the caller's stack frame and is dead once the compute function has returned,
  // so the continuation is copied here.
  Call(TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Takes input i, and with `same_shape` output i: the input's own buffer where nobody else holds
  // it. False after a failure.
  bool Take(int index, bool same_shape);
  // Makes output i of this shape. Null after a failure.
  void* Allocate(int index, const int64_t* dims, int rank);

  int size() const { return static_cast<int>(tensors_.size()); }
  const std::vector<int64_t>& dims(int index) const { return tensors_[Index(index)].dims; }
  TF_DataType type(int index) const { return tensors_[Index(index)].type; }
  const void* input(int index) const;
  // Null before the output exists; never null afterwards, not even without elements.
  void* output(int index) const;

  // Gives TensorFlow an error: the number of a syrtos::StatusCode and a text.
  void Fail(int32_t syrtos_code, const char* message);
  // Lets go of all tensors, then lets TensorFlow go on. Destroys the call.
  static void Finish(Call* call);

 private:
  struct Taken {
    TF_DataType type = 0;
    std::vector<int64_t> dims;
    TF_Tensor* input = nullptr;
    TF_Tensor* output = nullptr;
  };

  static size_t Index(int index) { return static_cast<size_t>(index); }
  void ReleaseTensors();

  TF_OpKernelContext* context_;
  Continuation continuation_;
  std::vector<Taken> tensors_;
};

}  // namespace syrtos_tf
