// Arithmetic of sizes and positions that the communicators share. Pure, all in 64 bits.
//
// Words. A *position* is an index into Collective::ranks. A *member* is a position that is active;
// members are counted 0, 1, ... in the order of positions. A *slice* is the run of elements that
// one member owns, a *piece* the part of a slice that is handled at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "syrtos/base/status.h"
#include "syrtos/collectives/collective.h"

namespace syrtos {

struct Span {
  int64_t begin = 0;
  int64_t count = 0;
};

struct Members {
  std::vector<int> positions;  // of each member
  int self = 0;                // own index among the members

  int size() const { return static_cast<int>(positions.size()); }
  int position(int member) const { return positions[static_cast<size_t>(member)]; }
};

// An empty `active` means that all are.
bool IsActive(const Collective& collective, int position);
int ActiveCount(const Collective& collective);
Members MembersOf(const Collective& collective);

// Part `index` of `count` elements divided into `parts`; the first count % parts get one more.
Span EvenSlice(int64_t count, int parts, int index);
// How many pieces of at most `piece` elements a slice has: 0 if it is empty.
int64_t PieceCount(int64_t count, int64_t piece);
// Piece `index` of `slice`; empty beyond its end.
Span PieceOf(const Span& slice, int64_t piece, int64_t index);
// Where each position's block begins, and the sum of all at the end.
std::vector<int64_t> Offsets(const std::vector<int64_t>& counts);

inline const uint8_t* At(const void* base, int64_t element, size_t item_bytes) {
  return static_cast<const uint8_t*>(base) + static_cast<uint64_t>(element) * item_bytes;
}
inline uint8_t* At(void* base, int64_t element, size_t item_bytes) {
  return static_cast<uint8_t*>(base) + static_cast<uint64_t>(element) * item_bytes;
}

// Elements that `part` reads and writes on this member. Precondition: CheckParts.
int64_t InputElements(const Collective& collective, const Part& part);
int64_t OutputElements(const Collective& collective, const Part& part);

// Can the loops of host_reduce.h and plain copies do it? What host communicators bid for.
bool CanMove(const Collective& collective);

// Ok, or kInvalidArgument naming what does not fit together: list lengths, negative counts, bytes
// beyond 2^63-1, missing memory, an absent root or self, an op that the dtype or the group cannot
// do.
Status CheckParts(const Collective& collective, const std::vector<Part>& parts);

}  // namespace syrtos
