// What the test programs (test_device_discovery, test_connection, test_tcpx_transfer) have in common: exit codes, the last line
// they print, Ctrl-C, and the settings they take from the environment.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "tcpx/status.h"

namespace CLI {
class App;
}

namespace tcpx::testing {

enum ExitCode : int { kExitPassed = 0, kExitFailed = 1, kExitUsage = 2, kExitSkipped = 77 };

/// Parses the command line. @return true to go on; else `exit_code` is what main returns (help was asked for, or usage is wrong).
bool parse_command_line(CLI::App& app, int argc, char** argv, int& exit_code);

/// Prints "[who] text" on stdout, as one line, at once, from any thread.
void say(const std::string& who, const std::string& text);

/// The last line of a program and its exit code: "PASSED: what", "FAILED: why" (stderr, and below it "help: " and where to read
/// on), "SKIPPED: reason".
int passed(const std::string& what);
int failed(const Status& why);
int skipped(const std::string& reason);

/// From now on the first Ctrl-C (or SIGTERM) sets the flag that is returned, so that waits end and comms are closed properly; the
/// second one ends the process as usual.
const std::atomic<bool>& stop_on_interrupt();

/// UCCL_TCPX_BOOTSTRAP_PORT, UCCL_TCPX_TIMEOUT_MS and UCCL_TCPX_DEBUG.
struct ProgramSettings {
  uint16_t port = 0;
  Duration timeout{};
  bool debug = false;
};
/// @return kBadConfig when one is malformed, or UCCL_TCPX_LOG_LEVEL, which the log itself cannot report.
Result<ProgramSettings> program_settings();

}  // namespace tcpx::testing
