#include "syrtos/engine/part_layout.h"

#include <string>
#include <utility>

namespace syrtos {
namespace {

Status WrongRows(const Collective& c, size_t got) {
  return Status::Internal("an agreement with " + std::to_string(got) + " row counts for " +
                          InfoOf(c.kind).name + " over " + std::to_string(c.size()) + " ranks");
}

// rows * elements of a row, checked.
Result<int64_t> Elements(int64_t rows, int64_t row_elements) {
  int64_t out;
  if (__builtin_mul_overflow(rows, row_elements, &out)) {
    return Status::InvalidArgument("a tensor of more than 2^63 elements");
  }
  return out;
}

Result<std::vector<int64_t>> ElementsEach(const std::vector<int64_t>& rows, int64_t row_elements) {
  std::vector<int64_t> out;
  for (int64_t r : rows) {
    SYRTOS_ASSIGN_OR_RETURN(int64_t elements, Elements(r, row_elements));
    out.push_back(elements);
  }
  return out;
}

Result<int64_t> Total(const std::vector<int64_t>& rows) {
  int64_t total = 0;
  for (int64_t r : rows) {
    if (__builtin_add_overflow(total, r, &total)) {
      return Status::InvalidArgument("a result of more than 2^63 rows");
    }
  }
  return total;
}

Status SetOutputRows(PartLayout& layout, const PartMeta& meta, int64_t rows) {
  layout.output_shape = meta.shape;
  layout.output_shape[0] = rows;
  return Status::Ok();
}

Status LayOutAllgather(const Collective& c, const PartMeta& meta, const std::vector<int64_t>& rows,
                       PartLayout& layout) {
  if (static_cast<int>(rows.size()) != c.size()) return WrongRows(c, rows.size());
  SYRTOS_ASSIGN_OR_RETURN(layout.counts, ElementsEach(rows, RowElements(meta.shape)));
  SYRTOS_ASSIGN_OR_RETURN(int64_t total, Total(rows));
  return SetOutputRows(layout, meta, total);
}

Status LayOutAlltoall(const Collective& c, const PartMeta& meta, const std::vector<int64_t>& rows,
                      PartLayout& layout) {
  size_t n = static_cast<size_t>(c.size());
  if (rows.size() != n * n) return WrongRows(c, rows.size());
  size_t self = static_cast<size_t>(c.self);
  std::vector<int64_t> sent(rows.begin() + static_cast<ptrdiff_t>(self * n),
                            rows.begin() + static_cast<ptrdiff_t>((self + 1) * n));
  for (size_t from = 0; from < n; ++from) layout.received_rows.push_back(rows[from * n + self]);
  SYRTOS_ASSIGN_OR_RETURN(layout.counts, ElementsEach(sent, RowElements(meta.shape)));
  SYRTOS_ASSIGN_OR_RETURN(layout.recv_counts,
                          ElementsEach(layout.received_rows, RowElements(meta.shape)));
  SYRTOS_ASSIGN_OR_RETURN(int64_t total, Total(layout.received_rows));
  return SetOutputRows(layout, meta, total);
}

Status LayOutReduceScatter(const Collective& c, const PartMeta& meta, PartLayout& layout) {
  std::vector<int64_t> rows;
  for (int i = 0; i < c.size(); ++i) rows.push_back(EvenRows(meta.shape[0], c.size(), i));
  SYRTOS_ASSIGN_OR_RETURN(layout.counts, ElementsEach(rows, RowElements(meta.shape)));
  return SetOutputRows(layout, meta, rows[static_cast<size_t>(c.self)]);
}

}  // namespace

Result<PartLayout> LayOut(const Collective& c, const PartMeta& meta,
                          const std::vector<int64_t>& rows) {
  PartLayout layout;
  if (InfoOf(c.kind).needs_axis && meta.shape.empty()) {
    return Status::Internal(std::string(InfoOf(c.kind).name) + " of a scalar passed the agreement");
  }
  switch (c.kind) {
    case CollectiveKind::kAllgather:
      SYRTOS_RETURN_IF_ERROR(LayOutAllgather(c, meta, rows, layout));
      break;
    case CollectiveKind::kAlltoall:
      SYRTOS_RETURN_IF_ERROR(LayOutAlltoall(c, meta, rows, layout));
      break;
    case CollectiveKind::kReduceScatter:
      SYRTOS_RETURN_IF_ERROR(LayOutReduceScatter(c, meta, layout));
      break;
    case CollectiveKind::kAllreduce:
    case CollectiveKind::kBroadcast: {
      SYRTOS_ASSIGN_OR_RETURN(layout.count, ElementCount(meta.shape));
      layout.output_shape = meta.shape;
      break;
    }
    case CollectiveKind::kBarrier:
    case CollectiveKind::kJoin:
    case CollectiveKind::kAddGroup:
    case CollectiveKind::kRemoveGroup:
      return Status::Internal(std::string("no data in ") + InfoOf(c.kind).name);
  }
  SYRTOS_ASSIGN_OR_RETURN(int64_t elements, ElementCount(layout.output_shape));
  if (__builtin_mul_overflow(static_cast<uint64_t>(elements), uint64_t{meta.item_bytes},
                             &layout.output_bytes)) {
    return Status::InvalidArgument("a result of more than 2^64 bytes");
  }
  return layout;
}

}  // namespace syrtos
