// The log: spdlog behind one function, so that no other file knows it.
//
// Lines go to stderr as "tcpx: LEVEL: text" ("tcpx: text" for notices). Formatting happens only when the level is on. The level
// comes from UCCL_TCPX_LOG_LEVEL; UCCL_TCPX_DEBUG=1 raises it to debug.
#pragma once

#include <new>
#include <string>
#include <string_view>

#include "base/text.h"
#include "tcpx/status.h"

namespace tcpx {

/// kNotice is for the few lines that a user must see once (which plugin is in use), and for lines that another variable requests.
/// It is on unless the log is off.
enum class LogLevel : int { kDebug, kInfo, kWarning, kError, kNotice, kOff };

/// @return kBadConfig when one of the two variables is malformed. The log works regardless, at level warning, so callers that
/// can report an error ask here.
Status check_log_environment();

bool log_enabled(LogLevel level);
void log_write(LogLevel level, std::string_view text);
void set_log_level(LogLevel level);

/// Receives every line that passes the level, instead of stderr. For tests. nullptr restores stderr.
/// Called under a lock: it must not log.
using LogSink = void (*)(LogLevel level, std::string_view text, void* user);
void set_log_sink(LogSink sink, void* user);

/// Without memory for the line it is left out: what it tells of has happened all the same.
template <class... Parts>
void log(LogLevel level, const Parts&... parts) noexcept {
  try {
    if (log_enabled(level)) log_write(level, concat(parts...));
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace tcpx
