#include "tests/support/program.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/environment.h"
#include "base/text.h"
#include "tcpx/help.h"

namespace tcpx::testing {
namespace {

std::atomic<bool> stop_flag = false;  // a signal handler has no other way to reach the program
static_assert(std::atomic<bool>::is_always_lock_free);

void set_stop_flag(int) {
  stop_flag = true;
}

void print_line(std::FILE* file, const std::string& line) {
  std::fputs((line + '\n').c_str(), file);
  std::fflush(file);
}

}  // namespace

bool parse_command_line(CLI::App& app, int argc, char** argv, int& exit_code) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? kExitPassed : kExitUsage;
    return false;
  }
}

void say(const std::string& who, const std::string& text) {
  print_line(stdout, concat('[', who, "] ", text));
}

int passed(const std::string& what) {
  print_line(stdout, concat("PASSED: ", what));
  return kExitPassed;
}

int failed(const Status& why) {
  print_line(stderr, concat("FAILED: ", why.to_string(), '\n', help_lines(why)));
  return kExitFailed;
}

int skipped(const std::string& reason) {
  print_line(stdout, concat("SKIPPED: ", reason));
  return kExitSkipped;
}

const std::atomic<bool>& stop_on_interrupt() {
  struct sigaction action {};
  action.sa_handler = set_stop_flag;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  return stop_flag;
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
