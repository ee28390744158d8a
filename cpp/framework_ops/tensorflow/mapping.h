// Numbers of Syrtos <-> numbers of TensorFlow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "framework_ops/tensorflow/tf_symbols.h"

namespace syrtos_tf {

// The types that the ops take, in the language of TensorFlow's op definitions.
extern const char kSupportedTypes[];

// The number of syrtos::DType for a TensorFlow type, or -1.
int32_t SyrtosDType(TF_DataType type);
// Bytes of an element of a supported type, else 0.
size_t ItemBytes(TF_DataType type);

// Numbers of syrtos::CollectiveKind.
enum class Kind : int32_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kAlltoall = 3,
  kReducescatter = 4,
  kBarrier = 5,
};

// Numbers of syrtos::StatusCode that this library makes itself.
constexpr int32_t kInvalidArgument = 1;
constexpr int32_t kNotInitialized = 3;
constexpr int32_t kInternal = 8;

// The TensorFlow error class for a number of syrtos::StatusCode other than 0. Never UNAVAILABLE,
// which TensorFlow rewrites inside graphs, nor OUT_OF_RANGE, which `fit` takes for the end of the
// data.
TF_Code ToTfCode(int32_t syrtos_code);

}  // namespace syrtos_tf
