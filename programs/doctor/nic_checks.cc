#include "programs/doctor/nic_checks.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/text.h"
#include "net/vendor_traps.h"
#include "programs/doctor/interfaces.h"
#include "programs/doctor/nic_devmem_checks.h"
#include "programs/doctor/nic_facts.h"

namespace tcpx::doctor {
namespace {

constexpr std::string_view kGoogleDriver = "gve";
constexpr int64_t kA3SpeedMbps = 200'000;
// The software plugin's guess where the driver does not tell (net/soft/interfaces.cc).
constexpr std::string_view kGuessedSpeed = "10 Gb/s";
constexpr int64_t kFastEthernetMbps = 100;
constexpr size_t kGpusOfNic = 2;

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

Finding check_link(const Nic& nic) {
  if (nic.up) return ok(of("link", nic), nic.state);
  return fail(of("link", nic), nic.state, "It is meant to carry data, and carries none.",
              concat("sudo ip link set ", nic.name, " up   # if it stays down: ethtool ", nic.name));
}

Finding check_driver(const Nic& nic, bool vendor_path) {
  const std::string found = nic.driver.empty() ? "none: a virtual interface" : nic.driver;
  if (!vendor_path || nic.driver == kGoogleDriver) return ok(of("driver", nic), found);
  return fail(of("driver", nic), found, "GPUDirect-TCPX works with Google's virtual NIC only, whose driver is gve.",
              "recreate the machine with --network-interface=nic-type=GVNIC,network=... for each data NIC");
}

Finding check_speed(const Nic& nic, bool vendor_path) {
  if (!nic.speed_mbps) {
    return not_applicable(of("speed", nic), "the driver does not tell",
                          concat("Usual for virtual interfaces; the software plugin counts with ", kGuessedSpeed, "."));
  }
  const std::string found = speed_text(*nic.speed_mbps);
  if (vendor_path && *nic.speed_mbps < kA3SpeedMbps) {
    return warn(of("speed", nic), found, "The data NICs of an A3 machine make 200 Gb/s each.",
                "use a machine type of eight GPUs: gcloud compute instances describe $(hostname) --format='value(machineType)'");
  }
  if (*nic.speed_mbps <= kFastEthernetMbps) {
    return warn(of("speed", nic), found, "So slow a link is mostly a bad cable or port that has negotiated down.",
                concat("ethtool ", nic.name, "   # compare what is advertised on both ends; change the cable"));
  }
  return ok(of("speed", nic), found);
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

Finding check_address(const Nic& nic, const std::vector<soft::InterfaceAddress>& all, bool vendor_path) {
  std::vector<std::string> own;
  bool usable = false;
  for (const soft::InterfaceAddress& candidate : all) {
    if (candidate.name != nic.name || candidate.link_local) continue;
    own.push_back(candidate.address.host());
    usable = usable || !vendor_path || candidate.address.family() == AF_INET;
  }
  if (usable) return ok(of("address", nic), list_of(own));
  return fail(of("address", nic), own.empty() ? "none" : list_of(own),
              vendor_path ? "RxDM steers IPv4 connections only." : "Without an address nobody can connect to it or from it.",
              concat("sudo dhclient ", nic.name, "   # or: sudo networkctl renew ", nic.name));
}

Finding check_pci(const Nic& nic, const std::vector<PciGpu>& gpus, bool vendor_path) {
  const std::string check = of("pci", nic);
  if (vendor_path) {
    if (const auto trap = find_pci_trap(nic.name, nic.device_path)) return fail(check, trap->found, trap->why, trap->mend);
  }
  if (nic.pci.empty()) return not_applicable(check, "no PCI device", "A virtual interface is near no GPU.");
  std::string found = nic.pci;
  if (nic.numa_node >= 0) found += concat(", NUMA node ", nic.numa_node);
  if (gpus.empty()) return ok(check, found);
  Nearness nearest = Nearness::kApart;
  for (const PciGpu& gpu : gpus) nearest = std::max(nearest, nearness(nic.device_path, gpu.device_path));
  std::vector<std::string> near;
  for (const PciGpu& gpu : gpus) {
    if (nearness(nic.device_path, gpu.device_path) == nearest) near.push_back(gpu.pci);
  }
  switch (nearest) {
    case Nearness::kBridge:
      return ok(check, concat(found, "; behind one bridge with GPU ", list_of(near)));
    case Nearness::kRoot:
      return ok(check, concat(found, "; below one PCI root with GPU ", list_of(near)));
    case Nearness::kApart:
      break;
  }
  found += "; no GPU shares its PCI root";
  if (!vendor_path) return ok(check, found);
  return warn(check, found, "Packets for a GPU then cross the machine from one PCI root to another, far below the NIC's rate.",
              "use a machine type that pairs NICs with GPUs; in a guest of your own put both below one PCI root");
}

/// The cores on which GPUDirect-TCPX runs the threads of a NIC.
Finding check_cores(const Machine& machine, const Nic& nic) {
  const VendorSettings settings{.send_cores = machine.variable(Variable::kTxBindings).value_or(""),
                                .receive_cores = machine.variable(Variable::kRxBindings).value_or("")};
  if (const auto trap = find_cores_trap(machine.files.root(), nic.name, settings))
    return fail(of("cores", nic), trap->found, trap->why, trap->mend);
  return ok(of("cores", nic), "GPUDirect-TCPX finds some");
}

/// What matters to GPUDirect-TCPX, of an interface that is not meant for it, in one line.
Finding tcpx_facts(const Nic& nic, const NicAnswers& answers, const Expectation& expected) {
  const auto word = [](std::optional<bool> value) { return !value ? "unknown" : *value ? "on" : "off"; };
  return not_applicable(of("tcpx", nic),
                        concat("header split ", word(answers.data_split), ", ntuple filters ", word(answers.ntuple), ", ",
                               nic.rx_queues, nic.rx_queues == 1 ? " RX queue" : " RX queues"),
                        concat("Only GPUDirect-TCPX minds: ", expected.because, "."));
}

/// Interfaces that NCCL_GPUDIRECTTCPX_SOCKET_IFNAME means, up or not. None when it is unset.
std::vector<std::string> named_interfaces(const Machine& machine) {
  const auto pattern = machine.variable(Variable::kSocketIfname);
  if (!pattern) return {};
  std::vector<soft::InterfaceAddress> all;
  for (const std::string& name : machine.files.list("/sys/class/net")) {
    all.push_back({.name = name, .address = SocketAddress::loopback(0), .up = true, .loopback = false, .link_local = false});
  }
  std::vector<std::string> names;
  for (const soft::InterfaceAddress& match : soft::choose_interfaces(all, *pattern, soft::AddressFamily::kAny)) {
    if (names.empty() || names.back() != match.name) names.push_back(match.name);
  }
  return names;
}

Finding check_a3_data_nics(const std::vector<std::string>& data, size_t gpus) {
  constexpr std::string_view kMend =
      "gcloud compute instances describe $(hostname) --format='value(networkInterfaces[].network)'   # an A3 machine has one for "
      "control and four for data; a pod sees them with hostNetwork: true or one network annotation each";
  if (data.empty()) {
    return fail("data_nics", "none", "GPUDirect-TCPX needs gVNIC interfaces besides that of the default route.",
                std::string(kMend));
  }
  if (data.size() * kGpusOfNic < gpus) {
    return warn("data_nics", concat(list_of(data), " for ", gpus, " GPUs"),
                "On A3 each pair of GPUs has a NIC of its own; the pair of a missing one shares another's rate.",
                std::string(kMend));
  }
  return ok("data_nics", list_of(data));
}

Finding check_plain_data_nics(const Machine& machine, const std::vector<std::string>& data,
                              const std::vector<soft::InterfaceAddress>& all) {
  const std::string_view variable = environment_info(Variable::kSocketIfname).name;
  const bool is_set = machine.variable(Variable::kSocketIfname).has_value();
  const std::string look = concat("ip -br address   # then export ", variable, "=<one that is up and that other hosts reach>");
  if (data.empty()) return fail("data_nics", "none", "The software plugin finds no interface and does not start.", look);
  const auto is_local = [&](const std::string& name) {
    const bool loopback = std::any_of(all.begin(), all.end(), [&](const auto& it) { return it.name == name && it.loopback; });
    return loopback || (!is_set && read_nic(machine, name).is_bridge);
  };
  std::vector<std::string> local, others;
  for (const std::string& name : data) (is_local(name) ? local : others).push_back(name);
  if (local.empty()) return ok("data_nics", list_of(data));
  if (others.empty()) return warn("data_nics", list_of(data), "Only processes of this machine can be reached over it.", look);
  std::string wanted;
  for (const std::string& name : others) wanted += concat(wanted.empty() ? "=" : ",", name);
  return warn("data_nics", concat(list_of(data), "; local to this machine: ", list_of(local)),
              "Each becomes a device that peers on other hosts are offered and cannot reach.",
              concat("export ", variable, "=", wanted));
}

/// Interfaces that carry data or are meant to.
std::vector<std::string> find_data_nics(const Machine& machine, const Expectation& expected,
                                        const std::vector<soft::InterfaceAddress>& all) {
  if (machine.variable(Variable::kSocketIfname)) return named_interfaces(machine);
  if (expected.vendor_path) return data_interfaces(machine, default_interface(machine));
  std::vector<std::string> names;
  for (const soft::InterfaceAddress& chosen : soft::choose_interfaces(all, "", soft::AddressFamily::kAny))
    names.push_back(chosen.name);
  return names;
}

Findings check_one(const Machine& machine, const Nic& nic, const NicAnswers& answers,
                   const std::vector<soft::InterfaceAddress>& addresses, const std::vector<PciGpu>& gpus,
                   const Expectation& expected) {
  const bool vendor_path = expected.vendor_path;
  Findings findings = {check_link(nic), check_driver(nic, vendor_path)};
  // What else another driver does wrong follows from that.
  if (findings.back().verdict == Verdict::kFail) return findings;
  findings.insert(findings.end(), {check_speed(nic, vendor_path), check_mtu(nic, vendor_path),
                                   check_address(nic, addresses, vendor_path), check_pci(nic, gpus, vendor_path)});
  if (vendor_path) findings.push_back(check_cores(machine, nic));
  const Findings devmem = vendor_path ? check_nic_devmem(nic, answers) : Findings{tcpx_facts(nic, answers, expected)};
  findings.insert(findings.end(), devmem.begin(), devmem.end());
  return findings;
}

}  // namespace

Findings check_nics(const Machine& machine, const NicSource& source) {
  const Expectation expected = expected_path(machine);
  const std::vector<soft::InterfaceAddress> all = source.addresses();
  const std::vector<std::string> data = find_data_nics(machine, expected, all);
  const std::vector<PciGpu> gpus = find_gpus(machine);

  Findings findings = {expected.vendor_path ? check_a3_data_nics(data, gpus.size()) : check_plain_data_nics(machine, data, all)};
  for (const std::string& name : data) {
    const Findings of_one = check_one(machine, read_nic(machine, name), source.ask(name), all, gpus, expected);
    findings.insert(findings.end(), of_one.begin(), of_one.end());
  }
  std::vector<std::string> others;
  const std::string control = default_interface(machine);
  for (const std::string& name : machine.files.list("/sys/class/net")) {
    if (std::find(data.begin(), data.end(), name) == data.end())
      others.push_back(concat(name, name == control ? " (default route)" : ""));
  }
  if (!others.empty()) findings.push_back(not_applicable("others", list_of(others), "They carry no data."));
  return findings;
}

}  // namespace tcpx::doctor
