// What a packet filter does to new connections, read from what nft 1.0.6 and iptables 1.8.9 printed of rules made for this test.
#include <gtest/gtest.h>

#include <string>

#include "programs/doctor/firewall_rules.h"

namespace tcpx::doctor {
namespace {

constexpr char kNftEmpty[] = R"({"nftables": [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}}]})";

// clang-format off
// table inet filter {
//   chain input { type filter hook input priority filter; policy drop;
//     iif "lo" accept; ct state established,related accept; ct state vmap { established : accept, invalid : drop }
//     tcp dport { 22, 443 } accept; tcp dport 12345 ip saddr 10.0.0.0/8 accept; tcp dport 50000-60000 accept
//     tcp dport @blocked drop; tcp dport { 1000-2000, 55555 } reject with tcp reset; meta l4proto tcp th dport 12345 drop
//     iifname "eth0" tcp dport 51000 counter drop; ip protocol tcp drop
//     tcp flags & (fin|syn|rst|ack) == syn tcp dport != 22 log prefix "x" drop; jump more; udp dport 53 drop }
//   chain more { tcp dport 59999 reject; } }
constexpr char kNftManyRules[] = R"json({"nftables": [
{"metainfo": {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}},
{"table": {"family": "inet", "name": "filter", "handle": 1}},
{"set": {"family": "inet", "name": "blocked", "table": "filter", "type": "inet_service", "handle": 4, "flags": ["interval"], "elem": [8080, {"range": [50000, 50100]}]}},
{"chain": {"family": "inet", "table": "filter", "name": "input", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}},
{"chain": {"family": "inet", "table": "filter", "name": "more", "handle": 2}},
{"chain": {"family": "inet", "table": "filter", "name": "output", "handle": 3, "type": "filter", "hook": "output", "prio": 0, "policy": "accept"}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 5, "expr": [{"match": {"op": "==", "left": {"meta": {"key": "iif"}}, "right": "lo"}}, {"accept": null}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 6, "expr": [{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["established", "related"]}}, {"accept": null}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 8, "expr": [{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [["invalid", {"drop": null}], ["established", {"accept": null}]]}}}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 10, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [22, 443]}}}, {"accept": null}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 11, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 12345}}, {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": {"prefix": {"addr": "10.0.0.0", "len": 8}}}}, {"accept": null}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 12, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"range": [50000, 60000]}}}, {"accept": null}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 13, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": "@blocked"}}, {"drop": null}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 15, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [{"range": [1000, 2000]}, 55555]}}}, {"reject": {"type": "tcp reset"}}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 16, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 12345}}, {"drop": null}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 17, "expr": [{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "eth0"}}, {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 51000}}, {"counter": {"packets": 0, "bytes": 0}}, {"drop": null}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 18, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "protocol"}}, "right": "tcp"}}, {"drop": null}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 19, "expr": [{"match": {"op": "==", "left": {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, ["fin", "syn", "rst", "ack"]]}, "right": "syn"}}, {"match": {"op": "!=", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 22}}, {"log": {"prefix": "x"}}, {"drop": null}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 20, "expr": [{"jump": {"target": "more"}}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "input", "handle": 21, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 53}}, {"drop": null}]}},
{"rule": {"family": "inet", "table": "filter", "chain": "more", "handle": 22, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 59999}}, {"reject": {"type": "icmpx", "expr": "port-unreachable"}}]}}]})json";

// iptables -P INPUT DROP; -A INPUT -p tcp --dport 12345 -j DROP; -A INPUT -p tcp -m multiport --dports 22,50000:60000 -j REJECT
constexpr char kNftOfIptables[] = R"json({"nftables": [
{"metainfo": {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}},
{"table": {"family": "ip", "name": "filter", "handle": 2}},
{"chain": {"family": "ip", "table": "filter", "name": "INPUT", "handle": 1, "type": "filter", "hook": "input", "prio": 0, "policy": "drop"}},
{"rule": {"family": "ip", "table": "filter", "chain": "INPUT", "handle": 2, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 12345}}, {"counter": {"packets": 0, "bytes": 0}}, {"drop": null}]}},
{"rule": {"family": "ip", "table": "filter", "chain": "INPUT", "handle": 3, "expr": [{"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"}}, {"xt": {"type": "match", "name": "multiport"}}, {"counter": {"packets": 0, "bytes": 0}}, {"xt": {"type": "target", "name": "REJECT"}}]}}]})json";
// clang-format on

