#include "framework_ops/xla/mapping.h"

namespace syrtos_xla {
namespace {

constexpr int32_t kOpaque = 15;

constexpr TypeRow kTypes[] = {
    {1, 0, 1},         // bool
    {2, 1, 1},         // int8
    {3, 2, 2},         // int16
    {4, 3, 4},         // int32
    {5, 4, 8},         // int64
    {6, 5, 1},         // uint8
    {7, 6, 2},         // uint16
    {8, 7, 4},         // uint32
    {9, 8, 8},         // uint64
    {10, 9, 2},        // float16
    {16, 10, 2},       // bfloat16
    {11, 11, 4},       // float32
    {12, 12, 8},       // float64
    {15, 13, 8},       // complex64
    {18, 14, 16},      // complex128
    {19, kOpaque, 1},  // float8_e5m2
    {20, kOpaque, 1},  // float8_e4m3fn
    {23, kOpaque, 1},  // float8_e4m3b11fnuz
    {24, kOpaque, 1},  // float8_e5m2fnuz
    {25, kOpaque, 1},  // float8_e4m3fnuz
    {28, kOpaque, 1},  // float8_e4m3
    {29, kOpaque, 1},  // float8_e3m4
    {33, kOpaque, 1},  // float8_e8m0fnu
};

}  // namespace

const TypeRow* TypeOf(int xla_type) {
  for (const TypeRow& row : kTypes) {
    if (row.xla == xla_type) return &row;
  }
  return nullptr;
}

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kAllreduce:
      return "allreduce";
    case Kind::kAllgather:
      return "allgather";
    case Kind::kBroadcast:
      return "broadcast";
    case Kind::kAlltoall:
      return "alltoall";
    case Kind::kReducescatter:
      return "reducescatter";
    case Kind::kBarrier:
      return "barrier";
  }
  return "collective";
}

int ToXlaCode(int32_t syrtos_code) {
  constexpr int kXlaInvalidArgument = 3;
  constexpr int kXlaDeadlineExceeded = 4;
  constexpr int kXlaFailedPrecondition = 9;
  constexpr int kXlaAborted = 10;
  constexpr int kXlaInternal = 13;
  switch (syrtos_code) {
    case 1:  // kInvalidArgument
      return kXlaInvalidArgument;
    case 2:  // kMismatch
    case 3:  // kNotInitialized
      return kXlaFailedPrecondition;
    case 4:  // kPeerLost
    case 7:  // kShutdown
      return kXlaAborted;
    case 5:  // kTimeout
      return kXlaDeadlineExceeded;
    default:  // kBackendUnavailable, kInternal
      return kXlaInternal;
  }
}

}  // namespace syrtos_xla
