#include "programs/doctor/environment_checks.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/near_word.h"
#include "base/port_range.h"
#include "base/text.h"
#include "net/vendor_plugin.h"
#include "programs/doctor/interfaces.h"
#include "programs/doctor/vendor_variables.h"

namespace tcpx::doctor {
namespace {

constexpr std::string_view kOwnPrefix = "UCCL_TCPX_";
constexpr std::string_view kVendorPrefix = "NCCL_GPUDIRECTTCPX_";
// Of two names that differ by no more single-character changes, one is taken for a slip of the other.
constexpr size_t kSlip = 2;

const VariableInfo* info_of(std::string_view name) {
  for (const VariableInfo& info : environment_table()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

/// "CHUNK_BYTES" of "UCCL_TCPX_CHUNK_BYTES".
std::string_view bare(std::string_view name) {
  for (const std::string_view prefix : {kOwnPrefix, kVendorPrefix, std::string_view("NCCL_")}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

/// The variable of the table that somebody who wrote `name` may have meant. nullptr: none.
const VariableInfo* meant_by(std::string_view name) {
  // Half of a prefix, or another one.
  for (const std::string_view prefix : {kOwnPrefix, kVendorPrefix, std::string_view("UCCL_"), std::string_view("TCPX_"),
                                        std::string_view("GPUDIRECTTCPX_"), std::string_view("NCCL_TCPX_")}) {
    if (!name.starts_with(prefix)) continue;
    for (const VariableInfo& info : environment_table()) {
      if (bare(info.name) == name.substr(prefix.size()) && info.name != name) return &info;
    }
  }
  const VariableInfo* best = nullptr;
  size_t least = kSlip + 1;
  for (const VariableInfo& info : environment_table()) {
    const size_t changes = changes_between(name, info.name);
    if (changes < least) least = changes, best = &info;
  }
  return best;
}

bool looks_like_ours(std::string_view name) {
  if (info_of(name) != nullptr || is_vendor_variable(name)) return false;
  return name.starts_with(kOwnPrefix) || name.starts_with(kVendorPrefix) || meant_by(name) != nullptr;
}

std::string unset(std::string_view name) {
  return concat("unset ", name);
}

void check_values(const Machine& machine, Findings& findings) {
  std::string defaults;
  size_t count = 0;
  for (const VariableInfo& info : environment_table()) {
    const auto value = machine.variable(info.name);
    if (!value) {
      ++count;
      continue;
    }
    const Status status = environment_check(info, *value);
    const std::string check = concat("value[", info.name, "]");
    if (status.is_ok()) {
      findings.push_back(ok(check, concat(*value, *info.unit != '\0' ? " " : "", info.unit)));
    } else {
      findings.push_back(
          fail(check, status.detail(), "Programs that read it end with this error instead of guessing.",
               concat(unset(info.name), *info.default_text != '\0' ? "   # the default is " : "", info.default_text)));
    }
  }
  findings.push_back(
      ok("defaults", concat(count, " of ", environment_table().size(), " variables are unset and have their defaults")));
}

void check_names(const Machine& machine, Findings& findings) {
  std::vector<std::string> strange;
  for (const auto& [name, value] : machine.variables) {
    if (looks_like_ours(name)) strange.push_back(name);
  }
  std::sort(strange.begin(), strange.end());
  for (const std::string& name : strange) {
    const VariableInfo* const meant = meant_by(name);
    const std::string value = machine.variable(name).value_or("");
    findings.push_back(warn(concat("name[", name, "]"),
                            meant != nullptr ? concat("nobody reads it; ", meant->name, " is meant?") : "nobody reads it",
                            "A variable with another name has no effect, and nothing says so where it is set.",
                            meant != nullptr ? concat(unset(name), " && export ", meant->name, "='", value, "'") : unset(name)));
  }
  if (strange.empty()) findings.push_back(ok("names", "no variable looks like one of ours or GPUDirect-TCPX's and is none"));
}

std::optional<int64_t> number_of(const Machine& machine, Variable id) {
  const auto text = machine.variable(id);
  if (!text) return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return number;
}

/// Names in a list of interfaces: what stands behind '^' and '='.
std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  while (list.starts_with('^') || list.starts_with('=')) list.remove_prefix(1);
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (comma != 0) names.emplace_back(list.substr(0, comma));
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return names;
}

/// A value of SOCKET_IFNAME that works here: what of the list exists, else the data interfaces of the vendor's path; "": unset,
/// which takes all.
std::string working_interfaces(const Machine& machine, std::string_view list) {
  const bool exact = list.starts_with('=');
  std::string names;
  const auto add = [&names](const std::string& name) { names += concat(names.empty() ? "" : ",", name); };
  for (const std::string& name : names_in(list)) {
    const std::vector<std::string> there = machine.files.list("/sys/class/net");
    if (std::any_of(there.begin(), there.end(),
                    [&](const std::string& known) { return exact ? known == name : known.starts_with(name); })) {
      add(name);
    }
  }
  if (!names.empty()) return concat(exact ? "=" : "", names);
  if (!expected_path(machine).vendor_path) return "";
  for (const std::string& name : data_interfaces(machine, default_interface(machine))) add(name);
  return names;
}

void check_interfaces(const Machine& machine, Findings& findings) {
  const std::string_view ifname = environment_info(Variable::kSocketIfname).name,
                         ctrl = environment_info(Variable::kCtrlDev).name;
  const std::vector<std::string> there = machine.files.list("/sys/class/net");
  std::string all;
  for (const std::string& name : there) all += (all.empty() ? "" : ", ") + name;
  const auto list = machine.variable(Variable::kSocketIfname);
  const bool excludes = list && list->starts_with('^'), exact = list && list->substr(excludes ? 1 : 0).starts_with('=');
  const auto is_there = [&](const std::string& name, bool whole) {
    return std::any_of(there.begin(), there.end(),
                       [&](const std::string& known) { return whole ? known == name : known.starts_with(name); });
  };
  const std::string works = working_interfaces(machine, list.value_or(""));
  for (const std::string& name : names_in(list.value_or(""))) {
    if (excludes || is_there(name, exact)) continue;
    findings.push_back(fail(concat("interface[", name, "]"), concat(ifname, " names ", name, "; here are ", all),
                            "A device that is named and does not exist is missing, and its share of the rate with it.",
                            works.empty() ? concat(unset(ifname), "   # then every interface that is up is taken")
                                          : concat("export ", ifname, "=", works)));
  }
  const auto control = machine.variable(Variable::kCtrlDev);
  if (!control) return;
  if (!is_there(*control, true)) {
    findings.push_back(fail("ctrl_dev", concat(ctrl, " names ", *control, "; here are ", all),
                            "No connection can be made without control sockets.",
                            concat(unset(ctrl), "   # then the interface of the data is taken")));
    return;
  }
  const std::vector<std::string> data = names_in(list.value_or(""));
  const bool among = !excludes && std::any_of(data.begin(), data.end(), [&](const std::string& name) {
    return exact ? *control == name : control->starts_with(name);
  });
  findings.push_back(
      among ? warn("ctrl_dev", concat(*control, " is also one of the data interfaces in ", ifname),
                   "Control messages wait behind data there, and flow-steering rules of GPUDirect-TCPX may catch them.",
                   concat("export ", ctrl, "=eth0   # the interface of the default route"))
            : ok("ctrl_dev", concat(*control, " is no data interface")));
}

void check_sizes(const Machine& machine, const Expectation& expected, Findings& findings) {
  const int64_t threads = number_of(machine, Variable::kSocketNthreads).value_or(1);
  const int64_t each = number_of(machine, Variable::kNsocksPerThread).value_or(1);
  const bool sockets_set =
      machine.variable(Variable::kSocketNthreads).has_value() || machine.variable(Variable::kNsocksPerThread).has_value();
  if (sockets_set && threads * each > kMostVendorSockets) {
    const std::string found = concat(each, " x ", threads, " data sockets of a connection");
    if (expected.vendor_path) {
      findings.push_back(fail("sockets", found, "GPUDirect-TCPX takes at most 8; more than 8 threads leave none, and it crashes.",
                              "export NCCL_NSOCKS_PERTHREAD=4 NCCL_SOCKET_NTHREADS=1"));
    } else {
      findings.push_back(ok("sockets", concat(found, "; the software plugin takes 16")));
    }
  }
  const auto dynamic = number_of(machine, Variable::kDynamicChunkSize);
  if (dynamic && *dynamic == 0) {
    findings.push_back(fail("dynamic_chunk_size", concat(environment_info(Variable::kDynamicChunkSize).name, "=0"),
                            "GPUDirect-TCPX then never sends a byte and never says so.",
                            "export NCCL_DYNAMIC_CHUNK_SIZE=524288"));
  }
  const int64_t piece = dynamic.value_or(environment_info(Variable::kDynamicChunkSize).default_integer);
  const int64_t chunk =
      number_of(machine, Variable::kChunkBytes).value_or(environment_info(Variable::kChunkBytes).default_integer);
  // Of a number of threads that is an error, which is said above, as if there were one.
  const int64_t sockets = vendor_data_sockets(each, threads >= 1 && threads <= kMostVendorSockets ? threads : 1);
  if (expected.vendor_path && piece > 0 && chunk > piece * sockets) {
    findings.push_back(
        fail("chunk_bytes", concat(chunk, " bytes a chunk, more than ", sockets, " sockets x ", piece, " bytes"),
             "GPUDirect-TCPX gives back the pages of one piece per socket and request; the rest is lost to the pool.",
             concat("export UCCL_TCPX_CHUNK_BYTES=", piece * sockets)));
  }
}

/// What no value alone shows: half a range, or one that ends before it begins.
void check_ports(const Machine& machine, Findings& findings) {
  const auto value_of = [&](Variable id) { return machine.variable(id).value_or(""); };
  for (const Variable id : {Variable::kPortRange, Variable::kPortBegin, Variable::kPortEnd}) {
    if (!environment_check(environment_info(id), value_of(id)).is_ok()) return;  // said already
  }
  const auto opened = listening_ports(value_of);
  if (opened.is_ok()) return;
  findings.push_back(fail("port_range", opened.status().detail(), "Whatever listens ends with this error instead of guessing.",
                          concat("export ", environment_info(Variable::kPortRange).name,
                                 "=50000-60000   # the range that your firewall has open; it goes first")));
}

}  // namespace

Findings check_environment(const Machine& machine) {
  Findings findings;
  check_values(machine, findings);
  check_names(machine, findings);
  check_interfaces(machine, findings);
  const Expectation expected = expected_path(machine);
  check_sizes(machine, expected, findings);
  check_ports(machine, findings);
  if (expected.vendor_path) check_vendor_variables(machine, findings);
  return findings;
}

std::string environment_block(const Machine& machine) {
  std::string out;
  std::set<std::string> told;
  for (const Finding& finding : check_environment(machine)) {
    const bool wrong_name = finding.check.starts_with("interface[");
    if (finding.verdict < Verdict::kWarn || !(finding.mend.starts_with("unset ") || wrong_name)) continue;
    if (!told.insert(finding.mend).second) continue;  // one for all names of a list
    out += concat("# ", finding.found, "\n", finding.mend, "\n");
  }
  const Expectation expected = expected_path(machine);
  const auto want = [&](Variable id, const std::string& value, std::string_view why) {
    if (!value.empty() && !machine.variable(id))
      out += concat("export ", environment_info(id).name, "=", value, "   # ", why, "\n");
  };
  if (expected.vendor_path) {
    const std::string control = default_interface(machine);
    std::string data;
    for (const std::string& name : data_interfaces(machine, control)) data += (data.empty() ? "" : ",") + name;
    want(Variable::kSocketIfname, data, "the interfaces for data");
    if (!data.empty()) want(Variable::kCtrlDev, control, "the interface of the default route");
    want(Variable::kNsocksPerThread, "4", "with one thread: four data sockets a connection");
    want(Variable::kSocketNthreads, "1", "see above");
    want(Variable::kDynamicChunkSize, "524288", "without it nothing moves");
    want(Variable::kFlowSteeringWaitUs, "1000000", "instead of 5 s at each accept");
    if (machine.files.exists(kRxdmDirectory)) want(Variable::kUnixClientPrefix, std::string(kRxdmDirectory), "where RxDM is");
  }
  const std::string head = concat("# tcpx_doctor, for this machine: ", expected.because, "\n");
  return head + (out.empty() ? "# nothing needs to be set\n" : out);
}

}  // namespace tcpx::doctor
