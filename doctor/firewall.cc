// Packet filters that may keep a peer's connections out: their rules are shown, as `iptables-save` and `nft list ruleset` print
// them. Nothing here works out what a rule set does to a packet; the reader of the rules does.
#include <algorithm>

#include "base/text.h"
#include "base/words.h"
#include "doctor/network.h"

namespace tcpx::doctor {
namespace {

constexpr size_t kMostRules = 8;  // in one finding

bool is_shown(const ChildAnswer& answer) {
  return answer.end == ChildAnswer::End::kExited && answer.number == 0;
}

struct ShownRules {
  std::vector<std::string> blocking;  ///< drop or reject, and are about our ports or interfaces, or about everything
  std::string input;                  ///< of nft: the chain that packets come in by, "inet filter input"
};

/// Ports that a rule mentions. Everything when it says which ones are not meant; none when it mentions none.
PortRanges ports_in(const std::vector<std::string>& words) {
  PortRanges ranges;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] != "dport" && words[i] != "--dport" && words[i] != "--dports") continue;
    if ((i > 0 && words[i - 1] == "!") || (i + 1 < words.size() && words[i + 1] == "!=")) return {PortRange{}};
    // "12345", "22,50000:60000", ":1023", "{", "22,", "50000-60000", "}"
    for (size_t j = i + 1; j < words.size() && words[j].find_first_not_of("0123456789{},:-") == std::string::npos; ++j) {
      for (const std::string& part : split(words[j], "{},")) {
        const std::vector<std::string> ends = split(part, ":-");
        const auto first = part.starts_with(':') ? uint16_t{0} : number_of<uint16_t>(ends.empty() ? "" : ends.front());
        const auto last = part.ends_with(':') ? uint16_t{65535} : number_of<uint16_t>(ends.empty() ? "" : ends.back());
        if (first && last) ranges.push_back({*first, *last});
      }
    }
  }
  return ranges;
}

bool meet(const PortRanges& some, const PortRanges& others) {
  return std::ranges::any_of(some, [&](const PortRange& a) {
    return std::ranges::any_of(others, [&](const PortRange& b) { return a.first <= b.last && b.first <= a.last; });
  });
}

/// Sorts a rule of a chain that packets come in by.
/// @param words of the rule, without the name of its chain
void add_rule(const std::string& rule, const std::vector<std::string>& words, const NetworkFacts& facts, ShownRules& shown) {
  const auto has = [&](std::string_view word) { return std::ranges::find(words, word) != words.end(); };
  const bool others = has("udp") || has("icmp") || has("icmpv6");
  if (words.empty() || (others && rule.find("tcp") == std::string::npos)) return;
  if (!has("drop") && !has("reject") && !has("DROP") && !has("REJECT")) return;
  const PortRanges ports = ports_in(words);
  const bool whole = words.front() == "-j" || words.front() == "drop" || words.front() == "reject" || words.front() == "counter";
  const bool ours =
      std::ranges::any_of(facts.data, [&](const auto& it) { return has(it.name) || has(concat('"', it.name, '"')); });
  if (whole || meet(ports, facts.ports.all()) || (ours && ports.empty())) shown.blocking.push_back(rule);
}

ShownRules read_iptables(const std::string& text, const NetworkFacts& facts) {
  ShownRules shown;
  bool filter = false;
  for (const std::string& line : split(text, "\n")) {
    if (line.starts_with('*')) filter = line == "*filter";
    const std::vector<std::string> words = split(line, " ");
    if (!filter || words.size() < 2) continue;
    if (words[0] == ":INPUT" && words[1] == "DROP") shown.blocking.push_back(line);
    if (words[0] == "-A" && words[1] != "OUTPUT" && words[1] != "FORWARD")
      add_rule(line, {words.begin() + 2, words.end()}, facts, shown);
  }
  return shown;
}

