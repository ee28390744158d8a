// The framework whose compiled programs call a handler.
#pragma once

namespace syrtos_xla {

struct Host {
  // What messages call a compiled program, and how to make one anew.
  const char* program;
  const char* make_anew;
  // Whether the first array in and out is a number that only gives calls their order; else XLA's
  // tokens do, and are left out.
  bool order_is_first;
  // See FuturesOf.
  bool early_futures;
};

}  // namespace syrtos_xla
