// Ports that can be listened on.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/text.h"
#include "programs/doctor/network_facts.h"

namespace tcpx::doctor {
namespace {

constexpr uint32_t kSamples = 64;
// Connections take several ports each; with fewer than these a few peers use them up.
constexpr uint32_t kFewPorts = 2000;
// The kernel's own range overlaps the usual one, so that a busy machine has connections on many of its ports. That is well while
// one of this many can be bound.
constexpr size_t kFewOf = 4;
// Every channel of a connection that is being made listens at both ends, and so does every Endpoint. A host of eight GPUs that
// makes a connection from each at once needs this many.
constexpr uint32_t kFewOpened = 100;
constexpr std::string_view kPortVariable = "UCCL_TCPX_BOOTSTRAP_PORT";

struct Listener {
  uint16_t port = 0;
  std::string user;
};

/// Whitespace-separated words.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = line.find_first_not_of(" \t"); at != line.npos;) {
    const size_t end = std::min(line.find_first_of(" \t", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(" \t", end);
  }
  return words;
}

/// Of /proc/net/tcp and tcp6 (proc(5)), which list listeners first, so that what a long one loses is connections.
std::vector<Listener> listeners(const Machine& machine) {
  std::vector<Listener> found;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const std::string text = machine.files.read(path).value_or("");
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const auto words = words_of(std::string_view(text).substr(at, end - at));
      at = end + 1;
      if (words.size() < 8 || words[3] != "0A") continue;
      const std::string_view port = words[1].substr(std::min(words[1].rfind(':') + 1, words[1].size()));
      uint16_t number = 0;
      if (std::from_chars(port.data(), port.data() + port.size(), number, 16).ec == std::errc()) {
        found.push_back({number, std::string(words[7])});
      }
    }
  }
  return found;
}

std::string change_port(uint32_t port) {
  return concat("export ", kPortVariable, "=", port, "   # the same at both ends");
}

/// Another one that can be bound. 0: none near.
uint32_t free_port(uint16_t port, NetworkSource& source) {
  for (uint32_t other = std::max<uint32_t>(port, 1023) + 1; other <= std::min<uint32_t>(65535, port + 1200u); ++other) {
    if (source.try_bind(static_cast<uint16_t>(other)) == 0) return other;
  }
  return 0;
}

void check_bootstrap(uint16_t port, const std::vector<Listener>& all, NetworkSource& source, Findings& findings) {
  const std::string check = concat("port[", port, "]");
  const int error = source.try_bind(port);
  if (error == 0) {
    findings.push_back(ok(check, "free"));
    return;
  }
  const std::string mend = change_port(free_port(port, source));
  if (error == EADDRINUSE) {
    const auto listener = std::find_if(all.begin(), all.end(), [&](const Listener& entry) { return entry.port == port; });
    findings.push_back(
        warn(check,
             listener != all.end() ? concat("a program of user id ", listener->user, " listens there")
                                   : "taken by a connection, or by a listener in no list",
             "A server that waits for connection handles there ends with \"address already in use\".",
             concat(mend, "; who has it: ss -ltnp 'sport = :", port, "', which needs root for other users' programs")));
  } else {
    findings.push_back(fail(check, concat("cannot be bound: ", std::strerror(error)),
                            "A server that waits for connection handles there ends with this error.", mend));
  }
}

void check_range(const PortRange& range, const std::vector<Listener>& all, NetworkSource& source, Findings& findings) {
  size_t tried = 0, bound = 0;
  int error = 0;
  // The usual 10001 ports are tried in steps of a prime, so that those handed out in steps are not all met or all missed.
  const uint32_t step = (range.count() + kSamples - 1) / kSamples;
  for (uint32_t port = range.first; port <= range.last; port += step, ++tried) {
    if (const int one = source.try_bind(static_cast<uint16_t>(port)); one == 0) {
      ++bound;
    } else {
      error = one;
    }
  }
  const auto taken = std::count_if(all.begin(), all.end(), [&](const Listener& entry) { return range.contains(entry.port); });
  const std::string check = concat("ports[", text_of(range), "]");
  const std::string found = concat(bound, " of ", tried, " tried can be bound, ", taken, taken == 1 ? " listener" : " listeners",
                                   " in the range", error != 0 ? concat("; the last refusal: ", std::strerror(error)) : "");
  const std::string why =
      "Firewalls for GPUDirect-TCPX are opened for this range; a job that keeps to it needs free ports in it.";
  const std::string mend = concat("ss -tanp '( sport >= :", range.first, " and sport <= :", range.last,
                                  " )'   # who has them; end what is not needed");
  if (bound == 0) {
    findings.push_back(fail(check, found, why, mend));
  } else if (bound * kFewOf < tried) {
    findings.push_back(warn(check, found, why, mend));
  } else {
    findings.push_back(ok(check, found));
  }
}

