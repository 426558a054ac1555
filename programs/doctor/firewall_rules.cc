#include "programs/doctor/firewall_rules.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace tcpx::doctor {
namespace {

// Deeper than any sane ruleset; nft refuses loops, so this is for texts that are none.
constexpr int kDeepest = 16;

enum class Fate { kGoesOn, kReturned, kAccepted, kBlocked };

class Walk {
 public:
  Walk(const Firewall& firewall, uint16_t port) : firewall_(firewall), port_(port) {}

  PortVerdict run() {
    PortVerdict verdict{.ports = {port_, port_}};
    for (const auto& [name, chain] : firewall_) {
      if (!chain.is_input) continue;
      perhaps_accepted_ = false;
      perhaps_blocked_.clear();
      Fate fate = through(chain, 0);
      std::string rule = blocked_by_;
      if (fate != Fate::kAccepted && fate != Fate::kBlocked && chain.drops) {
        fate = Fate::kBlocked;
        rule = concat(chain.name, ": policy drop");
      }
      if (fate == Fate::kBlocked && !perhaps_accepted_) return {verdict.ports, Passage::kBlocked, chain.name, rule};
      if (fate != Fate::kBlocked) rule = perhaps_blocked_;
      if (!rule.empty() && verdict.passage == Passage::kOpen) {
        verdict = {verdict.ports, Passage::kDepends, chain.name, rule};
      }
    }
    return verdict;
  }

 private:
  Fate through(const FirewallChain& chain, int depth) {
    bool perhaps_left = false;  // a conditional return came before
    for (const FirewallRule& rule : chain.rules) {
      if (std::none_of(rule.ports.begin(), rule.ports.end(),
                       [&](const PortRange& range) { return range.first <= port_ && port_ <= range.last; })) {
        continue;
      }
      Fate fate = Fate::kGoesOn;
      switch (rule.action) {
        case RuleAction::kNothing:
          continue;
        case RuleAction::kAccept:
          fate = Fate::kAccepted;
          break;
        case RuleAction::kBlock:
          fate = Fate::kBlocked;
          blocked_by_ = concat(chain.name, ": ", rule.text);
          break;
        case RuleAction::kReturn:
          fate = Fate::kReturned;
          break;
        case RuleAction::kJump:
        case RuleAction::kGoto: {
          const auto target = firewall_.find(rule.target);
          if (target == firewall_.end() || depth == kDeepest) continue;
          fate = through(target->second, depth + 1);
          if (fate == Fate::kReturned || fate == Fate::kGoesOn) {
            fate = rule.action == RuleAction::kGoto ? Fate::kReturned : Fate::kGoesOn;
          }
          break;
        }
      }
      if (fate == Fate::kGoesOn) continue;
      if (!rule.conditional && !perhaps_left) return fate;
      // It may or may not be about a peer: remembered, and the rules behind it count too.
      if (fate == Fate::kBlocked && perhaps_blocked_.empty()) perhaps_blocked_ = blocked_by_;
      if (fate == Fate::kAccepted) perhaps_accepted_ = true;
      if (fate == Fate::kReturned) perhaps_left = true;
    }
    return Fate::kGoesOn;
  }

  const Firewall& firewall_;
  const uint16_t port_;
  bool perhaps_accepted_ = false;
  std::string perhaps_blocked_, blocked_by_;
};

}  // namespace

std::vector<PortVerdict> passage_of(const Firewall& firewall, PortRange range) {
  // The answer changes only where a rule's ports begin or end.
  std::set<uint32_t> begins = {range.first};
  for (const auto& [name, chain] : firewall) {
    for (const FirewallRule& rule : chain.rules) {
      for (const PortRange& ports : rule.ports) {
        begins.insert(ports.first);
        begins.insert(uint32_t{ports.last} + 1);
      }
    }
  }
  std::vector<PortVerdict> verdicts;
  for (auto at = begins.find(range.first); at != begins.end() && *at <= range.last; ++at) {
    const auto next = std::next(at);
    const uint32_t last = next == begins.end() ? range.last : std::min<uint32_t>(range.last, *next - 1);
    PortVerdict verdict = Walk(firewall, static_cast<uint16_t>(*at)).run();
    verdict.ports = {static_cast<uint16_t>(*at), static_cast<uint16_t>(last)};
    if (!verdicts.empty() && verdicts.back().passage == verdict.passage && verdicts.back().rule == verdict.rule) {
      verdicts.back().ports.last = verdict.ports.last;
    } else {
      verdicts.push_back(std::move(verdict));
    }
  }
  return verdicts;
}

}  // namespace tcpx::doctor