constexpr char kIptablesOfNft[] = R"(# Generated by iptables-nft-save v1.8.9 (nf_tables) on Sat Nov 21 18:53:04 2026
*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -p tcp -m tcp --dport 12345 -j DROP
-A INPUT -p tcp -m multiport --dports 22,50000:60000 -j REJECT --reject-with icmp-port-unreachable
COMMIT
)";

constexpr char kIptablesLegacy[] = R"(# Generated by iptables-save v1.8.9 on Sat Nov 21 18:53:04 2026
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
COMMIT
# Completed on Sat Nov 21 18:53:04 2026
# Generated by iptables-save v1.8.9 on Sat Nov 21 18:53:04 2026
*filter
:INPUT DROP [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:MORE - [0:0]
-A INPUT -i lo -j ACCEPT
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -p tcp -m multiport --dports 22,50000:60000 -j REJECT --reject-with tcp-reset
-A INPUT ! -s 10.0.0.0/8 -p tcp -m tcp --dport 12345 -j DROP
-A INPUT -p tcp -m tcp ! --dport 22 -j DROP
-A INPUT -j MORE
-A MORE -p tcp -m tcp --dport 1000:1100 -j DROP
COMMIT
# Completed on Sat Nov 21 18:53:04 2026
)";

/// What happens to one port.
PortVerdict nft(const std::string& text, uint16_t port) {
  const auto firewall = parse_nft(text, false);
  EXPECT_TRUE(firewall.is_ok()) << firewall.status().to_string();
  return firewall.is_ok() ? passage_of(*firewall, {port, port}).at(0) : PortVerdict{};
}
PortVerdict iptables(const std::string& text, uint16_t port) {
  const auto firewall = parse_iptables(text);
  EXPECT_TRUE(firewall.is_ok()) << firewall.status().to_string();
  return firewall.is_ok() ? passage_of(*firewall, {port, port}).at(0) : PortVerdict{};
}

/// An input chain with these expressions, one rule each.
std::string nft_input(const std::string& policy, const std::vector<std::string>& rules) {
  std::string text =
      R"({"nftables": [{"chain": {"family": "inet", "table": "t", "name": "in", "type": "filter", "hook": "input", )";
  text += R"("prio": 0, "policy": ")" + policy + "\"}}";
  for (const std::string& rule : rules)
    text += R"(, {"rule": {"family": "inet", "table": "t", "chain": "in", "handle": 7, "expr": [)" + rule + "]}}";
  return text + "]}";
}
std::string iptables_input(const std::string& policy, const std::vector<std::string>& rules) {
  std::string text = "*filter\n:INPUT " + policy + " [0:0]\n:MORE - [0:0]\n";
  for (const std::string& rule : rules) text += rule + "\n";
  return text + "COMMIT\n";
}

constexpr char kToPort[] =
    R"({"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 12345}})";

TEST(NftRules, NoRulesLetEverythingIn) {
  EXPECT_EQ(nft(kNftEmpty, 12345).passage, Passage::kOpen);
}

TEST(NftRules, APolicyOfDropKeepsOutWhatNoRuleLetsIn) {
  EXPECT_EQ(nft(kNftManyRules, 443).passage, Passage::kOpen);
  EXPECT_EQ(nft(kNftManyRules, 52000).passage, Passage::kOpen);
  const PortVerdict verdict = nft(nft_input("drop", {}), 12345);
  EXPECT_EQ(verdict.passage, Passage::kBlocked);
  EXPECT_EQ(verdict.rule, "nft inet t in: policy drop");
  EXPECT_EQ(nft(nft_input("accept", {}), 12345).passage, Passage::kOpen);
}

