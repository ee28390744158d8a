// The process's current engine, for framework op libraries that cannot be handed an object
// (c_api.h). Set by the Python session in init() and cleared in shutdown(). Threads: any.
#pragma once

#include <memory>

#include "syrtos/engine/engine.h"

namespace syrtos {

void SetCurrentEngine(std::shared_ptr<Engine> engine);
std::shared_ptr<Engine> CurrentEngine();

}  // namespace syrtos
