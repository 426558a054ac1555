#include "programs/doctor/gpu_checks.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <sstream>

#include "base/environment.h"
#include "base/text.h"
#include "programs/doctor/pci_topology.h"

namespace tcpx::doctor {
namespace {

// The pool that RxDM makes of each GPU's memory by default (google/tcpgpudmarxd @ a6e09b3), and the NIC reaches through BAR 1.
constexpr uint64_t kRxdmPoolBytes = uint64_t{1} << 32;
constexpr std::string_view kInternalDmaBufVariable = "NCCL_GPUDIRECTTCPX_REG_DMABUF_USE_INTERNAL_API";
constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";
constexpr char kInstallDriver[] =
    "sudo modprobe nvidia   # if that fails: sudo cos-extensions install gpu (COS), sudo apt install nvidia-open (Debian, "
    "Ubuntu)";
constexpr char kGiveToContainer[] = "docker run --gpus all ...   # in Kubernetes: resources: limits: nvidia.com/gpu: 8";

/// "575.57.08" of "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build ...".
std::string version_in(const std::string& text) {
  std::istringstream words(text);
  std::string word;
  while (words >> word) {
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  }
  return "of unknown version";
}

std::string cuda_version(int version) {
  return concat(version / 1000, ".", version % 1000 / 10);
}

std::string size_text(uint64_t bytes) {
  constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;
  return bytes % kGiB == 0 ? concat(bytes / kGiB, " GiB") : concat(bytes / kMiB, " MiB");
}

std::string joined(const std::vector<std::string>& parts) {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
  return out;
}

/// "8 x 9.0, 1 x 8.6"
std::string counted(const std::vector<std::string>& values) {
  std::map<std::string, int> counts;
  for (const std::string& value : values) ++counts[value];
  std::vector<std::string> parts;
  for (const auto& [value, count] : counts) parts.push_back(concat(count, " x ", value));
  return joined(parts);
}

class GpuGroup {
 public:
  GpuGroup(const Machine& machine, GpuSource& source, const GpuBuild& build)
      : machine_(machine),
        build_(build),
        expected_(expected_path(machine)),
        gpus_(pci_gpus(machine.files)),
        nodes_(device_nodes(machine.files)),
        node_errors_(nodes_.empty() ? std::vector<int>() : source.open_errors(nodes_)),
        cuda_(source.ask_cuda()) {}

  Findings run() {
    if (gpus_.empty() && cuda_.gpus.empty()) {
      check_absence();
      return std::move(findings_);
    }
    check_driver();
    check_nodes();
    check_cuda();
    check_count();
    check_build();
    check_dma_buf();
    check_bar1();
    check_distances();
    check_nics_of_gpus();
    return std::move(findings_);
  }

 private:
  static std::vector<std::string> device_nodes(const FileTree& files) {
    std::vector<std::string> nodes;
    for (const std::string& name : files.list("/dev")) {
      const bool gpu =
          name.starts_with("nvidia") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos;
      if (gpu || name == "nvidiactl" || name == "nvidia-uvm") nodes.push_back("/dev/" + name);
    }
    return nodes;
  }

  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  /// A failure where GPUDirect-TCPX is expected: elsewhere host memory can stand in.
  void wrong(std::string check, std::string found, std::string why, std::string mend) {
    add((expected_.vendor_path ? fail : warn)(std::move(check), std::move(found), std::move(why), std::move(mend)));
  }
  bool has_node(std::string_view name) const {
    return std::any_of(nodes_.begin(), nodes_.end(), [&](const std::string& node) { return node == concat("/dev/", name); });
  }
  size_t gpu_nodes() const {
    return static_cast<size_t>(
        std::count_if(nodes_.begin(), nodes_.end(), [](const std::string& node) { return std::isdigit(node.back()) != 0; }));
  }
  /// nullptr: not set. Unlike other variables, an empty one counts: it hides all GPUs.
  const std::string* visible() const {
    for (const auto& [name, value] : machine_.variables) {
      if (name == kVisible) return &value;
    }
    return nullptr;
  }

  void check_absence() {
    if (expected_.vendor_path) {
      add(fail(
          "gpus", "no NVIDIA GPU on the PCI bus, and none that CUDA sees",
          concat("GPUDirect-TCPX moves the memory of GPUs, and is expected here: ", expected_.because, "."),
          "gcloud compute instances describe $(hostname) --format='value(machineType)'   # a3-highgpu-8g has GPUs; else export "
          "UCCL_TCPX_PLUGIN_PATH=embedded"));
    } else {
      add(not_applicable("gpus", "no NVIDIA GPU", "Host memory stands in for GPU memory: same calls, same path, no GPU needed."));
    }
  }