TEST(NftRules, ARuleThatLooksAtAddressesDecidesForSome) {
  const PortVerdict verdict = nft(kNftManyRules, 12345);  // let in from 10.0.0.0/8, else dropped
  EXPECT_EQ(verdict.passage, Passage::kDepends);
  EXPECT_NE(verdict.rule.find("handle 16"), std::string::npos) << verdict.rule;
}

TEST(NftRules, TheFirstRuleThatIsSureDecides) {
  // 55555 is let in with 50000-60000 before it is refused; 1500 meets the refusal.
  EXPECT_EQ(nft(kNftManyRules, 55555).passage, Passage::kOpen);
  EXPECT_NE(nft(kNftManyRules, 1500).rule.find("handle 15"), std::string::npos);
  EXPECT_EQ(nft(kNftManyRules, 33000).passage, Passage::kBlocked);
  EXPECT_NE(nft(kNftManyRules, 33000).rule.find("handle 18"), std::string::npos);
}

TEST(NftRules, RangesAreCutWhereTheAnswerChanges) {
  const auto verdicts = passage_of(parse_nft(kNftManyRules, false).value(), {49990, 60010});
  ASSERT_EQ(verdicts.size(), 3u);
  EXPECT_EQ(verdicts[0].ports, (PortRange{49990, 49999}));
  EXPECT_EQ(verdicts[1].ports, (PortRange{50000, 60000}));
  EXPECT_EQ(verdicts[1].passage, Passage::kOpen);
  EXPECT_EQ(verdicts[2].ports, (PortRange{60001, 60010}));
  EXPECT_EQ(verdicts[2].passage, Passage::kBlocked);
}

TEST(NftRules, OtherProtocolsAndOldConnectionsSayNothing) {
  const std::string drop = R"(, {"drop": null})";
  for (const std::string match :
       {R"({"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 12345}})",
        R"({"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": {"set": ["udp", "icmp"]}}})",
        R"({"match": {"op": "==", "left": {"meta": {"key": "nfproto"}}, "right": "ipv6"}})",
        R"({"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "lo"}})",
        R"({"match": {"op": "==", "left": {"meta": {"key": "mark"}}, "right": 32768}})",
        R"({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["invalid", "untracked"]}})",
        R"({"match": {"op": "==", "left": {"payload": {"protocol": "ip6", "field": "saddr"}}, "right": "::1"}})"}) {
    EXPECT_EQ(nft(nft_input("accept", {match + drop}), 12345).passage, Passage::kOpen) << match;
  }
  for (const std::string match :
       {R"({"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "protocol"}}, "right": "tcp"}})",
        R"({"match": {"op": "!=", "left": {"meta": {"key": "iifname"}}, "right": "lo"}})",
        R"({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "new"}})",
        R"({"match": {"op": "!=", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [22, 80]}}})"}) {
    EXPECT_EQ(nft(nft_input("accept", {match + drop}), 12345).passage, Passage::kBlocked) << match;
  }
}

TEST(NftRules, WhatIsNotUnderstoodMayBlock) {
  const std::string drop = R"(, {"drop": null})", port = kToPort;
  for (const std::string& rule :
       {R"({"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": "@blocked"}})" + drop,
        R"({"match": {"op": "==", "left": {"payload": {"base": "th", "offset": 16, "len": 16}}, "right": 12345}})" + drop,
        R"({"match": {"op": "==", "left": {"fib": {"result": "oif"}}, "right": false}})" + drop,
        port + R"(, {"limit": {"rate": 5, "per": "second"}})" + drop,
        port + R"(, {"xt": {"type": "match", "name": "recent"}})" + drop,
        std::string(R"({"vmap": {"key": {"meta": {"key": "iifname"}}, "data": "@zones"}})")}) {
    EXPECT_EQ(nft(nft_input("accept", {rule}), 12345).passage, Passage::kDepends) << rule;
  }
}

