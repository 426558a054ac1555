#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>

#include "base/environment.h"
#include "base/mutex.h"

namespace tcpx {
namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kNotice:
      return spdlog::level::critical;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

std::string_view prefix_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "tcpx: debug: ";
    case LogLevel::kInfo:
      return "tcpx: info: ";
    case LogLevel::kWarning:
      return "tcpx: warning: ";
    case LogLevel::kError:
      return "tcpx: error: ";
    case LogLevel::kNotice:
    case LogLevel::kOff:
      break;
  }
  return "tcpx: ";
}

// The log is one mutable object for the process, because every layer writes to it, often before anything could pass it in.
struct Log {
  Log() : stderr_logger("tcpx", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()) {
    stderr_logger.set_pattern("%v");
    stderr_logger.set_level(spdlog::level::trace);
    stderr_logger.flush_on(spdlog::level::trace);
    // A malformed level must not silence the log: warnings stay on.
    const auto named = environment_choice(Variable::kLogLevel);
    const auto debug = environment_integer(Variable::kDebug);
    LogLevel chosen = named.is_ok() ? static_cast<LogLevel>(*named) : LogLevel::kWarning;
    if (debug.is_ok() && *debug == 1) chosen = LogLevel::kDebug;
    level.store(static_cast<int>(chosen));
  }
  std::atomic<int> level;
  Mutex mutex;
  LogSink sink TCPX_GUARDED_BY(mutex) = nullptr;
  void* sink_user TCPX_GUARDED_BY(mutex) = nullptr;
  spdlog::logger stderr_logger;
};

Log& the_log() {
  static Log& log = *new Log;  // never destroyed: threads and static destructors may still log while the process exits
  return log;
}

}  // namespace

Status check_log_environment() {
  if (const auto level = environment_choice(Variable::kLogLevel); !level.is_ok()) return level.status();
  if (const auto debug = environment_integer(Variable::kDebug); !debug.is_ok()) return debug.status();
  return Status::ok();
}

bool log_enabled(LogLevel level) {
  const auto chosen = static_cast<LogLevel>(the_log().level.load(std::memory_order_relaxed));
  // Level "error" leaves out notices, because these appear when nothing is wrong.
  return level >= chosen && !(level == LogLevel::kNotice && chosen == LogLevel::kError);
}

void set_log_level(LogLevel level) {
  the_log().level.store(static_cast<int>(level));
}

void set_log_sink(LogSink sink, void* user) {
  Log& log = the_log();
  MutexLock lock(log.mutex);
  log.sink = sink;
  log.sink_user = user;
}

void log_write(LogLevel level, std::string_view text) {
  Log& log = the_log();
  MutexLock lock(log.mutex);
  if (log.sink != nullptr) {
    log.sink(level, text, log.sink_user);
    return;
  }
  log.stderr_logger.log(to_spdlog(level), "{}{}", prefix_of(level), text);
}

}  // namespace tcpx
