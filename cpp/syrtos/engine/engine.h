// The engine: one background thread per process that negotiates ready tensors with the other ranks
// and runs the collectives. Owns queue, negotiator, executor, liveness and the communicators.
//
// Life: Create (blocks until all ranks have said hello), any number of Submits from any thread,
// Close. Several engines may live in one process (ranks as threads in tests); there is no global
// state. Failure: a fatal cause (a lost peer, a broken invariant) fails everything pending and
// every later Submit with that first cause; the engine can then be closed and a new one made in the
// same process. Fork: in a forked child every call returns kNotInitialized; the child must not
// destroy the engine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "syrtos/base/config.h"
#include "syrtos/collectives/backend_registry.h"
#include "syrtos/engine/request.h"
#include "syrtos/transport/store.h"

namespace syrtos {

class Engine {
 public:
  // `store` may be null if config.size is 1. `backends`: the communicators to try, in order; null =
  // the built-in ones (tests hand in fakes).
  static Result<std::unique_ptr<Engine>> Create(
      const Config& config, std::shared_ptr<Store> store,
      const std::vector<BackendFactory>* backends = nullptr);
  ~Engine();  // Close

  // Queues a request; returns at once. kInvalidArgument for what this rank can see by itself (a
  // second request of the same name in flight, not a member of the group); what needs the others'
  // word comes through the Completion, on all ranks.
  Result<std::shared_ptr<Completion>> Submit(Request request);
  // Waits until done or `timeout`; helps with progress where no communicator blocks. True if done.
  bool Wait(const Completion& completion, std::chrono::nanoseconds timeout);

  // Global ranks of a group in order; empty if unknown. Groups come and go by
  // kAddGroup/kRemoveGroup.
  std::vector<int32_t> GroupRanks(uint32_t group) const;
  std::vector<uint32_t> Groups() const;
  std::vector<std::string> Backends() const;

  // The file that `path` means for this rank (Timeline::FileOf), if any; in place of one that is
  // being written.
  Status StartTimeline(const std::string& path, bool mark_cycles);
  Status StopTimeline();

  // Tells the others and fails what is pending with kShutdown. Idempotent; any thread but a
  // callback.
  void Close();
  // Ends everything with `cause`, telling the other ranks: the first failing rank's own words.
  void Abort(const Status& cause);
  // The fatal cause if there is one.
  Status health() const;
  const Config& config() const;
  // How many plans of each kind ran, for tests and diagnostics: plans, parts, posts by id, full
  // posts.
  struct Counters {
    uint64_t plans = 0, parts = 0, cached_posts = 0, full_posts = 0;
  };
  Counters counters() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace syrtos
