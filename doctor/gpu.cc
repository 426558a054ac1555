#include "doctor/gpu.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <map>

#include "base/text.h"
#include "base/words.h"
#include "measure/plain_text.h"

namespace tcpx::doctor {
namespace {

// The pool that RxDM makes of each GPU's memory by default (google/tcpgpudmarxd @ a6e09b3), and the NIC reaches through BAR 1.
constexpr uint64_t kRxdmPoolBytes = uint64_t{1} << 32;
constexpr char kInstallDriver[] =
    "sudo modprobe nvidia   # if that fails: sudo cos-extensions install gpu (COS), sudo apt install nvidia-open (Debian, "
    "Ubuntu)";
constexpr char kGiveToContainer[] = "docker run --gpus all ...   # in Kubernetes: resources: limits: nvidia.com/gpu: 8";
constexpr char kLookAtDriver[] = "nvidia-smi; sudo dmesg | grep -e NVRM -e Xid | tail";

/// "575.57.08" of "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build ...".
std::string version_in(const std::string& text) {
  for (const std::string& word : split(text, " \t\n")) {
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  }
  return "of unknown version";
}

/// "8 x 9.0, 1 x 8.6"
std::string counted(const std::vector<std::string>& values) {
  std::map<std::string, int> counts;
  for (const std::string& value : values) ++counts[value];
  std::vector<std::string> parts;
  for (const auto& [value, count] : counts) parts.push_back(concat(count, " x ", value));
  return joined(parts);
}

size_t gpu_nodes(const GpuFacts& facts) {
  return static_cast<size_t>(
      std::ranges::count_if(facts.nodes, [](const auto& node) { return std::isdigit(node.first.back()) != 0; }));
}

std::string mend_of_code(const GpuFacts& facts) {
  switch (facts.cuda.code) {
    case kCudaStubLibrary:
      return "take directories named stubs out of LD_LIBRARY_PATH: echo $LD_LIBRARY_PATH | tr : '\\n' | grep stubs";
    case kCudaNoDevice:
      return facts.visible ? "unset CUDA_VISIBLE_DEVICES" : kGiveToContainer;
    case kCudaSystemNotReady:
      return "sudo systemctl restart nvidia-fabricmanager   # machines with NVSwitch need it";
    case kCudaDriverMismatch:
      return "sudo reboot   # the kernel module is of another version than libcuda; in a container: start it anew";
    case kCudaUnknown:
      return concat("sudo nvidia-modprobe -u -c=0; ", kLookAtDriver);
  }
  return kLookAtDriver;
}

/// The driver, its devices, and CUDA.
/// @param severe of a failure where GPUDirect-TCPX is expected: elsewhere host memory can stand in
Findings check_driver(const GpuFacts& facts, Verdict severe) {
  using End = LibraryAnswer::End;
  const CudaAnswer& cuda = facts.cuda;
  const bool answered = cuda.end == End::kAnswered, refused = cuda.end == End::kRefused;
  const auto &proc = facts.proc_version, &module = facts.module_version;
  const bool open = proc && proc->find("Open Kernel Module") != std::string::npos;
  std::vector<std::string> all, closed;
  for (const auto& [path, error] : facts.nodes) {
    all.push_back(path);
    if (error != 0) closed.push_back(concat(path, ": ", std::strerror(error)));
  }
  const size_t seen = cuda.gpus.size(), there = facts.gpus.size(), given = gpu_nodes(facts);
  // A VM of Windows reaches the GPU without a module of its own.
  Table table = {
      {"driver", concat(there, " NVIDIA GPUs, but the kernel module nvidia is not loaded"), proc || module || answered, severe,
       "Without its driver a GPU's memory cannot be moved; only host memory can.", kInstallDriver},
      {"driver", !proc && !module ? "no kernel module here, but CUDA works"
                                  : concat(version_in(module.value_or(proc.value_or(""))), open ? ", open kernel modules" : "")}};
  if (there > 0) {
    append(table, {{"nodes", all.empty() ? "no /dev/nvidia*" : concat("only ", joined(all)),
                    facts.nodes.contains("/dev/nvidiactl") && given > 0, severe,
                    "The PCI bus shows GPUs, but this process was not given them, as in a container that was started without.",
                    kGiveToContainer},
                   {"nodes", joined(closed), closed.empty(), severe,
                    "The GPU is there but may not be used by this user or in this container.",
                    concat("ls -l /dev/nvidia*   # then sudo usermod -aG $(stat -c %G ", all.empty() ? "" : all.front(),
                           ") $USER; in a container: ", kGiveToContainer)},
                   {"nodes", "no /dev/nvidia-uvm", facts.nodes.contains("/dev/nvidia-uvm"), severe,
                    "CUDA cannot start without it.", "sudo nvidia-modprobe -u -c=0"},
                   {"nodes", concat("/dev/nvidiactl, /dev/nvidia-uvm and ", given, " GPUs can be opened")}});
  }
  const std::string runs = concat("the driver runs CUDA ", cuda.version / 1000, ".", cuda.version % 1000 / 10);
  append(
      table,
      {{"cuda", cuda.detail, !refused || cuda.code != 0, severe, "Programs reach the GPU through this library of the driver.",
        "ldconfig -p | grep libcuda.so.1   # on COS: export LD_LIBRARY_PATH=/usr/local/nvidia/lib64:$LD_LIBRARY_PATH"},
       {"cuda", concat(cuda.detail, " (", cuda.code, ")"), !refused, severe,
        "No program can use a GPU here until that is mended.", mend_of_code(facts)},
       {"cuda", concat("the process that asked the driver ", cuda.detail), answered, severe,
        "Every program that uses a GPU here will end like that.", kLookAtDriver},
       {"cuda", concat(runs, ", this build needs ", facts.build.cuda_major, ".0"), facts.build.cuda_major <= cuda.version / 1000,
        severe, "The CUDA runtime in this build refuses an older driver, and GPU memory cannot be moved.",
        "update the driver, or rebuild with an older CUDA: CUDACXX=/usr/local/cuda-<version>/bin/nvcc cmake --preset "
        "release"},
       {"cuda", runs}});
  if (!answered && cuda.code != kCudaNoDevice) return judge(table);
  const std::string found = concat(there, " on the PCI bus, ", seen, " seen by CUDA");
  const std::string named = concat(found, ", CUDA_VISIBLE_DEVICES='", facts.visible.value_or(""), "'");
  const bool fewer = seen < there, hidden = facts.visible && fewer;
  append(
      table,
      {{"count", named, !hidden || seen > 0, kFail, "The variable hides every GPU; an empty one does, too.",
        "unset CUDA_VISIBLE_DEVICES"},
       {"count", named, !hidden || split(*facts.visible, ",").size() <= seen, kWarn,
        "An entry that is no GPU hides itself and all those behind it.",
        concat("export CUDA_VISIBLE_DEVICES=0   # only numbers below ", there, ", or unset it")},
       {"count", found, !fewer || hidden || (seen > 0 && seen == given), severe,
        "A GPU that CUDA does not see is broken, or was not given to this container.",
        "sudo dmesg | grep -e NVRM -e Xid | tail   # a GPU that has fallen off the bus; in a container: docker run --gpus all"},
       {"count", hidden  ? named
                 : fewer ? concat(found, ": those that this container was given")
                         : found}});
  return judge(table);
}

/// What the GPUs can do.
Findings check_abilities(const GpuFacts& facts, Verdict severe) {
  const bool vendor_path = facts.expected.vendor_path;
  const std::string& built = facts.build.architectures;
  const auto& gpus = facts.cuda.gpus;
  std::vector<std::string> capabilities, without, bars, small;
  bool runs = true;
  for (const CudaGpu& gpu : gpus) {
    capabilities.push_back(concat(gpu.major, ".", gpu.minor));
    runs = runs && runs_on(built, gpu.major, gpu.minor).value_or(true);
    if (!gpu.dma_buf) without.push_back(gpu.pci_address);
  }
  for (const BusGpu& gpu : facts.gpus) {
    bars.push_back(gpu.bar1_bytes ? format_bytes(*gpu.bar1_bytes) : "unknown");
    if (gpu.bar1_bytes && *gpu.bar1_bytes <= kRxdmPoolBytes) small.push_back(gpu.address);
  }
  Table table = {{"compute", "this build is without CUDA", !built.empty(), severe,
                  "There are GPUs, but this build moves host memory only.",
                  "cmake --preset release && cmake --build --preset release   # with nvcc in the PATH or /usr/local/cuda"}};
  if (!gpus.empty()) {
    const std::string found = concat(gpus.size() - without.size(), " of ", gpus.size(), " GPUs export their memory");
    append(
        table,
        {{"compute", concat("compute capability ", counted(capabilities), "; kernels built for ", built), runs, severe,
          "The unpack kernel does not run there, so received data cannot be gathered by it.",
          "cmake --preset release -DCMAKE_CUDA_ARCHITECTURES=native   # at least 75 (Turing); or export "
          "UCCL_TCPX_UNPACK_IMPL=d2d"},
         {"dma_buf", found, without.empty() || vendor_path, kNotApplicable,
          "Only GPUDirect-TCPX needs it; plain TCP goes through host memory."},
         {"dma_buf", concat(found, "; not ", joined(without)), without.empty() || facts.internal_dma_buf, kFail,
          "GPUDirect-TCPX registers GPU memory with the NIC as a dma-buf; it fails, or sends from nowhere, without one.",
          "sudo apt install nvidia-open   # open kernel modules, driver 525 or newer; on COS: sudo cos-extensions install gpu"},
         {"dma_buf", concat(found, without.empty() ? "" : " through CUDA, but the plugin is told to do it by itself, and can")}});
  } else if (!built.empty()) {
    table.clear();
  }
  const std::string found = concat("BAR 1: ", counted(bars), small.empty() ? "" : "; too small: ", joined(small));
  if (!bars.empty()) {
    append(
        table,
        {{"bar1", found, vendor_path, kNotApplicable,
          "Only GPUDirect-TCPX lets the NIC reach into the GPU; plain TCP goes through host memory."},
         {"bar1", found, small.empty(), kFail,
          "RxDM's pool of 4 GiB and the memory that is sent must fit into the window through which the NIC reaches the GPU.",
          "switch on \"Above 4G decoding\" and \"Resizable BAR\" in the firmware; of a virtual machine: give it the whole BAR"}});
  }
  return judge(table);
}

/// How near the NICs are, and the one that a connection of each GPU has to use.
Findings check_distances(const GpuFacts& facts) {
  if (facts.gpus.empty() || facts.gpus.front().nics.empty()) {
    return judge({{"distances", "no GPU and network interface that both are on the PCI bus", false, kNotApplicable,
                   "Where one of them is not, no distance can be told."}});
  }
  std::string matrix = concat("as nvidia-smi topo -m counts it\n", std::string(facts.gpus.front().address.size(), ' '));
  // Words stand below the first letter of the interface's name.
  const auto add_cell = [&](std::string_view text, const std::string& interface) {
    matrix += concat("  ", text, std::string(std::max(interface.size(), size_t{4}) - text.size(), ' '));
  };
  for (const auto& [interface, distance] : facts.gpus.front().nics) add_cell(interface, interface);
  std::string nics = "GPUDirect-TCPX gets payload into a GPU's memory over the NIC nearest to it and no other";
  std::vector<std::string> far, unclear;
  for (const BusGpu& gpu : facts.gpus) {
    const PciDistance least = std::ranges::min_element(gpu.nics, {}, &decltype(gpu.nics)::value_type::second)->second;
    std::vector<std::string> nearest;
    matrix += concat("\n", gpu.address);
    for (const auto& [interface, distance] : gpu.nics) {
      add_cell(name_of(distance), interface);
      if (distance == least) nearest.push_back(interface);
    }
    nics += concat("\n", gpu.address, ": ", joined(nearest), " (", name_of(least), ")");
    if (least <= PciDistance::kBridges) continue;
    far.push_back(gpu.address);
    if (nearest.size() > 1) unclear.push_back(gpu.address);
  }
  const bool vendor_path = facts.expected.vendor_path;
  Table table = {
      {"distances", concat(matrix, "\nno NIC below a common PCI switch: ", joined(far)), far.empty() || !vendor_path, kWarn,
       "The NIC writes into the GPU's memory; over the host bridge that is slow, and NCCL does not do it unless told to.",
       "nvidia-smi topo -m   # on Google Cloud take an A3 machine type; for NCCL: export NCCL_NET_GDR_LEVEL=SYS"},
      {"distances", matrix}};
  if (vendor_path) {
    table.push_back({"nic_of_gpu", nics, unclear.empty(), kWarn,
                     concat("Where several are equally far away, nothing tells which one RxDM has for that GPU, and payload over "
                            "another one ends the process: ",
                            joined(unclear)),
                     concat("export ", environment_info(Variable::kSocketIfname).name,
                            "==NIC   # the one that RxDM's log names for the GPU")});
  }
  return judge(table);
}

}  // namespace

std::optional<bool> runs_on(const std::string& architectures, int major, int minor) {
  for (const std::string& entry : split(architectures, ",")) {
    int number = 0;
    const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
    if (error != std::errc()) return std::nullopt;
    const std::string_view kind(end, static_cast<size_t>(entry.data() + entry.size() - end));
    const int wanted = number / 10, at_least = number % 10;
    // "90a" runs on 9.0 and nowhere else.
    if (kind.starts_with('a') || kind.starts_with('f')) {
      if (major == wanted && minor == at_least) return true;
      continue;
    }
    if (kind != "-virtual" && major == wanted && minor >= at_least) return true;
    if (kind != "-real" && major * 10 + minor >= number) return true;
  }
  return false;
}

GpuFacts gpu_facts(const Machine& machine) {
  const FileTree& files = machine.files;
  GpuFacts facts{.expected = expected_path(machine)};
  const std::vector<PciDevice> interfaces = pci_interfaces(files);
  for (const PciDevice& device : pci_gpus(files)) {
    BusGpu gpu{.address = device.name, .bar1_bytes = bar1_bytes(files, device), .nics = {}};
    for (const PciDevice& interface : interfaces)
      gpu.nics.emplace_back(interface.name, distance_between(files, device, interface));
    facts.gpus.push_back(std::move(gpu));
  }
  facts.module_version = files.read("/sys/module/nvidia/version");
  facts.proc_version = files.read("/proc/driver/nvidia/version");
  for (const std::string& name : files.list("/dev")) {
    const bool gpu = name.starts_with("nvidia") && number_of(name.substr(6));
    if (gpu || name == "nvidiactl" || name == "nvidia-uvm") facts.nodes["/dev/" + name] = 0;
  }
  for (const auto& [name, value] : machine.variables.all) {
    if (name == "CUDA_VISIBLE_DEVICES") facts.visible = value;
  }
  facts.internal_dma_buf = machine.variables.get("NCCL_GPUDIRECTTCPX_REG_DMABUF_USE_INTERNAL_API").value_or("0") != "0" &&
                           files.exists("/proc/driver/nvp2p_dma_buf");
  facts.build = {.architectures = TCPX_CUDA_ARCHITECTURES, .cuda_major = TCPX_CUDA_MAJOR};
  return facts;
}

Findings check_gpu(const GpuFacts& facts) {
  const bool vendor_path = facts.expected.vendor_path;
  if (facts.gpus.empty() && facts.cuda.gpus.empty()) {
    return judge(
        {{"gpus", "no NVIDIA GPU", vendor_path, kNotApplicable,
          "Host memory stands in for GPU memory: same calls, same path, no GPU needed."},
         {"gpus", "no NVIDIA GPU on the PCI bus, and none that CUDA sees", false, kFail,
          concat("GPUDirect-TCPX moves the memory of GPUs, and is expected here: ", facts.expected.because, "."),
          "gcloud compute instances describe $(hostname) --format='value(machineType)'   # a3-highgpu-8g has GPUs; else export "
          "UCCL_TCPX_PLUGIN_PATH=embedded"}});
  }
  const Verdict severe = vendor_path ? kFail : kWarn;
  Findings findings = check_driver(facts, severe);
  append(findings, check_abilities(facts, severe));
  append(findings, check_distances(facts));
  return findings;
}

}  // namespace tcpx::doctor
