// A request under way as Python sees it.
#pragma once

#include <memory>
#include <vector>

#include "syrtos/engine/request.h"

namespace syrtos::binding {

// The engine's Completion, and what is needed to tell the bytes of a result.
struct PyCompletion {
  std::shared_ptr<Completion> completion;
  std::vector<uint32_t> item_bytes;  // per part
};

}  // namespace syrtos::binding
