// Asks foreign code something in a process of its own, because that code may exit, crash or hang.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tcpx::doctor {

struct ChildAnswer {
  enum class End : uint8_t {
    kDone,        ///< `work` has returned
    kExited,      ///< somebody in it called exit; `number` is the code
    kKilled,      ///< `number` is the signal
    kTimedOut,    ///< it was killed at the limit
    kNotStarted,  ///< `number` is the errno
  };
  End end = End::kNotStarted;
  int number = 0;
  std::string said;  ///< at most 64 KiB; before a bad end, too

  /// "called exit(1)", "was killed by signal 11 (Segmentation fault)", ...; nothing for kDone.
  std::string how_it_ended() const;
};

using Say = std::function<void(std::string_view)>;

/// Runs `work` in a child process and collects what it says. The child's standard streams lead nowhere, it leaves no core file,
/// and it dies with this process; what it has started in turn dies at its end. Call while this process has one thread.
ChildAnswer ask_child(const std::function<void(const Say& say)>& work, Duration limit);

/// `text` on one line: control characters become blanks.
std::string one_line(std::string_view text);

}  // namespace tcpx::doctor
