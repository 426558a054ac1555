#include "tests/support/program.h"

#include <cstdio>

#include "base/environment.h"
#include "base/text.h"
#include "tcpx/help.h"

namespace tcpx::testing {
namespace {

constexpr int kSignalBase = 128;  // of exit codes, as shells have it

void print_line(std::FILE* file, const std::string& line) {
  std::fputs((line + '\n').c_str(), file);
  std::fflush(file);
}

}  // namespace

void say(const std::string& who, const std::string& text) {
  print_line(stdout, concat('[', who, "] ", text));
}

int passed(const std::string& what) {
  print_line(stdout, concat("PASSED: ", what));
  return kExitPassed;
}

int failed(const Status& why) {
  // What an interrupt makes of the work, here and at the other end, is no news.
  if (const int signal = interrupted_by(); signal != 0) {
    const bool more = why.code() == Code::kCancelled && why.detail() != "interrupted";
    print_line(stderr, more ? concat("interrupted: ", why.detail()) : "interrupted");
    return kSignalBase + signal;
  }
  print_line(stderr, concat("FAILED: ", why.to_string(), '\n', help_lines(why)));
  return kExitFailed;
}

int skipped(const std::string& reason) {
  print_line(stdout, concat("SKIPPED: ", reason));
  return kExitSkipped;
}

Result<ProgramSettings> program_settings() {
  const auto port = environment_integer(Variable::kBootstrapPort);
  if (!port.is_ok()) return port.status();
  const auto timeout = environment_integer(Variable::kTimeoutMs);
  if (!timeout.is_ok()) return timeout.status();
  const auto debug = environment_integer(Variable::kDebug);
  if (!debug.is_ok()) return debug.status();
  if (const auto level = environment_choice(Variable::kLogLevel); !level.is_ok()) return level.status();
  return ProgramSettings{static_cast<uint16_t>(*port), std::chrono::milliseconds(*timeout), *debug == 1};
}

}  // namespace tcpx::testing
