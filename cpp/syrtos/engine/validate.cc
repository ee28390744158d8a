#include "syrtos/engine/validate.h"

#include <algorithm>
#include <utility>

#include "syrtos/engine/disagreement.h"
#include "syrtos/engine/rank_text.h"

namespace syrtos {
namespace {

// What all members ask for, once they ask for the same: is it possible, and which rows go where?
class Settling {
 public:
  Settling(const std::vector<Asked>& asked, const std::vector<int32_t>& members,
           const std::vector<std::string>& hosts, Agreement& agreement)
      : asked_(asked),
        members_(members),
        hosts_(hosts),
        meta_(*asked.front().meta),
        info_(InfoOf(meta_.kind)),
        agreement_(agreement) {}

  Status Run() {
    if (meta_.kind == CollectiveKind::kAddGroup) return CheckNewGroup();
    if (meta_.kind == CollectiveKind::kRemoveGroup) return CheckRemovedGroup();
    for (size_t part = 0; part < meta_.parts.size(); ++part) {
      SYRTOS_RETURN_IF_ERROR(CheckAxis(part));
      SYRTOS_RETURN_IF_ERROR(CheckSizes(part));
      if (info_.reduces) {
        Status status = CheckReduction(meta_.kind, meta_.op, meta_.parts[part].dtype,
                                       static_cast<int>(members_.size()));
        if (!status.ok()) return status.WithPrefix(DescribePart(meta_, part) + ": ");
      }
    }
    if (info_.has_root) SYRTOS_RETURN_IF_ERROR(CheckRoot());
    if (meta_.kind == CollectiveKind::kAllgather) return FillAllgatherRows();
    if (meta_.kind == CollectiveKind::kAlltoall) return FillAlltoallRows();
    return Status::Ok();
  }

 private:
  size_t PositionOf(int32_t rank) const {
    auto found = std::lower_bound(members_.begin(), members_.end(), rank);
    return static_cast<size_t>(found - members_.begin());
  }
  bool IsMember(int32_t rank) const {
    return std::binary_search(members_.begin(), members_.end(), rank);
  }
  Status Invalid(size_t part, const std::string& text) const {
    return Status::InvalidArgument(DescribePart(meta_, part) + ": " + text);
  }

  Status CheckAxis(size_t part) const {
    if (!info_.needs_axis || !meta_.parts[part].shape.empty()) return Status::Ok();
    return Invalid(part,
                   std::string(info_.name) +
                       " works along the first dimension, but the tensor is a scalar of shape "
                       "(). Reshape it to (1,) first.");
  }

  Status CheckSizes(size_t part) const {
    for (const Asked& one : asked_) {
      const PartMeta& mine = one.meta->parts[part];
      auto count = ElementCount(mine.shape);
      int64_t bytes = 0;
      if (!count.ok()) {
        return Invalid(part, RankText(one.rank, hosts_) + ": " + count.status().message() + ".");
      }
      if (__builtin_mul_overflow(*count, int64_t{mine.item_bytes}, &bytes)) return TooLarge(part);
    }
    return Status::Ok();
  }

  Status TooLarge(size_t part) const {
    return Invalid(part, "the result would have more than 2^63-1 bytes. Send it in pieces.");
  }

  // Rows of one rank's tensor, together, must be countable in bytes.
  Status CheckTotal(size_t part, const std::vector<int64_t>& rows) const {
    int64_t total = 0;
    for (int64_t r : rows) {
      if (__builtin_add_overflow(total, r, &total)) return TooLarge(part);
    }
    const PartMeta& mine = meta_.parts[part];
    if (__builtin_mul_overflow(total, RowElements(mine.shape), &total) ||
        __builtin_mul_overflow(total, int64_t{mine.item_bytes}, &total)) {
      return TooLarge(part);
    }
    return Status::Ok();
  }

  Status CheckRoot() const {
    if (!IsMember(meta_.root)) {
      return Status::InvalidArgument(
          Describe(meta_.kind, meta_.key) + ": root_rank " + std::to_string(meta_.root) +
          " is not among " + RanksText(members_, {}) + ". Give the global rank of one of them.");
    }
    if (asked_.size() == members_.size()) return Status::Ok();
    bool active = std::any_of(asked_.begin(), asked_.end(),
                              [this](const Asked& one) { return one.rank == meta_.root; });
    if (active) return Status::Ok();
    return Status::Mismatch(
        Describe(meta_.kind, meta_.key) + ": its root, " + RankText(meta_.root, hosts_) +
        ", has called join() and sends no more data. Choose a root that is still "
        "working, or broadcast before the first rank joins.");
  }

  Status FillAllgatherRows() {
    for (size_t part = 0; part < meta_.parts.size(); ++part) {
      auto& rows = agreement_.rows.emplace_back(members_.size(), 0);
      for (const Asked& one : asked_) {
        rows[PositionOf(one.rank)] = one.meta->parts[part].shape[0];
      }
      SYRTOS_RETURN_IF_ERROR(CheckTotal(part, rows));
    }
    return Status::Ok();
  }

