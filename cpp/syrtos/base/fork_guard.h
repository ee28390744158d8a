// What a forked child of a rank (a DataLoader worker, say) must not keep: our descriptors.
//
// A child that held a copy of a socket would keep a dead rank looking alive. A pthread_atfork child
// handler therefore closes every registered descriptor in the child (a growing table of atomics
// without locks: the handler is async-signal-safe) and counts the fork. Threads: any.
//
// Order: register right after opening, unregister right before closing. A fork in that moment may
// leave the child a copy; the other order could close somebody else's descriptor there.
#pragma once

#include <cstdint>

namespace syrtos {

void RegisterDescriptor(int fd);
void UnregisterDescriptor(int fd);
// Number of forks between this process and the one that loaded the library; an engine remembers the
// number at its birth and refuses to work where it differs.
uint64_t ForkGeneration();

}  // namespace syrtos
