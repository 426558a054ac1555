// Foreign code and foreign programs, asked in a process of their own because they may exit, crash or hang.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  std::string said;  ///< at most 4 MiB; before a bad end, too

  /// "called exit(1)", "was killed by signal 11 (Segmentation fault)", ...; nothing for kDone.
  std::string how_it_ended() const;
  /// The lines that were said: the first word of each, and the rest.
  std::vector<std::pair<std::string, std::string>> lines() const;
};

using Say = std::function<void(std::string_view)>;

/// The fate of a library that a child has opened, and asked.
struct LibraryAnswer {
  enum class End : uint8_t {
    kAnswered,
    kRefused,  ///< it cannot be opened, or lacks a function, or one of its functions failed
    kDied,     ///< the process ended
    kHung,
  };
  End end = End::kRefused;
  std::string detail;  ///< of all but kAnswered: the linker's words, or how the process ended

  /// Takes over the end of a child that has not done its work.
  void note_bad_end(const ChildAnswer& child);
};

/// Runs `work` in a child process and collects what it says. The child's standard streams lead nowhere, it leaves no core file,
/// and it dies with this process; processes it has started in turn die at its end. Call while this process has one thread.
ChildAnswer ask_child(const std::function<void(const Say& say)>& work, Duration limit);

/// In a child: opens a library. nullptr, and its answer is "refused", with the linker's reason, when that fails.
void* open_library(const std::string& path, const Say& say);

/// Runs a program of the system's own directories with these arguments, without a shell and without input.
/// @param limit for the whole call
/// @return as if it were a child that says its standard output and error, and calls exit; kNotStarted when it is not installed
ChildAnswer run_command(const std::string& program, const std::vector<std::string>& arguments, Duration limit);

/// `text` on one line: control characters become blanks.
std::string one_line(std::string_view text);

}  // namespace tcpx::doctor
