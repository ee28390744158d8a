#include "syrtos/base/dtype.h"

#include <gtest/gtest.h>

#include <string>

namespace syrtos {
namespace {

struct Row {
  DType dtype;
  int number;
  const char* name;
  size_t bytes;
  DTypeClass kind;
};

class DTypeTableTest : public testing::TestWithParam<Row> {};

TEST_P(DTypeTableTest, RowIsAsPromised) {
  const Row row = GetParam();
  EXPECT_EQ(static_cast<int>(row.dtype), row.number);  // on the wire: may never change
  const DTypeInfo& info = InfoOf(row.dtype);
  EXPECT_EQ(info.dtype, row.dtype);
  EXPECT_STREQ(info.name, row.name);
  EXPECT_EQ(info.bytes, row.bytes);
  EXPECT_EQ(info.kind, row.kind);
  EXPECT_TRUE(IsValidDType(static_cast<uint8_t>(row.number)));
}

TEST_P(DTypeTableTest, NameLeadsBackToTheDType) {
  const Result<DType> found = DTypeFromName(GetParam().name);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found.value(), GetParam().dtype);
}

INSTANTIATE_TEST_SUITE_P(
    AllRows, DTypeTableTest,
    testing::Values(Row{DType::kBool, 0, "bool", 1, DTypeClass::kBool},
                    Row{DType::kInt8, 1, "int8", 1, DTypeClass::kSigned},
                    Row{DType::kInt16, 2, "int16", 2, DTypeClass::kSigned},
                    Row{DType::kInt32, 3, "int32", 4, DTypeClass::kSigned},
                    Row{DType::kInt64, 4, "int64", 8, DTypeClass::kSigned},
                    Row{DType::kUInt8, 5, "uint8", 1, DTypeClass::kUnsigned},
                    Row{DType::kUInt16, 6, "uint16", 2, DTypeClass::kUnsigned},
                    Row{DType::kUInt32, 7, "uint32", 4, DTypeClass::kUnsigned},
                    Row{DType::kUInt64, 8, "uint64", 8, DTypeClass::kUnsigned},
                    Row{DType::kFloat16, 9, "float16", 2, DTypeClass::kFloat},
                    Row{DType::kBFloat16, 10, "bfloat16", 2, DTypeClass::kFloat},
                    Row{DType::kFloat32, 11, "float32", 4, DTypeClass::kFloat},
                    Row{DType::kFloat64, 12, "float64", 8, DTypeClass::kFloat},
                    Row{DType::kComplex64, 13, "complex64", 8, DTypeClass::kComplex},
                    Row{DType::kComplex128, 14, "complex128", 16, DTypeClass::kComplex},
                    Row{DType::kOpaque, 15, "opaque", 0, DTypeClass::kOpaque}),
    [](const testing::TestParamInfo<Row>& info) { return std::string(info.param.name); });

TEST(DTypeTest, NumbersBeyondTheTableAreInvalid) {
  for (int number = 16; number < 256; ++number) {
    EXPECT_FALSE(IsValidDType(static_cast<uint8_t>(number))) << number;
  }
}

TEST(DTypeTest, UnknownNameIsNamedInTheError) {
  for (const char* name : {"float8", "", "Float32", "float"}) {
    const Result<DType> found = DTypeFromName(name);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(found.status().message().find("\"" + std::string(name) + "\""), std::string::npos);
    EXPECT_NE(found.status().message().find("bfloat16"), std::string::npos);  // what is known
  }
}

}  // namespace
}  // namespace syrtos
