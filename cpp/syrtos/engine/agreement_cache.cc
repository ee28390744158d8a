#include "syrtos/engine/agreement_cache.h"

#include <algorithm>
#include <utility>

namespace syrtos {
namespace {

// Far more ids than can be forgotten while a post is on its way.
constexpr size_t kMaxGraves = 1 << 16;

void Mix(size_t& hash, uint64_t v) { hash ^= v + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2); }

// Scales and names of parts are left out: what hashes alike is compared anyway.
size_t SignatureHash(const RequestMeta& meta) {
  size_t hash = meta.key.group;
  Mix(hash, static_cast<uint64_t>(meta.kind));
  Mix(hash, static_cast<uint64_t>(meta.op));
  Mix(hash, static_cast<uint64_t>(meta.root));
  for (const PartMeta& part : meta.parts) {
    Mix(hash, static_cast<uint64_t>(part.dtype));
    for (int64_t dim : part.shape) Mix(hash, static_cast<uint64_t>(dim));
    for (int64_t split : part.splits) Mix(hash, static_cast<uint64_t>(split));
  }
  return hash;
}

// Identical descriptions, the rule in all but gathers, are kept once for all ranks.
void Merge(std::vector<SharedMeta>& metas) {
  bool alike = std::all_of(metas.begin() + 1, metas.end(), [&metas](const SharedMeta& meta) {
    return meta == metas.front() || meta->SameSignature(*metas.front());
  });
  if (alike) metas.resize(1);
}

}  // namespace

std::string AgreementCache::NameKey(const RequestKey& key) {
  return std::to_string(key.group) + ":" + key.name;
}

const AgreementCache::Entry* AgreementCache::Find(uint32_t id) const {
  auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

const AgreementCache::Grave* AgreementCache::FindGrave(uint32_t id) const {
  auto found = graves_.find(id);
  return found == graves_.end() ? nullptr : &found->second;
}

void AgreementCache::Pin(uint32_t id) {
  Entry& entry = entries_.at(id);
  if (entry.pins++ == 0) lru_.erase(entry.place);
}

void AgreementCache::Unpin(uint32_t id) {
  Entry& entry = entries_.at(id);
  if (--entry.pins == 0) entry.place = lru_.insert(lru_.begin(), id);
}

AgreementCache::Entry* AgreementCache::FindSame(const std::vector<SharedMeta>& metas, size_t hash) {
  auto [begin, end] = by_signature_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    Entry& entry = entries_.at(it->second);
    bool same =
        std::equal(entry.metas.begin(), entry.metas.end(), metas.begin(), metas.end(),
                   [](const SharedMeta& a, const SharedMeta& b) { return a->SameSignature(*b); });
    if (same) return &entry;
  }
  return nullptr;
}

void AgreementCache::Store(std::vector<SharedMeta> metas, Agreement& agreement) {
  agreement.cache_id = kNoCacheId;
  if (capacity_ <= 0) return;
  Merge(metas);
  const RequestKey& key = metas.front()->key;
  size_t hash = 0;
  Entry* entry = nullptr;
  if (key.name.empty()) {
    for (const SharedMeta& meta : metas) Mix(hash, SignatureHash(*meta));
    entry = FindSame(metas, hash);
  } else if (auto named = by_name_.find(NameKey(key)); named != by_name_.end()) {
    entry = &entries_.at(named->second);
    if (entry->pins > 0) return;
  }
  if (entry == nullptr) entry = NewEntry(metas, hash);
  if (entry == nullptr) return;
  entry->metas = std::move(metas);
  agreement.cache_id = entry->id;
  entry->agreement = agreement;
  if (entry->pins == 0) lru_.splice(lru_.begin(), lru_, entry->place);
}

AgreementCache::Entry* AgreementCache::NewEntry(const std::vector<SharedMeta>& metas, size_t hash) {
  if (!MakeRoom()) return nullptr;
  uint32_t id = NewId();
  Entry& entry = entries_[id];
  entry.id = id;
  entry.hash = hash;
  entry.place = lru_.insert(lru_.begin(), id);
  const RequestKey& key = metas.front()->key;
  if (key.name.empty()) {
    by_signature_.emplace(hash, id);
  } else {
    by_name_[NameKey(key)] = id;
  }
  return &entry;
}

bool AgreementCache::MakeRoom() {
  while (static_cast<int64_t>(entries_.size()) >= capacity_) {
    if (lru_.empty()) return false;
    Forget(lru_.back());
  }
  return true;
}

uint32_t AgreementCache::NewId() {
  while (next_id_ == kNoCacheId || entries_.count(next_id_) != 0) ++next_id_;
  return next_id_++;
}

void AgreementCache::Forget(uint32_t id) {
  auto found = entries_.find(id);
  Entry& entry = found->second;
  const RequestMeta& meta = *entry.metas.front();
  if (meta.key.name.empty()) {
    auto [begin, end] = by_signature_.equal_range(entry.hash);
    by_signature_.erase(
        std::find_if(begin, end, [id](const auto& row) { return row.second == id; }));
  } else {
    by_name_.erase(NameKey(meta.key));
  }
  graves_[id] = {meta.key, meta.kind};
  grave_order_.push_back(id);
  if (grave_order_.size() > kMaxGraves) {
    graves_.erase(grave_order_.front());
    grave_order_.pop_front();
  }
  forgotten_.push_back(id);
  lru_.erase(entry.place);
  entries_.erase(found);
}

void AgreementCache::ForgetNamed(const RequestKey& key) {
  if (key.name.empty()) return;
  auto named = by_name_.find(NameKey(key));
  if (named != by_name_.end() && entries_.at(named->second).pins == 0) Forget(named->second);
}

void AgreementCache::ForgetGroup(uint32_t group) {
  std::vector<uint32_t> ids;
  for (const auto& [id, entry] : entries_) {
    if (entry.metas.front()->key.group == group && entry.pins == 0) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (uint32_t id : ids) Forget(id);
}

std::vector<uint32_t> AgreementCache::TakeForgotten() { return std::exchange(forgotten_, {}); }

}  // namespace syrtos
