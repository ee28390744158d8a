#include "syrtos/base/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

namespace syrtos {
namespace {

// A slot holds a descriptor + 1; 0 is free. That way a zeroed chunk is an empty one and the first
// chunk needs no initialisation at run time.
struct Chunk {
  std::array<std::atomic<int>, 256> slots{};
  std::atomic<Chunk*> next{nullptr};
};

struct Table {
  Chunk first;
  std::atomic<uint64_t> forks{0};
};

// Chunks are only ever added, so a walk needs no lock, neither here nor in the child of a fork.
Table& TheTable() {
  static Table table;
  return table;
}

bool TryReplace(Chunk& chunk, int from, int to) {
  for (std::atomic<int>& slot : chunk.slots) {
    int expected = from;
    if (slot.load(std::memory_order_relaxed) == from &&
        slot.compare_exchange_strong(expected, to)) {
      return true;
    }
  }
  return false;
}

Chunk& NextOrNew(Chunk& chunk) {
  Chunk* next = chunk.next.load(std::memory_order_acquire);
  if (next != nullptr) return *next;
  auto fresh = std::make_unique<Chunk>();
  if (chunk.next.compare_exchange_strong(next, fresh.get(), std::memory_order_acq_rel)) {
    return *fresh.release();  // lives as long as the process
  }
  return *next;  // another thread was faster
}

// Async-signal-safe: atomics and close only.
void CloseAllInChild() {
  Table& table = TheTable();
  table.forks.fetch_add(1);
  for (Chunk* chunk = &table.first; chunk != nullptr; chunk = chunk->next.load()) {
    for (std::atomic<int>& slot : chunk->slots) {
      const int entry = slot.exchange(0);
      if (entry != 0) close(entry - 1);
    }
  }
}

void InstallOnce() {
  static const int installed = pthread_atfork(nullptr, nullptr, CloseAllInChild);
  static_cast<void>(installed);
}

}  // namespace

void RegisterDescriptor(int fd) {
  if (fd < 0) return;
  InstallOnce();
  Chunk* chunk = &TheTable().first;
  while (!TryReplace(*chunk, 0, fd + 1)) chunk = &NextOrNew(*chunk);
}

void UnregisterDescriptor(int fd) {
  if (fd < 0) return;
  for (Chunk* chunk = &TheTable().first; chunk != nullptr; chunk = chunk->next.load()) {
    if (TryReplace(*chunk, fd + 1, 0)) return;
  }
}

uint64_t ForkGeneration() {
  InstallOnce();
  return TheTable().forks.load();
}

}  // namespace syrtos
