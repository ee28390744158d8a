#include "syrtos/base/fork_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <vector>

#include "syrtos/base/thread.h"

namespace syrtos {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) != -1 || errno != EBADF; }

// What `check` returns in a forked child, as an exit code.
int InChild(const std::function<int()>& check) {
  const pid_t child = fork();
  if (child == 0) _exit(check());
  int state = 0;
  EXPECT_EQ(waitpid(child, &state, 0), child);
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

int OpenOne() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

TEST(ForkGuardTest, RegisteredDescriptorIsClosedInTheChildOnly) {
  const int guarded = OpenOne();
  const int plain = OpenOne();
  RegisterDescriptor(guarded);
  EXPECT_EQ(InChild([&] { return (IsOpen(guarded) ? 1 : 0) + (IsOpen(plain) ? 2 : 0); }), 2);
  EXPECT_TRUE(IsOpen(guarded));
  UnregisterDescriptor(guarded);
  close(guarded);
  close(plain);
}

TEST(ForkGuardTest, UnregisteredDescriptorStaysOpenInTheChild) {
  const int fd = OpenOne();
  RegisterDescriptor(fd);
  UnregisterDescriptor(fd);
  EXPECT_EQ(InChild([&] { return IsOpen(fd) ? 1 : 0; }), 1);
  close(fd);
}

TEST(ForkGuardTest, GenerationCountsForksInTheChild) {
  const uint64_t here = ForkGeneration();
  EXPECT_EQ(InChild([&] {
              const uint64_t child = ForkGeneration();
              int grandchild_is_next =
                  InChild([&] { return ForkGeneration() == child + 1 ? 1 : 0; });
              return child == here + 1 && grandchild_is_next == 1 ? 1 : 0;
            }),
            1);
  EXPECT_EQ(ForkGeneration(), here);
}

TEST(ForkGuardTest, DescriptorZeroCanBeGuardedAndNegativeOnesAreIgnored) {
  RegisterDescriptor(-1);
  UnregisterDescriptor(-1);
  const int saved = dup(STDIN_FILENO);
  RegisterDescriptor(STDIN_FILENO);
  EXPECT_EQ(InChild([] { return IsOpen(STDIN_FILENO) ? 1 : 0; }), 0);
  UnregisterDescriptor(STDIN_FILENO);
  close(saved);
}

TEST(ForkGuardTest, HoldsMoreDescriptorsThanOneChunkOfTheTable) {
  std::vector<int> fds;
  fds.reserve(700);
  for (int i = 0; i < 700; ++i) {
    fds.push_back(OpenOne());
    ASSERT_GE(fds.back(), 0);
    RegisterDescriptor(fds.back());
  }
  EXPECT_EQ(InChild([&] {
              for (int fd : fds) {
                if (IsOpen(fd)) return 1;
              }
              return 0;
            }),
            0);
  for (int fd : fds) {
    EXPECT_TRUE(IsOpen(fd));
    UnregisterDescriptor(fd);
  }
  EXPECT_EQ(InChild([&] { return IsOpen(fds.front()) && IsOpen(fds.back()) ? 1 : 0; }), 1);
  for (int fd : fds) close(fd);
}

TEST(ForkGuardTest, ThreadsMayRegisterAtTheSameTime) {
  std::atomic<int> made_up{100000};  // numbers that are no descriptors
  {
    std::vector<Thread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back("test", [&made_up] {
        for (int k = 0; k < 300; ++k) {
          const int number = made_up++;
          RegisterDescriptor(number);
          if (k % 2 == 0) UnregisterDescriptor(number);
        }
      });
    }
  }
  for (int number = 100000; number < made_up; ++number) UnregisterDescriptor(number);
  EXPECT_EQ(made_up, 101200);
}

}  // namespace
}  // namespace syrtos