  void check_driver() {
    const auto proc = machine_.files.read("/proc/driver/nvidia/version"),
               module = machine_.files.read("/sys/module/nvidia/version");
    if (!proc && !module) {
      // A VM of Windows reaches the GPU without a module of its own.
      if (cuda_.end == CudaAnswer::End::kAnswered) return add(ok("driver", "no kernel module here, but CUDA works"));
      return wrong("driver", concat(gpus_.size(), " NVIDIA GPUs, but the kernel module nvidia is not loaded"),
                   "Without its driver a GPU's memory cannot be moved; only host memory can.", kInstallDriver);
    }
    const bool open = proc && proc->find("Open Kernel Module") != std::string::npos;
    add(ok("driver", concat(version_in(module ? *module : *proc), open ? ", open kernel modules" : "")));
  }

  void check_nodes() {
    if (gpus_.empty()) return;
    if (!has_node("nvidiactl") || gpu_nodes() == 0) {
      return wrong("nodes", nodes_.empty() ? "no /dev/nvidia*" : concat("only ", joined(nodes_)),
                   "The PCI bus shows GPUs, but this process was not given them, as in a container that was started without.",
                   kGiveToContainer);
    }
    std::vector<std::string> closed;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (node_errors_[i] != 0) closed.push_back(concat(nodes_[i], ": ", std::strerror(node_errors_[i])));
    }
    if (!closed.empty()) {
      return wrong("nodes", joined(closed), "The GPU is there but may not be used by this user or in this container.",
                   concat("ls -l /dev/nvidia*   # then sudo usermod -aG $(stat -c %G ", nodes_.front(),
                          ") $USER; in a container: ", kGiveToContainer));
    }
    if (!has_node("nvidia-uvm")) {
      return wrong("nodes", "no /dev/nvidia-uvm", "CUDA cannot start without it.", "sudo nvidia-modprobe -u -c=0");
    }
    add(ok("nodes", concat("/dev/nvidiactl, /dev/nvidia-uvm and ", gpu_nodes(), " GPUs can be opened")));
  }

  std::string mend_of_code() const {
    switch (cuda_.code) {
      case kCudaStubLibrary:
        return "take directories named stubs out of LD_LIBRARY_PATH: echo $LD_LIBRARY_PATH | tr : '\\n' | grep stubs";
      case kCudaNoDevice:
        return visible() != nullptr ? concat("unset ", kVisible) : kGiveToContainer;
      case kCudaSystemNotReady:
        return "sudo systemctl restart nvidia-fabricmanager   # machines with NVSwitch need it";
      case kCudaDriverMismatch:
        return "sudo reboot   # the kernel module is of another version than libcuda; in a container: start it anew";
      case kCudaUnknown:
        return "sudo nvidia-modprobe -u -c=0; sudo dmesg | grep -e NVRM -e Xid | tail";
      default:
        return "nvidia-smi; sudo dmesg | grep -e NVRM -e Xid | tail";
    }
  }

  void check_cuda() {
    switch (cuda_.end) {
      case CudaAnswer::End::kNoLibrary:
        return wrong(
            "cuda", cuda_.detail, "Programs reach the GPU through this library of the driver.",
            "ldconfig -p | grep libcuda.so.1   # on COS: export LD_LIBRARY_PATH=/usr/local/nvidia/lib64:$LD_LIBRARY_PATH");
      case CudaAnswer::End::kRefused:
        return wrong("cuda", concat(cuda_.detail, " (", cuda_.code, ")"), "No program can use a GPU here until that is mended.",
                     mend_of_code());
      case CudaAnswer::End::kDied:
      case CudaAnswer::End::kHung:
        return wrong("cuda", concat("the process that asked the driver ", cuda_.detail),
                     "Every program that uses a GPU here will end like that.",
                     "sudo dmesg | grep -e NVRM -e Xid | tail; nvidia-smi");
      case CudaAnswer::End::kAnswered:
        break;
    }
    const std::string found = concat("the driver runs CUDA ", cuda_version(cuda_.version));
    if (build_.cuda_major > cuda_.version / 1000) {
      return wrong("cuda", concat(found, ", this build needs ", build_.cuda_major, ".0"),
                   "The CUDA runtime in this build refuses an older driver, and GPU memory cannot be moved.",
                   "update the driver, or rebuild with an older CUDA: CUDACXX=/usr/local/cuda-<version>/bin/nvcc cmake --preset "
                   "release");
    }
    add(ok("cuda", found));
  }

