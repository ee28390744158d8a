// Waiting for descriptors: RAII epoll, and an eventfd to be woken by.
//
// Threads: any. Readiness is level-triggered: several threads in Wait may all be told of one event.
// Failure: making one fails only when the process is out of descriptors (kInternal).
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "syrtos/base/result.h"
#include "syrtos/transport/socket.h"

namespace syrtos {

// A flag that wakes pollers. Sets before a Clear are merged.
class Event {
 public:
  static Result<Event> Create();
  void Set();
  void Clear();
  int fd() const { return socket_.fd(); }

 private:
  Socket socket_;  // owns any descriptor, and closes it in forked children
};

class Poller {
 public:
  static Result<Poller> Create();
  // Watches `fd` for reading. The caller removes it before closing it.
  Status Add(int fd);
  void Remove(int fd);
  // Also (or no longer) for writing.
  void WatchWrite(int fd, bool on);
  // Waits until something is ready or `timeout` (nullopt: for ever); the ready descriptors.
  std::vector<int> Wait(std::optional<std::chrono::milliseconds> timeout);

 private:
  Socket epoll_;
};

}  // namespace syrtos
