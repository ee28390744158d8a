// Sizes of tensors; always 64 bit, checked for overflow where they are multiplied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "syrtos/base/result.h"

namespace syrtos {

using Shape = std::vector<int64_t>;

// Product of the dimensions (1 for a scalar). kInvalidArgument for a negative dimension or a
// product beyond 2^63-1.
Result<int64_t> ElementCount(const Shape& shape);
// Product of the dimensions after the first; 1 for vectors. Precondition: checked by ElementCount.
int64_t RowElements(const Shape& shape);
// "(4, 8)", "(3,)", "()", as NumPy prints it.
std::string ShapeToString(const Shape& shape);
// Rows of reduce-scatter: member `index` of `members` gets rows/members, the first rows%members one
// more.
int64_t EvenRows(int64_t rows, int members, int index);

}  // namespace syrtos
