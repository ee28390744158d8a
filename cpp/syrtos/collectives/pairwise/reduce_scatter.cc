// Reduce-scatter: member i owns the slice that counts[] gives it and keeps the combined result.
#include <cstring>

#include "syrtos/collectives/pairwise/exchange.h"
#include "syrtos/collectives/pairwise/slice_reduction.h"

namespace syrtos {

Status PairwiseReduceScatter(const Exchange& exchange) {
  const Members& members = exchange.members;
  const std::vector<int64_t> offsets = Offsets(exchange.part.counts);
  std::vector<Span> slices;
  for (int position : members.positions) {
    const auto i = static_cast<size_t>(position);
    slices.push_back({offsets[i], exchange.part.counts[i]});
  }
  const Span own = slices[static_cast<size_t>(members.self)];
  const size_t own_bytes = static_cast<size_t>(own.count) * exchange.item_bytes();

  uint8_t* result = static_cast<uint8_t*>(exchange.part.output);
  // In place, the result would overwrite shares that are still to be sent.
  if (exchange.in_place()) result = exchange.copy.Reserve(own_bytes);
  SliceReduction reduction(exchange, std::move(slices));
  if (reduction.pieces() > 0) SYRTOS_RETURN_IF_ERROR(reduction.Post(0));
  for (int64_t index = 0; index < reduction.pieces(); ++index) {
    if (index + 1 < reduction.pieces()) SYRTOS_RETURN_IF_ERROR(reduction.Post(index + 1));
    const Span piece = reduction.Piece(members.self, index);
    SYRTOS_RETURN_IF_ERROR(
        reduction.Combine(index, At(result, piece.begin - own.begin, exchange.item_bytes())));
    SYRTOS_RETURN_IF_ERROR(reduction.WaitSent(index));
  }
  if (exchange.in_place() && own_bytes > 0) std::memcpy(exchange.part.output, result, own_bytes);
  return Status::Ok();
}

}  // namespace syrtos
