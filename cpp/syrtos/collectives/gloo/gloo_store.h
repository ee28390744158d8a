// Our Store in the clothes of Gloo's, for as long as a mesh is being connected.
#pragma once

#include <gloo/rendezvous/store.h>

#include <chrono>
#include <string>
#include <vector>

#include "syrtos/base/status.h"
#include "syrtos/transport/store.h"

namespace syrtos {

// Gloo reports failures of a store by whatever exception it throws: this one carries our Status.
struct StoreFailure : std::exception {
  explicit StoreFailure(Status why) : status(std::move(why)) {}
  const char* what() const noexcept override { return status.message().c_str(); }
  Status status;
};

// Threads: one, the one that connects. Waits end at `deadline`, whatever Gloo asks for.
class GlooStore : public gloo::rendezvous::Store {
 public:
  GlooStore(syrtos::Store& store, std::string prefix,
            std::chrono::steady_clock::time_point deadline);

  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

  // Forgets what this rank has published; to be called when all ranks have read it.
  void RemoveOwnKeys();
  // The borrowed Store may go away afterwards; later calls throw. Newer Gloo keeps a reference.
  void Detach() { store_ = nullptr; }

 private:
  std::string Fetch(const std::string& key);
  syrtos::Store& store();

  syrtos::Store* store_;  // not Gloo's class of that name
  const std::string prefix_;
  const std::chrono::steady_clock::time_point deadline_;
  std::vector<std::string> own_keys_;
};

}  // namespace syrtos
