// This rank's requests that have been posted and are not yet finished, by key.
//
// Owner: the engine. Threads: the holder of the baton.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "syrtos/engine/request_queue.h"

namespace syrtos {

class PendingTable {
 public:
  void Insert(std::shared_ptr<PendingRequest> pending);
  // nullptr if there is none.
  std::shared_ptr<PendingRequest> Find(const RequestKey& key) const;
  void Erase(const RequestKey& key);
  // Empties the table.
  std::vector<std::shared_ptr<PendingRequest>> TakeAll();
  bool empty() const { return requests_.empty(); }

 private:
  struct Hash {
    size_t operator()(const RequestKey& key) const {
      return std::hash<std::string>()(key.name) ^ (key.call * 0x9e3779b97f4a7c15u) ^
             (size_t{key.group} << 48);
    }
  };
  std::unordered_map<RequestKey, std::shared_ptr<PendingRequest>, Hash> requests_;
};

}  // namespace syrtos
