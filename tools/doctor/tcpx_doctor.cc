// tcpx_doctor: looks at this machine and says what keeps transfers from being fast or from working, and how to mend it.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/log.h"
#include "programs/command_line.h"
#include "tools/doctor/environment_checks.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/findings_report.h"
#include "tools/doctor/gpu_checks.h"
#include "tools/doctor/gpu_source.h"
#include "tools/doctor/kernel_checks.h"
#include "tools/doctor/machine.h"
#include "tools/doctor/network_checks.h"
#include "tools/doctor/network_source.h"
#include "tools/doctor/nic_checks.h"
#include "tools/doctor/plugin_checks.h"
#include "tools/doctor/plugin_probe.h"
#include "tools/doctor/selftest_checks.h"
#include "tools/doctor/selftest_source.h"
#include "tools/doctor/service_checks.h"
#include "tools/doctor/service_source.h"
#include "programs/interrupt.h"

namespace {

using namespace tcpx;          // NOLINT: a program, not a header
using namespace tcpx::doctor;  // NOLINT

enum ExitCode : int { kHealthy = 0, kWarnings = 1, kFailures = 2, kUsage = 64 };

constexpr char kSelftest[] = "selftest";

struct Options {
  std::vector<std::string> only;
  bool json = false;
  bool fix_env = false;
  std::string peer;
  bool selftest = false;
  uint64_t selftest_bytes = kSelftestBytes;
  std::string selftest_end;  ///< this is the other process of a selftest
  std::string colour = "auto";
};

/// Both must outlive the groups, which read `options` when they run.
std::vector<Group> groups_of(const Machine& machine, const Options& options) {
  return {
      {"kernel", "devmem TCP, io_uring, settings of TCP", [&machine] { return check_kernel(machine, *make_kernel_source()); }},
      {"nics", "network interfaces: link, driver, MTU, header split, GPUs near",
       [&machine] { return check_nics(machine, *make_nic_source()); }},
      {"gpu", "GPUs, their driver, and how near they are to the network",
       [&machine] { return check_gpu(machine, *make_gpu_source()); }},
      {"plugin", "the libraries that could be the net plugin",
       [&machine] { return check_plugin(machine, *make_plugin_probe()); }},
      {"services", "RxDM, the receive datapath manager", [&machine] { return check_services(machine, *make_service_source()); }},
      {"environment", "variables: malformed, unknown, contradictory", [&machine] { return check_environment(machine); }},
      {"network", "ports, addresses, firewall, and the way to --peer",
       [&machine, &options] { return check_network(machine, *make_network_source(), options.peer); }},
      {kSelftest, "moves 64 MiB and compares them (only with --selftest)",
       [&machine, &options] { return check_selftest(machine, *make_selftest_source(), options.selftest_bytes); }},
  };
}

void declare_options(CLI::App& app, Options& options, const std::vector<Group>& groups) {
  std::vector<std::string> names;
  std::string list;
  for (const Group& group : groups) {
    names.push_back(group.name);
    list += (list.empty() ? "" : ", ") + group.name;
  }
  app.add_option("--only", options.only, "only these groups: " + list)->delimiter(',')->check(CLI::IsMember(names));
  auto* const json = app.add_flag("--json", options.json, "print JSON");
  app.add_flag("--fix-env", options.fix_env, "print export lines for this machine instead, for eval \"$(tcpx_doctor --fix-env)\"")
      ->excludes(json);
  app.add_option("--peer", options.peer, "IPv4 address of another host, which is tried from every data interface (group network)")
      ->check(CLI::ValidIPV4);
  app.add_flag("--selftest", options.selftest,
               "also move 64 MiB between two processes over the path in use, compare them, and time raw TCP beside it");
  app.add_option("--selftest-bytes", options.selftest_bytes)->check(CLI::Range(uint64_t{4096}, uint64_t{1} << 30))->group("");
  app.add_option(kSelftestEndOption, options.selftest_end)->group("");
  app.add_option("--colour,--color", options.colour, "auto, always, never (default auto: on a terminal)")
      ->check(CLI::IsMember({"auto", "always", "never"}));
}

bool is_wanted(const std::string& group, const Options& options) {
  if (std::find(options.only.begin(), options.only.end(), group) != options.only.end()) return true;
  return group == kSelftest ? options.selftest : options.only.empty();
}

/// At once: an interrupt leaves what has been found.
void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

int exit_code_of(Verdict worst) {
  return worst == Verdict::kFail ? kFailures : worst == Verdict::kWarn ? kWarnings : kHealthy;
}

}  // namespace

int main(int argc, char** argv) {
  set_log_level(LogLevel::kOff);  // what goes wrong becomes a finding
  const Machine machine{.files = FileTree(), .variables = environment_snapshot()};
  Options options;
  const std::vector<Group> groups = groups_of(machine, options);
  CLI::App app(
      "Looks at this machine and says what keeps transfers between GPUs from being fast or from working, why it matters, and "
      "what\n"
      "mends it. Changes nothing. Needs no GPU, plugin or root; what only root can see is said to be so.\n"
      "Exit code: 0 all is well, 1 warnings, 2 something fails, 64 usage.");
  app.footer(
      "Examples:\n  tcpx_doctor\n  tcpx_doctor --only nics,gpu --json\n  tcpx_doctor --only network --peer 10.0.0.2\n  eval "
      "\"$(tcpx_doctor --fix-env)\"");
  declare_options(app, options, groups);
  int exit_code = kHealthy;
  if (!parse_command_line(app, argc, argv, exit_code, kUsage)) return exit_code;

  if (!options.selftest_end.empty()) return run_selftest_end(options.selftest_end);
  if (options.fix_env) {
    std::fputs(environment_block(machine).c_str(), stdout);
    return kHealthy;
  }
  end_on_interrupt();
  const bool colour = options.colour == "always" || (options.colour == "auto" && ::isatty(STDOUT_FILENO) != 0);
  std::vector<GroupFindings> seen;
  for (const Group& group : groups) {
    if (!is_wanted(group.name, options)) continue;
    seen.push_back({group.name, group.run()});
    if (!options.json) print(group_text(seen.back(), colour));
  }
  print(options.json ? findings_json(seen) : findings_summary(seen));
  return exit_code_of(worst_of(seen));
}
