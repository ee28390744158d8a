// What jax.ffi registers as the target of compiled collectives, and what Python asks.
#include "framework_ops/xla/handler.h"

#include <cstdint>

namespace {

constexpr syrtos_xla::Host kJax = {"jax.jit", "see jax.clear_caches()", false, false};

}  // namespace

extern "C" __attribute__((visibility("default"))) syrtos_xla::XlaError* syrtos_jax_collective(
    syrtos_xla::XlaCallFrame* frame) {
  return syrtos_xla::Handle(frame, kJax);
}

// How many collectives of compiled programs have failed so far.
extern "C" __attribute__((visibility("default"))) uint64_t syrtos_jax_failures() {
  return syrtos_xla::ErrorCount();
}
