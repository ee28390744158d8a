#include "syrtos/base/shape.h"

namespace syrtos {

Result<int64_t> ElementCount(const Shape& shape) {
  // Zeros are left out of the overflow check, as NumPy does: the other dimensions alone must fit,
  // so that the size of a row is safe to compute even where there are no rows.
  int64_t product = 1;
  bool empty = false;
  for (int64_t dim : shape) {
    if (dim < 0) {
      return Status::InvalidArgument("shape " + ShapeToString(shape) + " has a negative dimension");
    }
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, dim, &product)) {
      return Status::InvalidArgument("shape " + ShapeToString(shape) +
                                     " has more than 2^63-1 elements");
    }
  }
  return empty ? 0 : product;
}

int64_t RowElements(const Shape& shape) {
  int64_t product = 1;
  for (size_t i = 1; i < shape.size(); ++i) product *= shape[i];
  return product;
}

std::string ShapeToString(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  if (shape.size() == 1) text += ',';
  return text + ")";
}

int64_t EvenRows(int64_t rows, int members, int index) {
  return rows / members + (index < rows % members ? 1 : 0);
}

}  // namespace syrtos
