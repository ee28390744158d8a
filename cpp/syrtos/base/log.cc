#include "syrtos/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

namespace syrtos {
namespace {

constexpr int kNoRank = -1;

struct LogState {
  std::atomic<LogLevel> level{LogLevel::kWarning};
  std::atomic<int> rank{kNoRank};
};

// Constant-initialised, so it can be used before and after every other static object.
LogState& State() {
  static LogState state;
  return state;
}

const char* LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return "TRACE";
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
    case LogLevel::kFatal:
      return "FATAL";
    case LogLevel::kOff:
      break;
  }
  return "?";
}

// Local time, to the microsecond.
std::string TimeText() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  localtime_r(&now.tv_sec, &parts);
  char seconds[32];
  char text[64];
  strftime(seconds, sizeof seconds, "%Y-%m-%d %H:%M:%S", &parts);
  std::snprintf(text, sizeof text, "%s.%06d", seconds, static_cast<int>(now.tv_nsec / 1000));
  return text;
}

std::string ThreadName() {
  char name[16] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return name;
}

// One write for the whole line keeps lines of several threads and processes apart on a pipe (up to
// PIPE_BUF). What stderr does not take is lost: logging must never block a rank for good.
void WriteLine(const std::string& line) {
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
}

}  // namespace

void ConfigureLog(LogLevel level, int rank) {
  State().level.store(level, std::memory_order_relaxed);
  State().rank.store(rank, std::memory_order_relaxed);
}

bool LogEnabled(LogLevel level) {
  return level != LogLevel::kOff && level >= State().level.load(std::memory_order_relaxed);
}

void LogLine(LogLevel level, const char* component, const std::string& text) {
  if (!LogEnabled(level)) return;
  const int saved_errno = errno;  // so that a caller may log between a call and errno
  const int rank = State().rank.load(std::memory_order_relaxed);
  std::string line = TimeText() + " " + LevelName(level) + " [rank " +
                     (rank < 0 ? std::string("-") : std::to_string(rank)) + "] " + ThreadName() +
                     " " + component + ": ";
  for (char c : text) {
    if (c == '\n') {
      line += " | ";  // one message, one line
    } else {
      line += c;
    }
  }
  line += '\n';
  WriteLine(line);
  errno = saved_errno;
}

}  // namespace syrtos
