#include "syrtos/base/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>

#include "syrtos/base/deadline.h"
#include "syrtos/base/mutex.h"

namespace syrtos {
namespace {

TEST(ThreadTest, RunsUnderItsNameCutToFifteenCharacters) {
  std::string name;
  Thread("syrtos-a-very-long-name", [&name] {
    char buffer[16];
    pthread_getname_np(pthread_self(), buffer, sizeof buffer);
    name = buffer;
  }).Join();
  EXPECT_EQ(name, "syrtos-a-very-l");
}

TEST(ThreadTest, BlocksSignalsThereAndNotHere) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  sigset_t inside;
  Thread("test", [&inside] { pthread_sigmask(SIG_SETMASK, nullptr, &inside); }).Join();
  for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM, SIGPROF, SIGHUP}) {
    EXPECT_EQ(sigismember(&inside, signal), 1) << signal;
  }
  EXPECT_EQ(sigismember(&inside, SIGSEGV), 0);  // a fault must reach its handler
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal = 1; signal < 32; ++signal) {
    EXPECT_EQ(sigismember(&before, signal), sigismember(&after, signal)) << signal;
  }
}

TEST(ThreadTest, DestructorAndAssignmentJoin) {
  std::atomic<int> done{0};
  {
    Thread thread("first", [&done] {
      usleep(20000);
      ++done;
    });
    thread = Thread("second", [&done] { ++done; });
    EXPECT_GE(done, 1);
  }
  EXPECT_EQ(done, 2);
}

TEST(ThreadTest, KnowsWhetherItIsCurrent) {
  EXPECT_FALSE(Thread().IsCurrent());
  Mutex mutex;
  mutex.Lock();  // until `thread` can be looked at from inside
  Thread thread;
  bool inside = false;
  thread = Thread("test", [&] {
    MutexLock lock(mutex);
    inside = thread.IsCurrent();
  });
  mutex.Unlock();
  thread.Join();
  EXPECT_TRUE(inside);
  EXPECT_FALSE(thread.IsCurrent());
}

TEST(ThreadTest, StartReportsSuccessWithARunningThread) {
  std::atomic<bool> ran{false};
  Result<Thread> thread = Thread::Start("test", [&ran] { ran = true; });
  ASSERT_TRUE(thread.ok()) << thread.status().message();
  thread->Join();
  EXPECT_TRUE(ran);
}

TEST(ThreadTest, DestructorInAForkedChildDoesNotWaitForTheParentsThread) {
  Mutex mutex;
  mutex.Lock();
  auto thread = std::make_unique<Thread>("test", [&mutex] { MutexLock lock(mutex); });
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // instead of hanging for ever
    thread.reset();
    _exit(7);
  }
  int state = 0;
  EXPECT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 7) << state;
  mutex.Unlock();
  thread->Join();
}

TEST(CondVarTest, WaitUntilReportsTheDeadline) {
  Mutex mutex;
  CondVar changed;
  MutexLock lock(mutex);
  bool in_time = true;
  const Deadline deadline = DeadlineAfter(Seconds(0.02));
  while (in_time) in_time = changed.WaitUntil(mutex, deadline);
  EXPECT_EQ(Remaining(deadline).count(), 0);
}

}  // namespace
}  // namespace syrtos
