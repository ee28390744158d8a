// Allreduce: member i owns slice i, combines it and sends the result to all others.
#include <array>

#include "syrtos/collectives/pairwise/exchange.h"
#include "syrtos/collectives/pairwise/slice_reduction.h"

namespace syrtos {
namespace {

// Small payloads: everybody sends all to everybody and combines all. More bytes, but one round.
Status OneRound(const Exchange& exchange) {
  const Members& members = exchange.members;
  const int64_t count = exchange.part.count;
  uint8_t* scratch =
      exchange.scratch.Reserve(static_cast<size_t>(members.size() * count) * exchange.item_bytes());
  std::vector<Messages> receives(static_cast<size_t>(members.size()));
  Messages sends;
  for (int step = 1; step < members.size(); ++step) {
    const int from = (members.self + members.size() - step) % members.size();
    SYRTOS_RETURN_IF_ERROR(receives[static_cast<size_t>(from)].Recv(
        exchange, from, Phase::kData, 0, At(scratch, from * count, exchange.item_bytes()), count));
  }
  for (int step = 1; step < members.size(); ++step) {
    const int to = (members.self + step) % members.size();
    SYRTOS_RETURN_IF_ERROR(sends.Send(exchange, to, Phase::kData, 0, exchange.part.input, count));
  }
  const std::unique_ptr<Reducer> reducer = MakeReducer(exchange.collective, count);
  for (int member = 0; member < members.size(); ++member) {
    SYRTOS_RETURN_IF_ERROR(receives[static_cast<size_t>(member)].Wait());
    const void* share = member == members.self ? exchange.part.input
                                               : At(scratch, member * count, exchange.item_bytes());
    if (member == 0) {
      reducer->Begin(share, count);
    } else {
      reducer->Add(share);
    }
  }
  SYRTOS_RETURN_IF_ERROR(sends.Wait());  // in place, the result overwrites what they send
  reducer->Finish(exchange.part.output);
  return Status::Ok();
}

}  // namespace

Status PairwiseAllreduce(const Exchange& exchange) {
  const Members& members = exchange.members;
  const int64_t count = exchange.part.count;
  if (count == 0) return Status::Ok();
  if (count <= exchange.options.small_bytes / static_cast<int64_t>(exchange.item_bytes())) {
    return OneRound(exchange);
  }
  std::vector<Span> slices;
  slices.reserve(members.positions.size());
  for (int i = 0; i < members.size(); ++i) slices.push_back(EvenSlice(count, members.size(), i));
  SliceReduction reduction(exchange, std::move(slices));
  std::array<Messages, 2> results;

  SYRTOS_RETURN_IF_ERROR(reduction.Post(0));
  for (int64_t index = 0; index < reduction.pieces(); ++index) {
    if (index + 1 < reduction.pieces()) SYRTOS_RETURN_IF_ERROR(reduction.Post(index + 1));
    const Span own = reduction.Piece(members.self, index);
    SYRTOS_RETURN_IF_ERROR(reduction.Combine(index, exchange.output(own.begin)));
    // In place, the results arrive where these shares are sent from.
    SYRTOS_RETURN_IF_ERROR(reduction.WaitSent(index));
    Messages& slot = results[static_cast<size_t>(index % 2)];
    SYRTOS_RETURN_IF_ERROR(slot.Wait());
    for (int step = 1; step < members.size(); ++step) {
      const int from = (members.self + members.size() - step) % members.size();
      const Span theirs = reduction.Piece(from, index);
      SYRTOS_RETURN_IF_ERROR(slot.Recv(exchange, from, Phase::kResult, index,
                                       exchange.output(theirs.begin), theirs.count));
    }
    for (int step = 1; step < members.size(); ++step) {
      const int to = (members.self + step) % members.size();
      SYRTOS_RETURN_IF_ERROR(
          slot.Send(exchange, to, Phase::kResult, index, exchange.output(own.begin), own.count));
    }
  }
  for (Messages& slot : results) SYRTOS_RETURN_IF_ERROR(slot.Wait());
  return Status::Ok();
}

}  // namespace syrtos
