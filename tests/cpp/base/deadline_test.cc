#include "syrtos/base/deadline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace syrtos {
namespace {

TEST(DeadlineTest, PastAndNonsenseAreNow) {
  for (double seconds : {0.0, -1.0, -std::numeric_limits<double>::infinity(), std::nan("")}) {
    const Deadline deadline = DeadlineAfter(Seconds(seconds));
    EXPECT_EQ(Remaining(deadline).count(), 0) << seconds;
    EXPECT_EQ(PollTimeout(deadline), 0) << seconds;
  }
}

TEST(DeadlineTest, EnormousTimeoutsDoNotOverflow) {
  for (double seconds : {1e12, 1e300, std::numeric_limits<double>::infinity()}) {
    const Deadline deadline = DeadlineAfter(Seconds(seconds));
    EXPECT_GT(Remaining(deadline).count(), 1e9) << seconds;
    EXPECT_GT(PollTimeout(deadline), 1000000) << seconds;
  }
}

TEST(DeadlineTest, PollTimeoutRoundsUp) {
  EXPECT_EQ(PollTimeout(DeadlineAfter(Seconds(10e-6)) + std::chrono::microseconds(900)), 1);
  const int ms = PollTimeout(DeadlineAfter(Seconds(100)));
  EXPECT_GT(ms, 90000);
  EXPECT_LE(ms, 100000);
}

TEST(DeadlineTest, SecondsTextIsShort) {
  EXPECT_EQ(SecondsText(Seconds(30)), "30 s");
  EXPECT_EQ(SecondsText(Seconds(0.25)), "0.25 s");
}

}  // namespace
}  // namespace syrtos
