#include "syrtos/engine/group_registry.h"

#include <numeric>
#include <utility>

#include "syrtos/engine/rank_text.h"

namespace syrtos {

GroupRegistry::GroupRegistry(int world_size) : world_size_(world_size) {
  std::vector<int32_t> world(static_cast<size_t>(world_size));
  std::iota(world.begin(), world.end(), 0);
  groups_[kWorldGroup] = MakeState(std::move(world));
}

GroupState GroupRegistry::MakeState(std::vector<int32_t> members) const {
  GroupState state;
  state.position.assign(static_cast<size_t>(world_size_), -1);
  for (size_t i = 0; i < members.size(); ++i) {
    state.position[static_cast<size_t>(members[i])] = static_cast<int32_t>(i);
  }
  state.members = std::move(members);
  return state;
}

GroupState* GroupRegistry::Find(uint32_t id) {
  auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : &found->second;
}

const GroupState* GroupRegistry::Find(uint32_t id) const {
  auto found = groups_.find(id);
  return found == groups_.end() ? nullptr : &found->second;
}

Result<uint32_t> GroupRegistry::Add(const std::vector<int32_t>& ranks) {
  uint32_t free = kWorldGroup + 1;
  for (const auto& [id, group] : groups_) {
    if (group.members == ranks) {
      return Status::InvalidArgument("a process set with the ranks " + ListText(ranks) +
                                     " exists already, with id " + std::to_string(id) +
                                     (id == kWorldGroup ? " (the global one)" : "") +
                                     ". Use that one, or remove it first.");
    }
    if (id == free) ++free;  // ids ascend
  }
  groups_[free] = MakeState(ranks);
  return free;
}

Status GroupRegistry::Remove(uint32_t id) {
  if (groups_.erase(id) > 0) return Status::Ok();
  return Status::InvalidArgument("there is no process set " + std::to_string(id) +
                                 "; it was never added, or has been removed.");
}

}  // namespace syrtos
