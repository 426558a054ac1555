#include "programs/program.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/environment.h"
#include "base/text.h"
#include "tcpx/help.h"

namespace tcpx::programs {
namespace {

constexpr int kSignalBase = 128;  // of exit codes, as shells have it

void print_line(std::FILE* file, const std::string& line) {
  std::fputs((line + '\n').c_str(), file);
  std::fflush(file);
}

/// The page that a line of help names, as it was installed with this program: in a Python package or below a prefix. "" when it
/// was not, as in the tree that it was built in.
std::string installed_page() {
  std::error_code error;
  const auto prefix = std::filesystem::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  for (const char* const place : {"doc/troubleshooting.md", "share/doc/tcpx/docs/troubleshooting.md"}) {
    if (std::filesystem::is_regular_file(prefix / place, error)) return (prefix / place).string();
  }
  return "";
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
  // Errors that an interrupt causes, here and at the other end, are no news.
  if (const int signal = interrupted_by(); signal != 0) {
    const bool more = why.code() == Code::kCancelled && !why.detail().ends_with("interrupted");
    print_line(stderr, more ? concat("interrupted: ", why.detail()) : "interrupted");
    return kSignalBase + signal;
  }
  print_line(stderr, concat("FAILED: ", why.to_string(), '\n', help_lines(why)));
  if (const std::string page = installed_page(); !page.empty())
    print_line(stderr, concat("help: docs/troubleshooting.md is ", page));
  return kExitFailed;
}

int skipped(const std::string& reason) {
  print_line(stdout, concat("SKIPPED: ", reason));
  return kExitSkipped;
}

Result<ProgramSettings> program_settings() {
  TCPX_RETURN_IF_ERROR(environment_check_all());
  return ProgramSettings{static_cast<uint16_t>(environment_integer(Variable::kBootstrapPort).value()),
                         std::chrono::milliseconds(environment_integer(Variable::kTimeoutMs).value()),
                         environment_integer(Variable::kDebug).value() == 1};
}

}  // namespace tcpx::programs
