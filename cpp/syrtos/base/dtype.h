// THE dtype table. A new dtype is one enumerator here and one row in dtype.cc (and a loop in
// collectives/host_reduce.cc if it can be reduced).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "syrtos/base/result.h"

namespace syrtos {

// The numbers travel on the wire and through the C API: append only.
enum class DType : uint8_t {
  kBool = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kUInt8 = 5,
  kUInt16 = 6,
  kUInt32 = 7,
  kUInt64 = 8,
  kFloat16 = 9,
  kBFloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kComplex64 = 13,
  kComplex128 = 14,
  // Any other fixed-size element (float8, datetime64, records): moved as bytes, never reduced.
  // Its size is in item_bytes beside the dtype.
  kOpaque = 15,
};

enum class DTypeClass : uint8_t { kBool, kSigned, kUnsigned, kFloat, kComplex, kOpaque };

struct DTypeInfo {
  DType dtype;
  const char* name;  // NumPy's spelling: "float32", "bfloat16"
  size_t bytes;      // 0 for kOpaque
  DTypeClass kind;
};

const DTypeInfo& InfoOf(DType dtype);
// nullptr-safe over the wire: is this number a row of the table?
bool IsValidDType(uint8_t number);
// By NumPy's name; kInvalidArgument naming `name` if unknown.
Result<DType> DTypeFromName(std::string_view name);

}  // namespace syrtos
