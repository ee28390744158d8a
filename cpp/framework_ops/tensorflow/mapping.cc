#include "framework_ops/tensorflow/mapping.h"

namespace syrtos_tf {
namespace {

struct TypeRow {
  TF_DataType tf;
  int32_t syrtos;
  size_t bytes;
};

constexpr TypeRow kTypes[] = {
    {10, 0, 1},    // bool
    {6, 1, 1},     // int8
    {5, 2, 2},     // int16
    {3, 3, 4},     // int32
    {9, 4, 8},     // int64
    {4, 5, 1},     // uint8
    {17, 6, 2},    // uint16
    {22, 7, 4},    // uint32
    {23, 8, 8},    // uint64
    {19, 9, 2},    // half
    {14, 10, 2},   // bfloat16
    {1, 11, 4},    // float
    {2, 12, 8},    // double
    {8, 13, 8},    // complex64
    {18, 14, 16},  // complex128
};

const TypeRow* RowOf(TF_DataType type) {
  for (const TypeRow& row : kTypes) {
    if (row.tf == type) return &row;
  }
  return nullptr;
}

}  // namespace

const char kSupportedTypes[] =
    "{float, double, half, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
    "bool, complex64, complex128}";

int32_t SyrtosDType(TF_DataType type) {
  const TypeRow* row = RowOf(type);
  return row != nullptr ? row->syrtos : -1;
}

size_t ItemBytes(TF_DataType type) {
  const TypeRow* row = RowOf(type);
  return row != nullptr ? row->bytes : 0;
}

TF_Code ToTfCode(int32_t syrtos_code) {
  constexpr TF_Code kTfInvalidArgument = 3;
  constexpr TF_Code kTfDeadlineExceeded = 4;
  constexpr TF_Code kTfFailedPrecondition = 9;
  constexpr TF_Code kTfAborted = 10;
  constexpr TF_Code kTfInternal = 13;
  switch (syrtos_code) {
    case 1:  // kInvalidArgument
      return kTfInvalidArgument;
    case 2:  // kMismatch
    case 3:  // kNotInitialized
      return kTfFailedPrecondition;
    case 4:  // kPeerLost
    case 7:  // kShutdown
      return kTfAborted;
    case 5:  // kTimeout
      return kTfDeadlineExceeded;
    default:  // kBackendUnavailable, kInternal
      return kTfInternal;
  }
}

}  // namespace syrtos_tf
