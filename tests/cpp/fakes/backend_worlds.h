// The communicators under test, each as a world that ranks (threads) join.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fakes/memory_communicator.h"
#include "fakes/memory_wire.h"
#include "fakes/ranks.h"
#include "syrtos/build_config.h"
#include "syrtos/collectives/backend_registry.h"
#include "syrtos/collectives/local/local_communicator.h"
#include "syrtos/collectives/packed_communicator.h"
#include "syrtos/collectives/pairwise/pairwise_communicator.h"

namespace syrtos {

// The file of the Gloo plug-in, or "" if this build has none.
inline std::string GlooPluginForTests() {
#if defined(SYRTOS_GLOO_PLUGIN_FOR_TESTS)
  return SYRTOS_GLOO_PLUGIN_FOR_TESTS;
#elif SYRTOS_HAVE_GLOO && defined(SYRTOS_TEST_LIBRARY_DIR)
  return std::string(SYRTOS_TEST_LIBRARY_DIR) + "/libsyrtos_gloo.so";
#else
  return "";
#endif
}

using Joiner = std::function<Result<std::unique_ptr<Communicator>>(RankContext&)>;

struct BackendWorld {
  std::string name;
  int max_ranks = 4;
  std::function<Joiner(int size)> make;  // a new world; its Joiner is called once per rank
};

inline Joiner PairwiseWorld(int size, PairwiseOptions options, bool packed) {
  const auto network = std::make_shared<MemoryNetwork>(size);
  return [network, options, packed](RankContext& context) -> Result<std::unique_ptr<Communicator>> {
    auto plain = MakePairwiseCommunicator(
        "pairwise", 10, std::make_unique<MemoryWire>(network, context.rank), options);
    return packed ? MakePackedCommunicator(std::move(plain)) : std::move(plain);
  };
}

inline const BackendFactory& BuiltinBackend(const std::string& name) {
  for (const BackendFactory& row : BuiltinBackends()) {
    if (row.name == name) return row;
  }
  std::abort();
}

inline Config GlooConfig(const RankContext& context) {
  Config config;
  config.rank = context.rank;
  config.size = context.size;
  config.job_id = "test";
  config.gloo_plugin_path = GlooPluginForTests();
  return config;
}

inline Result<std::unique_ptr<Communicator>> JoinGloo(RankContext& context) {
  const Config config = GlooConfig(context);
  return BuiltinBackend("gloo").create({&config, context.store});
}

inline const std::vector<BackendWorld>& BackendWorlds() {
  static const std::vector<BackendWorld> worlds = {
      {"local", 1,
       [](int) -> Joiner {
         return [](RankContext&) -> Result<std::unique_ptr<Communicator>> {
           return MakeLocalCommunicator();
         };
       }},
      // Pieces of 256 bytes, so that also small tensors take many.
      {"pairwise", 4, [](int size) { return PairwiseWorld(size, {256, 64}, false); }},
      {"packed", 4, [](int size) { return PairwiseWorld(size, {4096, 1024}, true); }},
      {"memory", 4,
       [](int) -> Joiner {
         const auto hub = std::make_shared<MemoryHub>();
         return [hub](RankContext&) -> Result<std::unique_ptr<Communicator>> {
           return std::unique_ptr<Communicator>(std::make_unique<MemoryCommunicator>(hub));
         };
       }},
      {"gloo", 4, [](int) -> Joiner { return JoinGloo; }},
  };
  return worlds;
}

}  // namespace syrtos
