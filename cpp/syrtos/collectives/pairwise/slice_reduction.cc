#include "syrtos/collectives/pairwise/slice_reduction.h"

#include <algorithm>
#include <utility>

namespace syrtos {

SliceReduction::SliceReduction(const Exchange& exchange, std::vector<Span> slices)
    : exchange_(exchange), slices_(std::move(slices)) {
  const int others = exchange.members.size() - 1;
  int64_t longest = 0;
  for (const Span& slice : slices_) longest = std::max(longest, slice.count);
  // Piece boundaries must be the same on all members, so nothing here may depend on the own slice.
  piece_ = std::clamp<int64_t>(longest, 1, exchange.PieceElements(int64_t{kSlots} * others));
  pieces_ = PieceCount(longest, piece_);
  scratch_ = exchange.scratch.Reserve(static_cast<size_t>(kSlots * others * piece_) *
                                      exchange.item_bytes());
  reducer_ = MakeReducer(exchange.collective, piece_);
  for (std::vector<Messages>& slot : receives_) {
    slot.resize(static_cast<size_t>(exchange.members.size()));
  }
}

Span SliceReduction::Piece(int member, int64_t index) const {
  return PieceOf(slices_[static_cast<size_t>(member)], piece_, index);
}

uint8_t* SliceReduction::Share(int64_t index, int member) const {
  const Members& members = exchange_.members;
  const int64_t column = member < members.self ? member : member - 1;
  const int64_t row = static_cast<int64_t>(Slot(index));
  return At(scratch_, (row * (members.size() - 1) + column) * piece_, exchange_.item_bytes());
}

Status SliceReduction::Post(int64_t index) {
  const Members& members = exchange_.members;
  const Span own = Piece(members.self, index);
  for (int step = 1; step < members.size(); ++step) {
    const int from = (members.self + members.size() - step) % members.size();
    SYRTOS_RETURN_IF_ERROR(receives_[Slot(index)][static_cast<size_t>(from)].Recv(
        exchange_, from, Phase::kData, index, Share(index, from), own.count));
  }
  for (int step = 1; step < members.size(); ++step) {
    const int to = (members.self + step) % members.size();
    const Span theirs = Piece(to, index);
    SYRTOS_RETURN_IF_ERROR(sends_[Slot(index)].Send(exchange_, to, Phase::kData, index,
                                                    exchange_.input(theirs.begin), theirs.count));
  }
  return Status::Ok();
}

Status SliceReduction::Combine(int64_t index, void* output) {
  const Members& members = exchange_.members;
  const Span own = Piece(members.self, index);
  if (own.count == 0) return Status::Ok();
  for (int member = 0; member < members.size(); ++member) {
    SYRTOS_RETURN_IF_ERROR(receives_[Slot(index)][static_cast<size_t>(member)].Wait());
    const void* share = member == members.self ? exchange_.input(own.begin) : Share(index, member);
    if (member == 0) {
      reducer_->Begin(share, own.count);
    } else {
      reducer_->Add(share);
    }
  }
  reducer_->Finish(output);
  return Status::Ok();
}

}  // namespace syrtos
