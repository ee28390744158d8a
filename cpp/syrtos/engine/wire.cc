#include "syrtos/engine/wire.h"

#include <limits>
#include <utility>

#include "syrtos/transport/bytes.h"

namespace syrtos {
namespace {

constexpr uint8_t kVersion = 1;

// First number of a post.
constexpr uint64_t kPostInFull = 1;
constexpr uint64_t kPostHasCall = 2;
constexpr unsigned kPostIdShift = 2;
// First number of an agreement.
constexpr uint64_t kAgreementCached = 1;
constexpr uint64_t kAgreementHasCall = 2;
constexpr unsigned kAgreementIdShift = 2;  // cached
constexpr uint64_t kAgreementHasId = 4;
constexpr uint64_t kAgreementHasError = 8;
constexpr uint64_t kAgreementHasAbsent = 16;
constexpr uint64_t kAgreementHasValue = 32;
constexpr uint64_t kAgreementHasRows = 64;
constexpr uint64_t kAgreementAverageActive = 128;
constexpr uint64_t kAgreementFlags = 255;
// Which options of a request follow.
constexpr uint8_t kMetaHasScales = 1;
constexpr uint8_t kMetaHasRoot = 2;
constexpr uint8_t kMetaHasRanks = 4;
constexpr uint8_t kMetaAverageActive = 8;
constexpr uint8_t kMetaFlags = 15;
// Beside the dtype of a part.
constexpr uint8_t kPartHasName = 0x80;
constexpr uint8_t kPartHasSplits = 0x40;
constexpr uint8_t kPartDType = 0x3f;
// Of an entry of a plan.
constexpr uint64_t kEntryNextAgreement = 0;
constexpr uint64_t kEntryNextPart = 1;
constexpr uint64_t kEntryExplicit = 2;

// Small numbers of either sign as small unsigned ones: 0, -1, 1, -2 become 0, 1, 2, 3.
uint64_t ZigZag(int64_t v) {
  return (static_cast<uint64_t>(v) << 1) ^ (v < 0 ? ~uint64_t{0} : uint64_t{0});
}
int64_t UnZigZag(uint64_t v) {
  return static_cast<int64_t>((v >> 1) ^ ((v & 1) != 0 ? ~uint64_t{0} : uint64_t{0}));
}

bool IsOne(double v) {
  return v == 1.0;  // no other double equals it
}

// Ids and call numbers mostly count up, so each is written as its distance from the last one plus
// one.
struct Predictor {
  uint64_t next = 0;
  uint64_t Distance(uint64_t v) {
    uint64_t distance = ZigZag(static_cast<int64_t>(v - next));
    next = v + 1;
    return distance;
  }
  uint64_t Value(uint64_t distance) {
    uint64_t v = next + static_cast<uint64_t>(UnZigZag(distance));
    next = v + 1;
    return v;
  }
};

uint32_t DecodeId(ByteReader& in, Predictor& ids, uint64_t distance) {
  uint64_t id = ids.Value(distance);
  if (id >= kNoCacheId) in.Fail();
  return static_cast<uint32_t>(id);
}

uint32_t DecodeU32(ByteReader& in) {
  uint64_t v = in.Varint();
  if (v > std::numeric_limits<uint32_t>::max()) in.Fail();
  return static_cast<uint32_t>(v);
}

int32_t DecodeI32(ByteReader& in) {
  int64_t v = UnZigZag(in.Varint());
  if (v < std::numeric_limits<int32_t>::min() || v > std::numeric_limits<int32_t>::max()) in.Fail();
  return static_cast<int32_t>(v);
}

template <typename Int>
void EncodeList(ByteWriter& out, const std::vector<Int>& list) {
  out.Varint(list.size());
  for (Int v : list) out.Varint(ZigZag(v));
}

void DecodeList(ByteReader& in, std::vector<int64_t>& list) {
  for (size_t left = in.Count(); left > 0 && in.ok(); --left) list.push_back(UnZigZag(in.Varint()));
}

void DecodeList(ByteReader& in, std::vector<int32_t>& list) {
  for (size_t left = in.Count(); left > 0 && in.ok(); --left) list.push_back(DecodeI32(in));
}

void EncodePart(ByteWriter& out, const PartMeta& part) {
  auto head = static_cast<uint8_t>(part.dtype);
  if (!part.name.empty()) head |= kPartHasName;
  if (!part.splits.empty()) head |= kPartHasSplits;
  out.U8(head);
  out.Varint(part.item_bytes);
  EncodeList(out, part.shape);
  if (!part.name.empty()) out.String(part.name);
  if (!part.splits.empty()) EncodeList(out, part.splits);
}

PartMeta DecodePart(ByteReader& in) {
  PartMeta part;
  uint8_t head = in.U8();
  uint8_t dtype = head & kPartDType;
  if (!IsValidDType(dtype)) {
    in.Fail();
    return part;
  }
  part.dtype = static_cast<DType>(dtype);
  part.item_bytes = DecodeU32(in);
  DecodeList(in, part.shape);
  if ((head & kPartHasName) != 0) part.name = in.String();
  if ((head & kPartHasSplits) != 0) DecodeList(in, part.splits);
  return part;
}

// Without key.call, which the caller writes first.
void EncodeMeta(ByteWriter& out, const RequestMeta& meta) {
  out.U8(static_cast<uint8_t>(meta.kind));
  out.Varint(meta.key.group);
  out.String(meta.key.name);
  out.U8(static_cast<uint8_t>(meta.op));
  bool scales = !IsOne(meta.prescale) || !IsOne(meta.postscale);
  uint8_t flags = scales ? kMetaHasScales : 0;
  if (meta.root != 0) flags |= kMetaHasRoot;
  if (!meta.ranks.empty()) flags |= kMetaHasRanks;
  if (meta.average_active) flags |= kMetaAverageActive;
  out.U8(flags);
  if (scales) {
    out.F64(meta.prescale);
    out.F64(meta.postscale);
  }
  if (meta.root != 0) out.Varint(ZigZag(meta.root));
  if (!meta.ranks.empty()) EncodeList(out, meta.ranks);
  out.Varint(meta.parts.size());
  for (const PartMeta& part : meta.parts) EncodePart(out, part);
}

void DecodeMeta(ByteReader& in, RequestMeta& meta) {
  uint8_t kind = in.U8();
  if (!IsValidCollectiveKind(kind)) return in.Fail();
  meta.kind = static_cast<CollectiveKind>(kind);
  meta.key.group = DecodeU32(in);
  meta.key.name = in.String();
  uint8_t op = in.U8();
  if (!IsValidReduceOp(op)) return in.Fail();
  meta.op = static_cast<ReduceOp>(op);
  uint8_t flags = in.U8();
  if ((flags & ~kMetaFlags) != 0) in.Fail();
  if ((flags & kMetaHasScales) != 0) {
    meta.prescale = in.F64();
    meta.postscale = in.F64();
  }
  if ((flags & kMetaHasRoot) != 0) meta.root = DecodeI32(in);
  if ((flags & kMetaHasRanks) != 0) DecodeList(in, meta.ranks);
  meta.average_active = (flags & kMetaAverageActive) != 0;
  for (size_t left = in.Count(3); left > 0 && in.ok(); --left) meta.parts.push_back(DecodePart(in));
}

// Both directions keep the same predictors for one message.
struct Predictors {
  Predictor ids, calls, sequences;
  PlanEntry entry{0xffffffffu, 0};
};

void EncodeAgreement(ByteWriter& out, const Agreement& a, Predictors& p) {
  uint64_t head = a.key.call != 0 ? kAgreementHasCall : 0;
  if (a.cached && a.error.ok()) {
    out.Varint(p.ids.Distance(a.cache_id) << kAgreementIdShift | head | kAgreementCached);
    if (a.key.call != 0) out.Varint(p.calls.Distance(a.key.call));
    return;
  }
  bool has_id = a.cache_id != kNoCacheId && !a.cached;
  if (has_id) head |= kAgreementHasId;
  if (!a.error.ok()) head |= kAgreementHasError;
  if (!a.absent.empty()) head |= kAgreementHasAbsent;
  if (a.average_active) head |= kAgreementAverageActive;
  if (a.value != 0) head |= kAgreementHasValue;
  if (!a.rows.empty()) head |= kAgreementHasRows;
  out.Varint(head);
  out.Varint(a.key.group);
  out.String(a.key.name);
  if (a.key.call != 0) out.Varint(p.calls.Distance(a.key.call));
  if (has_id) out.Varint(p.ids.Distance(a.cache_id));
  if (!a.error.ok()) {
    out.U8(static_cast<uint8_t>(a.error.code()));
    out.String(a.error.message());
  }
  if (!a.absent.empty()) EncodeList(out, a.absent);
  if (a.value != 0) out.Varint(ZigZag(a.value));
  if (a.rows.empty()) return;
  out.Varint(a.rows.size());
  for (const auto& rows : a.rows) EncodeList(out, rows);
}

Status DecodeError(ByteReader& in) {
  uint8_t code = in.U8();
  if (code > 0 && code <= static_cast<uint8_t>(StatusCode::kInternal)) {
    return Status(static_cast<StatusCode>(code), in.String());
  }
  in.Fail();
  return Status::Ok();
}

Agreement DecodeAgreement(ByteReader& in, Predictors& p) {
  Agreement a;
  uint64_t head = in.Varint();
  if ((head & kAgreementCached) != 0) {
    a.cached = true;
    a.cache_id = DecodeId(in, p.ids, head >> kAgreementIdShift);
    if ((head & kAgreementHasCall) != 0) a.key.call = p.calls.Value(in.Varint());
    return a;
  }
  if ((head & ~kAgreementFlags) != 0) in.Fail();
  a.key.group = DecodeU32(in);
  a.key.name = in.String();
  if ((head & kAgreementHasCall) != 0) a.key.call = p.calls.Value(in.Varint());
  if ((head & kAgreementHasId) != 0) a.cache_id = DecodeId(in, p.ids, in.Varint());
  if ((head & kAgreementHasError) != 0) a.error = DecodeError(in);
  if ((head & kAgreementHasAbsent) != 0) DecodeList(in, a.absent);
  a.average_active = (head & kAgreementAverageActive) != 0;
  if (a.average_active && a.absent.empty()) in.Fail();
  if ((head & kAgreementHasValue) != 0) a.value = UnZigZag(in.Varint());
  if ((head & kAgreementHasRows) == 0) return a;
  for (size_t left = in.Count(); left > 0 && in.ok(); --left) DecodeList(in, a.rows.emplace_back());
  return a;
}

void EncodePlan(ByteWriter& out, const Plan& plan, Predictors& p) {
  out.Varint(p.sequences.Distance(plan.sequence));
  out.U8(plan.backend);
  out.Varint(plan.entries.size());
  for (const PlanEntry& entry : plan.entries) {
    if (entry.agreement == p.entry.agreement + 1 && entry.part == 0) {
      out.Varint(kEntryNextAgreement);
    } else if (entry.agreement == p.entry.agreement && entry.part == p.entry.part + 1) {
      out.Varint(kEntryNextPart);
    } else {
      out.Varint(kEntryExplicit);
      out.Varint(entry.agreement);
      out.Varint(entry.part);
    }
    p.entry = entry;
  }
}

Plan DecodePlan(ByteReader& in, Predictors& p, size_t agreements) {
  Plan plan;
  plan.sequence = p.sequences.Value(in.Varint());
  plan.backend = in.U8();
  for (size_t left = in.Count(); left > 0 && in.ok(); --left) {
    uint64_t step = in.Varint();
    if (step == kEntryNextAgreement) {
      p.entry = {p.entry.agreement + 1, 0};
    } else if (step == kEntryNextPart) {
      ++p.entry.part;
    } else if (step == kEntryExplicit) {
      p.entry.agreement = DecodeU32(in);
      p.entry.part = DecodeU32(in);
    } else {
      in.Fail();
    }
    if (p.entry.agreement >= agreements) in.Fail();
    plan.entries.push_back(p.entry);
  }
  return plan;
}

Status Malformed(const char* what) {
  return Status::Internal(std::string("malformed ") + what +
                          ". Do all ranks run the same version of Syrtos?");
}

}  // namespace

std::string EncodePosts(const std::vector<Post>& posts) {
  ByteWriter out;
  Predictors p;
  out.U8(kVersion);
  out.Varint(posts.size());
  for (const Post& post : posts) {
    bool full = post.cache_id == kNoCacheId;
    uint64_t call = full ? post.meta.key.call : post.call;
    uint64_t head = call != 0 ? kPostHasCall : 0;
    out.Varint(head | (full ? kPostInFull : p.ids.Distance(post.cache_id) << kPostIdShift));
    if (call != 0) out.Varint(p.calls.Distance(call));
    if (full) EncodeMeta(out, post.meta);
  }
  return out.Take();
}

Result<std::vector<Post>> DecodePosts(std::string_view bytes) {
  ByteReader in(bytes);
  Predictors p;
  std::vector<Post> posts;
  if (in.U8() != kVersion) in.Fail();
  for (size_t left = in.Count(); left > 0 && in.ok(); --left) {
    Post& post = posts.emplace_back();
    uint64_t head = in.Varint();
    bool full = (head & kPostInFull) != 0;
    if (full && head >> kPostIdShift != 0) in.Fail();
    if (!full) post.cache_id = DecodeId(in, p.ids, head >> kPostIdShift);
    uint64_t call = (head & kPostHasCall) != 0 ? p.calls.Value(in.Varint()) : 0;
    (full ? post.meta.key.call : post.call) = call;
    if (full) DecodeMeta(in, post.meta);
  }
  if (!in.done()) return Malformed("posts");
  return posts;
}

std::string EncodePlanBatch(const PlanBatch& batch) {
  ByteWriter out;
  Predictors p;
  out.U8(kVersion);
  out.Varint(batch.agreements.size());
  for (const Agreement& agreement : batch.agreements) EncodeAgreement(out, agreement, p);
  out.Varint(batch.plans.size());
  for (const Plan& plan : batch.plans) EncodePlan(out, plan, p);
  out.Varint(batch.forgotten.size());
  for (uint32_t id : batch.forgotten) out.Varint(p.ids.Distance(id));
  out.Varint(batch.repost.size());
  for (const auto& [id, call] : batch.repost) {
    out.Varint(p.ids.Distance(id));
    out.Varint(p.calls.Distance(call));
  }
  return out.Take();
}

Result<PlanBatch> DecodePlanBatch(std::string_view bytes) {
  ByteReader in(bytes);
  Predictors p;
  PlanBatch batch;
  if (in.U8() != kVersion) in.Fail();
  for (size_t left = in.Count(); left > 0 && in.ok(); --left) {
    batch.agreements.push_back(DecodeAgreement(in, p));
  }
  for (size_t left = in.Count(3); left > 0 && in.ok(); --left) {
    batch.plans.push_back(DecodePlan(in, p, batch.agreements.size()));
  }
  for (size_t left = in.Count(); left > 0 && in.ok(); --left) {
    batch.forgotten.push_back(DecodeId(in, p.ids, in.Varint()));
  }
  for (size_t left = in.Count(2); left > 0 && in.ok(); --left) {
    uint32_t id = DecodeId(in, p.ids, in.Varint());
    batch.repost.emplace_back(id, p.calls.Value(in.Varint()));
  }
  if (!in.done()) return Malformed("plan batch");
  return batch;
}

}  // namespace syrtos
