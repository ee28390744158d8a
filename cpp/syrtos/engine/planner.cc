#include "syrtos/engine/planner.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "syrtos/engine/validate.h"

namespace syrtos {
namespace {

// Parts may share a plan if these are equal. Options without meaning for the kind are left at zero,
// so that they cannot keep parts apart.
struct Signature {
  CollectiveKind kind = CollectiveKind::kAllreduce;
  uint32_t group = 0;
  DType dtype = DType::kFloat32;
  uint32_t item_bytes = 0;
  ReduceOp op = ReduceOp::kSum;
  uint64_t prescale = 0;  // the bits: NaN has no order
  uint64_t postscale = 0;
  int32_t root = 0;
  std::vector<int32_t> absent;
  bool average_active = false;
  size_t request = 0;  // of kinds that do not fuse

  bool operator<(const Signature& o) const {
    return std::tie(kind, group, dtype, item_bytes, op, prescale, postscale, root, absent,
                    average_active, request) < std::tie(o.kind, o.group, o.dtype, o.item_bytes,
                                                        o.op, o.prescale, o.postscale, o.root,
                                                        o.absent, o.average_active, o.request);
  }
};

struct Bucket {
  std::vector<PlanEntry> entries;
  int64_t bytes = 0;
};

uint64_t Bits(double v) {
  uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof bits);
  return bits;
}

int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

// The most rows that one member sends or receives.
int64_t MostAlltoallRows(const std::vector<int64_t>& rows, size_t size) {
  std::vector<int64_t> sent(size, 0), received(size, 0);
  for (size_t from = 0; from < size; ++from) {
    for (size_t to = 0; to < size; ++to) {
      sent[from] = SaturatingAdd(sent[from], rows[from * size + to]);
      received[to] = SaturatingAdd(received[to], rows[from * size + to]);
    }
  }
  return std::max(*std::max_element(sent.begin(), sent.end()),
                  *std::max_element(received.begin(), received.end()));
}

// Bytes of a part as the busiest member sees it: of its tensor, or of its result if that is larger.
// Settling has checked that the products fit.
int64_t PartBytes(const Settled& settled, size_t part) {
  const PartMeta& meta = settled.meta.parts[part];
  int64_t elements = 0;
  if (part < settled.agreement.rows.size()) {
    const auto& rows = settled.agreement.rows[part];
    int64_t most = 0;
    if (settled.meta.kind == CollectiveKind::kAlltoall) {
      most = MostAlltoallRows(rows, settled.members.size());
    } else {
      for (int64_t r : rows) most = SaturatingAdd(most, r);
    }
    elements = most * RowElements(meta.shape);
  } else {
    auto count = ElementCount(meta.shape);
    if (count.ok()) elements = *count;
  }
  return elements * static_cast<int64_t>(meta.item_bytes);
}

class Planner {
 public:
  Planner(std::vector<Settled>& settled, const PlannerOptions& options)
      : settled_(settled), options_(options) {}

  Planned Run() {
    Planned planned;
    do {
      Fuse();
    } while (!ChooseBackends(planned.plans));
    planned.next_sequence = options_.first_sequence + planned.plans.size();
    return planned;
  }

 private:
  bool HasData(size_t request) const {
    return settled_[request].agreement.error.ok() && InfoOf(settled_[request].meta.kind).moves_data;
  }

  Signature SignatureOf(size_t request, size_t part) const {
    const RequestMeta& meta = settled_[request].meta;
    const CollectiveInfo& info = InfoOf(meta.kind);
    Signature s;
    s.kind = meta.kind;
    s.group = meta.key.group;
    s.dtype = meta.parts[part].dtype;
    s.item_bytes = meta.parts[part].item_bytes;
    if (info.reduces) {
      s.op = meta.op;
      s.prescale = Bits(meta.prescale);
      s.postscale = Bits(meta.postscale);
    }
    if (info.has_root) s.root = meta.root;
    s.absent = settled_[request].agreement.absent;
    s.average_active = settled_[request].agreement.average_active;
    if (!info.fuses) s.request = request;
    return s;
  }

