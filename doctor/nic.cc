#include "doctor/nic.h"

#include <algorithm>

#include "base/pci_device.h"
#include "base/text.h"
#include "base/words.h"

namespace tcpx::doctor {
namespace {

constexpr int64_t kA3SpeedMbps = 200'000, kFastEthernetMbps = 100;
constexpr size_t kGpusOfNic = 2;
// RxDM binds queues 8 to 15 to GPU memory (google/tcpgpudmarxd).
constexpr size_t kA3RxQueues = 16;

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

Nic read_nic(const Machine& machine, const std::string& name, const std::vector<PciDevice>& gpus,
             const std::vector<NetworkInterface>& all) {
  const FileTree& files = machine.files;
  const std::string folder = concat("/sys/class/net/", name);
  const std::string path = files.resolve(folder + "/device").value_or("");
  const std::string driver = files.resolve(folder + "/device/driver").value_or("");
  Nic nic{.name = name,
          .driver = driver.substr(driver.rfind('/') + 1),
          .pci = pci_address(path),
          .numa_node = read_numa_node(path, files.root()),
          .state = files.read(folder + "/operstate").value_or("unknown"),
          .speed_mbps = number_of(files.text(folder + "/speed")),
          .mtu = number_of(files.text(folder + "/mtu")).value_or(0),
          .pci_trap = find_pci_trap(name, path),
          .cores_trap = find_cores_trap(files.root(), name,
                                        {.send_cores = machine.variables.text(Variable::kTxBindings),
                                         .receive_cores = machine.variables.text(Variable::kRxBindings)})};
  if (nic.speed_mbps.value_or(0) <= 0) nic.speed_mbps.reset();
  for (const std::string& queue : files.list(folder + "/queues")) nic.rx_queues += queue.starts_with("rx-") ? 1 : 0;
  if (const auto known = std::ranges::find(all, name, &NetworkInterface::name); known != all.end()) {
    nic.is_local = known->loopback;
    for (const SubnetAddress& entry : known->addresses)
      if (!entry.is_link_local()) nic.addresses.push_back(entry.address);
  }
  for (const PciDevice& gpu : gpus) {
    const PciDistance distance = distance_between(files, {name, path}, gpu);
    if (distance > nic.gpu_distance) continue;
    if (distance < nic.gpu_distance) nic.nearest_gpus.clear();
    nic.gpu_distance = distance;
    nic.nearest_gpus.push_back(gpu.name);
  }
  return nic;
}

/// What every data NIC must have.
Findings check_nic(const Nic& nic, const NicFacts& facts, bool right_driver) {
  const bool vendor_path = facts.expected.vendor_path;
  const int64_t speed = nic.speed_mbps.value_or(0);
  const std::string mtu_mend = concat("sudo ip link set {} mtu ", kA3Mtu,
                                      "   # the network must allow it: gcloud compute networks update NETWORK --mtu=", kA3Mtu);
  const bool right_mtu = !vendor_path || nic.mtu == kA3Mtu;
  const bool usable = std::ranges::any_of(nic.addresses, [&](const auto& it) { return !vendor_path || it.family() == AF_INET; });
  const std::string own = nic.addresses.empty() ? "none" : joined(nic.addresses, ", ", &SocketAddress::host);
  const bool near = nic.gpu_distance <= PciDistance::kHostBridge;
  const std::string place =
      concat(nic.pci, nic.numa_node >= 0 ? concat(", NUMA node ", nic.numa_node) : "",
             facts.gpus == 0                                ? ""
             : !near                                        ? "; no GPU shares its PCI root"
             : nic.gpu_distance == PciDistance::kHostBridge ? concat("; below one PCI root with GPU ", joined(nic.nearest_gpus))
                                                            : concat("; behind one bridge with GPU ", joined(nic.nearest_gpus)));
  const VendorTrap pci_trap = nic.pci_trap.value_or(VendorTrap{});
  Table table = {{"link", nic.state, nic.state == "up" || nic.state == "unknown", kFail,  // virtual ones may not tell
                  "It is meant to carry data, and carries none.", "sudo ip link set {} up   # if it stays down: ethtool {}"},
                 {"driver", nic.driver.empty() ? "none: a virtual interface" : nic.driver, right_driver, kFail,
                  "GPUDirect-TCPX works with Google's virtual NIC only, whose driver is gve.",
                  "recreate the machine with --network-interface=nic-type=GVNIC,network=... for each data NIC"}};
  if (!right_driver) return judge(table, nic.name);  // its other faults follow from that
  const std::string speed_found = speed % 1000 == 0 ? concat(speed / 1000, " Gb/s") : concat(speed, " Mb/s");
  append(
      table,
      {{"speed", "the driver does not tell", nic.speed_mbps.has_value(), kNotApplicable,
        "Usual for virtual interfaces; the software plugin counts with 10 Gb/s."},
       {"speed", speed_found, !vendor_path || speed >= kA3SpeedMbps, kWarn, "The data NICs of an A3 machine make 200 Gb/s each.",
        "use a machine type of eight GPUs: gcloud compute instances describe $(hostname) --format='value(machineType)'"},
       {"speed", speed_found, speed > kFastEthernetMbps, kWarn,
        "So slow a link is mostly a bad cable or port that has negotiated down.",
        "ethtool {}   # compare what is advertised on both ends; change the cable"},
       {"mtu", concat(nic.mtu), right_mtu || fragments_at(nic.mtu) < kFatalFragments, kFail,
        concat("A message of 4 MiB arrives in ", fragments_at(nic.mtu), " fragments or more; at ", kFatalFragments,
               " the GPUDirect-TCPX plugin ends its process."),
        mtu_mend},
       {"mtu", concat(nic.mtu), right_mtu, kWarn,
        concat("With ", kA3Mtu, " each segment fills two pages of 4 KiB; others leave pages half empty."), mtu_mend},
       {"address", own, usable, kFail,
        vendor_path ? "RxDM steers IPv4 connections only." : "Without an address nobody can connect to it or from it.",
        "sudo dhclient {}   # or: sudo networkctl renew {}"},
       {"pci", pci_trap.found, !vendor_path || !nic.pci_trap, kFail, pci_trap.why, pci_trap.mend},
       {"pci", "no PCI device", !nic.pci.empty(), kNotApplicable, "A virtual interface is near no GPU."},
       {"pci", place, near || !vendor_path || facts.gpus == 0, kWarn,
        "Packets for a GPU then cross the machine from one PCI root to another, far below the NIC's rate.",
        "use a machine type that pairs NICs with GPUs; in a guest of your own put both below one PCI root"}});
  return judge(table, nic.name);
}

/// What GPUDirect-TCPX needs of it; elsewhere the same in one line.
Findings check_steering(const Nic& nic, const Expectation& expected) {
  const EthtoolAnswers& said = nic.ethtool;
  const auto word = [](std::optional<bool> value) { return !value ? "unknown" : *value ? "on" : "off"; };
  if (!expected.vendor_path) {
    return judge({{"tcpx",
                   concat("header split ", word(said.data_split), ", ntuple filters ", word(said.ntuple), ", ", nic.rx_queues,
                          nic.rx_queues == 1 ? " RX queue" : " RX queues"),
                   false, kNotApplicable, concat("Only GPUDirect-TCPX minds: ", expected.because, ".")}},
                 nic.name);
  }
  // The driver of Google's images has private flags in place of TCP data split: enable-header-split, enable-strict-header-split,
  // enable-max-rx-buffer-size.
  std::vector<std::string> on, off;
  for (const auto& [flag, set] : said.private_flags) {
    if (flag.find("header-split") != std::string::npos || flag.find("max-rx-buffer-size") != std::string::npos)
      (set ? on : off).push_back(flag);
  }
  bool counted = false;
  uint64_t packets = 0;
  for (const auto& [name, value] : said.statistics) {
    if (!name.starts_with("rx_devmem_pkts")) continue;  // a driver may count per queue: "rx_devmem_pkts[8]"
    counted = true;
    packets += value;
  }
  const uint32_t rules = said.ntuple_rules.value_or(0);
  const bool arrived = packets > 0 || rules == 0;
  const VendorTrap trap = nic.cores_trap.value_or(VendorTrap{});
  const std::string untold = "the driver does not tell", no_word = "ethtool has no word for it here.";
  constexpr char kWhySplit[] =
      "Without it packets arrive in host memory, and the GPUDirect-TCPX plugin ends its process at the first one. RxDM switches "
      "it on when it starts.";
  return judge(
      {{"cores", trap.found, !nic.cores_trap, kFail, trap.why, trap.mend},
       {"cores", "GPUDirect-TCPX finds some"},
       {"header_split", untold, said.data_split || !on.empty() || !off.empty(), kNotApplicable, no_word},
       {"header_split", "off", said.data_split.value_or(true), kFail, kWhySplit,
        "sudo ethtool -G {} tcp-data-split on   # or start RxDM"},
       {"header_split", concat("off: ", joined(off)), said.data_split || off.empty(), kFail, kWhySplit,
        concat("sudo ethtool --set-priv-flags {} ", joined(off, " on "), " on   # or start RxDM")},
       {"header_split", said.data_split ? "on" : concat("on: ", joined(on))},
       {"ntuple", untold, said.ntuple.has_value(), kNotApplicable, no_word},
       {"ntuple", concat(word(said.ntuple), said.ntuple == true && said.ntuple_rules ? concat(", ", rules, " rules") : ""),
        said.ntuple == true, kFail,
        "RxDM steers each connection into GPU memory by such a filter; without them none is accepted.",
        "sudo ethtool -K {} ntuple on   # or start RxDM"},
       {"rx_queues", concat(nic.rx_queues), nic.rx_queues >= kA3RxQueues, kFail,
        "RxDM gives queues 8 to 15 to the GPUs; they do not exist here.", concat("sudo ethtool -L {} rx ", kA3RxQueues)},
       {"rx_devmem_pkts", "not counted", counted, kNotApplicable, "The driver has no such statistic."},
       {"rx_devmem_pkts", arrived ? concat(packets) : concat("0, with ", rules, " steering rules"), arrived, kWarn,
        "Connections are steered into GPU memory, and no packet has arrived there: right only before the first transfer.",
        "ethtool -S {} | grep rx_devmem   # while data flows; if it stays 0, restart RxDM"}},
      nic.name);
}

Findings check_data_nics(const NicFacts& facts) {
  constexpr char kDescribe[] =
      "gcloud compute instances describe $(hostname) --format='value(networkInterfaces[].network)'   # an A3 machine has one for "
      "control and four for data; a pod sees them with hostNetwork: true or one network annotation each";
  const bool none = facts.data.empty();
  const std::string found = names_of(facts.data);
  if (facts.expected.vendor_path) {
    const bool enough = facts.data.size() * kGpusOfNic >= facts.gpus;
    return judge({{"data_nics", "none", !none, kFail, "GPUDirect-TCPX needs gVNIC interfaces besides that of the default route.",
                   kDescribe},
                  {"data_nics", enough ? found : concat(found, " for ", facts.gpus, " GPUs"), enough, kWarn,
                   "On A3 each pair of GPUs has a NIC of its own; the pair of a missing one shares another's rate.", kDescribe}});
  }
  const std::string_view variable = environment_info(Variable::kSocketIfname).name;
  const std::string look = concat("ip -br address   # then export ", variable, "=<one that is up and that other hosts reach>");
  std::vector<std::string> local, others;
  for (const Nic& nic : facts.data) (nic.is_local ? local : others).push_back(nic.name);
  return judge({{"data_nics", facts.named ? "none" : "none is up and has an address", !none, kFail,
                 "The software plugin finds no interface and does not start.",
                 facts.named ? concat(look, ", or: unset ", variable) : kBringUpAnInterface},
                {"data_nics", found, !others.empty(), kWarn, "Only processes of this machine can be reached over it.", look},
                {"data_nics", concat(found, "; local to this machine: ", joined(local)), local.empty(), kWarn,
                 "Each becomes a device that peers on other hosts are offered and cannot reach.",
                 concat("export ", variable, "==", joined(others, ","))},
                {"data_nics", found}});
}

}  // namespace

NicFacts nic_facts(const Machine& machine, const std::vector<NetworkInterface>& all) {
  NicFacts facts{.expected = expected_path(machine)};
  const std::vector<PciDevice> gpus = pci_gpus(machine.files);
  facts.gpus = gpus.size();
  facts.named = machine.variables.get(Variable::kSocketIfname).has_value();
  const std::vector<std::string> data = facts.expected.vendor_path && !facts.named
                                            ? data_interfaces(machine.files)
                                            : device_names(all, machine.variables.text(Variable::kSocketIfname));
  for (const std::string& name : data) facts.data.push_back(read_nic(machine, name, gpus, all));
  const std::string control = default_interface(machine.files);
  for (const std::string& name : machine.files.list("/sys/class/net"))
    if (std::ranges::count(data, name) == 0) facts.others.push_back(concat(name, name == control ? " (default route)" : ""));
  return facts;
}

Findings check_nics(const NicFacts& facts) {
  Findings findings = check_data_nics(facts);
  for (const Nic& nic : facts.data) {
    const bool right_driver = !facts.expected.vendor_path || nic.driver == "gve";
    append(findings, check_nic(nic, facts, right_driver));
    if (right_driver) append(findings, check_steering(nic, facts.expected));
  }
  append(findings, judge({{"others", joined(facts.others), facts.others.empty(), kNotApplicable, "They carry no data."}}));
  return findings;
}

}  // namespace tcpx::doctor
