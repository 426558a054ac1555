// Captures the log of a test case. Lines of level warning and error fail the case unless it announced them. What a process says once about
// its environment is announced by chance, in the case that comes first: it is allowed in all.
#pragma once

#include <string>
#include <vector>

namespace tcpx::testing {

/// Announces that lines containing `part` may be logged at warning or error level in this case, any number of times.
void allow_log(const std::string& part);

/// True when a line containing `part` has been logged in this case, at any enabled level.
bool logged(const std::string& part);

/// Used by the test main.
class LogCapture {
 public:
  static void start();
  /// @return the unannounced warnings and errors.
  static std::vector<std::string> stop();
};

}  // namespace tcpx::testing
