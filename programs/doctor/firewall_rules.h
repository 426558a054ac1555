// What a packet filter does to a new TCP connection that comes in, from what `nft -j list ruleset` and `iptables-save` print.
//
// A rule that looks at more than protocol and port (addresses, interfaces, sets of addresses, extensions) may or may not apply to
// a peer; the answer then is kDepends, with the rule. Rules for loopback and for connections that exist already say nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/port_range.h"
#include "tcpx/status.h"

namespace tcpx::doctor {

using PortRanges = std::vector<PortRange>;

enum class RuleAction { kNothing, kAccept, kBlock, kJump, kGoto, kReturn };

struct FirewallRule {
  PortRanges ports = {PortRange{}};  ///< TCP ports it is about
  bool conditional = false;          ///< also looks at something that is not known here
  RuleAction action = RuleAction::kNothing;
  std::string target;  ///< of kJump and kGoto: name of a chain
  std::string text;    ///< for people
};

struct FirewallChain {
  std::string name;  ///< for people: "nft inet filter input", "iptables INPUT"
  bool is_input = false;
  bool drops = false;  ///< its policy, for what no rule decides
  std::vector<FirewallRule> rules;
};

/// Chains by a name that rules jump to; those with `is_input` are where packets come in.
using Firewall = std::map<std::string, FirewallChain>;

/// @param skip_iptables leaves out the tables that iptables-nft keeps there: iptables-save prints them in a readable way
/// @return kProtocol when it is not what nft prints
Result<Firewall> parse_nft(std::string_view json, bool skip_iptables);
/// The filter table, IPv4. @return kProtocol when it is not what iptables-save prints
Result<Firewall> parse_iptables(std::string_view text);

enum class Passage { kOpen, kDepends, kBlocked };

struct PortVerdict {
  PortRange ports;
  Passage passage = Passage::kOpen;
  std::string chain;  ///< of `is_input`, where it is decided; "" when open
  std::string rule;   ///< what blocks, or may; "" when open
};

/// What happens to connections to the ports of `range`: parts of it in order, neighbours with the same answer joined.
std::vector<PortVerdict> passage_of(const Firewall& firewall, PortRange range);

}  // namespace tcpx::doctor
