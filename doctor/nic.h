// Group "nics": the interfaces that carry data, their links, their settings, and the GPUs near them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "doctor/finding.h"
#include "doctor/machine.h"
#include "doctor/network.h"
#include "net/vendor_traps.h"

namespace tcpx::doctor {

/// As ethtool(8) shows it. A value that a driver does not tell is empty.
struct EthtoolAnswers {
  std::optional<bool> data_split;                            ///< `ethtool -g`: TCP data split
  std::optional<uint32_t> split_threshold;                   ///< `ethtool -g`: HDS thresh, bytes; smaller packets are not split
  std::vector<std::pair<std::string, bool>> private_flags;   ///< `ethtool --show-priv-flags`
  std::optional<bool> ntuple;                                ///< `ethtool -k`: ntuple-filters
  std::optional<uint32_t> ntuple_rules;                      ///< `ethtool -n`: how many there are
  std::vector<std::pair<std::string, uint64_t>> statistics;  ///< `ethtool -S`
};
/// Asks only for what every user may know, and changes nothing. Empty answers for an interface that does not exist. Takes two
/// seconds at most.
EthtoolAnswers ask_ethtool(const std::string& interface);
/// True when the headers of TCP packets are put apart from their data, out of the attributes of an answer to
/// ETHTOOL_MSG_RINGS_GET. nullopt when driver or kernel do not tell.
std::optional<bool> data_split_of(std::span<const std::byte> attributes);
/// Size, in bytes, up to which packets are not split, out of the same answer. nullopt when none is told.
std::optional<uint32_t> split_threshold_of(std::span<const std::byte> attributes);

struct Nic {
  std::string name;
  std::string driver;                 ///< "gve"; "" for an interface without a device: veth, bridge, loopback, ...
  std::string pci;                    ///< "0000:06:00.0"; "" when it is no PCI device
  int numa_node = -1;                 ///< -1: unknown, or the machine has one only
  std::string state;                  ///< operstate as the kernel names it: "up", "down", "lowerlayerdown", ...
  bool is_local = false;              ///< loopback: it leads to no other host
  std::optional<int64_t> speed_mbps;  ///< where the driver tells
  int64_t mtu = 0;
  size_t rx_queues = 0;
  std::vector<SocketAddress> addresses;  ///< without link-local ones
  std::vector<std::string> nearest_gpus;
  PciDistance gpu_distance = PciDistance::kOtherNode;  ///< of those
  std::optional<VendorTrap> pci_trap, cores_trap;
  EthtoolAnswers ethtool;
};

struct NicFacts {
  Expectation expected;
  size_t gpus = 0;
  std::vector<Nic> data;            ///< those that carry data or are meant to
  std::vector<std::string> others;  ///< all the rest
  bool named = false;               ///< the user has named those that carry data
};
/// Without what ethtool says.
NicFacts nic_facts(const Machine& machine, const std::vector<NetworkInterface>& all);

Findings check_nics(const NicFacts& facts);

}  // namespace tcpx::doctor
