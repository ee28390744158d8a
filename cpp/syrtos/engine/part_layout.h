// Sizes of one part of a collective: how many elements go where, and the shape of what comes out.
// Pure function; the arithmetic is 64 bit and checked.
#pragma once

#include <vector>

#include "syrtos/engine/messages.h"

namespace syrtos {

struct PartLayout {
  int64_t count = 0;            // allreduce, broadcast
  std::vector<int64_t> counts;  // see Part
  std::vector<int64_t> recv_counts;
  Shape output_shape;
  uint64_t output_bytes = 0;
  std::vector<int64_t> received_rows;  // alltoall
};

// `meta` is this rank's own tensor, `rows` the agreement's (see Agreement::rows).
Result<PartLayout> LayOut(const Collective& collective, const PartMeta& meta,
                          const std::vector<int64_t>& rows);

}  // namespace syrtos
