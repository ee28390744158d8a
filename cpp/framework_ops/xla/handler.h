// What XLA's typed interface calls for each collective of a compiled program. It never waits: XLA
// gets a future, so no thread of its pool is held while other ranks are awaited.
#pragma once

#include <cstdint>
#include <string>

#include "framework_ops/xla/host.h"
#include "framework_ops/xla/xla_ffi.h"

namespace syrtos_xla {

// Carries out one call; `host` lives as long as the process. Null, or why it cannot begin.
XlaError* Handle(XlaCallFrame* frame, const Host& host);

// True for the question, asked once, for which version of XLA's interface a handler was written; it
// is answered then.
bool AnswersMetadataQuery(const XlaCallFrame& frame);

// Also counts: every failure of a call passes here before XLA hears of it.
XlaError* MakeError(const XlaApi* api, int32_t syrtos_code, const std::string& message);
// How many errors have been made in this process.
uint64_t ErrorCount();

}  // namespace syrtos_xla
