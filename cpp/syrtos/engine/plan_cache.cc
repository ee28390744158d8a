#include "syrtos/engine/plan_cache.h"

#include "syrtos/engine/wire.h"

namespace syrtos {

std::string PlanCache::LookupKey(const RequestMeta& meta) {
  if (!meta.key.name.empty()) return std::to_string(meta.key.group) + ":" + meta.key.name;
  RequestMeta signature = meta;
  signature.key.call = 0;
  Post post;
  post.meta = std::move(signature);
  // No named key begins with '#': those begin with the number of the group.
  return "#" + EncodePosts({std::move(post)});
}

Post PlanCache::MakePost(const RequestMeta& meta) const {
  Post post;
  auto known = by_key_.empty() ? by_key_.end() : by_key_.find(LookupKey(meta));
  if (known != by_key_.end() && entries_.at(known->second).meta.SameSignature(meta)) {
    post.cache_id = known->second;
    post.call = meta.key.call;
  } else {
    post.meta = meta;
  }
  return post;
}

void PlanCache::Remember(const RequestMeta& meta, const Agreement& agreement) {
  Forget(agreement.cache_id);  // a named request's id stays when its description changes
  by_key_[LookupKey(meta)] = agreement.cache_id;
  Entry& entry = entries_[agreement.cache_id];
  entry.meta = meta;
  entry.agreement = agreement;
  entry.agreement.cached = false;
}

const Agreement* PlanCache::Find(uint32_t cache_id) const {
  auto found = entries_.find(cache_id);
  return found == entries_.end() ? nullptr : &found->second.agreement;
}

void PlanCache::Forget(uint32_t cache_id) {
  auto found = entries_.find(cache_id);
  if (found == entries_.end()) return;
  // The key may have moved on to another id: one signature of ours can meet several of the others'.
  auto key = by_key_.find(LookupKey(found->second.meta));
  if (key != by_key_.end() && key->second == cache_id) by_key_.erase(key);
  entries_.erase(found);
}

}  // namespace syrtos
