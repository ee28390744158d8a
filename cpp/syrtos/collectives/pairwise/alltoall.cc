// Alltoall: every member sends each other member its block; blocks land where they belong.
#include <cstring>

#include "syrtos/collectives/pairwise/exchange.h"

namespace syrtos {

Status PairwiseAlltoall(const Exchange& exchange) {
  const Members& members = exchange.members;
  const Part& part = exchange.part;
  const std::vector<int64_t> from_offsets = Offsets(part.recv_counts);
  const std::vector<int64_t> to_offsets = Offsets(part.counts);
  const auto self = static_cast<size_t>(exchange.collective.self);
  const size_t item = exchange.item_bytes();

  const void* input = part.input;
  if (exchange.in_place()) {
    // Arriving blocks would overwrite blocks that are still to be sent.
    const size_t bytes = static_cast<size_t>(to_offsets.back()) * item;
    uint8_t* copy = exchange.copy.Reserve(bytes);
    if (bytes > 0) std::memcpy(copy, part.input, bytes);
    input = copy;
  }
  Messages messages;
  for (int step = 1; step < members.size(); ++step) {
    const int from = (members.self + members.size() - step) % members.size();
    const auto position = static_cast<size_t>(members.position(from));
    SYRTOS_RETURN_IF_ERROR(messages.Recv(exchange, from, Phase::kData, 0,
                                         exchange.output(from_offsets[position]),
                                         part.recv_counts[position]));
  }
  for (int step = 1; step < members.size(); ++step) {
    const int to = (members.self + step) % members.size();
    const auto position = static_cast<size_t>(members.position(to));
    SYRTOS_RETURN_IF_ERROR(messages.Send(exchange, to, Phase::kData, 0,
                                         At(input, to_offsets[position], item),
                                         part.counts[position]));
  }
  if (part.counts[self] > 0) {
    std::memcpy(exchange.output(from_offsets[self]), At(input, to_offsets[self], item),
                static_cast<size_t>(part.counts[self]) * item);
  }
  return messages.Wait();
}

}  // namespace syrtos
