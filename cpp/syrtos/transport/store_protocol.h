// Messages between a TcpStore and its server; each is one frame of channel.h. The format is
// docs/wire_format.md. Pure functions. Failure: decoding anything malformed gives kInternal.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "syrtos/base/config.h"
#include "syrtos/base/result.h"

namespace syrtos {

// A key and its value, with a few bytes around them, must fit.
constexpr uint64_t kMaxStoreFrameBytes = uint64_t{64} << 20;

enum class StoreOp : uint8_t { kSet = 1, kGet = 2, kAdd = 3, kRemove = 4 };

struct StoreRequest {
  StoreOp op = StoreOp::kGet;
  std::string key;
  std::string value;   // kSet
  Seconds timeout{0};  // kGet
  int64_t delta = 0;   // kAdd
};

std::string EncodeStoreRequest(const StoreRequest& request);
Result<StoreRequest> DecodeStoreRequest(std::string_view bytes);

// The answer to each request: the value (kGet), the sum in decimal (kAdd), nothing (else), or why
// not.
std::string EncodeStoreAnswer(const Result<std::string>& answer);
Result<std::string> DecodeStoreAnswer(std::string_view bytes);

}  // namespace syrtos
