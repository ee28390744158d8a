// Rank 0's half of the plan cache: what each member posted for an agreement, behind its id.
//
// An entry of a named request is found by group and name, and its descriptions are replaced in
// place (its key can be pending only once, so nobody means the old ones). Unnamed requests of one
// signature can be in flight together, so their entries never change: another combination is
// another entry.
//
// An id is not used again before 2^32 others: a rank may still post it after it was forgotten.
// Owner: the coordinator. Threads: one at a time. All operations take constant amortised time.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "syrtos/engine/messages.h"

namespace syrtos {

using SharedMeta = std::shared_ptr<const RequestMeta>;

class AgreementCache {
 public:
  struct Entry {
    uint32_t id = kNoCacheId;
    Agreement agreement;            // in full, with the id
    std::vector<SharedMeta> metas;  // per position of the group; a single one if all are alike
    const SharedMeta& MetaOf(size_t position) const {
      return metas.size() == 1 ? metas.front() : metas[position];
    }

   private:
    friend class AgreementCache;
    size_t hash = 0;
    int pins = 0;
    std::list<uint32_t>::iterator place;  // in lru_, unless pinned
  };
  // What a forgotten id stood for.
  struct Grave {
    RequestKey key;
    CollectiveKind kind;
  };

  explicit AgreementCache(int64_t capacity) : capacity_(capacity) {}

  // Valid until the next call that is not const; nullptr if unknown.
  const Entry* Find(uint32_t id) const;
  // nullptr if never known, or forgotten very long ago.
  const Grave* FindGrave(uint32_t id) const;
  // A pinned entry is not evicted.
  void Pin(uint32_t id);
  // The last Unpin makes it the most recently used.
  void Unpin(uint32_t id);
  // Takes in an agreement for which position i posted metas[i]; sets its cache_id (to kNoCacheId if
  // there is no room).
  void Store(std::vector<SharedMeta> metas, Agreement& agreement);
  // Drops the entry of a named request, unless pinned.
  void ForgetNamed(const RequestKey& key);
  // Drops all entries of a group, none of which is pinned.
  void ForgetGroup(uint32_t group);
  std::vector<uint32_t> TakeForgotten();

 private:
  static std::string NameKey(const RequestKey& key);
  Entry* FindSame(const std::vector<SharedMeta>& metas, size_t hash);
  Entry* NewEntry(const std::vector<SharedMeta>& metas, size_t hash);
  bool MakeRoom();
  void Forget(uint32_t id);
  uint32_t NewId();

  const int64_t capacity_;
  std::unordered_map<uint32_t, Entry> entries_;
  std::unordered_map<std::string, uint32_t> by_name_;
  std::unordered_multimap<size_t, uint32_t> by_signature_;  // of unnamed requests
  std::list<uint32_t> lru_;                                 // not pinned; most recently used first
  uint32_t next_id_ = 0;
  std::vector<uint32_t> forgotten_;
  std::unordered_map<uint32_t, Grave> graves_;
  std::deque<uint32_t> grave_order_;
};

}  // namespace syrtos
