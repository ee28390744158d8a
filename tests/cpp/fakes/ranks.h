// Ranks as threads of one process, over a MemoryStore.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "syrtos/base/status.h"
#include "syrtos/base/thread.h"
#include "syrtos/transport/memory_store.h"

namespace syrtos {

struct RankContext {
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;  // one for all ranks
};

// Runs body(context) on `size` threads at once. Returns the failure of the lowest rank that has
// one, with "rank r: " before it; an exception counts as kInternal. `store`: a fresh one if null.
inline Status RunRanks(int size, const std::function<Status(RankContext&)>& body,
                       std::shared_ptr<Store> store = nullptr) {
  if (store == nullptr) store = std::make_shared<MemoryStore>();
  std::vector<Status> outcomes(static_cast<size_t>(size));
  {
    std::vector<Thread> threads;
    threads.reserve(outcomes.size());
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back("rank" + std::to_string(rank), [&outcomes, &body, &store, rank, size] {
        RankContext context{rank, size, store};
        try {
          outcomes[static_cast<size_t>(rank)] = body(context);
        } catch (const std::exception& error) {
          outcomes[static_cast<size_t>(rank)] = Status::Internal(error.what());
        }
      });
    }
  }  // joins
  for (int rank = 0; rank < size; ++rank) {
    const Status& outcome = outcomes[static_cast<size_t>(rank)];
    if (!outcome.ok()) return outcome.WithPrefix("rank " + std::to_string(rank) + ": ");
  }
  return Status::Ok();
}

}  // namespace syrtos
