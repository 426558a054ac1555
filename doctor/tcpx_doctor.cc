// tcpx_doctor: looks at this machine and says what keeps transfers from being fast or from working, and how to mend it.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "base/words.h"
#include "doctor/child_answer.h"
#include "doctor/devmem.h"
#include "doctor/environment.h"
#include "doctor/finding.h"
#include "doctor/gpu.h"
#include "doctor/kernel.h"
#include "doctor/machine.h"
#include "doctor/network.h"
#include "doctor/nic.h"
#include "doctor/plugin.h"
#include "doctor/security.h"
#include "doctor/selftest.h"
#include "doctor/services.h"
#include "measure/end_process.h"
#include "programs/command_line.h"
#include "programs/interrupt.h"

namespace {

using namespace tcpx;          // NOLINT: a program, not a header
using namespace tcpx::doctor;  // NOLINT

enum ExitCode : int { kHealthy = 0, kWarnings = 1, kFailures = 2, kUsage = 64 };

constexpr char kSelftest[] = "selftest";

struct Options {
  std::vector<std::string> only;
  bool json = false;
  bool verbose = false;
  bool fix_env = false;
  std::string peer;
  bool selftest = false;
  uint64_t selftest_bytes = kSelftestBytes;
  std::string colour = "auto";
};

/// Checks that belong together, by the name that --only takes. `run` takes seconds at most and never throws.
struct Group {
  std::string name;
  std::function<Findings()> run;
};

/// Both must outlive the groups, which read `options` when they run.
std::vector<Group> groups_of(const Machine& machine, const Options& options) {
  return {{"kernel", [&] { return check_kernel(kernel_facts(machine)); }},
          {"nics",
           [&] {
             NicFacts facts = nic_facts(machine, list_interfaces());
             for (Nic& nic : facts.data) nic.ethtool = ask_ethtool(nic.name);
             return check_nics(facts);
           }},
          {"gpu",
           [&] {
             GpuFacts facts = gpu_facts(machine);
             try_open(facts.nodes);
             facts.cuda = ask_cuda();
             return check_gpu(facts);
           }},
          {"devmem",
           [&] {
             DevmemFacts facts = devmem_facts(machine, list_interfaces(), !options.only.empty());
             ask_devmem(facts);
             return check_devmem(facts);
           }},
          {"plugin",
           [&] {
             PluginFacts facts = plugin_facts(machine, run_command("ldconfig", {"-p"}, std::chrono::seconds(2)).said);
             load_candidates(facts);
             return check_plugin(facts);
           }},
          {"services",
           [&] {
             ServiceFacts facts = service_facts(machine);
             ask_services(facts);
             return check_services(facts);
           }},
          {"security", [&] { return check_security(security_facts(machine)); }},
          {"environment", [&] { return check_environment(environment_facts(machine)); }},
          {"network",
           [&] {
             NetworkFacts facts = network_facts(machine, list_interfaces(), options.peer);
             ask_network(machine, facts);
             return check_network(facts);
           }},
          {kSelftest, [&] { return check_selftest(selftest_facts(machine, options.selftest_bytes)); }}};
}

/// Of the machine as it is, whatever the groups have found.
DataWay way_of(const Machine& machine) {
  return data_way(machine, device_names(list_interfaces(), machine.variables.text(Variable::kSocketIfname)),
                  gpu_facts(machine).build.cuda_major > 0);
}

void declare_options(CLI::App& app, Options& options, const std::vector<Group>& groups) {
  const std::string names = names_of(groups);
  app.add_option("--only", options.only, "only these groups: " + names)->delimiter(',')->check(CLI::IsMember(split(names, ", ")));
  auto* const json = app.add_flag("--json", options.json, "print JSON");
  app.add_flag("--verbose", options.verbose, "print what is not applicable, too, and why it is not");
  app.add_flag("--fix-env", options.fix_env, "print export lines for this machine instead, for eval \"$(tcpx_doctor --fix-env)\"")
      ->excludes(json);
  app.add_option("--peer", options.peer, "IPv4 address of another host, which is tried from every data interface (group network)")
      ->check(CLI::ValidIPV4);
  app.add_flag("--selftest", options.selftest,
               "also move 64 MiB between two processes over the net plugin and by shared memory, compare them, and time raw TCP");
  app.add_option("--selftest-bytes", options.selftest_bytes)->check(CLI::Range(uint64_t{4096}, uint64_t{1} << 30))->group("");
  app.add_option("--colour,--color", options.colour, "auto, always, never (default auto: on a terminal)")
      ->check(CLI::IsMember({"auto", "always", "never"}));
}

bool is_wanted(const std::string& group, const Options& options) {
  if (std::ranges::find(options.only, group) != options.only.end()) return true;
  return group == kSelftest ? options.selftest : options.only.empty();
}

/// At once: an interrupt leaves what has been found.
void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  set_log_level(LogLevel::kOff);  // an error becomes a finding
  if (argc == 3 && std::string_view(argv[1]) == kEndArgument) return run_end(std::atoi(argv[2]));
  const Machine machine{.files = FileTree(), .variables = {environment_snapshot()}};
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

  if (options.fix_env) {
    std::fputs(environment_block(environment_facts(machine)).c_str(), stdout);
    return kHealthy;
  }
  end_on_interrupt();
  const bool colour = options.colour == "always" || (options.colour == "auto" && ::isatty(STDOUT_FILENO) != 0);
  std::vector<GroupFindings> seen;
  for (const Group& group : groups) {
    if (!is_wanted(group.name, options)) continue;
    seen.push_back({group.name, group.run()});
    if (!options.json) print(group_text(seen.back(), colour, options.verbose));
  }
  const std::string last = conclusion(way_of(machine), seen, options.only.empty());
  print(options.json ? findings_json(seen, last) : concat(findings_summary(seen, options.verbose), last, "\n"));
  const Verdict worst = worst_of(seen);
  return worst == Verdict::kFail ? kFailures : worst == Verdict::kWarn ? kWarnings : kHealthy;
}
