// Result<T>: a value or the Status that says why there is none. Move-only types are welcome.
//
// Threads: as T. Failure: value() of a failed Result is a broken invariant and ends the process.
#pragma once

#include <cstdlib>
#include <optional>
#include <utility>

#include "syrtos/base/status.h"

namespace syrtos {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: conversion is the point
  Result(Status status) : status_(std::move(status)) {  // NOLINT: conversion is the point
    if (status_.ok()) std::abort();                     // a Result without value must say why
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return Checked(); }
  const T& value() const& { return const_cast<Result*>(this)->Checked(); }
  T&& value() && { return std::move(Checked()); }
  T& operator*() & { return Checked(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &Checked(); }

 private:
  T& Checked() {
    if (!value_) std::abort();
    return *value_;
  }
  Status status_;
  std::optional<T> value_;
};

}  // namespace syrtos

// SYRTOS_ASSIGN_OR_RETURN(auto x, F()): x = the value, or return the Status.
#define SYRTOS_ASSIGN_OR_RETURN(lhs, expr) \
  SYRTOS_ASSIGN_OR_RETURN_IMPL_(SYRTOS_CONCAT_(syrtos_result_, __LINE__), lhs, expr)
#define SYRTOS_ASSIGN_OR_RETURN_IMPL_(name, lhs, expr) \
  auto name = (expr);                                  \
  if (!name.ok()) return name.status();                \
  lhs = std::move(name).value()
#define SYRTOS_CONCAT_(a, b) SYRTOS_CONCAT_INNER_(a, b)
#define SYRTOS_CONCAT_INNER_(a, b) a##b
