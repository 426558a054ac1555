// Shape of the text: iptables-save(8).
#include <algorithm>
#include <charconv>
#include <optional>

#include "base/text.h"
#include "programs/doctor/firewall_rules.h"

namespace tcpx::doctor {
namespace {

constexpr std::string_view kLoopbackNet = "127.0.0.0/8";

/// Words of a line; what is quoted is one.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  bool inside = false, quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      quoted = !quoted;
      if (quoted && !inside) words.emplace_back(), inside = true;
    } else if (c == ' ' && !quoted) {
      inside = false;
    } else {
      if (c == '\\' && quoted && i + 1 < line.size()) ++i;
      if (!inside) words.emplace_back(), inside = true;
      words.back().push_back(line[i]);
    }
  }
  return words;
}

std::optional<uint16_t> port_of(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return port;
}

/// "22,50000:60000", ":1023". nullopt: none of that.
std::optional<PortRanges> ports_of(std::string_view list) {
  PortRanges ranges;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view part = list.substr(0, comma);
    const size_t colon = part.find(':');
    const std::string_view first = part.substr(0, colon), last = colon == part.npos ? first : part.substr(colon + 1);
    const auto from = first.empty() ? std::optional<uint16_t>(0) : port_of(first);
    const auto to = last.empty() ? std::optional<uint16_t>(65535) : port_of(last);
    if (!from || !to) return std::nullopt;
    ranges.push_back({*from, *to});
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return ranges;
}

PortRanges all_but(const PortRange& range) {
  PortRanges rest;
  if (range.first > 0) rest.push_back({0, static_cast<uint16_t>(range.first - 1)});
  if (range.last < 65535) rest.push_back({static_cast<uint16_t>(range.last + 1), 65535});
  return rest;
}

bool lists(std::string_view list, std::string_view word) {
  return concat(',', list, ',').find(concat(',', word, ',')) != std::string::npos;
}

/// What one option of a rule says. False: the rule is never about a new TCP connection from another host.
bool apply_option(const std::string& option, const std::string& value, bool negated, FirewallRule& rule) {
  if (option == "-p") return (value == "tcp" || value == "6" || value == "all") != negated;
  if (option == "-i" && value == "lo") return negated;
  if (option == "-d" && value == kLoopbackNet) return negated;
  if (option == "--dport" || option == "--dports") {
    const auto ports = ports_of(value);
    if (!ports || (negated && ports->size() != 1)) {
      rule.conditional = true;
    } else {
      rule.ports = negated ? all_but(ports->front()) : *ports;
    }
    return true;
  }
  if (option == "--ctstate" || option == "--state") return lists(value, "NEW") != negated;
  if (option == "--mark") return negated;  // who marks packets means others
  if (option == "--dst-type") return lists(value, "LOCAL") != negated;
  if (option == "--tcp-flags") return true;  // its second value follows, and is judged there
  if (option == "--syn") return !negated;
  // What names a match, and what says how to act, is no condition.
  if (option == "-m" || option == "--comment" || option == "--reject-with" || option.starts_with("--log-")) return true;
  rule.conditional = true;
  return true;
}

void set_target(const std::string& option, const std::string& value, FirewallRule& rule) {
  if (value == "ACCEPT") {
    rule.action = RuleAction::kAccept;
  } else if (value == "DROP" || value == "REJECT") {
    rule.action = RuleAction::kBlock;
  } else if (value == "RETURN") {
    rule.action = RuleAction::kReturn;
  } else {  // a chain, or a target that lets packets go on and is none
    rule.action = option == "-g" ? RuleAction::kGoto : RuleAction::kJump;
    rule.target = value;
  }
}

/// @param words behind "-A CHAIN". nullopt: as for apply_option
std::optional<FirewallRule> rule_of(const std::vector<std::string>& words) {
  FirewallRule rule;
  bool negated = false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "!") {
      negated = true;
      continue;
    }
    const bool has_value = i + 1 < words.size() && words[i + 1] != "!" && !words[i + 1].starts_with('-');
    const std::string& option = words[i];
    const std::string value = has_value ? words[i + 1] : "";
    if (has_value) ++i;
    if (option == "-j" || option == "-g") {
      set_target(option, value, rule);
    } else if (!apply_option(option, value, negated, rule)) {
      return std::nullopt;
    }
    if (option == "--tcp-flags" && i + 1 < words.size() && (words[++i] == "SYN") == negated) return std::nullopt;
    negated = false;
  }
  if (rule.action == RuleAction::kNothing) return std::nullopt;
  return rule;
}

}  // namespace

Result<Firewall> parse_iptables(std::string_view text) {
  Firewall firewall;
  bool filter = false, complete = false;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.starts_with('*')) filter = line == "*filter";
    if (line == "COMMIT") complete = true;
    if (!filter) continue;
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    if (line.starts_with(':') && words.size() >= 2) {
      const std::string name = words[0].substr(1);
      firewall[name] = {.name = concat("iptables ", name), .is_input = name == "INPUT", .drops = words[1] == "DROP", .rules = {}};
    } else if (words[0] == "-A" && words.size() >= 2) {
      const auto chain = firewall.find(words[1]);
      if (chain == firewall.end()) return Status(Code::kProtocol, "read iptables' rules", concat("no chain for ", line));
      if (auto rule = rule_of({words.begin() + 2, words.end()})) {
        rule->text = line;
        chain->second.rules.push_back(*std::move(rule));
      }
    }
  }
  // Without tables it prints nothing.
  if (!complete && !text.empty()) return Status(Code::kProtocol, "read iptables' rules", "no table that ends with COMMIT");
  return firewall;
}

}  // namespace tcpx::doctor
