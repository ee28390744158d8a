#include "syrtos/engine/request_queue.h"

#include <utility>

#include "syrtos/engine/validate.h"

namespace syrtos {

Status RequestQueue::Push(std::shared_ptr<PendingRequest> pending) {
  RequestMeta& meta = pending->request.meta;
  MutexLock lock(mutex_);
  SYRTOS_RETURN_IF_ERROR(closed_);
  if (!meta.key.name.empty()) {
    meta.key.call = 0;
    if (!names_.emplace(meta.key.group, meta.key.name).second) {
      return Status::InvalidArgument(
          Describe(meta.kind, meta.key) +
          ": a request with the same name is still in flight on this rank. Wait for it first, or "
          "give each request a name of its own.");
    }
  } else {
    meta.key.call = (join_round_ << 40) | ++calls_[meta.key.group];
  }
  if (meta.kind == CollectiveKind::kJoin) {
    // Ranks join after different numbers of calls, so what they call afterwards is counted anew.
    // Every rank joins once a round, which keeps the rounds equal.
    ++join_round_;
    calls_.clear();
  }
  queue_.push_back(std::move(pending));
  return Status::Ok();
}

std::vector<std::shared_ptr<PendingRequest>> RequestQueue::Drain() {
  MutexLock lock(mutex_);
  return std::exchange(queue_, {});
}

void RequestQueue::Release(const RequestKey& key) {
  if (key.name.empty()) return;
  MutexLock lock(mutex_);
  names_.erase({key.group, key.name});
}

void RequestQueue::OnGroupAdded(uint32_t group) {
  MutexLock lock(mutex_);
  calls_.erase(group);
}

void RequestQueue::Close(const Status& cause) {
  MutexLock lock(mutex_);
  if (closed_.ok()) closed_ = cause;
}

Status RequestQueue::closed() const {
  MutexLock lock(mutex_);
  return closed_;
}

}  // namespace syrtos
