#include "syrtos/engine/pending_table.h"

#include <utility>

namespace syrtos {

void PendingTable::Insert(std::shared_ptr<PendingRequest> pending) {
  RequestKey key = pending->request.meta.key;
  requests_[std::move(key)] = std::move(pending);
}

std::shared_ptr<PendingRequest> PendingTable::Find(const RequestKey& key) const {
  auto found = requests_.find(key);
  return found == requests_.end() ? nullptr : found->second;
}

void PendingTable::Erase(const RequestKey& key) { requests_.erase(key); }

std::vector<std::shared_ptr<PendingRequest>> PendingTable::TakeAll() {
  std::vector<std::shared_ptr<PendingRequest>> all;
  for (auto& [key, pending] : requests_) all.push_back(std::move(pending));
  requests_.clear();
  return all;
}

}  // namespace syrtos
