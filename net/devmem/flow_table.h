// What a NIC decides a packet's receive queue by: its ntuple rules, and the RSS table for packets that no rule matches.
//
// Both are asked for and set by the ethtool requests of ioctl(2), which take CAP_NET_ADMIN to set. Of several rules that match a
// packet, the one at the lowest location decides.
#pragma once

#include <linux/ethtool.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tcpx/status.h"

namespace tcpx::devmem {

/// ioctl(SIOCETHTOOL), behind a seam: most machines have no NIC with rules.
class EthtoolCalls {
 public:
  virtual ~EthtoolCalls() = default;
  /// -1 with errno for an error. @param request begins with its command; the answer is written into it
  virtual int ethtool(const std::string& interface, void* request) = 0;

  /// This machine's.
  static EthtoolCalls& real();
};

/// A rule as the NIC has it.
struct NtupleRule {
  ethtool_rx_flow_spec spec{};
  uint32_t rss_context = 0;  ///< which spreads the flows, when spec.flow_type has FLOW_RSS
};

/// Of one interface. One thread at a time. Errors have the errno and say what is missing: kUnsupported, kExhausted (no room for
/// another rule), kNotFound (no such interface), kSystem.
class FlowTable {
 public:
  FlowTable(EthtoolCalls& calls, std::string interface) : calls_(&calls), interface_(std::move(interface)) {}

  const std::string& interface() const { return interface_; }

  /// All rules, that of the lowest location first.
  Result<std::vector<NtupleRule>> rules() const;
  /// Adds a rule, whose location is ignored. @return where it is: the NIC's choice, or else the last free location, so that other
  /// rules come before it
  Result<uint32_t> insert(ethtool_rx_flow_spec rule) const;
  /// Removes the rule at a location. Without one there it succeeds.
  Status remove(uint32_t location) const;

  /// The receive queue of each entry of an RSS table. @param context 0: of packets that no rule matches
  Result<std::vector<uint32_t>> rss(uint32_t context = 0) const;
  /// How many receive queues packets can be led to.
  Result<uint64_t> queue_count() const;
  /// Sets the queues of context 0. @param queues as many as rss() has, or none: the driver's default
  Status set_rss(std::span<const uint32_t> queues) const;

 private:
  /// Locations of all rules. @param size becomes that of the table
  Result<std::vector<uint32_t>> locations(uint32_t& size, bool& nic_chooses) const;
  Status ask(void* request, const char* operation) const;

  EthtoolCalls* calls_;
  std::string interface_;
};

}  // namespace tcpx::devmem
