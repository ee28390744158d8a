// One line per message on stderr, in one write: time, level, rank, thread name, component, text.
//   2026-01-31 12:00:00.123456 WARNING [rank 3] syrtos-engine stall: text
//
// Level and rank are, with the table of fork_guard.h, the only global state of the core. Threads:
// any.
#pragma once

#include <functional>
#include <sstream>
#include <string>

namespace syrtos {

enum class LogLevel : int {
  kTrace = 0,
  kDebug = 1,
  kInfo = 2,
  kWarning = 3,
  kError = 4,
  kFatal = 5,
  kOff = 6
};

// Sets what is printed and the rank shown; called once by the session before an engine is made.
void ConfigureLog(LogLevel level, int rank);
bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, const char* component, const std::string& text);

}  // namespace syrtos

// SYRTOS_LOG(kWarning, "stall") << "text" << 3;  The text is built only if the level is on.
#define SYRTOS_LOG(level, component)                                                  \
  for (bool syrtos_on_ = ::syrtos::LogEnabled(::syrtos::LogLevel::level); syrtos_on_; \
       syrtos_on_ = false)                                                            \
  ::syrtos::LogStream(::syrtos::LogLevel::level, component).stream()

namespace syrtos {
class LogStream {
 public:
  LogStream(LogLevel level, const char* component) : level_(level), component_(component) {}
  ~LogStream() { LogLine(level_, component_, text_.str()); }
  std::ostringstream& stream() { return text_; }

 private:
  LogLevel level_;
  const char* component_;
  std::ostringstream text_;
};
}  // namespace syrtos
