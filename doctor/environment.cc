#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/meant_variable.h"
#include "base/port_range.h"
#include "base/text.h"
#include "base/words.h"
#include "doctor/environment.h"
#include "net/soft/interfaces.h"
#include "net/vendor_plugin.h"

namespace tcpx::doctor {
namespace {

// Variables of GPUDirect-TCPX that are not in our table, without the prefix: those read as numbers and those read as text
// (google/nccl-plugin-gpudirecttcpx @ 4b8ea7f, src/net_tcpx.cc, src/common.cc and others; the latency is of 91e8693).
// PORT_MAPPING is none: the function that reads it is never called.
constexpr char kNumbers[] =
    " FLOW_STEERING_STRATEGY SOCKET_ENABLE CONNECTION_RETRY SPINWAIT_CONNECT RECV_SYNC FORCE_ACK "
    "TX_COMPLETION_NANOSLEEP REG_DMABUF_USE_INTERNAL_API CUDA_USE_PRIMARY_CTX NIC_N_RXQS TIMEOUT_THRESHOLD_NS "
    "TIMEOUT_FREQUENCY_NS REPORT_LIFECYCLE REPORT_NETWORK_LATENCY LOG_STATS_TO_STDOUT "
    "TELEMETRY_ENABLE_TASK_LEVEL_STATS TELEMETRY_ENABLE_REQUEST_LEVEL_STATS TELEMETRY_EXPORT_STATS_TO_FILE "
    "TELEMETRY_SAMPLING_FACTOR TELEMETRY_LOG_LINE_LIMIT ";
constexpr char kTexts[] =
    " SCHED_ALG TX_IRQ_BINDINGS RX_IRQ_BINDINGS WORKER_PIN_THREADS WORKER_SPRAY_COUNT WORKER_SPRAY_STRIDE "
    "CTRL_SOCKCOND SLOWNESS_SWITCH SLOWNESS_REPORT TELEMETRY_EXPORTER_PATH TELEMETRY_EXPORTER_CORE_INDEX "
    "TELEMETRY_FILE_LIFE TELEMETRY_FILE_REMOVE_FREQUENCY TELEMETRY_GARBAGE_COLLECTOR_INDEX ";
// Numbers that it reads under other names, ours among them.
constexpr char kOtherNumbers[] =
    " NCCL_DYNAMIC_CHUNK_SIZE NCCL_NSOCKS_PERTHREAD NCCL_SOCKET_NTHREADS "
    "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS NCCL_USE_DMA_BUF NCCL_MIN_ZCOPY_SIZE "
    "NCCL_THREAD_SPIN_ENABLE NCCL_INLINE_THRESHOLD ";

bool contains(std::string_view names, std::string_view name) {
  return names.find(concat(" ", name, " ")) != names.npos;
}

bool is_number(std::string_view name) {
  return contains(kOtherNumbers, name) ||
         (name.starts_with(kVendorPrefix) && contains(kNumbers, name.substr(kVendorPrefix.size())));
}

/// True when GPUDirect-TCPX reads `name`, which our table does not have.
bool is_vendor_variable(std::string_view name) {
  if (!name.starts_with(kVendorPrefix)) return false;
  const std::string_view suffix = name.substr(kVendorPrefix.size());
  return contains(kNumbers, suffix) || contains(kTexts, suffix);
}

/// The number that people mean by "512K" and "0100", where that is clear.
std::optional<int64_t> meant_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(end, text.data() + text.size());
  if (unit.empty()) return number;
  const size_t power = std::string_view("KMGkmg").find(unit);
  if (unit.size() != 1 || power == unit.npos || number < 0 || number > INT32_MAX) return std::nullopt;
  return number << (power % 3 + 1) * 10;
}

bool looks_like_ours(std::string_view name) {
  const bool known = std::ranges::any_of(environment_table(), [&](const auto& info) { return info.name == name; });
  if (known || is_vendor_variable(name)) return false;
  return name.starts_with(kOwnPrefix) || name.starts_with(kVendorPrefix) || meant_variable(name) != nullptr;
}

Findings check_values(const EnvironmentFacts& facts) {
  Findings findings;
  size_t unset_count = 0;
  for (const VariableInfo& info : environment_table()) {
    const auto value = facts.variables.get(info.name);
    unset_count += value ? 0 : 1;
    if (!value) continue;
    const Status status = environment_check(info, *value);
    append(findings, judge({{"value", status.is_ok() ? concat(*value, *info.unit != '\0' ? " " : "", info.unit) : status.detail(),
                             status.is_ok(), kFail, "Programs that read it end with this error instead of guessing.",
                             concat("unset {}", *info.default_text != '\0' ? "   # the default is " : "", info.default_text)}},
                           std::string(info.name)));
  }
  append(findings, judge({{"defaults", concat(unset_count, " of ", environment_table().size(),
                                              " variables are unset and have their defaults")}}));
  return findings;
}

Findings check_names(const EnvironmentFacts& facts) {
  std::map<std::string, std::string> strange;
  for (const auto& [name, value] : facts.variables.all) {
    if (looks_like_ours(name)) strange.emplace(name, facts.variables.get(name).value_or(""));
  }
  Findings findings;
  for (const auto& [name, value] : strange) {
    const VariableInfo* const meant = meant_variable(name);
    // Not by way of a subject: there may be {} in the value.
    append(findings,
           judge({{concat("name[", name, "]"),
                   concat("nobody reads it", meant != nullptr ? concat("; ", meant->name, " is meant?") : ""), false, kWarn,
                   "A variable with another name has no effect, and nothing says so where it is set.",
                   concat("unset ", name, meant != nullptr ? concat(" && export ", meant->name, "='", value, "'") : "")}}));
  }
  if (strange.empty()) append(findings, judge({{"names", "no variable looks like one of ours or GPUDirect-TCPX's and is none"}}));
  return findings;
}

Findings check_interfaces(const EnvironmentFacts& facts) {
  const std::string_view ifname = environment_info(Variable::kSocketIfname).name,
                         ctrl = environment_info(Variable::kCtrlDev).name;
  const std::string pattern = facts.variables.text(Variable::kSocketIfname);
  const std::string exact = pattern.starts_with('=') ? "=" : "";
  const std::vector<std::string> named = pattern.starts_with('^') ? std::vector<std::string>() : split(pattern, "=,");
  std::vector<std::string> there, missing;
  for (const std::string& name : named) {
    const bool found = std::ranges::any_of(facts.interfaces, [&](const auto& it) { return soft::names(exact + name, it); });
    (found ? there : missing).push_back(name);
  }
  // A value that works here: the names that exist, else the data interfaces of the vendor's path; "": unset, which takes all.
  const std::string works = !there.empty()               ? concat(exact, joined(there, ","))
                            : facts.expected.vendor_path ? joined(facts.data, ",")
                                                         : "";
  const std::string here = concat("; here are ", joined(facts.interfaces));
  Findings findings;
  for (const std::string& name : missing) {
    append(findings, judge({{"interface", concat(ifname, " names ", name, here), false, kFail,
                             "A device that is named and does not exist is missing, and its share of the rate with it.",
                             works.empty() ? concat("unset ", ifname, "   # then every interface that is up is taken")
                                           : concat("export ", ifname, "=", works)}},
                           name));
  }
  const auto control = facts.variables.get(Variable::kCtrlDev);
  if (!control) return findings;
  append(findings,
         judge({{"ctrl_dev", concat(ctrl, " names ", *control, here), std::ranges::count(facts.interfaces, *control) > 0, kFail,
                 "No connection can be made without control sockets.",
                 concat("unset ", ctrl, "   # then the interface of the data is taken")},
                {"ctrl_dev", concat(*control, " is also one of the data interfaces in ", ifname), !soft::names(pattern, *control),
                 kWarn, "Control messages wait behind data there, and flow-steering rules of GPUDirect-TCPX may catch them.",
                 concat("export ", ctrl, "=eth0   # the interface of the default route")},
                {"ctrl_dev", concat(*control, " is no data interface")}}));
  return findings;
}

/// Sizes that GPUDirect-TCPX cannot do, and faults that no value alone shows: half a range of ports, or one that ends before it
/// begins. Nothing is said of what is well.
Findings check_together(const EnvironmentFacts& facts) {
  const auto number = [&](Variable id) { return number_of(facts.variables.text(id)); };
  const auto usual = [](Variable id) { return environment_info(id).default_integer; };
  const bool vendor_path = facts.expected.vendor_path;
  const int64_t threads = number(Variable::kSocketNthreads).value_or(1), each = number(Variable::kNsocksPerThread).value_or(1);
  const int64_t piece = number(Variable::kDynamicChunkSize).value_or(usual(Variable::kDynamicChunkSize));
  const int64_t chunk = number(Variable::kChunkBytes).value_or(usual(Variable::kChunkBytes));
  // Of a number of threads that is an error, which is said above, as if there were one.
  const int64_t sockets = vendor_data_sockets(each, threads >= 1 && threads <= kMostVendorSockets ? threads : 1);
  const auto well_formed = [&](Variable id) { return environment_check(environment_info(id), facts.variables.text(id)).is_ok(); };
  const bool ports = well_formed(Variable::kPortRange) && well_formed(Variable::kPortBegin) && well_formed(Variable::kPortEnd);
  const auto opened = listening_ports([&](Variable id) { return facts.variables.text(id); });
  const std::string many = concat(each, " x ", threads, " data sockets of a connection");
  Findings findings =
      judge({{"sockets", many, !vendor_path || threads * each <= kMostVendorSockets, kFail,
              "GPUDirect-TCPX takes at most 8; more than 8 threads leave none, and it crashes.",
              "export NCCL_NSOCKS_PERTHREAD=4 NCCL_SOCKET_NTHREADS=1"},
             {"sockets", concat(many, "; the software plugin takes 16")},
             {"dynamic_chunk_size", concat(environment_info(Variable::kDynamicChunkSize).name, "=0"), piece != 0, kFail,
              "GPUDirect-TCPX then never sends a byte and never says so.", "export NCCL_DYNAMIC_CHUNK_SIZE=524288"},
             {"chunk_bytes", concat(chunk, " bytes a chunk, more than ", sockets, " sockets x ", piece, " bytes"),
              !vendor_path || piece <= 0 || chunk <= piece * sockets, kFail,
              "GPUDirect-TCPX gives back the pages of one piece per socket and request; the rest is lost to the pool.",
              concat("export UCCL_TCPX_CHUNK_BYTES=", piece * sockets)},
             {"port_range", opened.is_ok() ? "" : opened.status().detail(), opened.is_ok() || !ports, kFail,
              "Whatever listens ends with this error instead of guessing.",
              concat("export ", environment_info(Variable::kPortRange).name,
                     "=50000-60000   # the range that your firewall has open; it goes first")}});
  std::erase_if(findings, [&](const Finding& it) {
    return it.verdict == kOk && (it.check != "sockets" || threads * each <= kMostVendorSockets);
  });
  return findings;
}

/// Values that GPUDirect-TCPX takes for others, or fails with.
Findings check_vendor_variables(const Variables& variables) {
  Findings findings;
  // It reads numbers with strtoll(text, nullptr, 0): any non-digit ends them, and a 0 in front makes them octal.
  for (const auto& [name, value] : variables.all) {
    if (!is_number(name) || value.empty()) continue;
    char* end = nullptr;
    const int64_t read = std::strtoll(value.c_str(), &end, 0);
    const auto meant = meant_number(value);
    const bool hexadecimal = value.find_first_of("xX") != value.npos;
    if (*end == '\0' && (hexadecimal || meant == read)) continue;
    append(findings, judge({{"number", concat(value, ", of which GPUDirect-TCPX reads ", read), false, kWarn,
                             "It takes the digits in front, octal ones behind a 0, and says nothing about the rest.",
                             meant ? concat("export {}=", *meant) : "unset {}"}},
                           name));
  }
  const VariableInfo& family = environment_info(Variable::kSocketFamily);
  if (variables.get(family.id) == "AF_INET6") {
    append(findings,
           judge({{"socket_family", concat(family.name, "=AF_INET6"), false, kFail,
                   "GPUDirect-TCPX reads the addresses of a connection as IPv4, and RxDM steers no others: no connection "
                   "is accepted.",
                   concat("unset ", family.name)}}));
  }
  return findings;
}

}  // namespace

