// What the stores share: counters as decimal text, and the words of their errors. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "syrtos/base/config.h"
#include "syrtos/base/result.h"

namespace syrtos {

// Adds to the decimal number under `key` (0 if absent) and returns the sum. kInvalidArgument if the
// value is no number or the sum does not fit; the value then stays.
Result<int64_t> AddToCounter(std::map<std::string, std::string>& values, const std::string& key,
                             int64_t delta);

// kTimeout: nobody has set `key` within `waited`.
Status KeyNotSet(const std::string& key, Seconds waited);

}  // namespace syrtos
