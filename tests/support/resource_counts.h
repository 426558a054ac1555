// What this process holds, compared before and after a test case: descriptors, threads, shared mappings, files in /dev/shm, and
// what stand-ins have given out (open_counts.h). Anonymous memory is left out: malloc maps and unmaps it as it likes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tcpx::testing {

/// Announces that this case may leave things whose names contain `part`, such as those of a library that is never unloaded.
void allow_left(const std::string& part);

/// The same for all cases of a program. @return true, for an initialiser of a namespace
bool allow_left_always(const std::string& part);

/// Counts, until the end of the case, what `count` says as well: of things of a loaded library, which counts by itself.
void count_also(const std::string& name, std::function<int64_t()> count);

/// Used by the test main, and by tests of the counting.
class ResourceCounts {
 public:
  static ResourceCounts now();
  /// What this has and `before` had not, each by name; empty: nothing.
  std::vector<std::string> more_than(const ResourceCounts& before) const;

  /// At the begin and the end of a case. Threads that are told to end take a moment for that, and so do things that they own:
  /// `stop` gives them some time before it names what is left.
  static void start();
  static std::vector<std::string> stop();

 private:
  std::map<std::string, int64_t> held_;  // by name
};

}  // namespace tcpx::testing
