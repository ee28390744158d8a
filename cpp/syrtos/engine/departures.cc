#include "syrtos/engine/departures.h"

#include <utility>

namespace syrtos {

void Departures::Begin(int rank, std::set<int> others) { awaited_[rank] = std::move(others); }

std::vector<int> Departures::Answer(int rank, int leaver) {
  auto found = awaited_.find(leaver);
  if (found == awaited_.end()) return {};
  found->second.erase(rank);
  if (!found->second.empty()) return {};
  awaited_.erase(found);
  return {leaver};
}

std::vector<int> Departures::Gone(int rank) {
  awaited_.erase(rank);
  std::vector<int> free;
  for (auto it = awaited_.begin(); it != awaited_.end();) {
    it->second.erase(rank);
    if (it->second.empty()) {
      free.push_back(it->first);
      it = awaited_.erase(it);
    } else {
      ++it;
    }
  }
  return free;
}

std::vector<int> Departures::TakeUnanswered() { return std::exchange(unanswered_, {}); }

}  // namespace syrtos
