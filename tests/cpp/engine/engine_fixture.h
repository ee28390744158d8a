// Worlds of engines in one process: ranks as threads over an in-memory store.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "memory_communicator.h"
#include "syrtos/collectives/backend_registry.h"
#include "syrtos/collectives/local/local_communicator.h"
#include "syrtos/engine/engine.h"
#include "syrtos/transport/memory_store.h"

namespace syrtos {

// One rank's end of a test world.
struct RankEngine {
  int rank = 0;
  int size = 1;
  std::unique_ptr<Engine> engine;

  // Waits for the completion with a hard limit; a test that hangs fails instead.
  Status Await(const Result<std::shared_ptr<Completion>>& submitted) {
    if (!submitted.ok()) return submitted.status();
    if (!engine->Wait(**submitted, std::chrono::seconds(60))) {
      return Status::Internal("the test waited 60 s for a request");
    }
    return (*submitted)->status();
  }
};

inline Config TestConfig(int rank, int size) {
  Config config;
  config.rank = rank;
  config.size = size;
  config.host = "test";
  config.job_id = "engine-test";
  config.start_timeout = Seconds(30);
  config.gloo_plugin_path = std::string(SYRTOS_TEST_LIBRARY_DIR) + "/libsyrtos_gloo.so";
  return config;
}

// The hub of a world: engines of one store and epoch share it.
inline std::shared_ptr<MemoryHub> HubOf(const BackendContext& context) {
  static Mutex mutex;
  static std::map<std::pair<const Store*, uint64_t>, std::weak_ptr<MemoryHub>> hubs;
  MutexLock lock(mutex);
  auto& slot = hubs[{context.store.get(), context.config->epoch}];
  std::shared_ptr<MemoryHub> hub = slot.lock();
  if (hub == nullptr) slot = hub = std::make_shared<MemoryHub>();
  return hub;
}

// Only communicators that never block, so callers drive the engine.
inline const std::vector<BackendFactory>& MemoryBackends() {
  static const std::vector<BackendFactory> factories = {
      {"local", false, [](const Config&) { return Status::Ok(); },
       [](const BackendContext&) -> Result<std::unique_ptr<Communicator>> {
         return MakeLocalCommunicator();
       }},
      {"memory", true, [](const Config&) { return Status::Ok(); },
       [](const BackendContext& context) -> Result<std::unique_ptr<Communicator>> {
         return std::unique_ptr<Communicator>(std::make_unique<MemoryCommunicator>(HubOf(context)));
       }}};
  return factories;
}

struct WorldOptions {
  const std::vector<BackendFactory>* backends = nullptr;
  std::function<void(Config&)> configure;
};

// Runs `body` on `size` ranks at once, each with an engine of its own; rethrows no exceptions:
// bodies report through EXPECT.
inline void RunWorld(int size, const WorldOptions& options,
                     const std::function<void(RankEngine&)>& body) {
  auto store = std::make_shared<MemoryStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      Config config = TestConfig(rank, size);
      if (options.configure) options.configure(config);
      auto engine = Engine::Create(config, store, options.backends);
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      RankEngine self{rank, size, std::move(engine).value()};
      body(self);
      if (self.engine) self.engine->Close();
    });
  }
  for (auto& thread : ranks) thread.join();
}

// A request over float32 vectors (or others, by hand).
inline Request MakeRequest(CollectiveKind kind, const std::string& name) {
  Request request;
  request.meta.kind = kind;
  request.meta.key.name = name;
  return request;
}

template <typename T>
void AddPart(Request& request, DType dtype, const Shape& shape, const std::vector<T>& input,
             std::vector<T>* output) {
  PartMeta part;
  part.dtype = dtype;
  part.item_bytes = sizeof(T);
  part.shape = shape;
  request.meta.parts.push_back(part);
  request.memory.push_back({input.data(), output == nullptr ? nullptr : output->data()});
}

template <typename T>
std::vector<T> ResultOf(const Completion& completion, size_t part = 0) {
  const PartResult& result = completion.results().at(part);
  const T* data = static_cast<const T*>(result.output);
  return std::vector<T>(data, data + ElementCount(result.shape).value());
}

}  // namespace syrtos
