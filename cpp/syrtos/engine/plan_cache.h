// A member's half of the cache: which of its own requests it may post by id, and the agreements
// behind the ids. Owner: the negotiator. Threads: the holder of the baton.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "syrtos/engine/messages.h"

namespace syrtos {

class PlanCache {
 public:
  // The post for this request: by id if an agreement with the same signature is known, else in
  // full.
  Post MakePost(const RequestMeta& meta) const;
  // Remembers `agreement` (which has a cache id) for this rank's own `meta`.
  void Remember(const RequestMeta& meta, const Agreement& agreement);
  // The whole agreement behind one that came as `cached`; nullptr if unknown.
  const Agreement* Find(uint32_t cache_id) const;
  void Forget(uint32_t cache_id);
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    RequestMeta meta;
    Agreement agreement;
  };
  // Named requests are found by group and name, unnamed ones by their signature's text.
  static std::string LookupKey(const RequestMeta& meta);
  std::unordered_map<uint32_t, Entry> entries_;
  std::unordered_map<std::string, uint32_t> by_key_;
};

}  // namespace syrtos
