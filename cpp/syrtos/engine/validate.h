// The rules of agreement: pure functions of what all members asked for.
#pragma once

#include <utility>
#include <vector>

#include "syrtos/engine/messages.h"

namespace syrtos {

// One member's request; `rank` is global.
struct Asked {
  int32_t rank;
  const RequestMeta* meta;
};

// Compares the requests of the active members of a group. The agreement's error, if any, names the
// tensor, the two ranks, both values and the remedy: kMismatch where ranks disagree,
// kInvalidArgument where all ask for the same impossible thing (allgather of a scalar, mean of
// bool, root outside the group, splits that do not add up). `members` are the group's global ranks;
// `hosts` may be empty.
Agreement Settle(const std::vector<Asked>& asked, const std::vector<int32_t>& members,
                 const std::vector<std::string>& hosts);
// `allreduce "grad/kernel"` or `allreduce (unnamed call 7)`, with the group unless it is the world.
std::string Describe(CollectiveKind kind, const RequestKey& key);

}  // namespace syrtos
