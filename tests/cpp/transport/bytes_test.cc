#include "syrtos/transport/bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace syrtos {
namespace {

std::string EverythingOnce() {
  ByteWriter writer;
  writer.U8(0xab);
  writer.U32(0x01020304);
  writer.U64(0x0102030405060708u);
  writer.I64(-2);
  writer.F64(-1.5);
  writer.Varint(300);
  writer.String("hello");
  return writer.Take();
}

void ReadEverything(ByteReader& reader) {
  reader.U8();
  reader.U32();
  reader.U64();
  reader.I64();
  reader.F64();
  reader.Varint();
  reader.String();
}

TEST(BytesTest, LayoutIsLittleEndian) {
  const unsigned char expected[] = {0xab, 4,    3,    2,    1,    8,    7,    6,
                                    5,    4,    3,    2,    1,                       // U8, U32, U64
                                    0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,  // I64
                                    0,    0,    0,    0,    0,    0,    0xf8, 0xbf,  // F64
                                    0xac, 0x02,                                      // 300
                                    5,    'h',  'e',  'l',  'l',  'o'};
  EXPECT_EQ(EverythingOnce(),
            std::string(reinterpret_cast<const char*>(expected), sizeof expected));
}

TEST(BytesTest, ReaderReturnsWhatWasWritten) {
  const std::string bytes = EverythingOnce();
  ByteReader reader(bytes);
  EXPECT_EQ(reader.U8(), 0xab);
  EXPECT_EQ(reader.U32(), 0x01020304u);
  EXPECT_EQ(reader.U64(), 0x0102030405060708u);
  EXPECT_EQ(reader.I64(), -2);
  EXPECT_EQ(reader.F64(), -1.5);
  EXPECT_EQ(reader.Varint(), 300u);
  EXPECT_EQ(reader.String(), "hello");
  EXPECT_TRUE(reader.done());
}

TEST(BytesTest, ExtremesSurvive) {
  for (uint64_t value :
       {uint64_t{0}, uint64_t{127}, uint64_t{128}, uint64_t{16383}, uint64_t{16384},
        uint64_t{1} << 63, std::numeric_limits<uint64_t>::max()}) {
    ByteWriter writer;
    writer.Varint(value);
    writer.I64(static_cast<int64_t>(value));
    const std::string bytes = writer.Take();
    ByteReader reader(bytes);
    EXPECT_EQ(reader.Varint(), value);
    EXPECT_EQ(reader.I64(), static_cast<int64_t>(value));
    EXPECT_TRUE(reader.done());
  }
  for (double value : {0.0, std::numeric_limits<double>::infinity(), 5e-324}) {
    ByteWriter writer;
    writer.F64(value);
    const std::string bytes = writer.Take();
    EXPECT_EQ(ByteReader(bytes).F64(), value);
  }
  ByteWriter writer;
  writer.F64(std::nan(""));
  const std::string bytes = writer.Take();
  EXPECT_TRUE(std::isnan(ByteReader(bytes).F64()));
}

TEST(BytesTest, EveryTruncationIsSeen) {
  const std::string bytes = EverythingOnce();
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::string cut = bytes.substr(0, length);  // a copy, so a sanitizer sees any overrun
    ByteReader reader(cut);
    ReadEverything(reader);
    EXPECT_FALSE(reader.ok()) << length;
    EXPECT_FALSE(reader.done()) << length;
  }
}

TEST(BytesTest, AfterTheFirstBadReadEverythingIsZero) {
  const std::string bytes("\x01\x02\x03", 3);
  ByteReader reader(bytes);
  EXPECT_EQ(reader.U64(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.U8(), 0);  // though there are bytes left
  EXPECT_EQ(reader.U32(), 0u);
  EXPECT_EQ(reader.I64(), 0);
  EXPECT_EQ(reader.F64(), 0.0);
  EXPECT_EQ(reader.Varint(), 0u);
  EXPECT_EQ(reader.String(), "");
  EXPECT_EQ(reader.Count(), 0u);
}

TEST(BytesTest, DoneMeansNothingIsLeft) {
  const std::string bytes = "ab";
  ByteReader reader(bytes);
  reader.U8();
  EXPECT_TRUE(reader.ok());
  EXPECT_FALSE(reader.done());
  reader.U8();
  EXPECT_TRUE(reader.done());
  reader.Fail();
  EXPECT_FALSE(reader.done());
}

TEST(BytesTest, VarintBeyond64BitsIsRefused) {
  const std::string most = std::string(9, '\xff') + '\x01';
  EXPECT_EQ(ByteReader(most).Varint(), std::numeric_limits<uint64_t>::max());
  for (const std::string& bytes : {std::string(9, '\xff') + '\x02',
                                   std::string(10, '\xff') + '\x01', std::string(20, '\x80')}) {
    ByteReader reader(bytes);
    EXPECT_EQ(reader.Varint(), 0u);
    EXPECT_FALSE(reader.ok());
  }
}

TEST(BytesTest, ForgedStringLengthIsRefused) {
  for (uint64_t length : {uint64_t{4}, uint64_t{1} << 40, std::numeric_limits<uint64_t>::max()}) {
    ByteWriter writer;
    writer.Varint(length);
    const std::string bytes = writer.Take() + "abc";
    ByteReader reader(bytes);
    EXPECT_EQ(reader.String(), "");
    EXPECT_FALSE(reader.ok());
  }
}

TEST(BytesTest, CountMustFitIntoTheRest) {
  ByteWriter writer;
  writer.Varint(3);
  const std::string head = writer.Take();
  const std::string room_for_three = head + std::string(24, 'x');
  EXPECT_EQ(ByteReader(room_for_three).Count(8), 3u);
  EXPECT_EQ(ByteReader(room_for_three).Count(), 3u);
  EXPECT_EQ(ByteReader(room_for_three).Count(0), 3u);
  const std::string one_byte_short = head + std::string(23, 'x');
  ByteReader reader(one_byte_short);
  EXPECT_EQ(reader.Count(8), 0u);
  EXPECT_FALSE(reader.ok());
}

TEST(BytesTest, ForgedCountIsRefused) {
  ByteWriter writer;
  writer.Varint(std::numeric_limits<uint64_t>::max());
  const std::string bytes = writer.Take() + std::string(100, 'x');
  for (size_t min_bytes :
       {size_t{0}, size_t{1}, size_t{1000}, std::numeric_limits<size_t>::max()}) {
    ByteReader reader(bytes);
    EXPECT_EQ(reader.Count(min_bytes), 0u);
    EXPECT_FALSE(reader.ok());
  }
}

}  // namespace
}  // namespace syrtos
