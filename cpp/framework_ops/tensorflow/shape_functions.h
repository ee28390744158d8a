// What TensorFlow may know of the outputs' shapes while it builds a graph.
#pragma once

#include "framework_ops/tensorflow/tf_symbols.h"

namespace syrtos_tf {

// Output i has the shape of input i.
void SameShapes(TF_ShapeInferenceContext* context, TF_Status* status);
// Output i has the shape of input i, save for a first dimension that only the run tells.
void FreeFirstDimension(TF_ShapeInferenceContext* context, TF_Status* status);
// Two scalars.
void TwoScalars(TF_ShapeInferenceContext* context, TF_Status* status);

}  // namespace syrtos_tf
