// Little-endian writing and bounds-checked reading of messages; the one place where bytes become
// numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "syrtos/base/result.h"

namespace syrtos {

class ByteWriter {
 public:
  void U8(uint8_t v);
  void U32(uint32_t v);
  void U64(uint64_t v);
  void I64(int64_t v);
  void F64(double v);
  void Varint(uint64_t v);          // LEB128, for small numbers
  void String(std::string_view s);  // varint length + bytes
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// A reader that never runs past the end: after the first bad read ok() is false and every further
// read returns zero, so a parser checks once at the end (and before it allocates: see Count).
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  uint8_t U8();
  uint32_t U32();
  uint64_t U64();
  int64_t I64();
  double F64();
  uint64_t Varint();
  std::string String();
  // A varint that announces how many items follow; fails if they could not fit in the rest even at
  // `min_bytes_each`, so that a forged count cannot make us allocate.
  size_t Count(size_t min_bytes_each = 1);
  bool ok() const { return ok_; }
  bool done() const { return ok_ && bytes_.empty(); }
  void Fail() { ok_ = false; }

 private:
  bool Need(size_t n);
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace syrtos
