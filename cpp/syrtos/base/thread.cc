#include "syrtos/base/thread.h"

#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>

#include "syrtos/base/fork_guard.h"
#include "syrtos/base/log.h"

namespace syrtos {
namespace {

// Blocks signals while in scope; a thread started meanwhile inherits the mask from its first
// instruction on, so there is no moment in which a handler could run on it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) {
      sigdelset(&blocked, fault);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

constexpr size_t kMaxNameLength = 15;  // the kernel's limit

}  // namespace

Result<Thread> Thread::Start(const std::string& name, std::function<void()> body) {
  Thread thread;
  SignalsBlocked guard;
  try {
    thread.thread_ = std::thread([name = name.substr(0, kMaxNameLength), body = std::move(body)] {
      pthread_setname_np(pthread_self(), name.c_str());
      body();
    });
  } catch (const std::system_error& error) {
    return Status::Internal("could not start the thread \"" + name + "\": " + error.what() +
                            ". Is there a limit on the number of threads (ulimit -u)?");
  }
  thread.fork_generation_ = ForkGeneration();
  return thread;
}

Thread::Thread(const std::string& name, std::function<void()> body) {
  Result<Thread> started = Start(name, std::move(body));
  if (!started.ok()) {
    SYRTOS_LOG(kFatal, "thread") << started.status().message();
    std::abort();
  }
  *this = std::move(started).value();
}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (this == &other) return *this;
  Join();
  thread_ = std::move(other.thread_);
  fork_generation_ = other.fork_generation_;
  return *this;
}

void Thread::Join() {
  if (!thread_.joinable()) return;
  if (fork_generation_ != ForkGeneration()) {
    // A forked child has no copy of the thread: joining would wait for ever, detaching would throw
    // and destroying the handle would end the child. So the handle is left behind.
    std::thread* left_behind = std::make_unique<std::thread>(std::move(thread_)).release();
    static_cast<void>(left_behind);
    return;
  }
  thread_.join();
}

}  // namespace syrtos
