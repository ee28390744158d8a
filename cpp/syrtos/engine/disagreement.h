// The half of validate.h that compares: do all members ask for the same? Pure functions.
#pragma once

#include <string>
#include <vector>

#include "syrtos/engine/validate.h"

namespace syrtos {

// Ok, or kMismatch for the first difference in this order: kind, number of parts, names of parts,
// dtype, op, scales, root, shapes, ranks of a new group. Names the first member and the first that
// differs.
Status FindDisagreement(const std::vector<Asked>& asked, const std::vector<std::string>& hosts);
// Describe, with `, part 2 of 3 "bias"` where a request has several parts.
std::string DescribePart(const RequestMeta& meta, size_t part);

}  // namespace syrtos
