// The combining half of allreduce and reduce-scatter: each member receives its slice from all
// others and combines it in the order of positions, piece by piece, while the next piece is under
// way.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "syrtos/collectives/host_reduce.h"
#include "syrtos/collectives/pairwise/exchange.h"

namespace syrtos {

class SliceReduction {
 public:
  // `slices`: of each member, in elements of the input; the same on all of them.
  SliceReduction(const Exchange& exchange, std::vector<Span> slices);

  // Of the longest slice; others have run out of elements before.
  int64_t pieces() const { return pieces_; }
  Span Piece(int member, int64_t index) const;
  // Receives the others' shares of our piece `index`, sends them ours of theirs. In order of
  // indices, at most one ahead of Combine.
  Status Post(int64_t index);
  // Waits for the shares of our piece and writes the result.
  Status Combine(int64_t index, void* output);
  // Until our shares of the others' piece `index` have left, so that their memory may be
  // overwritten.
  Status WaitSent(int64_t index) { return sends_[Slot(index)].Wait(); }

 private:
  static constexpr int kSlots = 2;  // one piece is combined while the next one arrives
  static size_t Slot(int64_t index) { return static_cast<size_t>(index % kSlots); }
  uint8_t* Share(int64_t index, int member) const;

  const Exchange& exchange_;
  const std::vector<Span> slices_;
  int64_t piece_ = 1;
  int64_t pieces_ = 0;
  uint8_t* scratch_ = nullptr;
  std::unique_ptr<Reducer> reducer_;
  std::array<std::vector<Messages>, kSlots> receives_;  // per member
  std::array<Messages, kSlots> sends_;
};

}  // namespace syrtos
