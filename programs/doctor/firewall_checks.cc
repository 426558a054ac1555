// Packet filters that may keep a peer's connections out.
#include <algorithm>
#include <optional>

#include "base/text.h"
#include "programs/doctor/network_facts.h"

namespace tcpx::doctor {
namespace {

constexpr Duration kLimit = std::chrono::seconds(2);
constexpr std::string_view kWhy = "Connections to ports that are filtered hang until their deadline, or are refused.";

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// nullopt when there are rules to look at.
std::optional<Finding> unreadable(const std::string& check, const std::string& command, const CommandAnswer& answer) {
  if (!answer.installed) {
    return not_applicable(
        check, concat(command, " is not installed"),
        "Rules of the kernel cannot be read without it. A cloud's own firewall cannot be seen from here at all.");
  }
  if (answer.timed_out) {
    return not_applicable(check, concat(command, " does not end within 2 s"), "Nothing is known about its rules.");
  }
  if (answer.exit_code != 0) {
    return not_applicable(check, concat(command, ": ", first_line(answer.text)),
                          "Needs root, which alone may see the rules: sudo tcpx_doctor --only network");
  }
  return std::nullopt;
}

std::string let_in_nft(const NetworkFacts& facts, const std::string& chain) {
  const std::string from = !facts.peer.empty()   ? concat("ip saddr ", facts.peer, " ")
                           : !facts.data.empty() ? concat("iifname { ", names_of(facts.data), " } ")
                                                 : "";
  return concat("nft insert rule ", chain.substr(std::min(chain.find(' ') + 1, chain.size())), " ", from, "tcp dport { ",
                text_of(facts.ports.all()), " } accept");
}

std::string let_in_iptables(const NetworkFacts& facts) {
  const std::string rest = concat("-p tcp -m multiport --dports ", text_of(facts.ports.all(), ':', ","), " -j ACCEPT");
  if (!facts.peer.empty()) return concat("iptables -I INPUT -s ", facts.peer, " ", rest);
  std::string commands;
  for (const NetworkInterface& interface : facts.data) {
    commands += concat(commands.empty() ? "" : " && ", "iptables -I INPUT -i ", interface.name, " ", rest);
  }
  return commands.empty() ? concat("iptables -I INPUT ", rest) : commands;
}

/// For a firewall that has the usual ports open: has listeners keep to them. GPUDirect-TCPX can be told by the kernel alone.
std::string take_usual_ports(const NetworkFacts& facts) {
  return facts.expected.vendor_path
             ? concat("sysctl -w net.ipv4.ip_local_port_range='", text_of(kUsualPorts, ' '), "'   # these are let in already")
             : concat("export ", environment_info(Variable::kPortRange).name, "=", text_of(kUsualPorts),
                      "   # these are let in already");
}

Finding judge(const std::string& check, const Firewall& firewall, const NetworkFacts& facts, bool is_nft) {
  std::vector<PortVerdict> verdicts = passage_of(firewall, {facts.ports.bootstrap, facts.ports.bootstrap});
  const bool bootstrap_open = verdicts.front().passage == Passage::kOpen;
  for (const PortRange& range : facts.ports.data) {
    const std::vector<PortVerdict> data = passage_of(firewall, range);
    verdicts.insert(verdicts.end(), data.begin(), data.end());
  }
  const auto worst = std::max_element(verdicts.begin(), verdicts.end(),
                                      [](const PortVerdict& a, const PortVerdict& b) { return a.passage < b.passage; });
  if (worst->passage == Passage::kOpen) {
    return ok(check, concat("lets in TCP to ", text_of(facts.ports.all())));
  }
  const std::vector<PortVerdict> usual = passage_of(firewall, kUsualPorts);
  const bool usual_open = usual.size() == 1 && usual.front().passage == Passage::kOpen;
  const std::string mend = bootstrap_open && usual_open ? take_usual_ports(facts)
                           : is_nft                     ? let_in_nft(facts, worst->chain)
                                                        : let_in_iptables(facts);
  if (worst->passage == Passage::kBlocked) {
    return fail(check, concat("TCP to ", text_of(worst->ports), " is kept out by ", worst->rule), std::string(kWhy), mend);
  }
  return warn(check,
              concat("TCP to ", text_of(worst->ports), " may be kept out, depending on where it comes from, by ", worst->rule),
              std::string(kWhy), mend);
}

Finding judge(const std::string& check, const Result<Firewall>& firewall, const NetworkFacts& facts, bool is_nft) {
  if (firewall.is_ok()) return judge(check, *firewall, facts, is_nft);
  return not_applicable(check, firewall.status().detail(), "Its rules cannot be understood, so nothing is known about them.");
}

}  // namespace

void check_firewall(const NetworkFacts& facts, NetworkSource& source, Findings& findings) {
  const CommandAnswer iptables = source.run("iptables-save", {}, kLimit);
  const CommandAnswer nft = source.run("nft", {"-j", "list", "ruleset"}, kLimit);
  const auto no_iptables = unreadable("firewall[iptables]", "iptables-save", iptables);
  const auto no_nft = unreadable("firewall[nft]", "nft", nft);
  const bool told_by_iptables = !no_iptables && iptables.text.find("(nf_tables)") != std::string::npos;
  findings.push_back(no_iptables ? *no_iptables : judge("firewall[iptables]", parse_iptables(iptables.text), facts, false));
  findings.push_back(no_nft ? *no_nft : judge("firewall[nft]", parse_nft(nft.text, told_by_iptables), facts, true));
}

}  // namespace tcpx::doctor
