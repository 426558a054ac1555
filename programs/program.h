// Common parts of the test programs (test_device_discovery, test_connection, test_tcpx_transfer): exit codes, the last line
// they print, and the settings they take from the environment. Command line and Ctrl-C are those of all programs.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "programs/command_line.h"
#include "programs/interrupt.h"
#include "tcpx/status.h"

namespace tcpx::programs {

enum ExitCode : int { kExitPassed = 0, kExitFailed = 1, kExitUsage = 2, kExitSkipped = 77 };

/// Prints "[who] text" on stdout, as one line, at once, from any thread.
void say(const std::string& who, const std::string& text);

/// The last line of a program and its exit code: "PASSED: what", "FAILED: why" (stderr, and below it "help: " and where to read
/// on), "SKIPPED: reason". After Ctrl-C `failed` says "interrupted" instead and returns 130 (143 for SIGTERM).
int passed(const std::string& what);
int failed(const Status& why);
int skipped(const std::string& reason);

/// The settings that all programs share.
struct ProgramSettings {
  uint16_t port = 0;
  Duration timeout{};
  bool debug = false;
};
/// @return kBadConfig when any variable of docs/env.md is malformed, also one that this program does not read: whoever set it
/// means it to hold.
Result<ProgramSettings> program_settings();

}  // namespace tcpx::programs
