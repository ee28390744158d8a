#include "syrtos/collectives/activities.h"

namespace syrtos {

std::string UpperName(std::string_view name) {
  std::string upper;
  for (char c : name) {
    if (c != '-') upper += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  }
  return upper;
}

std::string ActivityName(std::string_view communicator, const Collective& collective) {
  std::string name = UpperName(communicator) + "_";
  if (collective.kind == CollectiveKind::kBroadcast) return name + "BCAST";
  if (collective.op == ReduceOp::kAdasum) name += "ADASUM_";
  return name + UpperName(InfoOf(collective.kind).name);
}

}  // namespace syrtos
