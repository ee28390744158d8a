// The number of ranks of a group and this rank's position, asked by a running program.
#pragma once

#include <cstdint>

#include "framework_ops/xla/call.h"

namespace syrtos_tf_xla {

// Writes both; `size` and `position` point to one int32_t each, as XLA hands them over.
syrtos_xla::Outcome TellGroup(uint32_t group, void* size, void* position);

}  // namespace syrtos_tf_xla
