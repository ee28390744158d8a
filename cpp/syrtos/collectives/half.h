// IEEE binary16 and bfloat16 to and from float32, correct for subnormals, infinities and NaN,
// rounded to nearest, ties to even. NaN keeps its sign and upper payload and becomes quiet.
//
// Integer arithmetic and selections without branches, so that loops over them vectorise for any
// x86-64. No float32 subnormal takes part in the arithmetic: the results do not change in a thread
// whose flush-to-zero bits some other library has set. Method: F. Giesen, "float <-> half
// conversions" (half_to_float_fast5, float_to_half_fast3_rtne).
#pragma once

#include <cstdint>
#include <cstring>

namespace syrtos {

inline uint32_t FloatBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// `a` where mask is all ones, `b` where it is zero.
inline uint32_t Select(uint32_t mask, uint32_t a, uint32_t b) { return (a & mask) | (b & ~mask); }
inline uint32_t MaskOf(bool condition) { return 0u - static_cast<uint32_t>(condition); }

inline float HalfToFloat(uint16_t half) {
  constexpr uint32_t kExponent = 0x7c00u << 13;
  constexpr uint32_t kRebias = (127u - 15u) << 23;
  const uint32_t shifted = (half & 0x7fffu) << 13;
  const uint32_t exponent = shifted & kExponent;
  const uint32_t normal = shifted + kRebias;
  const uint32_t special = normal + ((128u - 16u) << 23);  // exponent 31 becomes 255
  // A subnormal m * 2^-24 is (1 + m * 2^-10) * 2^-14 - 2^-14.
  const float subnormal = FloatFromBits(normal + (1u << 23)) - FloatFromBits(113u << 23);
  uint32_t bits = Select(MaskOf(exponent == kExponent), special, normal);
  bits = Select(MaskOf(exponent == 0), FloatBits(subnormal), bits);
  const uint32_t nan = MaskOf(shifted > kExponent) & (1u << 22);  // quiet, as the hardware does
  return FloatFromBits(bits | nan | ((half & 0x8000u) << 16));
}

inline uint16_t FloatToHalf(float value) {
  constexpr uint32_t kInfinity = 255u << 23;
  constexpr uint32_t kTooLarge = (127u + 16u) << 23;  // 65536: no half however rounded
  constexpr uint32_t kNormal = 113u << 23;            // 2^-14, the smallest normal half
  constexpr uint32_t kSubnormalMagic = 126u << 23;    // 0.5: its last bit has the weight 2^-24
  const uint32_t bits = FloatBits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;

  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + odd) >> 13;
  // Adding 0.5 lets the float adder round to the subnormals' grid. Masked, so that it sees no NaN.
  const uint32_t small = magnitude & MaskOf(magnitude < kNormal);
  const uint32_t subnormal = FloatBits(FloatFromBits(small) + 0.5f) - kSubnormalMagic;
  const uint32_t payload = ((magnitude >> 13) & 0x3ffu) | 0x200u;
  const uint32_t special = 0x7c00u | (payload & MaskOf(magnitude > kInfinity));

  uint32_t half = Select(MaskOf(magnitude < kNormal), subnormal, normal);
  half = Select(MaskOf(magnitude >= kTooLarge), special, half);
  return static_cast<uint16_t>(half | sign);
}

inline float BFloat16ToFloat(uint16_t value) {
  return FloatFromBits(static_cast<uint32_t>(value) << 16);
}

inline uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = FloatBits(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>(Select(MaskOf((bits & 0x7fffffffu) > (255u << 23)), nan, rounded));
}

}  // namespace syrtos
