// Shape of the text: libnftables-json(5).
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"
#include "programs/doctor/firewall_rules.h"

namespace tcpx::doctor {
namespace {

using Json = nlohmann::json;

/// What a match says of a new TCP connection from another host.
enum class Applies { kNever, kPerhaps, kAlways };

std::string member_text(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

/// A value, or those of a set or list. nullopt: something that is not known here, such as "@name".
std::optional<std::vector<Json>> values_of(const Json& right) {
  if (right.is_array()) return std::vector<Json>(right.begin(), right.end());
  if (right.is_object() && right.contains("set") && right["set"].is_array()) return values_of(right["set"]);
  if (right.is_string() && right.get<std::string>().starts_with('@')) return std::nullopt;
  return std::vector<Json>{right};
}

std::optional<PortRange> port_range_of(const Json& value) {
  const auto port = [](const Json& number) { return number.is_number_unsigned() && number.get<uint64_t>() <= 65535; };
  if (port(value)) return PortRange{value.get<uint16_t>(), value.get<uint16_t>()};
  if (!value.is_object() || !value.contains("range")) return std::nullopt;
  const Json& range = value["range"];
  if (!range.is_array() || range.size() != 2 || !port(range[0]) || !port(range[1])) return std::nullopt;
  return PortRange{range[0].get<uint16_t>(), range[1].get<uint16_t>()};
}

PortRanges all_but(const PortRanges& ranges) {
  PortRanges rest;
  uint32_t next = 0;
  PortRanges sorted = ranges;
  std::sort(sorted.begin(), sorted.end(), [](const PortRange& a, const PortRange& b) { return a.first < b.first; });
  for (const PortRange& range : sorted) {
    if (range.first > next) rest.push_back({static_cast<uint16_t>(next), static_cast<uint16_t>(range.first - 1)});
    next = std::max(next, uint32_t{range.last} + 1);
  }
  if (next <= 65535) rest.push_back({static_cast<uint16_t>(next), 65535});
  return rest;
}

Applies match_ports(const Json& right, bool negated, FirewallRule& rule) {
  const auto values = values_of(right);
  if (!values) return Applies::kPerhaps;
  PortRanges ranges;
  for (const Json& value : *values) {
    const auto range = port_range_of(value);
    if (!range) return Applies::kPerhaps;
    ranges.push_back(*range);
  }
  rule.ports = negated ? all_but(ranges) : ranges;
  return Applies::kAlways;
}

/// Whether `right` names one of `wanted`. nullopt: not known.
std::optional<bool> names_one_of(const Json& right, std::initializer_list<Json> wanted) {
  const auto values = values_of(right);
  if (!values) return std::nullopt;
  for (const Json& value : *values) {
    if (std::find(wanted.begin(), wanted.end(), value) != wanted.end()) return true;
  }
  return false;
}

Applies match_names(const Json& right, bool negated, std::initializer_list<Json> wanted) {
  const auto named = names_one_of(right, wanted);
  if (!named) return Applies::kPerhaps;
  return *named != negated ? Applies::kAlways : Applies::kNever;
}

Applies apply_match(const Json& match, FirewallRule& rule) {
  if (!match.is_object() || !match.contains("left") || !match.contains("right")) return Applies::kPerhaps;
  const Json& right = match["right"];
  const bool negated = member_text(match, "op") == "!=";
  Json left = match["left"];
  // tcp flags & (fin|syn|rst|ack) == syn
  if (left.is_object() && left.contains("&") && left["&"].is_array() && !left["&"].empty()) left = left["&"][0];
  if (!left.is_object()) return Applies::kPerhaps;
  if (left.contains("payload")) {
    const std::string protocol = member_text(left["payload"], "protocol"), field = member_text(left["payload"], "field");
    if ((protocol == "tcp" || protocol == "th") && field == "dport") return match_ports(right, negated, rule);
    if (protocol == "tcp" && field == "flags") return right == "syn" && !negated ? Applies::kAlways : Applies::kNever;
    if (protocol == "tcp") return Applies::kPerhaps;
    if (protocol == "ip") return field == "protocol" ? match_names(right, negated, {"tcp", 6}) : Applies::kPerhaps;
    return protocol.empty() ? Applies::kPerhaps : Applies::kNever;  // udp, icmp, ip6 ...
  }
  if (left.contains("meta")) {
    const std::string key = member_text(left["meta"], "key");
    if (key == "l4proto") return match_names(right, negated, {"tcp", 6});
    if (key == "nfproto") return match_names(right, negated, {"ipv4"});
    if (key == "protocol") return match_names(right, negated, {"ip"});
    if (key == "iif" || key == "iifname") {
      if (names_one_of(right, {"lo"}) != true) return Applies::kPerhaps;
      return negated ? Applies::kAlways : Applies::kNever;
    }
    if (key == "mark") return negated ? Applies::kAlways : Applies::kNever;  // who marks packets means others
  }
  if (left.contains("ct") && member_text(left["ct"], "key") == "state") return match_names(right, negated, {"new"});
  return Applies::kPerhaps;
}

bool set_verdict(const Json& statement, FirewallRule& rule) {
  for (const char* block : {"drop", "reject"}) {
    if (statement.contains(block)) rule.action = RuleAction::kBlock;
  }
  if (statement.contains("accept")) rule.action = RuleAction::kAccept;
  if (statement.contains("return")) rule.action = RuleAction::kReturn;
  for (const char* jump : {"jump", "goto"}) {
    if (!statement.contains(jump)) continue;
    rule.action = *jump == 'j' ? RuleAction::kJump : RuleAction::kGoto;
    rule.target = member_text(statement[jump], "target");
  }
  return rule.action != RuleAction::kNothing;
}

/// One entry of a verdict map whose key decides; others may be anything.
Applies apply_map(const Json& map, FirewallRule& rule) {
  if (!map.is_object() || !map.contains("key") || !map.contains("data")) return Applies::kPerhaps;
  const auto entries = values_of(map["data"]);
  const bool state = map["key"].is_object() && map["key"].contains("ct") && member_text(map["key"]["ct"], "key") == "state";
  if (entries && state) {
    for (const Json& entry : *entries) {
      if (entry.is_array() && entry.size() == 2 && entry[0] == "new" && set_verdict(entry[1], rule)) return Applies::kAlways;
    }
    return Applies::kNever;
  }
  rule.action = RuleAction::kBlock;  // it may
  return Applies::kPerhaps;
}

/// What iptables-nft could not say in nft's own words.
Applies apply_extension(const Json& extension, FirewallRule& rule) {
  if (member_text(extension, "type") != "target") return Applies::kPerhaps;
  if (member_text(extension, "name") == "REJECT") rule.action = RuleAction::kBlock;
  return Applies::kAlways;
}

/// nullopt: it is never about a new TCP connection.
std::optional<FirewallRule> rule_of(const Json& expressions) {
  FirewallRule rule;
  for (const Json& expression : expressions) {
    if (!expression.is_object()) continue;
    Applies applies = Applies::kAlways;
    if (expression.contains("match")) {
      applies = apply_match(expression["match"], rule);
    } else if (expression.contains("vmap")) {
      applies = apply_map(expression["vmap"], rule);
    } else if (expression.contains("xt")) {
      applies = apply_extension(expression["xt"], rule);
    } else if (expression.contains("limit") || expression.contains("ct count")) {
      applies = Applies::kPerhaps;
    } else {
      set_verdict(expression, rule);
    }
    if (applies == Applies::kNever) return std::nullopt;
    rule.conditional = rule.conditional || applies == Applies::kPerhaps;
  }
  if (rule.action == RuleAction::kNothing) return std::nullopt;
  return rule;
}

bool kept_by_iptables(const std::string& family, const std::string& table) {
  return family == "ip" && (table == "filter" || table == "nat" || table == "mangle" || table == "raw" || table == "security");
}

}  // namespace

Result<Firewall> parse_nft(std::string_view json, bool skip_iptables) {
  const Json document = Json::parse(json.begin(), json.end(), nullptr, false);
  if (document.is_discarded() || !document.is_object() || !document.contains("nftables") || !document["nftables"].is_array()) {
    return Status(Code::kProtocol, "read nft's rules", "no JSON with a list \"nftables\"");
  }
  Firewall firewall;
  for (const Json& item : document["nftables"]) {
    if (!item.is_object()) continue;
    const bool is_rule = item.contains("rule");
    if (!is_rule && !item.contains("chain")) continue;
    const Json& entry = is_rule ? item["rule"] : item["chain"];
    if (!entry.is_object()) continue;
    const std::string family = member_text(entry, "family"), table = member_text(entry, "table");
    if ((family != "ip" && family != "inet") || (skip_iptables && kept_by_iptables(family, table))) continue;
    const auto key_of = [&](const std::string& chain) { return concat(family, ' ', table, ' ', chain); };
    FirewallChain& chain = firewall[key_of(member_text(entry, is_rule ? "chain" : "name"))];
    if (!is_rule) {
      chain.name = concat("nft ", key_of(member_text(entry, "name")));
      chain.is_input = member_text(entry, "hook") == "input" && member_text(entry, "type") == "filter";
      chain.drops = member_text(entry, "policy") == "drop";
    } else if (entry.contains("expr") && entry["expr"].is_array()) {
      if (auto rule = rule_of(entry["expr"])) {
        if (!rule->target.empty()) rule->target = key_of(rule->target);
        rule->text =
            concat("the rule with handle ", entry.contains("handle") ? entry["handle"].dump() : "?", " in `nft -a list ruleset`");
        chain.rules.push_back(*std::move(rule));
      }
    }
  }
  return firewall;
}

}  // namespace tcpx::doctor
