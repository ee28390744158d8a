// A Store inside one process: ranks as threads, and tests.
#pragma once

#include <map>

#include "syrtos/base/mutex.h"
#include "syrtos/transport/store.h"

namespace syrtos {

class MemoryStore : public Store {
 public:
  Status Set(const std::string& key, const std::string& value) override;
  Result<std::string> Get(const std::string& key, Seconds timeout) override;
  Result<int64_t> Add(const std::string& key, int64_t delta) override;
  Status Remove(const std::string& key) override;

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, std::string> values_ GUARDED_BY(mutex_);
};

}  // namespace syrtos