TEST(NftRules, StatesAreLookedUpInVerdictMaps) {
  const auto map = [](const std::string& entries) {
    return nft_input("accept", {R"({"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set": [)" + entries + "]}}}"});
  };
  EXPECT_EQ(nft(map(R"(["invalid", {"drop": null}])"), 1).passage, Passage::kOpen);
  EXPECT_EQ(nft(map(R"(["new", {"drop": null}], ["established", {"accept": null}])"), 1).passage, Passage::kBlocked);
}

// As firewalld lays it out: zones by interface, the last zone for all, and a refusal at the end.
TEST(NftRules, ZonesAreWalkedThrough) {
  const auto rules = [](const std::string& allowed) {
    const std::string chain = R"({"chain": {"family": "inet", "table": "f", "name": ")";
    const auto rule = [](const std::string& in, const std::string& expressions) {
      return R"(, {"rule": {"family": "inet", "table": "f", "chain": ")" + in + R"(", "handle": 9, "expr": [)" + expressions +
             "]}}";
    };
    return R"({"nftables": [)" + chain + R"(INPUT", "type": "filter", "hook": "input", "prio": 10, "policy": "accept"}}, )" +
           chain + R"(ZONES"}}, )" + chain + R"(PUBLIC"}}, )" + chain + R"(ALLOW"}})" +
           rule("INPUT", R"({"jump": {"target": "ZONES"}})") +
           rule("INPUT", R"({"reject": {"type": "icmpx", "expr": "admin-prohibited"}})") +
           rule(
               "ZONES",
               R"({"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "eth0"}}, {"goto": {"target": "PUBLIC"}})") +
           rule("ZONES", R"({"goto": {"target": "PUBLIC"}})") + rule("PUBLIC", R"({"jump": {"target": "ALLOW"}})") +
           rule("ALLOW", R"({"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": )" +
                             allowed + R"(}}, {"accept": null})") +
           "]}";
  };
  EXPECT_EQ(nft(rules("22"), 12345).passage, Passage::kBlocked);
  EXPECT_EQ(nft(rules("22"), 12345).chain, "nft inet f INPUT");
  EXPECT_EQ(nft(rules("12345"), 12345).passage, Passage::kOpen);
}

TEST(NftRules, ChainsThatCallEachOtherEnd) {
  EXPECT_EQ(nft(nft_input("drop", {R"({"jump": {"target": "in"}})"}), 1).passage, Passage::kBlocked);
}

TEST(NftRules, WhatIptablesKeepsThereIsLeftToItWhenItAnswers) {
  EXPECT_EQ(nft(kNftOfIptables, 50000).passage, Passage::kBlocked);  // by its policy; the rule before it may refuse
  EXPECT_TRUE(parse_nft(kNftOfIptables, true)->empty());
}

TEST(NftRules, TextsThatAreNoRulesAreRefused) {
  for (const char* text : {"", "nft: command failed", "[]", "{}", R"({"nftables": 3})", R"({"nftables": [)"}) {
    EXPECT_EQ(parse_nft(text, false).status().code(), Code::kProtocol) << text;
  }
  // Strange entries are no reason to give up.
  EXPECT_TRUE(
      parse_nft(R"({"nftables": [1, {"rule": 2}, {"rule": {"family": "ip", "expr": [[], {"match": 1}]}}, {"chain": null}]})",
                false)
          .is_ok());
}

