#include "syrtos/engine/group.h"

#include <numeric>
#include <utility>

namespace syrtos {

GroupTable::GroupTable(int world_size) {
  std::vector<int32_t> world(static_cast<size_t>(world_size));
  std::iota(world.begin(), world.end(), 0);
  MutexLock lock(mutex_);
  groups_[kWorldGroup] = std::move(world);
}

std::vector<int32_t> GroupTable::Ranks(uint32_t group) const {
  MutexLock lock(mutex_);
  auto found = groups_.find(group);
  return found == groups_.end() ? std::vector<int32_t>() : found->second;
}

std::vector<uint32_t> GroupTable::Ids() const {
  MutexLock lock(mutex_);
  std::vector<uint32_t> ids;
  for (const auto& [id, ranks] : groups_) ids.push_back(id);
  return ids;
}

void GroupTable::Add(uint32_t group, std::vector<int32_t> ranks) {
  MutexLock lock(mutex_);
  groups_[group] = std::move(ranks);
}

void GroupTable::Remove(uint32_t group) {
  MutexLock lock(mutex_);
  groups_.erase(group);
}

}  // namespace syrtos
