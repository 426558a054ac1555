#include "doctor/devmem.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "base/text.h"
#include "base/words.h"
#include "net/devmem/flow_table.h"

namespace tcpx::doctor {
namespace {

// Drivers of Linux 7.3 that receive and send (torvalds/linux: drivers/net/ethernet).
constexpr std::array<std::string_view, 4> kDrivers = {"mlx5_core", "gve", "bnxt_en", "fbnic"};
constexpr char kNewKernel[] = "boot Linux 6.16 or newer, built with CONFIG_NET_DEVMEM";
constexpr char kLookAtGpu[] = "tcpx_doctor --only gpu";
// linux/capability.h
constexpr unsigned kNetAdmin = 12;

bool is_known(const DevmemNic& each) {
  return std::ranges::count(kDrivers, each.nic.driver) > 0;
}

std::string driver_of(const Nic& nic) {
  return nic.driver.empty() ? "a virtual interface" : nic.driver;
}

std::string variable() {
  return environment_info(Variable::kNetwork).name;
}

/// The first reason why device memory is not received into here, although nothing is broken; as one row, which is expected when
/// there is none.
Fact reason_not_to(const DevmemFacts& facts) {
  const bool wanted = facts.network == "devmem";
  const auto row = [&](const std::string& found, const std::string& why, const std::string& mend) {
    return Fact{.check = "use",
                .found = found,
                .expected = false,
                .otherwise = wanted ? kWarn : kNotApplicable,
                .why = why,
                .mend = wanted ? mend : ""};
  };
  const std::string unset = concat("; or: unset ", variable());
  if (facts.expected.vendor_path)
    return row("GPUDirect-TCPX is expected here", concat(facts.expected.because, "."),
               concat("unset ", environment_info(Variable::kPluginPath).name, "   # it comes before ", variable()));
  if (facts.network == "soft") return row(concat(variable(), "=soft"), "It leaves device-memory TCP out.", "");
  if (std::ranges::none_of(facts.nics, is_known)) {
    std::vector<std::string> drivers;
    for (const DevmemNic& each : facts.nics) drivers.push_back(concat(each.nic.name, ": ", driver_of(each.nic)));
    return row(
        drivers.empty() ? "no data interface" : joined(drivers),
        concat("We know of device-memory TCP in these drivers: ", joined(kDrivers), "; of another one the first listener tells."),
        concat("take a NIC that has one of them", unset));
  }
  // Host memory stands in for a GPU's where device memory is asked for by name.
  if (!wanted && facts.gpus == 0) return row("no NVIDIA GPU", "There is no memory for the NIC to put data into.", "");
  if (!wanted && !facts.build_has_cuda) return row("this build is without CUDA", "It moves host memory only.", "");
  const DevmemKind kind = kind_of(facts.kernel.devmem);
  if (kind != DevmemKind::kLinux) {
    return row(
        concat("kernel ", facts.kernel.release, kind == DevmemKind::kUnknown ? " could not be asked" : " does not have it"),
        "Linux has device-memory TCP since 6.12; plain TCP is used.", concat(kNewKernel, unset));
  }
  const auto prepared = [](const DevmemNic& each) { return is_known(each) && each.nic.ethtool.data_split == true; };
  if (!wanted && !facts.asked_for && std::ranges::none_of(facts.nics, prepared)) {
    return row("header split is not on: nobody has prepared a NIC for it",
               "Plain TCP is used. tcpx_doctor --only devmem says what it takes.", "");
  }
  return {.check = "use", .found = wanted ? concat(variable(), "=devmem") : "there are a GPU, a NIC and a kernel for it"};
}

/// What this process and the machine need.
Findings check_machine(const DevmemFacts& facts) {
  const std::string kernel = concat("kernel ", facts.kernel.release);
  const CudaAnswer& cuda = facts.cuda;
  std::vector<std::string> without;
  for (const CudaGpu& gpu : cuda.gpus)
    if (!gpu.dma_buf) without.push_back(gpu.pci_address);
  const std::string exported = concat(cuda.gpus.size() - without.size(), " of ", cuda.gpus.size(), " GPUs export their memory");
  const std::string copied = "Received data goes through host memory without it.";
  return judge({{"kernel", concat(kernel, " receives into device memory only"), sends_device_memory(facts.kernel.release), kWarn,
                 "What is sent is copied to host memory first; Linux sends from device memory since 6.16.", kNewKernel},
                {"kernel", concat(kernel, ": receive and send")},
                {"privileges", "this process lacks CAP_NET_ADMIN", facts.has_capability, kWarn,
                 "A process that receives binds a queue and steers flows, which take it; else it receives into host memory.",
                 "sudo setcap cap_net_admin+ep PROGRAM   # or run as root; in a container: docker run --cap-add NET_ADMIN"},
                {"privileges", "CAP_NET_ADMIN, in a user namespace", !facts.in_user_namespace, kNotApplicable,
                 "It counts for network namespaces of that user namespace, which a container may not have."},
                {"privileges", "CAP_NET_ADMIN"},
                {"gpu_memory", "no NVIDIA GPU", facts.gpus > 0, kNotApplicable,
                 "Host memory stands in, by /dev/udmabuf, which only root may open unless somebody has changed that."},
                {"gpu_memory", "this build is without CUDA", facts.build_has_cuda, kWarn, "It moves host memory only.",
                 "cmake --preset release && cmake --build --preset release   # with nvcc in the PATH or /usr/local/cuda"},
                {"gpu_memory", cuda.detail.empty() ? "the driver shows no GPU" : cuda.detail,
                 cuda.end == LibraryAnswer::End::kAnswered && !cuda.gpus.empty(), kWarn, copied, kLookAtGpu},
                {"gpu_memory", concat(exported, "; not ", joined(without)), without.empty(), kWarn, copied,
                 "sudo apt install nvidia-open   # open kernel modules, driver 525 or newer"},
                {"gpu_memory", exported}});
}

/// What one interface needs.
Findings check_interface(const DevmemNic& each) {
  const auto& [nic, iommu_domain, queues, rss_table] = each;
  if (!is_known(each)) {
    return judge({{"driver", driver_of(nic), false, kNotApplicable, "It has no device-memory TCP that we know of."}}, nic.name);
  }
  const EthtoolAnswers& said = nic.ethtool;
  const uint32_t threshold = said.split_threshold.value_or(0);
  const size_t count = queues.is_ok() ? queues->size() : 0;
  const auto spare = queues.is_ok() ? devmem::spare_queue(*queues) : std::nullopt;
  const uint32_t next = spare.value_or(0);
  std::set<uint32_t> others;
  if (rss_table.is_ok()) others.insert(rss_table->begin(), rss_table->end());
  const size_t led_to = others.size();
  if (spare) others.erase(next);
  const std::string host = "A bind is refused then, and data is received into host memory.";
  return judge(
      {{"driver", nic.driver},
       {"header_split", said.data_split ? "off" : "not told, as where nobody has switched it on", said.data_split == true, kWarn,
        host,
        concat(nic.driver == "mlx5_core" ? "sudo ethtool -K {} rx-gro-hw on && " : "", "sudo ethtool -G {} tcp-data-split on")},
       {"header_split", "on"},
       {"hds_thresh", concat(threshold), threshold == 0, kWarn, host,
        "sudo ethtool -G {} hds-thresh 0   # an ethtool newer than 6.14 knows the word"},
       {"hds_thresh", said.split_threshold ? "0" : "the driver has none"},
       {"rx_queues", queues.status().to_string(), queues.is_ok(), kWarn, "The library looks for a queue to bind in the same way.",
        "sudo ip link set {} up   # queues are told of an interface that is up"},
       {"rx_queues", concat(count), count >= 2, kWarn, "One is bound to device memory, and other packets need another.",
        "sudo ethtool -L {} combined 2   # gve: rx 2 tx 2"},
       {"rx_queues", concat(count, ", and something is bound to each but the first"), spare.has_value(), kWarn,
        "A queue has one binding, and the first is for other packets.",
        concat("sudo ethtool -L {} combined ", count + 1, "   # or end what has bound them")},
       {"rx_queues", concat(count, "; the next to be bound is ", next)},
       {"ntuple", said.ntuple ? "off" : "the driver does not tell", said.ntuple == true, kWarn,
        "Connections are led to the bound queue by such rules; without them data is received into host memory.",
        "sudo ethtool -K {} ntuple on"},
       {"ntuple", "on"},
       {"rss", rss_table.status().to_string(), rss_table.is_ok(), kWarn,
        "By this table other packets are kept from the bound queue, where their programs cannot read them.",
        "ethtool -x {}   # take a NIC that has one"},
       {"rss", concat("all packets go to queue ", next), !others.empty(), kWarn,
        "That queue is the one to be bound, and other packets must have another.", "sudo ethtool -X {} default"},
       {"rss", concat("to ", led_to, led_to == 1 ? " queue" : " queues")},
       {"iommu", concat("translates addresses: ", iommu_domain), iommu_domain.empty() || iommu_domain == "identity",
        kNotApplicable, "We have not tried one; a bind says when the NIC cannot reach the GPU through it."},
       {"iommu", iommu_domain.empty() ? "none" : "passes addresses on as they are"}},
      nic.name);
}

}  // namespace

DevmemFacts devmem_facts(const Machine& machine, const std::vector<NetworkInterface>& all, bool asked_for) {
  const FileTree& files = machine.files;
  const GpuFacts gpu = gpu_facts(machine);
  DevmemFacts facts{.expected = expected_path(machine),
                    .network = machine.variables.text(Variable::kNetwork),
                    .asked_for = asked_for,
                    .kernel = kernel_facts(machine),
                    .gpus = gpu.gpus.size(),
                    .build_has_cuda = gpu.build.cuda_major > 0};
  for (const std::string& line : split(files.text("/proc/self/status"), "\n")) {
    const std::vector<std::string> words = split(line, "\t ");
    if (words.size() == 2 && words[0] == "CapEff:")
      facts.has_capability = (number_of<uint64_t>(words[1], 16).value_or(0) >> kNetAdmin & 1) != 0;
  }
  // All ids of the machine are those of its first user namespace (user_namespaces(7)).
  const std::vector<std::string> ids = split(files.text("/proc/self/uid_map"), "\t \n");
  facts.in_user_namespace = !ids.empty() && ids != std::vector<std::string>{"0", "0", "4294967295"};
  const Status not_asked(Code::kUnsupported, "devmem", "not asked");
  for (Nic& nic : nic_facts(machine, all).data) {
    const std::string domain = files.text(concat("/sys/class/net/", nic.name, "/device/iommu_group/type"));
    facts.nics.push_back({std::move(nic), domain, not_asked, not_asked});
  }
  return facts;
}

void ask_devmem(DevmemFacts& facts) {
  for (DevmemNic& each : facts.nics) each.nic.ethtool = ask_ethtool(each.nic.name);
  if (!reason_not_to(facts).expected) return;
  auto netdev = devmem::Netdev::open();
  for (DevmemNic& each : facts.nics) {
    if (!is_known(each)) continue;
    const auto index = devmem::interface_index(each.nic.name);
    each.queues = !netdev.is_ok() ? netdev.status() : !index.is_ok() ? index.status() : netdev->receive_queues(*index);
    each.rss_table = devmem::FlowTable(devmem::EthtoolCalls::real(), each.nic.name).rss();
  }
  if (facts.gpus > 0) facts.cuda = ask_cuda();
}

Findings check_devmem(const DevmemFacts& facts) {
  const Fact use = reason_not_to(facts);
  Findings findings = judge({use});
  if (!use.expected) return findings;
  append(findings, check_machine(facts));
  for (const DevmemNic& each : facts.nics) append(findings, check_interface(each));
  return findings;
}

}  // namespace tcpx::doctor
