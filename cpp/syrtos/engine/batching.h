// Which part of what was settled and planned concerns one rank. Pure function.
#pragma once

#include <vector>

#include "syrtos/engine/coordinator.h"

namespace syrtos {

// The agreements of groups that `rank` belongs to (and in which it is not absent), with the plans
// over them, renumbered.
PlanBatch BatchFor(int rank, const std::vector<Settled>& settled, const std::vector<Plan>& plans);

}  // namespace syrtos