/// @param skip_iptables leaves out the tables that iptables-nft keeps there: iptables-save has shown them
ShownRules read_nft(const std::string& text, bool skip_iptables, const NetworkFacts& facts) {
  ShownRules shown;
  std::string table, chain;
  bool skipped = false, input = false;
  for (const std::string& line : split(text, "\n")) {
    const std::vector<std::string> words = split(line, " \t");
    if (words.size() >= 3 && words[0] == "table") {
      table = concat(words[1], " ", words[2]);
      static const std::vector<std::string> kOfIptables = {"ip filter", "ip nat", "ip mangle", "ip raw", "ip security"};
      skipped = (words[1] != "ip" && words[1] != "inet") || (skip_iptables && std::ranges::count(kOfIptables, table) > 0);
      continue;
    }
    if (words.size() >= 2 && words[0] == "chain") {
      chain = words[1];
      input = true;  // until it says that it is another hook's
      continue;
    }
    if (skipped || !input) continue;
    const std::string rule = joined(words, " ");
    if (std::ranges::find(words, "hook") == words.end()) {
      add_rule(rule, words, facts, shown);
      continue;
    }
    input = rule.find("hook input") != std::string::npos;
    if (input && shown.input.empty()) shown.input = concat(table, " ", chain);
    if (input && rule.find("policy drop") != std::string::npos) shown.blocking.push_back(concat(chain, ": ", rule));
  }
  return shown;
}

/// A command that lets our ports in.
std::string let_in(const ShownRules& shown, const NetworkFacts& facts) {
  const std::string& peer = facts.peer.name;
  if (shown.input.empty()) {
    return concat("iptables -I INPUT ", peer.empty() ? "" : concat("-s ", peer, " "), "-p tcp -m multiport --dports ",
                  text_of(facts.ports.all(), ':', ","), " -j ACCEPT   # if no other rule lets them in");
  }
  return concat("nft insert rule ", shown.input, " ", peer.empty() ? "" : concat("ip saddr ", peer, " "), "tcp dport { ",
                text_of(facts.ports.all()), " } accept   # if no other rule lets them in");
}

/// What a program shows, judged.
Findings judge_rules(const std::string& check, const std::string& command, const ChildAnswer& answer, const ShownRules& shown,
                     const NetworkFacts& facts) {
  using End = ChildAnswer::End;
  const std::string ports = text_of(facts.ports.all());
  std::vector<std::string> rules = shown.blocking;
  if (rules.size() > kMostRules) rules[kMostRules] = concat("and ", rules.size() - kMostRules, " more");
  rules.resize(std::min(rules.size(), kMostRules + 1));
  return judge({{check, concat(command, " is not installed"), answer.end != End::kNotStarted, kNotApplicable,
                 "Rules of the kernel cannot be read without it. A cloud's own firewall cannot be seen from here at all."},
                {check, concat(command, " does not end within 2 s"), answer.end != End::kTimedOut, kNotApplicable,
                 "Nothing is known about its rules."},
                {check, concat(command, ": ", answer.said.substr(0, answer.said.find('\n'))), is_shown(answer), kNotApplicable,
                 "Needs root, which alone may see the rules: sudo tcpx_doctor --only network"},
                {check, concat("these rules may keep out TCP to ", ports, "\n", joined(rules, "\n")), rules.empty(), kWarn,
                 "Connections to ports that are filtered hang until their deadline, or are refused.", let_in(shown, facts)},
                {check, concat("no rule that drops or rejects names TCP ports of ", ports, " or a data interface")}});
}

}  // namespace

Findings check_firewall(const NetworkFacts& facts) {
  const bool shown_twice = is_shown(facts.iptables) && facts.iptables.said.find("(nf_tables)") != std::string::npos;
  Findings findings =
      judge_rules("firewall[iptables]", "iptables-save", facts.iptables, read_iptables(facts.iptables.said, facts), facts);
  append(findings, judge_rules("firewall[nft]", "nft", facts.nft, read_nft(facts.nft.said, shown_twice, facts), facts));
  return findings;
}

}  // namespace tcpx::doctor
