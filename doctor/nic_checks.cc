#include <algorithm>
#include <string>
#include <string_view>

#include "base/text.h"
#include "doctor/nic.h"
#include "doctor/words.h"

namespace tcpx::doctor {
namespace {

constexpr std::string_view kGoogleDriver = "gve";
constexpr int64_t kA3SpeedMbps = 200'000;
// The software plugin's guess where the driver does not tell (net/soft/interfaces.cc).
constexpr std::string_view kGuessedSpeed = "10 Gb/s";
constexpr int64_t kFastEthernetMbps = 100;
constexpr size_t kGpusOfNic = 2;
// RxDM binds queues 8 to 15 to GPU memory (google/tcpgpudmarxd).
constexpr size_t kA3RxQueues = 16;
constexpr std::string_view kDevmemPackets = "rx_devmem_pkts";

constexpr int64_t kPageBytes = 4096;
// IPv4 and TCP with timestamps.
constexpr int64_t kHeaderBytes = 20 + 20 + 12;
// The MTU with which Google's guide for A3 High has the networks for data made: two pages and the headers.
constexpr int64_t kA3Mtu = 2 * kPageBytes + kHeaderBytes;
static_assert(kA3Mtu == 8244);
// From this many fragments of a message on, the plugin of 2024 ends its process (google/nccl-plugin-gpudirecttcpx: src/macro.h).
constexpr int64_t kFatalFragments = 2048;
constexpr int64_t kLargestMessageBytes = 4 * 1024 * 1024;

/// In how many fragments the largest message arrives at least: each segment makes one per page that it touches.
int64_t fragments_at(int64_t mtu) {
  const int64_t payload = std::max<int64_t>(1, mtu - kHeaderBytes);
  return (kLargestMessageBytes + payload - 1) / payload * ((payload + kPageBytes - 1) / kPageBytes);
}

std::string speed_text(int64_t mbps) {
  return mbps % 1000 == 0 ? concat(mbps / 1000, " Gb/s") : concat(mbps, " Mb/s");
}

/// "mtu[eth1]": a check of one interface.
std::string of(std::string_view check, const Nic& nic) {
  return concat(check, "[", nic.name, "]");
}

Finding check_speed(const Nic& nic, bool vendor_path) {
  const std::string check = of("speed", nic);
  if (!nic.speed_mbps) {
    return not_applicable(check, "the driver does not tell",
                          concat("Usual for virtual interfaces; the software plugin counts with ", kGuessedSpeed, "."));
  }
  if (vendor_path && *nic.speed_mbps < kA3SpeedMbps) {
    return warn(check, speed_text(*nic.speed_mbps), "The data NICs of an A3 machine make 200 Gb/s each.",
                "use a machine type of eight GPUs: gcloud compute instances describe $(hostname) --format='value(machineType)'");
  }
  return warn_unless(*nic.speed_mbps > kFastEthernetMbps, check, speed_text(*nic.speed_mbps),
                     "So slow a link is mostly a bad cable or port that has negotiated down.",
                     concat("ethtool ", nic.name, "   # compare what is advertised on both ends; change the cable"));
}

Finding check_mtu(const Nic& nic, bool vendor_path) {
  const std::string found = concat(nic.mtu);
  const std::string mend = concat("sudo ip link set ", nic.name, " mtu ", kA3Mtu,
                                  "   # the network must allow it: gcloud compute networks update NETWORK --mtu=", kA3Mtu);
  if (!vendor_path || nic.mtu == kA3Mtu) return ok(of("mtu", nic), found);
  if (fragments_at(nic.mtu) >= kFatalFragments) {
    return fail(of("mtu", nic), found,
                concat("A message of 4 MiB arrives in ", fragments_at(nic.mtu), " fragments or more; at ", kFatalFragments,
                       " the GPUDirect-TCPX plugin ends its process."),
                mend);
  }
  return warn(of("mtu", nic), found,
              concat("With ", kA3Mtu, " each segment fills two pages of 4 KiB; others leave pages half empty."), mend);
}

Finding check_address(const Nic& nic, bool vendor_path) {
  std::vector<std::string> own;
  bool usable = false;
  for (const SocketAddress& address : nic.addresses) {
    own.push_back(address.host());
    usable = usable || !vendor_path || address.family() == AF_INET;
  }
  return fail_unless(
      usable, of("address", nic), own.empty() ? "none" : joined(own),
      vendor_path ? "RxDM steers IPv4 connections only." : "Without an address nobody can connect to it or from it.",
      concat("sudo dhclient ", nic.name, "   # or: sudo networkctl renew ", nic.name));
}

Finding check_pci(const Nic& nic, const NicFacts& facts) {
  const std::string check = of("pci", nic);
  const bool vendor_path = facts.expected.vendor_path;
  if (vendor_path && nic.pci_trap) return fail(check, nic.pci_trap->found, nic.pci_trap->why, nic.pci_trap->mend);
  if (nic.pci.empty()) return not_applicable(check, "no PCI device", "A virtual interface is near no GPU.");
  std::string found = nic.pci;
  if (nic.numa_node >= 0) found += concat(", NUMA node ", nic.numa_node);
  if (facts.gpus == 0) return ok(check, found);
  const bool near = nic.gpu_distance <= TopologyDistance::kPhb;
  found += !near                                        ? "; no GPU shares its PCI root"
           : nic.gpu_distance == TopologyDistance::kPhb ? concat("; below one PCI root with GPU ", joined(nic.nearest_gpus))
                                                        : concat("; behind one bridge with GPU ", joined(nic.nearest_gpus));
  return warn_unless(near || !vendor_path, check, found,
                     "Packets for a GPU then cross the machine from one PCI root to another, far below the NIC's rate.",
                     "use a machine type that pairs NICs with GPUs; in a guest of your own put both below one PCI root");
}

Finding check_header_split(const Nic& nic) {
  constexpr char kWhy[] =
      "Without it packets arrive in host memory, and the GPUDirect-TCPX plugin ends its process at the first one. RxDM switches "
      "it on when it starts.";
  const std::string check = of("header_split", nic);
  if (nic.ethtool.data_split) {
    return fail_unless(*nic.ethtool.data_split, check, *nic.ethtool.data_split ? "on" : "off", kWhy,
                       concat("sudo ethtool -G ", nic.name, " tcp-data-split on   # or start RxDM"));
  }
  // The driver of Google's images has private flags instead: enable-header-split, enable-strict-header-split,
  // enable-max-rx-buffer-size.
  std::vector<std::string> on, off;
  for (const auto& [flag, set] : nic.ethtool.private_flags) {
    if (flag.find("header-split") != std::string::npos || flag.find("max-rx-buffer-size") != std::string::npos)
      (set ? on : off).push_back(flag);
  }
  if (on.empty() && off.empty()) return not_applicable(check, "the driver does not tell", "ethtool has no word for it here.");
  return fail_unless(off.empty(), check, off.empty() ? concat("on: ", joined(on)) : concat("off: ", joined(off)), kWhy,
                     concat("sudo ethtool --set-priv-flags ", nic.name, " ", joined(off, " on "), " on   # or start RxDM"));
}

Finding check_ntuple(const Nic& nic) {
  const EthtoolAnswers& answers = nic.ethtool;
  const std::string check = of("ntuple", nic);
  if (!answers.ntuple) return not_applicable(check, "the driver does not tell", "ethtool has no word for it here.");
  return fail_unless(*answers.ntuple, check,
                     !*answers.ntuple       ? "off"
                     : answers.ntuple_rules ? concat("on, ", *answers.ntuple_rules, " rules")
                                            : "on",
                     "RxDM steers each connection into GPU memory by such a filter; without them none is accepted.",
                     concat("sudo ethtool -K ", nic.name, " ntuple on   # or start RxDM"));
}

Finding check_devmem_packets(const Nic& nic) {
  const std::string check = of(kDevmemPackets, nic);
  bool counted = false;
  uint64_t packets = 0;
  for (const auto& [name, value] : nic.ethtool.statistics) {
    if (!name.starts_with(kDevmemPackets)) continue;  // a driver may count per queue: "rx_devmem_pkts[8]"
    counted = true;
    packets += value;
  }
  if (!counted) return not_applicable(check, "not counted", "The driver has no such statistic.");
  const uint32_t rules = nic.ethtool.ntuple_rules.value_or(0);
  const bool good = packets > 0 || rules == 0;
  return warn_unless(
      good, check, good ? concat(packets) : concat("0, with ", rules, " steering rules"),
      "Connections are steered into GPU memory, and no packet has arrived there: right only before the first transfer.",
      concat("ethtool -S ", nic.name, " | grep rx_devmem   # while data flows; if it stays 0, restart RxDM"));
}

/// Facts that matter to GPUDirect-TCPX, of an interface that is not meant for it, in one line.
Finding tcpx_facts(const Nic& nic, const Expectation& expected) {
  const auto word = [](std::optional<bool> value) { return !value ? "unknown" : *value ? "on" : "off"; };
  return not_applicable(of("tcpx", nic),
                        concat("header split ", word(nic.ethtool.data_split), ", ntuple filters ", word(nic.ethtool.ntuple), ", ",
                               nic.rx_queues, nic.rx_queues == 1 ? " RX queue" : " RX queues"),
                        concat("Only GPUDirect-TCPX minds: ", expected.because, "."));
}

Finding check_a3_data_nics(const NicFacts& facts) {
  constexpr char kMend[] =
      "gcloud compute instances describe $(hostname) --format='value(networkInterfaces[].network)'   # an A3 machine has one for "
      "control and four for data; a pod sees them with hostNetwork: true or one network annotation each";
  if (facts.data.empty())
    return fail("data_nics", "none", "GPUDirect-TCPX needs gVNIC interfaces besides that of the default route.", kMend);
  const bool enough = facts.data.size() * kGpusOfNic >= facts.gpus;
  return warn_unless(enough, "data_nics",
                     enough ? names_of(facts.data) : concat(names_of(facts.data), " for ", facts.gpus, " GPUs"),
                     "On A3 each pair of GPUs has a NIC of its own; the pair of a missing one shares another's rate.", kMend);
}

Finding check_plain_data_nics(const NicFacts& facts) {
  const std::string_view variable = environment_info(Variable::kSocketIfname).name;
  const std::string look = concat("ip -br address   # then export ", variable, "=<one that is up and that other hosts reach>");
  if (facts.data.empty()) {
    return fail("data_nics", facts.named ? "none" : "none is up and has an address",
                "The software plugin finds no interface and does not start.",
                facts.named ? concat(look, ", or: unset ", variable) : kBringUpAnInterface);
  }
  const std::string found = names_of(facts.data);
  std::vector<std::string> local, others;
  for (const Nic& nic : facts.data) (nic.is_local ? local : others).push_back(nic.name);
  if (local.empty()) return ok("data_nics", found);
  if (others.empty()) return warn("data_nics", found, "Only processes of this machine can be reached over it.", look);
  return warn("data_nics", concat(found, "; local to this machine: ", joined(local)),
              "Each becomes a device that peers on other hosts are offered and cannot reach.",
              concat("export ", variable, "==", joined(others, ",")));
}

Findings check_nic(const Nic& nic, const NicFacts& facts) {
  const bool vendor_path = facts.expected.vendor_path;
  const bool up = nic.state == "up" || nic.state == "unknown";  // virtual ones may not tell
  const bool right_driver = !vendor_path || nic.driver == kGoogleDriver;
  Findings findings = {fail_unless(up, of("link", nic), nic.state, "It is meant to carry data, and carries none.",
                                   concat("sudo ip link set ", nic.name, " up   # if it stays down: ethtool ", nic.name)),
                       fail_unless(right_driver, of("driver", nic), nic.driver.empty() ? "none: a virtual interface" : nic.driver,
                                   "GPUDirect-TCPX works with Google's virtual NIC only, whose driver is gve.",
                                   "recreate the machine with --network-interface=nic-type=GVNIC,network=... for each data NIC")};
  if (!right_driver) return findings;  // its other faults follow from that
  append(findings,
         {check_speed(nic, vendor_path), check_mtu(nic, vendor_path), check_address(nic, vendor_path), check_pci(nic, facts)});
  const auto& trap = nic.cores_trap;
  if (!vendor_path) {
    append(findings, {tcpx_facts(nic, facts.expected)});
    return findings;
  }
  append(findings,
         {trap ? fail(of("cores", nic), trap->found, trap->why, trap->mend) : ok(of("cores", nic), "GPUDirect-TCPX finds some"),
          check_header_split(nic), check_ntuple(nic),
          fail_unless(nic.rx_queues >= kA3RxQueues, of("rx_queues", nic), concat(nic.rx_queues),
                      "RxDM gives queues 8 to 15 to the GPUs; they do not exist here.",
                      concat("sudo ethtool -L ", nic.name, " rx ", kA3RxQueues)),
          check_devmem_packets(nic)});
  return findings;
}

}  // namespace

Findings check_nics(const NicFacts& facts) {
  Findings findings = {facts.expected.vendor_path ? check_a3_data_nics(facts) : check_plain_data_nics(facts)};
  for (const Nic& nic : facts.data) append(findings, check_nic(nic, facts));
  if (!facts.others.empty()) findings.push_back(not_applicable("others", joined(facts.others), "They carry no data."));
  return findings;
}

}  // namespace tcpx::doctor
