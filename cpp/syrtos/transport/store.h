// Rendezvous: a small key-value store that all ranks of a job can reach.
//
// Owner: shared by the engine and the plug-ins for as long as they start. Threads: any.
// Failure: kTimeout naming the key and the seconds waited, kPeerLost when the server is gone.
#pragma once

#include <chrono>
#include <string>

#include "syrtos/base/config.h"
#include "syrtos/base/result.h"

namespace syrtos {

class Store {
 public:
  virtual ~Store() = default;
  virtual Status Set(const std::string& key, const std::string& value) = 0;
  // Waits until the key exists.
  virtual Result<std::string> Get(const std::string& key, Seconds timeout) = 0;
  // Adds to a counter (0 if absent) and returns the new value.
  virtual Result<int64_t> Add(const std::string& key, int64_t delta) = 0;
  // Removes the key if present.
  virtual Status Remove(const std::string& key) = 0;
};

}  // namespace syrtos