EnvironmentFacts environment_facts(const Machine& machine) {
  return {.variables = machine.variables,
          .expected = expected_path(machine),
          .interfaces = machine.files.list("/sys/class/net"),
          .data = data_interfaces(machine.files),
          .control = default_interface(machine.files),
          .has_rxdm_directory = machine.files.exists(kRxdmDirectory)};
}

Findings check_environment(const EnvironmentFacts& facts) {
  Findings findings = check_values(facts);
  for (const auto check : {check_names, check_interfaces, check_together}) append(findings, check(facts));
  if (facts.expected.vendor_path) append(findings, check_vendor_variables(facts.variables));
  return findings;
}

std::string environment_block(const EnvironmentFacts& facts) {
  std::string out;
  std::set<std::string> told;
  for (const Finding& finding : check_environment(facts)) {
    const bool unsets = finding.mend.starts_with("unset ") || finding.check.starts_with("interface[");
    // One line for all names of a list.
    if (finding.verdict < Verdict::kWarn || !unsets || !told.insert(finding.mend).second) continue;
    out += concat("# ", finding.found, "\n", finding.mend, "\n");
  }
  const auto want = [&](Variable id, std::string_view value, std::string_view why) {
    if (!value.empty() && !facts.variables.get(id))
      out += concat("export ", environment_info(id).name, "=", value, "   # ", why, "\n");
  };
  if (facts.expected.vendor_path) {
    want(Variable::kSocketIfname, joined(facts.data, ","), "the interfaces for data");
    if (!facts.data.empty()) want(Variable::kCtrlDev, facts.control, "the interface of the default route");
    want(Variable::kNsocksPerThread, "4", "with one thread: four data sockets a connection");
    want(Variable::kSocketNthreads, "1", "see above");
    want(Variable::kDynamicChunkSize, "524288", "without it nothing moves");
    want(Variable::kFlowSteeringWaitUs, "1000000", "instead of 5 s at each accept");
    if (facts.has_rxdm_directory) want(Variable::kUnixClientPrefix, kRxdmDirectory, "where RxDM is");
  }
  const std::string head = concat("# tcpx_doctor, for this machine: ", facts.expected.because, "\n");
  return head + (out.empty() ? "# nothing needs to be set\n" : out);
}

}  // namespace tcpx::doctor
