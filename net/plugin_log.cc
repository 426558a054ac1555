#include "net/plugin_log.h"

#include <cstdarg>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/log.h"
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

/// What GPUDirect-TCPX prints, as its users quote it, when one of the well-known mistakes was made.
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

// Called from C, so nothing may be thrown out of it.
void log_for_plugin(int plugin_level, unsigned long /*subsystems*/, const char* /*file*/, int /*line*/, const char* format,
                    ...) noexcept {
  const LogLevel level = level_of(plugin_level);
  if (format == nullptr || plugin_level == abi::kNcclLogNone || !log_enabled(level)) return;
  char text[1024] = "";
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  std::string_view line(text);
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  try {
    log(level, "plugin: ", line, hint_at(line));
  } catch (...) {  // out of memory: a log line is not worth the process
  }
}

}  // namespace

abi::NcclLogger plugin_logger() {
  return &log_for_plugin;
}

}  // namespace tcpx
