#include "syrtos/transport/memory_store.h"

#include "syrtos/base/deadline.h"
#include "syrtos/transport/store_values.h"

namespace syrtos {

Status MemoryStore::Set(const std::string& key, const std::string& value) {
  MutexLock lock(mutex_);
  values_[key] = value;
  changed_.NotifyAll();
  return Status::Ok();
}

Result<std::string> MemoryStore::Get(const std::string& key, Seconds timeout) {
  const Deadline deadline = DeadlineAfter(timeout);
  MutexLock lock(mutex_);
  bool in_time = true;
  while (true) {
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    if (!in_time) return KeyNotSet(key, timeout);
    in_time = changed_.WaitUntil(mutex_, deadline);
  }
}

Result<int64_t> MemoryStore::Add(const std::string& key, int64_t delta) {
  MutexLock lock(mutex_);
  Result<int64_t> sum = AddToCounter(values_, key, delta);
  if (sum.ok()) changed_.NotifyAll();
  return sum;
}

Status MemoryStore::Remove(const std::string& key) {
  MutexLock lock(mutex_);
  values_.erase(key);
  return Status::Ok();
}

}  // namespace syrtos