  // Parts join the open bucket of their signature, whatever was settled in between.
  void Fuse() {
    std::map<Signature, size_t> open;
    buckets_.clear();
    for (size_t request = 0; request < settled_.size(); ++request) {
      if (!HasData(request)) continue;
      for (size_t part = 0; part < settled_[request].meta.parts.size(); ++part) {
        PlanEntry entry{static_cast<uint32_t>(request), static_cast<uint32_t>(part)};
        int64_t bytes = PartBytes(settled_[request], part);
        if (options_.fusion_threshold_bytes <= 0 || bytes > options_.fusion_threshold_bytes) {
          buckets_.push_back({{entry}, bytes});
          continue;
        }
        auto [found, is_new] = open.emplace(SignatureOf(request, part), buckets_.size());
        if (!is_new) {
          Bucket& bucket = buckets_[found->second];
          if (bucket.bytes <= options_.fusion_threshold_bytes - bytes) {
            bucket.entries.push_back(entry);
            bucket.bytes += bytes;
            continue;
          }
          found->second = buckets_.size();
        }
        buckets_.push_back({{entry}, bytes});
      }
    }
  }

  Collective CollectiveOf(const Bucket& bucket) const {
    const PlanEntry& first = bucket.entries.front();
    const Settled& settled = settled_[first.agreement];
    const RequestMeta& meta = settled.meta;
    Collective c;
    c.kind = meta.kind;
    c.dtype = meta.parts[first.part].dtype;
    c.item_bytes = meta.parts[first.part].item_bytes;
    c.op = meta.op;
    c.prescale = meta.prescale;
    c.postscale = meta.postscale;
    c.ranks.assign(settled.members.begin(), settled.members.end());
    c.active.assign(c.ranks.size(), 1);
    c.divisor = DivisorOf(settled.agreement, c.ranks.size());
    const auto& absent = settled.agreement.absent;
    for (size_t i = 0; i < c.ranks.size(); ++i) {
      if (std::binary_search(absent.begin(), absent.end(), c.ranks[i])) c.active[i] = 0;
      if (c.ranks[i] == meta.root) c.root = static_cast<int>(i);
    }
    return c;
  }

  // False if some agreement got an error: then its other parts must not run either, so fuse again.
  bool ChooseBackends(std::vector<Plan>& plans) {
    bool all_chosen = true;
    plans.clear();
    for (const Bucket& bucket : buckets_) {
      Collective collective = CollectiveOf(bucket);
      Result<int> chosen = options_.choose(collective, bucket.bytes);
      if (chosen.ok() && (*chosen < 0 || *chosen > std::numeric_limits<uint8_t>::max())) {
        chosen = Status::Internal("backend number " + std::to_string(*chosen) + " is out of range");
      }
      if (!chosen.ok()) {
        all_chosen = false;
        for (const PlanEntry& entry : bucket.entries) Refuse(entry.agreement, chosen.status());
        continue;
      }
      Plan& plan = plans.emplace_back();
      plan.sequence = options_.first_sequence + plans.size() - 1;
      plan.backend = static_cast<uint8_t>(*chosen);
      plan.entries = bucket.entries;
    }
    return all_chosen;
  }

  void Refuse(size_t request, const Status& why) {
    Settled& settled = settled_[request];
    if (!settled.agreement.error.ok()) return;
    Agreement refused;  // without a cache id: there is nothing to remember
    refused.key = settled.agreement.key;
    refused.absent = std::move(settled.agreement.absent);
    refused.error = why.WithPrefix(Describe(settled.meta.kind, settled.agreement.key) + ": ");
    settled.agreement = std::move(refused);
  }

  std::vector<Settled>& settled_;
  const PlannerOptions& options_;
  std::vector<Bucket> buckets_;
};

}  // namespace

Planned MakePlans(std::vector<Settled>& settled, const PlannerOptions& options) {
  return Planner(settled, options).Run();
}

}  // namespace syrtos
