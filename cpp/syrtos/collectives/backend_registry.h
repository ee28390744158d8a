// The communicators of one engine, by name, and the choice among them.
//
// Owner: the engine. Threads: filled before the engine thread starts, read-only afterwards
// (AbortAll: any thread).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "syrtos/base/config.h"
#include "syrtos/collectives/communicator.h"
#include "syrtos/transport/store.h"

namespace syrtos {

struct BackendContext {
  const Config* config = nullptr;
  std::shared_ptr<Store> store;  // keys under config->job_id and epoch
};

// How one backend comes into being. `available` is asked before the hello (cheap, no
// communication); `create` after all ranks agreed to use it (may communicate through the store).
struct BackendFactory {
  std::string name;
  bool multi_rank = false;                              // false: serves groups of one only
  Status (*available)(const Config& config) = nullptr;  // Ok, or why not and how to fix it
  Result<std::unique_ptr<Communicator>> (*create)(const BackendContext& context) = nullptr;
};

// The rows of builtin_backends.cc.
const std::vector<BackendFactory>& BuiltinBackends();

class BackendRegistry {
 public:
  // Adds in the order of preference among equal scores; the order is the same on all ranks.
  void Add(std::unique_ptr<Communicator> communicator);
  // Index of the best bidder, or kBackendUnavailable naming the collective, dtype and backends.
  Result<int> Choose(const Collective& collective, int64_t bytes) const;
  Communicator& at(int index) const { return *communicators_[static_cast<size_t>(index)]; }
  int size() const { return static_cast<int>(communicators_.size()); }
  // Does any of them block? Then waiting callers leave progress to the engine thread.
  bool AnyMayBlock() const;
  void AbortAll(const Status& cause);

 private:
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace syrtos
