#include "syrtos/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "syrtos/base/thread.h"

namespace syrtos {
namespace {

class LogTest : public testing::Test {
 protected:
  void TearDown() override { ConfigureLog(LogLevel::kWarning, -1); }
};

int Touch(int* counter) { return ++*counter; }

TEST_F(LogTest, OneLineHoldsTimeLevelRankThreadComponentAndText) {
  ConfigureLog(LogLevel::kInfo, 3);
  testing::internal::CaptureStderr();
  Thread("syrtos-test", [] { SYRTOS_LOG(kInfo, "stall") << "text " << 7; }).Join();
  std::string line = testing::internal::GetCapturedStderr();
  for (size_t i = 0; i < std::min<size_t>(line.size(), 26); ++i) {
    if (std::isdigit(static_cast<unsigned char>(line[i])) != 0) line[i] = '0';
  }
  EXPECT_EQ(line, "0000-00-00 00:00:00.000000 INFO [rank 3] syrtos-test stall: text 7\n");
}

TEST_F(LogTest, WithoutConfigurationOnlyWarningsAndWorseAppear) {
  testing::internal::CaptureStderr();
  SYRTOS_LOG(kInfo, "test") << "quiet";
  SYRTOS_LOG(kWarning, "test") << "loud";
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("quiet"), std::string::npos);
  EXPECT_NE(text.find("WARNING [rank -] "), std::string::npos) << text;
}

TEST_F(LogTest, TextIsNotBuiltWhenTheLevelIsOff) {
  ConfigureLog(LogLevel::kError, 0);
  int built = 0;
  SYRTOS_LOG(kDebug, "test") << Touch(&built);
  EXPECT_EQ(built, 0);
}

TEST_F(LogTest, OffSilencesEverything) {
  ConfigureLog(LogLevel::kOff, 0);
  testing::internal::CaptureStderr();
  SYRTOS_LOG(kFatal, "test") << "x";
  LogLine(LogLevel::kOff, "test", "y");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_FALSE(LogEnabled(LogLevel::kFatal));
}

TEST_F(LogTest, EachLevelHasItsName) {
  ConfigureLog(LogLevel::kTrace, 0);
  const char* names[] = {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"};
  for (int level = 0; level <= 5; ++level) {
    testing::internal::CaptureStderr();
    LogLine(static_cast<LogLevel>(level), "test", "x");
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_NE(text.find(std::string(" ") + names[level] + " [rank 0] "), std::string::npos) << text;
  }
}

TEST_F(LogTest, AMessageStaysOnOneLine) {
  testing::internal::CaptureStderr();
  SYRTOS_LOG(kError, "test") << "first\nsecond";
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("first | second\n"), std::string::npos) << text;
}

TEST_F(LogTest, ErrnoSurvivesALogLine) {
  testing::internal::CaptureStderr();
  errno = ENOENT;
  LogLine(LogLevel::kError, "test", "x");
  const int after = errno;
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(after, ENOENT);
}

// A datagram socket keeps the borders between writes.
TEST_F(LogTest, ALineIsOneWrite) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
  const int saved = dup(STDERR_FILENO);
  ASSERT_GE(saved, 0);
  dup2(pair[0], STDERR_FILENO);
  SYRTOS_LOG(kError, "test") << std::string(1000, 'a') << "end";
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::vector<char> buffer(4096);
  const ssize_t n = recv(pair[1], buffer.data(), buffer.size(), MSG_DONTWAIT);
  ASSERT_GT(n, 1000);
  EXPECT_EQ(std::string(buffer.data(), static_cast<size_t>(n)).substr(static_cast<size_t>(n) - 4),
            "end\n");
  EXPECT_LT(recv(pair[1], buffer.data(), buffer.size(), MSG_DONTWAIT), 0);
  close(pair[0]);
  close(pair[1]);
}

}  // namespace
}  // namespace syrtos
