#include "syrtos/base/dtype.h"

#include <array>
#include <cstdlib>
#include <string>

#include "syrtos/base/log.h"

namespace syrtos {
namespace {

// Row i describes the dtype with number i.
constexpr std::array<DTypeInfo, 16> kTable = {{
    {DType::kBool, "bool", 1, DTypeClass::kBool},
    {DType::kInt8, "int8", 1, DTypeClass::kSigned},
    {DType::kInt16, "int16", 2, DTypeClass::kSigned},
    {DType::kInt32, "int32", 4, DTypeClass::kSigned},
    {DType::kInt64, "int64", 8, DTypeClass::kSigned},
    {DType::kUInt8, "uint8", 1, DTypeClass::kUnsigned},
    {DType::kUInt16, "uint16", 2, DTypeClass::kUnsigned},
    {DType::kUInt32, "uint32", 4, DTypeClass::kUnsigned},
    {DType::kUInt64, "uint64", 8, DTypeClass::kUnsigned},
    {DType::kFloat16, "float16", 2, DTypeClass::kFloat},
    {DType::kBFloat16, "bfloat16", 2, DTypeClass::kFloat},
    {DType::kFloat32, "float32", 4, DTypeClass::kFloat},
    {DType::kFloat64, "float64", 8, DTypeClass::kFloat},
    {DType::kComplex64, "complex64", 8, DTypeClass::kComplex},
    {DType::kComplex128, "complex128", 16, DTypeClass::kComplex},
    {DType::kOpaque, "opaque", 0, DTypeClass::kOpaque},
}};

constexpr bool RowsAreInOrder() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<size_t>(kTable[i].dtype) != i) return false;
  }
  return true;
}
static_assert(RowsAreInOrder(), "a dtype's number is its row");

}  // namespace

const DTypeInfo& InfoOf(DType dtype) {
  const auto number = static_cast<uint8_t>(dtype);
  if (!IsValidDType(number)) {
    SYRTOS_LOG(kFatal, "dtype") << "no dtype has the number " << int{number};
    std::abort();
  }
  return kTable[number];
}

bool IsValidDType(uint8_t number) { return number < kTable.size(); }

Result<DType> DTypeFromName(std::string_view name) {
  std::string known;
  for (const DTypeInfo& row : kTable) {
    if (name == row.name) return row.dtype;
    known += known.empty() ? "" : ", ";
    known += row.name;
  }
  return Status::InvalidArgument("unknown dtype \"" + std::string(name) + "\"; known are " + known);
}

}  // namespace syrtos
