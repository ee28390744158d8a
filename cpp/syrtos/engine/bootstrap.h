// How an engine's ranks find each other: store, hellos, agreed communicators.
//
// Every step ends on all ranks alike: rank 0 collects each rank's outcome and sends the first
// failure to all, so that no rank starts alone. Blocks at most config.start_timeout per step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "syrtos/base/config.h"
#include "syrtos/collectives/backend_registry.h"
#include "syrtos/engine/liveness.h"
#include "syrtos/transport/channel.h"
#include "syrtos/transport/store.h"

namespace syrtos {

struct World {
  std::vector<std::unique_ptr<Channel>> control;  // as Negotiator wants them
  std::vector<Peer> health;                       // as Liveness wants them
  std::vector<std::string> hosts;                 // per rank, on rank 0
  std::string own_name;
  BackendRegistry backends;
};

// kTimeout naming the ranks that did not come, kMismatch naming the setting that differs,
// kBackendUnavailable naming what each rank lacks.
Result<World> JoinWorld(const Config& config, std::shared_ptr<Store> store,
                        const std::vector<BackendFactory>& factories);

// "rank 1 (node-a, pid 4711)"
std::string RankName(int rank, const std::string& host, int64_t pid);

}  // namespace syrtos
