// Ports that can be listened on.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "programs/doctor/network.h"

namespace tcpx::doctor {
namespace {

// Connections take several ports each; with fewer than these a few peers use them up.
constexpr uint32_t kFewPorts = 2000;
// The kernel's own range overlaps the usual one, so that a busy machine has connections on many of its ports. That is well while
// one of this many can be bound.
constexpr size_t kFewOf = 4;
// Every channel of a connection that is being made listens at both ends, and so does every Endpoint. A host of eight GPUs that
// makes a connection from each at once needs this many.
constexpr uint32_t kFewOpened = 100;

std::string change_port(uint32_t port) {
  return concat("export UCCL_TCPX_BOOTSTRAP_PORT=", port, "   # the same at both ends");
}
std::string set_local_ports(const PortRange& range) {
  return concat("sysctl -w net.ipv4.ip_local_port_range='", text_of(range, ' '), "'");
}

Finding check_bootstrap(const NetworkFacts& facts) {
  const uint16_t port = facts.ports.bootstrap;
  const std::string check = concat("port[", port, "]");
  const int error = facts.binds.bootstrap_error;
  if (error == 0) return ok(check, "free");
  const std::string mend = change_port(facts.binds.free_port);
  if (error != EADDRINUSE) {
    return fail(check, concat("cannot be bound: ", std::strerror(error)),
                "A server that waits for connection handles there ends with this error.", mend);
  }
  const auto listener =
      std::find_if(facts.listeners.begin(), facts.listeners.end(), [&](const auto& it) { return it.port == port; });
  return warn(check,
              listener != facts.listeners.end() ? concat("a program of user id ", listener->user, " listens there")
                                                : "taken by a connection, or by a listener in no list",
              "A server that waits for connection handles there ends with \"address already in use\".",
              concat(mend, "; who has it: ss -ltnp 'sport = :", port, "', which needs root for other users' programs"));
}

Finding check_range(const NetworkFacts& facts) {
  const PortRange range = facts.ports.opened ? facts.ports.opened->range : kUsualPorts;
  const auto [bootstrap_error, free_port, tried, bound, error] = facts.binds;
  const auto taken =
      std::count_if(facts.listeners.begin(), facts.listeners.end(), [&](const auto& it) { return range.contains(it.port); });
  return judged(bound * kFewOf >= tried && bound > 0, bound == 0 ? Verdict::kFail : Verdict::kWarn,
                concat("ports[", text_of(range), "]"),
                concat(bound, " of ", tried, " tried can be bound, ", taken, taken == 1 ? " listener" : " listeners",
                       " in the range", error != 0 ? concat("; the last refusal: ", std::strerror(error)) : ""),
                "Firewalls for GPUDirect-TCPX are opened for this range; a job that keeps to it needs free ports in it.",
                concat("ss -tanp '( sport >= :", range.first, " and sport <= :", range.last,
                       " )'   # who has them; end what is not needed"));
}

void check_local_ports(const NetworkFacts& facts, Findings& findings) {
  const PortNeeds& ports = facts.ports;
  if (!ports.kernel_tells) {
    findings.push_back(not_applicable("local_ports", "there is no /proc/sys/net/ipv4/ip_local_port_range",
                                      "Without it nobody knows which ports the kernel gives to listeners."));
    return;
  }
  uint32_t usable = 0;
  for (uint32_t port = ports.kernel.first; port <= ports.kernel.last; ++port) usable += ports.is_reserved(port) ? 0 : 1;
  findings.push_back(judged(usable >= kFewPorts, Verdict::kWarn, "local_ports",
                            concat("the kernel gives ", ports.opened && !facts.expected.vendor_path ? "connections" : "listeners",
                                   " ports of ", text_of(ports.kernel), ", ", usable, " of them not reserved"),
                            "Each connection takes several; when none is left, connecting fails.",
                            ports.kernel.count() < kFewPorts
                                ? set_local_ports({32768, 60999})
                                : "sysctl -w net.ipv4.ip_local_reserved_ports=''   # or fewer of them than now"));
  const bool given = ports.kernel.contains(ports.bootstrap) && !ports.is_reserved(ports.bootstrap);
  findings.push_back(judged(!given, Verdict::kWarn, "bootstrap_reserved",
                            given ? concat(ports.bootstrap, " is one of the ports that the kernel gives to anybody")
                                  : concat("the kernel gives ", ports.bootstrap, " to nobody unasked"),
                            "Any outgoing connection may hold it when a server wants to listen there.",
                            concat("sysctl -w net.ipv4.ip_local_reserved_ports='", ports.reserved_text,
                                   ports.reserved_text.empty() ? "" : ",", ports.bootstrap, "'")));
}

/// The range that the user has opened for listeners, against what listens.
void check_opened(const NetworkFacts& facts, Findings& findings) {
  const ListeningPorts& opened = *facts.ports.opened;
  findings.push_back(judged(
      opened.range.count() >= kFewOpened, Verdict::kWarn, "port_range",
      concat(opened.range.count(), " ports for listeners, by ", opened.wish),
      "Each channel of a connection listens while it is made; then none is left.",
      concat("export ", environment_info(Variable::kPortRange).name, "=", text_of(kUsualPorts), "   # as your firewall has it")));
  const bool inside = opened.range.contains(facts.ports.bootstrap);
  findings.push_back(judged(
      inside, Verdict::kWarn, "bootstrap_in_range",
      inside ? concat(facts.ports.bootstrap, " is one of them") : concat(facts.ports.bootstrap, " is outside ", opened.wish),
      "It is listened on all the same, because clients must know it, and a firewall may keep them out.",
      change_port(opened.range.first)));
  if (!facts.expected.vendor_path) return;
  const bool within = opened.range.contains(facts.ports.kernel.first) && opened.range.contains(facts.ports.kernel.last);
  findings.push_back(judged(within, Verdict::kWarn, "vendor_ports",
                            concat("GPUDirect-TCPX listens on ports that the kernel picks out of ", text_of(facts.ports.kernel),
                                   within ? "" : concat(", whatever ", opened.wish, " says")),
                            "It reads no variable about ports: where only that range is open, its connections time out.",
                            set_local_ports(opened.range)));
}

}  // namespace

void check_ports(const NetworkFacts& facts, Findings& findings) {
  findings.push_back(check_bootstrap(facts));
  findings.push_back(check_range(facts));
  if (facts.ports.opened) check_opened(facts, findings);
  check_local_ports(facts, findings);
}

}  // namespace tcpx::doctor
