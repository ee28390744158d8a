// The error value of all Syrtos code: a code and a text for the user.
//
// Owner: values, freely copied. Threads: immutable after construction, so safe to share.
// Failure: Syrtos code never throws; foreign exceptions are turned into a Status where they enter.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace syrtos {

// Each code becomes one Python exception class (python/syrtos/errors.py); the numbers travel on the
// wire and through the C API, so they never change meaning.
enum class StatusCode : uint8_t {
  kOk = 0,
  kInvalidArgument = 1,  // the caller's own fault, seen on this rank alone; the engine goes on
  kMismatch = 2,         // ranks disagree about one request; raised on all of them; engine goes on
  kNotInitialized = 3,   // no engine, or used in a forked child
  kPeerLost = 4,         // a rank died or went silent; fatal for the engine
  kTimeout = 5,          // a limit that the user set has passed
  kBackendUnavailable = 6,  // nothing built in can do this
  kShutdown = 7,            // this engine, or a rank that is needed, has been shut down
  kInternal = 8,            // a broken invariant; fatal for the engine
};

const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return Status(); }
  static Status InvalidArgument(std::string m) {
    return {StatusCode::kInvalidArgument, std::move(m)};
  }
  static Status Mismatch(std::string m) { return {StatusCode::kMismatch, std::move(m)}; }
  static Status NotInitialized(std::string m) {
    return {StatusCode::kNotInitialized, std::move(m)};
  }
  static Status PeerLost(std::string m) { return {StatusCode::kPeerLost, std::move(m)}; }
  static Status Timeout(std::string m) { return {StatusCode::kTimeout, std::move(m)}; }
  static Status BackendUnavailable(std::string m) {
    return {StatusCode::kBackendUnavailable, std::move(m)};
  }
  static Status Shutdown(std::string m) { return {StatusCode::kShutdown, std::move(m)}; }
  static Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "mismatch: <message>", or "ok".
  std::string ToString() const;
  // The same code with `prefix` before the text.
  Status WithPrefix(std::string_view prefix) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

}  // namespace syrtos

// Returns a failed Status to the caller.
#define SYRTOS_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    ::syrtos::Status syrtos_status_ = (expr);        \
    if (!syrtos_status_.ok()) return syrtos_status_; \
  } while (false)
