// Where foreign exceptions end: what a communicator calls may throw std::bad_alloc, and an
// exception must never cross the engine's thread.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "syrtos/base/status.h"

namespace syrtos {

// body() -> Status or Result<T>; an exception becomes kInternal.
template <typename Body>
auto Guarded(const char* what, Body&& body) noexcept -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return Status::Internal(
        std::string(what) +
        ": out of memory. Free memory on this host, use smaller tensors or lower "
        "the fusion threshold.");
  } catch (const std::exception& error) {
    return Status::Internal(std::string(what) + ": " + error.what());
  }
}

}  // namespace syrtos
