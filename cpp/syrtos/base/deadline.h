// Time limits: a number of seconds becomes a point of the monotonic clock once, and every wait of
// an operation counts down to that point. Pure functions; no failure.
#pragma once

#include <chrono>
#include <string>

#include "syrtos/base/config.h"

namespace syrtos {

using Deadline = std::chrono::steady_clock::time_point;

// Now plus `timeout`. Negative and NaN count as zero; beyond a hundred years counts as that.
Deadline DeadlineAfter(Seconds timeout);
// Zero once passed.
Seconds Remaining(Deadline deadline);
// Milliseconds for poll and epoll_wait, rounded up so that a wait never ends too early and spins.
int PollTimeout(Deadline deadline);
// "2.5 s", for messages.
std::string SecondsText(Seconds seconds);

}  // namespace syrtos
