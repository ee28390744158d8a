// How a list of parts lies in one contiguous buffer, so that one contiguous collective does them
// all.
//
// allreduce, broadcast: one part after the other. allgather, alltoall, reduce-scatter: one block
// per position, and in it one part after the other. Pure but for the copies.
#pragma once

#include <cstdint>
#include <vector>

#include "syrtos/collectives/collective.h"

namespace syrtos {

// The counts of the whole, without memory. What would go to absent positions is left out.
// Precondition for all: CheckParts.
Part PackedPart(const Collective& collective, const std::vector<Part>& parts);

struct PackedRegions {
  size_t output_begin = 0;  // 0: the whole is done in place
  size_t bytes = 0;
};
PackedRegions RegionsOf(const Collective& collective, const Part& whole);

// Inputs of `parts` into the whole's input, and the whole's output into their outputs.
void Pack(const Collective& collective, const std::vector<Part>& parts, uint8_t* input);
void Unpack(const Collective& collective, const std::vector<Part>& parts, const uint8_t* output);

}  // namespace syrtos
