// Rank 0's groups, with what the coordinator must know of each: who belongs to it, how many of them
// have joined, whether one has left.
//
// Owner: the coordinator. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "syrtos/base/result.h"
#include "syrtos/engine/messages.h"

namespace syrtos {

struct GroupState {
  std::vector<int32_t> members;   // global ranks, ascending
  std::vector<int32_t> position;  // by global rank; -1: not a member
  int joined = 0;                 // members that have joined
  Status departed;                // not ok: why nothing can be done with this group any more

  bool Has(int rank) const { return position[static_cast<size_t>(rank)] >= 0; }
  size_t PositionOf(int rank) const {
    return static_cast<size_t>(position[static_cast<size_t>(rank)]);
  }
};

class GroupRegistry {
 public:
  explicit GroupRegistry(int world_size);
  // nullptr if unknown.
  GroupState* Find(uint32_t id);
  const GroupState* Find(uint32_t id) const;
  // The smallest free id. `ranks`: ascending and in range. kInvalidArgument if a group has these
  // members.
  Result<uint32_t> Add(const std::vector<int32_t>& ranks);
  // kInvalidArgument if unknown. Precondition: not the world.
  Status Remove(uint32_t id);
  std::map<uint32_t, GroupState>& all() { return groups_; }

 private:
  GroupState MakeState(std::vector<int32_t> members) const;

  const int world_size_;
  std::map<uint32_t, GroupState> groups_;
};

}  // namespace syrtos