  Status FillAlltoallRows() {
    size_t size = members_.size();
    for (size_t part = 0; part < meta_.parts.size(); ++part) {
      auto& rows = agreement_.rows.emplace_back(size * size, 0);
      for (const Asked& one : asked_) {
        const PartMeta& mine = one.meta->parts[part];
        SYRTOS_RETURN_IF_ERROR(CheckSplits(one, part));
        size_t begin = PositionOf(one.rank) * size;
        for (size_t to = 0; to < size; ++to) {
          rows[begin + to] =
              mine.splits.empty() ? mine.shape[0] / static_cast<int64_t>(size) : mine.splits[to];
        }
      }
      std::vector<int64_t> received(size);
      for (size_t to = 0; to < size; ++to) {
        for (size_t from = 0; from < size; ++from) received[from] = rows[from * size + to];
        SYRTOS_RETURN_IF_ERROR(CheckTotal(part, received));
      }
    }
    return Status::Ok();
  }

  Status CheckSplits(const Asked& one, size_t part) const {
    const PartMeta& mine = one.meta->parts[part];
    int64_t size = static_cast<int64_t>(members_.size());
    int64_t rows = mine.shape[0];
    std::string who = RankText(one.rank, hosts_);
    if (mine.splits.empty()) {
      if (rows % size == 0) return Status::Ok();
      return Invalid(part, who + " has " + std::to_string(rows) +
                               " rows, which cannot be split evenly over " + std::to_string(size) +
                               " ranks. Pass splits, one number of rows per rank.");
    }
    if (static_cast<int64_t>(mine.splits.size()) != size) {
      return Invalid(part, who + " passed " + std::to_string(mine.splits.size()) + " splits for " +
                               std::to_string(size) + " ranks. Pass one number of rows per rank.");
    }
    int64_t sum = 0;
    for (int64_t split : mine.splits) {
      if (split < 0) {
        return Invalid(part, who + " passed the negative split " + std::to_string(split) +
                                 ". Splits are numbers of rows, 0 or more.");
      }
      if (__builtin_add_overflow(sum, split, &sum)) return TooLarge(part);
    }
    if (sum == rows) return Status::Ok();
    return Invalid(part, who + " passed splits of " + std::to_string(sum) +
                             " rows together, but its tensor has " + std::to_string(rows) +
                             ". The splits must add up to the first dimension.");
  }

  Status CheckNewGroup() const {
    std::string fault;
    if (meta_.ranks.empty()) fault = "is empty";
    for (size_t i = 0; i < meta_.ranks.size() && fault.empty(); ++i) {
      if (!IsMember(meta_.ranks[i])) {
        fault = "names rank " + std::to_string(meta_.ranks[i]) + ", which does not exist";
      } else if (i > 0 && meta_.ranks[i] == meta_.ranks[i - 1]) {
        fault = "names rank " + std::to_string(meta_.ranks[i]) + " twice";
      } else if (i > 0 && meta_.ranks[i] < meta_.ranks[i - 1]) {
        fault = "is not in ascending order";
      }
    }
    if (fault.empty()) return Status::Ok();
    return Status::InvalidArgument(
        Describe(meta_.kind, meta_.key) + ": the list of ranks " + ListText(meta_.ranks) + " " +
        fault + ". Pass each member once, from 0 to " + std::to_string(members_.size() - 1) + ".");
  }

  Status CheckRemovedGroup() const {
    if (meta_.ranks.size() == 1 && meta_.ranks.front() > 0) return Status::Ok();
    bool world = meta_.ranks.size() == 1 && meta_.ranks.front() == 0;
    return Status::InvalidArgument(Describe(meta_.kind, meta_.key) + ": " +
                                   (world ? "the global process set (id 0) cannot be removed"
                                          : "there is no process set " + ListText(meta_.ranks)) +
                                   ". Pass the id of one process set that was added.");
  }

  const std::vector<Asked>& asked_;
  const std::vector<int32_t>& members_;
  const std::vector<std::string>& hosts_;
  const RequestMeta& meta_;
  const CollectiveInfo& info_;
  Agreement& agreement_;
};

}  // namespace

std::string Describe(CollectiveKind kind, const RequestKey& key) {
  constexpr uint64_t kCallBits = 40;  // above them: how often all ranks have joined
  std::string text = InfoOf(kind).name;
  if (key.name.empty()) {
    uint64_t call = key.call & ((uint64_t{1} << kCallBits) - 1);
    text += " (unnamed call " + std::to_string(call) + ")";
  } else {
    text += " \"" + key.name + "\"";
  }
  if (key.group != kWorldGroup) text += " of process set " + std::to_string(key.group);
  return text;
}

Agreement Settle(const std::vector<Asked>& asked, const std::vector<int32_t>& members,
                 const std::vector<std::string>& hosts) {
  Agreement agreement;
  agreement.key = asked.front().meta->key;
  agreement.error = FindDisagreement(asked, hosts);
  if (!agreement.error.ok()) return agreement;
  agreement.error = Settling(asked, members, hosts, agreement).Run();
  if (!agreement.error.ok()) {
    agreement.rows.clear();
    return agreement;
  }
  auto next = asked.begin();  // both lists ascend
  for (int32_t member : members) {
    if (next != asked.end() && next->rank == member) {
      ++next;
    } else {
      agreement.absent.push_back(member);
    }
  }
  return agreement;
}

}  // namespace syrtos
