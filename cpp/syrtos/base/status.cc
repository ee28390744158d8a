#include "syrtos/base/status.h"

namespace syrtos {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kMismatch:
      return "mismatch";
    case StatusCode::kNotInitialized:
      return "not initialized";
    case StatusCode::kPeerLost:
      return "peer lost";
    case StatusCode::kTimeout:
      return "timeout";
    case StatusCode::kBackendUnavailable:
      return "backend unavailable";
    case StatusCode::kShutdown:
      return "shutdown";
    case StatusCode::kInternal:
      return "internal error";
  }
  return "unknown status code";  // a number that came over the wire from a newer version
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  return std::string(StatusCodeName(code_)) + ": " + message_;
}

Status Status::WithPrefix(std::string_view prefix) const {
  if (ok()) return Status();
  return {code_, std::string(prefix) + message_};
}

}  // namespace syrtos
