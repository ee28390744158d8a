#include "syrtos/transport/bytes.h"

#include <algorithm>
#include <cstring>

namespace syrtos {
namespace {

template <typename T>
void AppendLittleEndian(std::string& out, T value) {
  char bytes[sizeof(T)];
  for (size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  out.append(bytes, sizeof(T));
}

template <typename T>
T ParseLittleEndian(std::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return value;
}

}  // namespace

void ByteWriter::U8(uint8_t v) { bytes_.push_back(static_cast<char>(v)); }
void ByteWriter::U32(uint32_t v) { AppendLittleEndian(bytes_, v); }
void ByteWriter::U64(uint64_t v) { AppendLittleEndian(bytes_, v); }
void ByteWriter::I64(int64_t v) { U64(static_cast<uint64_t>(v)); }

void ByteWriter::F64(double v) {
  uint64_t bits = 0;
  static_assert(sizeof bits == sizeof v);
  std::memcpy(&bits, &v, sizeof bits);
  U64(bits);
}

void ByteWriter::Varint(uint64_t v) {
  while (v >= 0x80) {
    U8(static_cast<uint8_t>(v | 0x80));
    v >>= 7;
  }
  U8(static_cast<uint8_t>(v));
}

void ByteWriter::String(std::string_view s) {
  Varint(s.size());
  bytes_.append(s);
}

bool ByteReader::Need(size_t n) {
  if (!ok_ || bytes_.size() < n) ok_ = false;
  return ok_;
}

uint8_t ByteReader::U8() {
  if (!Need(1)) return 0;
  const auto value = static_cast<uint8_t>(bytes_.front());
  bytes_.remove_prefix(1);
  return value;
}

uint32_t ByteReader::U32() {
  if (!Need(4)) return 0;
  const auto value = ParseLittleEndian<uint32_t>(bytes_);
  bytes_.remove_prefix(4);
  return value;
}

uint64_t ByteReader::U64() {
  if (!Need(8)) return 0;
  const auto value = ParseLittleEndian<uint64_t>(bytes_);
  bytes_.remove_prefix(8);
  return value;
}

int64_t ByteReader::I64() { return static_cast<int64_t>(U64()); }

double ByteReader::F64() {
  const uint64_t bits = U64();
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint64_t ByteReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = U8();
    if (!ok_) return 0;
    if (shift == 63 && byte > 1) break;  // more than 64 bits
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  ok_ = false;
  return 0;
}

std::string ByteReader::String() {
  const size_t length = Count();
  if (!ok_) return {};
  std::string value(bytes_.substr(0, length));
  bytes_.remove_prefix(length);
  return value;
}

size_t ByteReader::Count(size_t min_bytes_each) {
  const uint64_t count = Varint();
  if (count > bytes_.size() / std::max<size_t>(min_bytes_each, 1)) ok_ = false;
  return ok_ ? static_cast<size_t>(count) : 0;
}

}  // namespace syrtos
