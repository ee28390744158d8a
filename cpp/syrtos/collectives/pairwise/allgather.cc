// Allgather: every member sends its block to all others; blocks land where they belong.
#include <cstring>

#include "syrtos/collectives/pairwise/exchange.h"

namespace syrtos {

Status PairwiseAllgather(const Exchange& exchange) {
  const Members& members = exchange.members;
  const std::vector<int64_t>& counts = exchange.part.counts;
  const std::vector<int64_t> offsets = Offsets(counts);
  const auto self = static_cast<size_t>(exchange.collective.self);
  uint8_t* own = exchange.output(offsets[self]);
  if (counts[self] > 0) {
    // First of all, and sent from there: in place, the input lies where another block will arrive.
    std::memmove(own, exchange.part.input,
                 static_cast<size_t>(counts[self]) * exchange.item_bytes());
  }
  Messages messages;
  for (int step = 1; step < members.size(); ++step) {
    // Each starts with its next neighbour, so that no member is everybody's first target.
    const int from = (members.self + members.size() - step) % members.size();
    const auto position = static_cast<size_t>(members.position(from));
    SYRTOS_RETURN_IF_ERROR(messages.Recv(exchange, from, Phase::kData, 0,
                                         exchange.output(offsets[position]), counts[position]));
  }
  for (int step = 1; step < members.size(); ++step) {
    const int to = (members.self + step) % members.size();
    SYRTOS_RETURN_IF_ERROR(messages.Send(exchange, to, Phase::kData, 0, own, counts[self]));
  }
  return messages.Wait();
}

}  // namespace syrtos
