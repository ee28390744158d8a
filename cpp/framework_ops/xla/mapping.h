// Numbers of Syrtos <-> numbers of XLA.
#pragma once

#include <cstdint>

namespace syrtos_xla {

struct TypeRow {
  int xla;
  int32_t syrtos;
  uint32_t bytes;
};

// The row of an XLA element type; null for types that cannot be sent (tokens, types of less than a
// byte).
const TypeRow* TypeOf(int xla_type);

// Numbers of syrtos::CollectiveKind.
enum class Kind : int32_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kAlltoall = 3,
  kReducescatter = 4,
  kBarrier = 5,
};

// "allreduce" and so on.
const char* NameOf(Kind kind);

// Numbers of syrtos::StatusCode that this library makes itself.
constexpr int32_t kInvalidArgument = 1;
constexpr int32_t kMismatch = 2;
constexpr int32_t kNotInitialized = 3;
constexpr int32_t kInternal = 8;

// XLA's error code for a number of syrtos::StatusCode other than 0.
int ToXlaCode(int32_t syrtos_code);

}  // namespace syrtos_xla
