// Pure function: settled requests -> plans (order, fusion, backend). Runs on rank 0 only; every
// rank receives the same plans, so they cannot diverge.
//
// Parts fuse when kind, group, dtype, op, scales, root, absent ranks and backend are equal and the
// sum of bytes stays within the threshold; a part larger than it travels alone. Mixed dtypes in one
// request become several plans. The order of plans follows the order of settling.
#pragma once

#include <functional>
#include <vector>

#include "syrtos/engine/coordinator.h"

namespace syrtos {

struct PlannerOptions {
  int64_t fusion_threshold_bytes = 0;
  uint64_t first_sequence = 0;
  // Which communicator: BackendRegistry::Choose. A failure becomes the agreement's error.
  std::function<Result<int>(const Collective&, int64_t bytes)> choose;
};

struct Planned {
  std::vector<Plan> plans;  // entries' `agreement` is an index into the settled list
  uint64_t next_sequence = 0;
};

// May set the error of an agreement for which no backend can be chosen (it then appears in no
// plan).
Planned MakePlans(std::vector<Settled>& settled, const PlannerOptions& options);

}  // namespace syrtos
