#include "framework_ops/tensorflow/shape_functions.h"

#include <limits>

namespace syrtos_tf {
namespace {

class ShapeHandle {
 public:
  ShapeHandle() : handle_(Tf().TF_NewShapeHandle()) {}
  explicit ShapeHandle(TF_ShapeHandle* handle) : handle_(handle) {}
  ~ShapeHandle() { Tf().TF_DeleteShapeHandle(handle_); }
  ShapeHandle(const ShapeHandle&) = delete;
  ShapeHandle& operator=(const ShapeHandle&) = delete;
  TF_ShapeHandle* get() const { return handle_; }

 private:
  TF_ShapeHandle* handle_;
};

void SetFreeFirstDimension(TF_ShapeInferenceContext* context, int index, TF_ShapeHandle* input,
                           TF_Status* status) {
  const TfSymbols& tf = Tf();
  if (tf.TF_ShapeInferenceContextRankKnown(context, input) == 0 ||
      tf.TF_ShapeInferenceContextRank(context, input) < 1) {
    // A scalar is refused when the op runs, by all ranks alike.
    ShapeHandle unknown;
    tf.TF_ShapeInferenceContextSetOutput(context, index, unknown.get(), status);
    return;
  }
  // The size -1 is TensorFlow's own mark of an unknown dimension.
  ShapeHandle first(
      tf.TF_ShapeInferenceContextVectorFromSize(context, static_cast<size_t>(int64_t{-1})));
  ShapeHandle rest;
  tf.TF_ShapeInferenceContextSubshape(context, input, 1, std::numeric_limits<int64_t>::max(),
                                      rest.get(), status);
  if (tf.TF_GetCode(status) != 0) return;
  ShapeHandle output;
  tf.TF_ShapeInferenceContextConcatenateShapes(context, first.get(), rest.get(), output.get(),
                                               status);
  if (tf.TF_GetCode(status) != 0) return;
  tf.TF_ShapeInferenceContextSetOutput(context, index, output.get(), status);
}

template <typename SetOutput>
void ForEachInput(TF_ShapeInferenceContext* context, TF_Status* status, SetOutput set_output) {
  const TfSymbols& tf = Tf();
  const auto count = static_cast<int>(tf.TF_ShapeInferenceContextNumInputs(context));
  for (int i = 0; i < count; ++i) {
    ShapeHandle input;
    tf.TF_ShapeInferenceContextGetInput(context, i, input.get(), status);
    if (tf.TF_GetCode(status) == 0) set_output(context, i, input.get(), status);
    if (tf.TF_GetCode(status) != 0) return;
  }
}

}  // namespace

void SameShapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  ForEachInput(context, status, Tf().TF_ShapeInferenceContextSetOutput);
}

void FreeFirstDimension(TF_ShapeInferenceContext* context, TF_Status* status) {
  ForEachInput(context, status, SetFreeFirstDimension);
}

void TwoScalars(TF_ShapeInferenceContext* context, TF_Status* status) {
  for (int i = 0; i < 2 && Tf().TF_GetCode(status) == 0; ++i) {
    ShapeHandle scalar(Tf().TF_ShapeInferenceContextScalar(context));
    Tf().TF_ShapeInferenceContextSetOutput(context, i, scalar.get(), status);
  }
}

}  // namespace syrtos_tf