/// "8080,9000-9010" as the kernel prints it.
PortRanges reserved_ports(const std::string& text) {
  PortRanges ranges;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view part = std::string_view(text).substr(at, end - at);
    const size_t dash = std::min(part.find('-'), part.size());
    const std::string_view last = dash == part.size() ? part : part.substr(dash + 1);
    PortRange range{};
    const bool good = std::from_chars(part.data(), part.data() + dash, range.first).ec == std::errc() &&
                      std::from_chars(last.data(), last.data() + last.size(), range.last).ec == std::errc();
    if (good) ranges.push_back(range);
    at = end + 1;
  }
  return ranges;
}

void check_local_ports(const Machine& machine, const NetworkFacts& facts, Findings& findings) {
  const PortNeeds& ports = facts.ports;
  if (!machine.files.exists("/proc/sys/net/ipv4/ip_local_port_range")) {
    findings.push_back(not_applicable("local_ports", "there is no /proc/sys/net/ipv4/ip_local_port_range",
                                      "Without it nobody knows which ports the kernel gives to listeners."));
    return;
  }
  const std::string reserved_text = machine.files.read("/proc/sys/net/ipv4/ip_local_reserved_ports").value_or("");
  const PortRanges reserved = reserved_ports(reserved_text);
  const auto is_reserved = [&](uint32_t port) {
    return std::any_of(reserved.begin(), reserved.end(), [&](const PortRange& range) { return range.contains(port); });
  };
  uint32_t usable = 0;
  for (uint32_t port = ports.kernel.first; port <= ports.kernel.last; ++port) usable += is_reserved(port) ? 0 : 1;
  const std::string found = concat("the kernel gives ", ports.opened && !facts.expected.vendor_path ? "connections" : "listeners",
                                   " ports of ", text_of(ports.kernel), ", ", usable, " of them not reserved");
  if (usable < kFewPorts) {
    findings.push_back(warn("local_ports", found, "Each connection takes several; when none is left, connecting fails.",
                            ports.kernel.count() < kFewPorts
                                ? "sysctl -w net.ipv4.ip_local_port_range='32768 60999'"
                                : "sysctl -w net.ipv4.ip_local_reserved_ports=''   # or fewer of them than now"));
  } else {
    findings.push_back(ok("local_ports", found));
  }
  if (ports.kernel.contains(ports.bootstrap) && !is_reserved(ports.bootstrap)) {
    findings.push_back(warn("bootstrap_reserved",
                            concat(ports.bootstrap, " is one of the ports that the kernel gives to anybody"),
                            "Any outgoing connection may hold it when a server wants to listen there.",
                            concat("sysctl -w net.ipv4.ip_local_reserved_ports='", reserved_text,
                                   reserved_text.empty() ? "" : ",", ports.bootstrap, "'")));
  } else {
    findings.push_back(ok("bootstrap_reserved", concat("the kernel gives ", ports.bootstrap, " to nobody unasked")));
  }
}

/// What the user has opened for listeners, against what listens.
void check_opened(const NetworkFacts& facts, Findings& findings) {
  const ListeningPorts& opened = *facts.ports.opened;
  const std::string set = concat("export ", environment_info(Variable::kPortRange).name, "=");
  const std::string found = concat(opened.range.count(), " ports for listeners, by ", opened.wish);
  findings.push_back(opened.range.count() < kFewOpened
                         ? warn("port_range", found, "Each channel of a connection listens while it is made; then none is left.",
                                concat(set, text_of(kUsualPorts), "   # as your firewall has it"))
                         : ok("port_range", found));
  if (opened.range.contains(facts.ports.bootstrap)) {
    findings.push_back(ok("bootstrap_in_range", concat(facts.ports.bootstrap, " is one of them")));
  } else {
    findings.push_back(warn("bootstrap_in_range", concat(facts.ports.bootstrap, " is outside ", opened.wish),
                            "It is listened on all the same, because clients must know it, and a firewall may keep them out.",
                            change_port(opened.range.first)));
  }
  if (!facts.expected.vendor_path) return;
  const std::string vendor = concat("GPUDirect-TCPX listens on ports that the kernel picks out of ", text_of(facts.ports.kernel));
  const bool within = opened.range.contains(facts.ports.kernel.first) && opened.range.contains(facts.ports.kernel.last);
  findings.push_back(within ? ok("vendor_ports", vendor)
                            : warn("vendor_ports", concat(vendor, ", whatever ", opened.wish, " says"),
                                   "It reads no variable about ports: where only that range is open, its connections time out.",
                                   concat("sysctl -w net.ipv4.ip_local_port_range='", text_of(opened.range, ' '), "'")));
}

}  // namespace

void check_ports(const Machine& machine, const NetworkFacts& facts, NetworkSource& source, Findings& findings) {
  const std::vector<Listener> all = listeners(machine);
  check_bootstrap(facts.ports.bootstrap, all, source, findings);
  check_range(facts.ports.opened ? facts.ports.opened->range : kUsualPorts, all, source, findings);
  if (facts.ports.opened) check_opened(facts, findings);
  check_local_ports(machine, facts, findings);
}

}  // namespace tcpx::doctor
