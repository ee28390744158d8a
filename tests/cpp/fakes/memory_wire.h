// PointToPoint between threads of one process.
//
// A message is copied at the latest moment that the contract allows: when both sides have posted it
// and one of them waits. An algorithm that overwrites what it sends, or reads what it receives,
// before it has waited is thus caught by wrong values.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "syrtos/base/mutex.h"
#include "syrtos/collectives/pairwise/point_to_point.h"

namespace syrtos {

// What the wires of one world share. Threads: any.
class MemoryNetwork {
 public:
  explicit MemoryNetwork(int size)
      : size_(size), aborted_(static_cast<size_t>(size)), gone_(static_cast<size_t>(size), false) {}

  // Messages that were ever sent, and the highest number under way at a time.
  int64_t messages() {
    MutexLock lock(mutex_);
    return messages_;
  }
  // Ranks between which a message was ever posted, as (from, to).
  std::set<std::pair<int, int>> contacts() {
    MutexLock lock(mutex_);
    return contacts_;
  }

 private:
  friend class MemoryWire;
  friend class MemoryTransfer;

  struct Message {
    const void* from = nullptr;
    void* into = nullptr;
    uint64_t bytes = 0;
    bool sent = false;     // posted by the sender
    bool awaited = false;  // posted by the receiver
    bool done = false;
    bool dropped = false;  // a side has gone before the end: never to be copied
  };
  using Key = std::tuple<int, int, uint64_t>;  // from, to, tag

  // Ok, or why `rank` can no longer exchange anything with `peer`.
  Status Health(int rank, int peer) REQUIRES(mutex_) {
    const Status& cause = aborted_[static_cast<size_t>(rank)];
    if (!cause.ok()) return cause;
    if (gone_[static_cast<size_t>(peer)]) {
      return aborted_[static_cast<size_t>(rank)] = Status::PeerLost(
                 "rank " + std::to_string(rank) + " lost rank " + std::to_string(peer));
    }
    return Status::Ok();
  }

  const int size_;
  Mutex mutex_;
  CondVar changed_;
  std::map<Key, std::deque<std::shared_ptr<Message>>> queues_ GUARDED_BY(mutex_);
  std::vector<Status> aborted_ GUARDED_BY(mutex_);
  std::vector<bool> gone_ GUARDED_BY(mutex_);
  int64_t messages_ GUARDED_BY(mutex_) = 0;
  std::set<std::pair<int, int>> contacts_ GUARDED_BY(mutex_);
};

class MemoryTransfer : public Transfer {
 public:
  MemoryTransfer(std::shared_ptr<MemoryNetwork> network, int rank, int peer,
                 std::shared_ptr<MemoryNetwork::Message> message)
      : network_(std::move(network)), rank_(rank), peer_(peer), message_(std::move(message)) {}

  ~MemoryTransfer() override {
    MutexLock lock(network_->mutex_);
    if (!message_->done) message_->dropped = true;
  }

  Status Wait() override {
    MutexLock lock(network_->mutex_);
    while (!message_->done) {
      const bool matched = message_->sent && message_->awaited;
      if (matched && !message_->dropped) {
        std::memcpy(message_->into, message_->from, message_->bytes);
        message_->done = true;
        network_->changed_.NotifyAll();
        break;
      }
      SYRTOS_RETURN_IF_ERROR(network_->Health(rank_, peer_));
      network_->changed_.Wait(network_->mutex_);
    }
    return network_->aborted_[static_cast<size_t>(rank_)];
  }

 private:
  const std::shared_ptr<MemoryNetwork> network_;
  const int rank_;
  const int peer_;
  const std::shared_ptr<MemoryNetwork::Message> message_;
};

class NoMemoryTransfer : public Transfer {
 public:
  Status Wait() override { return Status::Ok(); }
};

class MemoryWire : public PointToPoint {
 public:
  MemoryWire(std::shared_ptr<MemoryNetwork> network, int rank)
      : network_(std::move(network)), rank_(rank) {}

  ~MemoryWire() override {
    MutexLock lock(network_->mutex_);
    network_->gone_[static_cast<size_t>(rank_)] = true;
    network_->changed_.NotifyAll();
  }

  int rank() const override { return rank_; }
  int size() const override { return network_->size_; }

  Result<std::unique_ptr<Transfer>> Send(int peer, uint64_t tag, const void* data,
                                         uint64_t bytes) override {
    return Post({rank_, peer, tag}, peer, &MemoryNetwork::Message::sent, bytes,
                [data](MemoryNetwork::Message& message) { message.from = data; });
  }

  Result<std::unique_ptr<Transfer>> Recv(int peer, uint64_t tag, void* data,
                                         uint64_t bytes) override {
    return Post({peer, rank_, tag}, peer, &MemoryNetwork::Message::awaited, bytes,
                [data](MemoryNetwork::Message& message) { message.into = data; });
  }

  void Abort(const Status& cause) override {
    MutexLock lock(network_->mutex_);
    Status& first = network_->aborted_[static_cast<size_t>(rank_)];
    if (first.ok()) first = cause;
    network_->changed_.NotifyAll();
  }

 private:
  template <typename Fill>
  Result<std::unique_ptr<Transfer>> Post(const MemoryNetwork::Key& key, int peer,
                                         bool MemoryNetwork::Message::* side, uint64_t bytes,
                                         Fill fill) {
    if (bytes == 0) return std::unique_ptr<Transfer>(std::make_unique<NoMemoryTransfer>());
    MutexLock lock(network_->mutex_);
    SYRTOS_RETURN_IF_ERROR(network_->Health(rank_, peer));
    // The oldest message of this key to which our side has not been added yet.
    auto& queue = network_->queues_[key];
    std::shared_ptr<MemoryNetwork::Message> message;
    if (queue.empty() || (*queue.front()).*side) {
      message = std::make_shared<MemoryNetwork::Message>();
      message->bytes = bytes;
      queue.push_back(message);
      network_->messages_++;
      network_->contacts_.insert({std::get<0>(key), std::get<1>(key)});
    } else {
      message = queue.front();
      queue.pop_front();
      if (queue.empty()) network_->queues_.erase(key);
      if (message->bytes != bytes) {
        return Status::Internal("a message of " + std::to_string(message->bytes) +
                                " bytes meets one of " + std::to_string(bytes));
      }
    }
    (*message).*side = true;
    fill(*message);
    network_->changed_.NotifyAll();
    return std::unique_ptr<Transfer>(
        std::make_unique<MemoryTransfer>(network_, rank_, peer, message));
  }

  const std::shared_ptr<MemoryNetwork> network_;
  const int rank_;
};

}  // namespace syrtos
