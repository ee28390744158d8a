#include "syrtos/base/deadline.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace syrtos {
namespace {

constexpr Seconds kLongest{100.0 * 365 * 24 * 3600};
constexpr int64_t kLongestPollMs = 24 * 3600 * 1000;  // poll again after a day

}  // namespace

Deadline DeadlineAfter(Seconds timeout) {
  const Deadline now = std::chrono::steady_clock::now();
  if (!(timeout.count() > 0)) return now;  // written so that NaN is caught too
  return now + std::chrono::duration_cast<Deadline::duration>(std::min(timeout, kLongest));
}

Seconds Remaining(Deadline deadline) {
  return std::max(Seconds(0), Seconds(deadline - std::chrono::steady_clock::now()));
}

int PollTimeout(Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  if (left <= Deadline::duration::zero()) return 0;
  const int64_t ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min(ms, kLongestPollMs));
}

std::string SecondsText(Seconds seconds) {
  char text[48];
  std::snprintf(text, sizeof text, "%.4g s", seconds.count());
  return text;
}

}  // namespace syrtos
