#include "net/plugin_log.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/text.h"
#include "net/plugin_exit.h"
#include "net/repeated_lines.h"
#include "tcpx/help.h"

namespace tcpx {
namespace {

LogLevel level_of(int plugin_level) {
  switch (plugin_level) {
    case abi::kNcclLogVersion:
      return LogLevel::kInfo;
    case abi::kNcclLogWarn:
      return LogLevel::kWarning;
    case abi::kNcclLogAbort:
      return LogLevel::kError;
    default:
      return LogLevel::kDebug;
  }
}

/// A message of GPUDirect-TCPX, as its users quote it, for one of the well-known mistakes.
struct KnownLine {
  std::string_view part;
  Hint hint;
};
constexpr KnownLine kKnownLines[] = {
    {"unable to allocate requests", Hint::kTooManyRequests},
    {"no cmsg", Hint::kNoControlMessage},
};

std::string hint_at(std::string_view line) {
  for (const KnownLine& known : kKnownLines) {
    if (line.find(known.part) != std::string_view::npos) return name_in_detail(known.hint);
  }
  return "";
}

/// Shared by all plugins of the process. Never destroyed: a plugin's threads may still log while the process exits.
RepeatedLines& repeated_lines() {
  static RepeatedLines& lines = *new RepeatedLines;
  return lines;
}

/// See take_words_of_own_threads. Never destroyed, as above.
class OwnThreadWords {
 public:
  static OwnThreadWords& instance() {
    static OwnThreadWords& words = *new OwnThreadWords;
    return words;
  }
  void add(std::string_view line) {
    const MutexLock lock(mutex_);
    if (line == last_) return;
    before_ = std::exchange(last_, std::string(line));
  }
  std::string take() {
    const MutexLock lock(mutex_);
    const std::string before = std::exchange(before_, ""), last = std::exchange(last_, "");
    return before.empty() ? last : concat(before, "; ", last);
  }

 private:
  Mutex mutex_;
  std::string before_ TCPX_GUARDED_BY(mutex_), last_ TCPX_GUARDED_BY(mutex_);
};

void log_warnings(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) log(LogLevel::kWarning, "plugin: ", line);
}

void tell_counts_at_exit() noexcept {
  try {
    std::vector<std::string> counts;
    repeated_lines().tell_all(Clock::steady().now(), counts);
    log_warnings(counts);
  } catch (...) {  // out of memory
  }
}

/// @return true when this line is to be logged. Only warnings come in floods; every error is logged, and every line at debug
/// level.
bool passes(LogLevel level, const LineSource& source) {
  std::vector<std::string> counts;
  const TimePoint now = Clock::steady().now();
  bool passes = true;
  if (level == LogLevel::kWarning) {
    passes = repeated_lines().admit(source, now, counts);
  } else {
    repeated_lines().tell_due(now, counts);
  }
  log_warnings(counts);
  return passes;
}

// Called from C, so no exception may leave it.
void log_for_plugin(int plugin_level, unsigned long /*subsystems*/, const char* file, int line_number, const char* format,
                    ...) noexcept {
  const LogLevel level = level_of(plugin_level);
  const bool is_logged = log_enabled(level);
  const bool is_wanted = is_logged || level == LogLevel::kWarning;  // the last words of a call, see PluginCall
  if (format == nullptr || plugin_level == abi::kNcclLogNone || !is_wanted) return;
  char text[1024] = "";
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::string_view line(text);
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  const LineSource source{.file = file, .line = line_number, .format = format};
  try {
    // A caller wants to know why its call has failed, whether or not the log has told it already.
    if (level == LogLevel::kWarning) {
      if (PluginCall::current() != nullptr) {
        PluginCall::heard(line);
      } else {
        OwnThreadWords::instance().add(line);
      }
    }
    if (is_logged && !passes(level, source)) return;
    if (level == LogLevel::kWarning) repeated_lines().remember(source, line);
    log(level, "plugin: ", line, hint_at(line));
  } catch (...) {  // out of memory: a log line is not worth the process
  }
}

}  // namespace

abi::NcclLogger plugin_logger() {
  static const int registered = std::atexit(tell_counts_at_exit);
  (void)registered;
  return &log_for_plugin;
}

std::string take_words_of_own_threads() {
  return OwnThreadWords::instance().take();
}

}  // namespace tcpx
