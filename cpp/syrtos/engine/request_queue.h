// Where callers leave their requests and the holder of the baton picks them up.
//
// Numbers the unnamed requests of each group in the order of submitting, and keeps the names that
// are in flight, so that a second request of one name is refused at once. Threads: any.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "syrtos/base/mutex.h"
#include "syrtos/base/result.h"
#include "syrtos/engine/request.h"

namespace syrtos {

// A request on its way, owned by the engine until its Completion is finished.
struct PendingRequest {
  Request request;
  Agreement agreement;              // once settled
  size_t parts_left = 0;            // of a settled request with data
  uint32_t posted_id = kNoCacheId;  // the cache id it was posted by, if any
};

class RequestQueue {
 public:
  // kInvalidArgument if a request of that name is in flight in that group; the fatal or shutdown
  // cause once closed.
  Status Push(std::shared_ptr<PendingRequest> request);
  std::vector<std::shared_ptr<PendingRequest>> Drain();
  // The key is free again; call before its Completion finishes, so that a woken waiter can reuse
  // it.
  void Release(const RequestKey& key);
  // A group came to be: its unnamed requests are counted from one, although the id may have been
  // another group's before, of which not every member was a member.
  void OnGroupAdded(uint32_t group);
  // Every later Push fails with `cause`; the first cause stays.
  void Close(const Status& cause);
  Status closed() const;

 private:
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<PendingRequest>> queue_ GUARDED_BY(mutex_);
  std::set<std::pair<uint32_t, std::string>> names_ GUARDED_BY(mutex_);
  std::map<uint32_t, uint64_t> calls_ GUARDED_BY(mutex_);
  uint64_t join_round_ GUARDED_BY(mutex_) = 0;
  Status closed_ GUARDED_BY(mutex_);
};

}  // namespace syrtos