  void check_count() {
    if (cuda_.end != CudaAnswer::End::kAnswered && cuda_.code != kCudaNoDevice) return;  // said above
    const size_t seen = cuda_.gpus.size(), there = gpus_.size();
    const std::string found = concat(there, " on the PCI bus, ", seen, " seen by CUDA");
    if (visible() != nullptr && seen < there) {
      const std::string named = concat(found, ", ", kVisible, "='", *visible(), "'");
      const auto entries =
          visible()->empty() ? 0 : static_cast<size_t>(std::count(visible()->begin(), visible()->end(), ',') + 1);
      if (seen == 0) {
        return add(fail("count", named, "The variable hides every GPU; an empty one does, too.", concat("unset ", kVisible)));
      }
      if (entries > seen) {
        return add(warn("count", named, "An entry that is no GPU hides itself and all those behind it.",
                        concat("export ", kVisible, "=0   # only numbers below ", there, ", or unset it")));
      }
      return add(ok("count", named));
    }
    if (seen >= there || (seen > 0 && seen == gpu_nodes())) {
      return add(ok("count", seen < there ? concat(found, ": those that this container was given") : found));
    }
    wrong("count", found, "A GPU that CUDA does not see is broken, or was not given to this container.",
          "sudo dmesg | grep -e NVRM -e Xid | tail   # a GPU that has fallen off the bus; in a container: docker run --gpus all");
  }

  void check_build() {
    if (build_.architectures.empty()) {
      return wrong("compute", "this build is without CUDA", "There are GPUs, but this build moves host memory only.",
                   "cmake --preset release && cmake --build --preset release   # with nvcc in the PATH or /usr/local/cuda");
    }
    if (cuda_.gpus.empty()) return;
    std::vector<std::string> all, not_run;
    for (const CudaGpu& gpu : cuda_.gpus) {
      const std::string capability = concat(gpu.major, ".", gpu.minor);
      all.push_back(capability);
      if (!runs_on(build_.architectures, gpu.major, gpu.minor).value_or(true)) not_run.push_back(capability);
    }
    const std::string found = concat("compute capability ", counted(all));
    if (not_run.empty()) return add(ok("compute", concat(found, "; kernels built for ", build_.architectures)));
    wrong("compute", concat(found, "; kernels are built for ", build_.architectures),
          "The unpack kernel does not run there, so received data cannot be gathered by it.",
          concat("cmake --preset release -DCMAKE_CUDA_ARCHITECTURES=native   # at least 75 (Turing); or export "
                 "UCCL_TCPX_UNPACK_IMPL=d2d"));
  }

  void check_dma_buf() {
    if (cuda_.gpus.empty()) return;
    std::vector<std::string> without;
    for (const CudaGpu& gpu : cuda_.gpus) {
      if (!gpu.dma_buf) without.push_back(gpu.pci_address);
    }
    const std::string found = concat(cuda_.gpus.size() - without.size(), " of ", cuda_.gpus.size(), " GPUs export their memory");
    if (without.empty()) return add(ok("dma_buf", found));
    if (!expected_.vendor_path) {
      return add(not_applicable("dma_buf", found, "Only GPUDirect-TCPX needs it; plain TCP goes through host memory."));
    }
    const bool internal = machine_.variable(kInternalDmaBufVariable).value_or("0") != "0";
    if (internal && machine_.files.exists("/proc/driver/nvp2p_dma_buf")) {
      return add(ok("dma_buf", concat(found, " through CUDA, but /proc/driver/nvp2p_dma_buf is there and ",
                                      kInternalDmaBufVariable, " is set")));
    }
    add(fail(
        "dma_buf", concat(found, "; not ", joined(without)),
        "GPUDirect-TCPX registers GPU memory with the NIC as a dma-buf; it fails, or sends from nowhere, without one.",
        "sudo apt install nvidia-open   # open kernel modules, driver 525 or newer; on COS: sudo cos-extensions install gpu"));
  }

