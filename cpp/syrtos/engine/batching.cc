#include "syrtos/engine/batching.h"

#include <algorithm>

namespace syrtos {
namespace {

bool Concerns(int rank, const Settled& settled) {
  const auto& absent = settled.agreement.absent;
  return std::find(settled.members.begin(), settled.members.end(), rank) != settled.members.end() &&
         std::find(absent.begin(), absent.end(), rank) == absent.end();
}

}  // namespace

PlanBatch BatchFor(int rank, const std::vector<Settled>& settled, const std::vector<Plan>& plans) {
  constexpr uint32_t kForeign = 0xffffffffu;
  PlanBatch batch;
  std::vector<uint32_t> renumbered(settled.size(), kForeign);
  for (size_t i = 0; i < settled.size(); ++i) {
    if (!Concerns(rank, settled[i])) continue;
    renumbered[i] = static_cast<uint32_t>(batch.agreements.size());
    batch.agreements.push_back(settled[i].agreement);
  }
  for (const Plan& plan : plans) {
    // Entries of one plan are of one group, so the first speaks for all.
    if (plan.entries.empty() || renumbered[plan.entries.front().agreement] == kForeign) continue;
    Plan mine = plan;
    for (PlanEntry& entry : mine.entries) entry.agreement = renumbered[entry.agreement];
    batch.plans.push_back(std::move(mine));
  }
  return batch;
}

}  // namespace syrtos