TEST(IptablesRules, PolicyAndRules) {
  EXPECT_EQ(iptables(kIptablesLegacy, 22).passage, Passage::kOpen);
  EXPECT_EQ(iptables(kIptablesLegacy, 50000).rule,
            "iptables INPUT: -A INPUT -p tcp -m multiport --dports 22,50000:60000 -j REJECT --reject-with tcp-reset");
  // Dropped from outside 10.0.0.0/8 by one rule, and from everywhere by the next.
  EXPECT_EQ(iptables(kIptablesLegacy, 12345).passage, Passage::kBlocked);
  EXPECT_EQ(iptables(kIptablesLegacy, 12345).chain, "iptables INPUT");
  EXPECT_EQ(iptables(kIptablesOfNft, 12345).rule, "iptables INPUT: -A INPUT -p tcp -m tcp --dport 12345 -j DROP");
  EXPECT_EQ(iptables(kIptablesOfNft, 443).rule, "iptables INPUT: policy drop");
  EXPECT_EQ(iptables("", 443).passage, Passage::kOpen);
}

TEST(IptablesRules, ConditionsThatAreNotKnownDecideForSome) {
  EXPECT_EQ(iptables(iptables_input("ACCEPT", {"-A INPUT ! -s 10.0.0.0/8 -p tcp --dport 12345 -j DROP"}), 12345).passage,
            Passage::kDepends);
  EXPECT_EQ(iptables(iptables_input("DROP", {"-A INPUT -i eth1 -p tcp --dport 12345 -j ACCEPT"}), 12345).passage,
            Passage::kDepends);
  // A return for some leaves the rules behind it in doubt.
  EXPECT_EQ(
      iptables(iptables_input("ACCEPT", {"-A INPUT -j MORE", "-A MORE -s 10.0.0.0/8 -j RETURN", "-A MORE -j DROP"}), 9).passage,
      Passage::kDepends);
  EXPECT_EQ(iptables(iptables_input("ACCEPT", {"-A INPUT -j MORE", "-A MORE -j RETURN", "-A MORE -j DROP"}), 9).passage,
            Passage::kOpen);
}

TEST(IptablesRules, OtherProtocolsAndOldConnectionsSayNothing) {
  for (const char* rule :
       {"-A INPUT -p udp -j DROP", "-A INPUT ! -p tcp -j DROP", "-A INPUT -i lo -j DROP",
        "-A INPUT -m conntrack --ctstate INVALID -j DROP", "-A INPUT -m state --state RELATED,ESTABLISHED -j DROP",
        "-A INPUT -m mark --mark 0x8000/0x8000 -j DROP", "-A INPUT -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j DROP",
        "-A INPUT ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" -j DROP",
        "-A INPUT -p tcp -m tcp --dport 1:1000 -j DROP", "-A INPUT -p tcp -j LOG --log-prefix \"a DROP \"",
        "-A INPUT -p tcp -g MORE"}) {
    EXPECT_EQ(iptables(iptables_input("ACCEPT", {rule}), 12345).passage, Passage::kOpen) << rule;
  }
  for (const char* rule :
       {"-A INPUT -j DROP", "-A INPUT ! -i lo -p tcp -j REJECT --reject-with icmp-port-unreachable",
        "-A INPUT -m conntrack --ctstate NEW -j DROP", "-A INPUT -p tcp -m tcp --dport 1024: -j DROP",
        "-A INPUT -p tcp -m tcp ! --dport 22 -j DROP", "-A INPUT -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j DROP",
        "-A INPUT -p tcp -m comment --comment \"a, \\\"b\\\" c\" -j DROP"}) {
    EXPECT_EQ(iptables(iptables_input("ACCEPT", {rule}), 12345).passage, Passage::kBlocked) << rule;
  }
}

TEST(IptablesRules, TextsThatAreNoRulesAreRefused) {
  EXPECT_EQ(parse_iptables("Fatal: can't open lock file\n").status().code(), Code::kProtocol);
  EXPECT_EQ(parse_iptables("*filter\n:INPUT DROP [0:0]\n").status().code(), Code::kProtocol);  // cut off
  EXPECT_EQ(parse_iptables("*filter\n-A INPUT -j DROP\nCOMMIT\n").status().code(), Code::kProtocol);
}

}  // namespace
}  // namespace tcpx::doctor