  void check_bar1() {
    if (gpus_.empty()) return;
    std::vector<std::string> all, small;
    for (const PciDevice& gpu : gpus_) {
      const auto bytes = bar1_bytes(machine_.files, gpu);
      all.push_back(bytes ? size_text(*bytes) : "unknown");
      if (bytes && *bytes <= kRxdmPoolBytes) small.push_back(gpu.name);
    }
    const std::string found = concat("BAR 1: ", counted(all));
    if (!expected_.vendor_path) {
      return add(not_applicable("bar1", found,
                                "Only GPUDirect-TCPX lets the NIC reach into the GPU; plain TCP goes through host memory."));
    }
    if (small.empty()) return add(ok("bar1", found));
    add(fail(
        "bar1", concat(found, "; too small: ", joined(small)),
        "RxDM's pool of 4 GiB and the memory that is sent must fit into the window through which the NIC reaches the GPU.",
        "switch on \"Above 4G decoding\" and \"Resizable BAR\" in the firmware; of a virtual machine: give it the whole BAR"));
  }

  void check_distances() {
    const std::vector<PciDevice> interfaces = pci_interfaces(machine_.files);
    if (gpus_.empty() || interfaces.empty()) {
      return add(not_applicable("distances", "no GPU and network interface that both are on the PCI bus",
                                "Where one of them is not, no distance can be told."));
    }
    // Words stand below the first letter of the interface's name.
    const auto cell = [](std::string_view text, const std::string& below) {
      return concat("  ", text, std::string(below.size() > text.size() ? below.size() - text.size() : 0, ' '));
    };
    const std::string widest = name_of(PciDistance::kNode).data();
    std::string matrix = concat("as nvidia-smi topo -m counts it\n", std::string(gpus_.front().name.size(), ' '));
    for (const PciDevice& interface : interfaces) matrix += cell(interface.name, widest);
    std::vector<std::string> far;
    for (const PciDevice& gpu : gpus_) {
      matrix += concat("\n", gpu.name);
      PciDistance nearest = PciDistance::kSys;
      for (const PciDevice& interface : interfaces) {
        const PciDistance distance = pci_distance(machine_.files, gpu, interface);
        nearest = std::min(nearest, distance);
        matrix += cell(name_of(distance), interface.name.size() > widest.size() ? interface.name : widest);
      }
      if (nearest > PciDistance::kPxb) far.push_back(gpu.name);
    }
    if (far.empty() || !expected_.vendor_path) return add(ok("distances", matrix));
    add(warn("distances", concat(matrix, "\nno NIC below a common PCI switch: ", joined(far)),
             "The NIC writes into the GPU's memory; over the host bridge that is slow, and NCCL does not do it unless told to.",
             "nvidia-smi topo -m   # on Google Cloud take an A3 machine type; for NCCL: export NCCL_NET_GDR_LEVEL=SYS"));
  }

  /// Which NIC a connection of each GPU uses, and would have to.
  void check_nics_of_gpus() {
    const std::vector<PciDevice> interfaces = pci_interfaces(machine_.files);
    if (gpus_.empty() || interfaces.empty() || !expected_.vendor_path) return;
    std::string found = "GPUDirect-TCPX gets payload into a GPU's memory over the NIC nearest to it and no other";
    std::vector<std::string> unclear;
    for (const PciDevice& gpu : gpus_) {
      std::vector<std::string> nearest;
      PciDistance least = PciDistance::kSys;
      for (const PciDevice& interface : interfaces) {
        const PciDistance distance = pci_distance(machine_.files, gpu, interface);
        if (distance > least) continue;
        if (distance < least) nearest.clear();
        least = distance;
        nearest.push_back(interface.name);
      }
      found += concat("\n", gpu.name, ": ", joined(nearest), " (", name_of(least), ")");
      if (nearest.size() > 1 && least > PciDistance::kPxb) unclear.push_back(gpu.name);
    }
    if (unclear.empty()) return add(ok("nic_of_gpu", found));
    const std::string_view variable = environment_info(Variable::kSocketIfname).name;
    add(warn(
        "nic_of_gpu", found,
        concat("Where several are equally far away, nothing tells which one RxDM has for that GPU, and payload over another one "
               "ends the process: ",
               joined(unclear)),
        concat("export ", variable, "==NIC   # the one that RxDM's log names for the GPU")));
  }

  const Machine& machine_;
  const GpuBuild& build_;
  const Expectation expected_;
  const std::vector<PciDevice> gpus_;
  const std::vector<std::string> nodes_;
  const std::vector<int> node_errors_;
  const CudaAnswer cuda_;
  Findings findings_;
};

}  // namespace

Findings check_gpu(const Machine& machine, GpuSource& source, const GpuBuild& build) {
  return GpuGroup(machine, source, build).run();
}

}  // namespace tcpx::doctor
