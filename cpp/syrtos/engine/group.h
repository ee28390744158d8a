// The groups (process sets) of one engine: which ranks belong to which id.
//
// Changed by the holder of the baton when a group's agreement arrives; read by any thread.
#pragma once

#include <map>
#include <vector>

#include "syrtos/base/mutex.h"
#include "syrtos/engine/messages.h"

namespace syrtos {

class GroupTable {
 public:
  explicit GroupTable(int world_size);
  // Empty if unknown.
  std::vector<int32_t> Ranks(uint32_t group) const;
  std::vector<uint32_t> Ids() const;
  void Add(uint32_t group, std::vector<int32_t> ranks);
  void Remove(uint32_t group);

 private:
  mutable Mutex mutex_;
  std::map<uint32_t, std::vector<int32_t>> groups_ GUARDED_BY(mutex_);
};

}  // namespace syrtos
