#include "syrtos/engine/rank_text.h"

namespace syrtos {
namespace {

// Longer lists are written as ranges, without hosts.
constexpr size_t kMaxListed = 8;

std::string WithHost(int32_t rank, const std::vector<std::string>& hosts) {
  std::string text = std::to_string(rank);
  auto index = static_cast<size_t>(rank);
  if (rank >= 0 && index < hosts.size() && !hosts[index].empty()) text += " (" + hosts[index] + ")";
  return text;
}

}  // namespace

std::string RankText(int32_t rank, const std::vector<std::string>& hosts) {
  return "rank " + WithHost(rank, hosts);
}

std::string RanksText(const std::vector<int32_t>& ranks, const std::vector<std::string>& hosts) {
  if (ranks.empty()) return "no rank";
  if (ranks.size() == 1) return RankText(ranks.front(), hosts);
  std::string text = "ranks ";
  if (ranks.size() <= kMaxListed) {
    for (size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + WithHost(ranks[i], hosts);
    return text;
  }
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (i ? ", " : "") + std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text + " (" + std::to_string(ranks.size()) + " ranks)";
}

std::string ListText(const std::vector<int32_t>& numbers) {
  std::string text = "[";
  for (size_t i = 0; i < numbers.size(); ++i) text += (i ? ", " : "") + std::to_string(numbers[i]);
  return text + "]";
}

}  // namespace syrtos
