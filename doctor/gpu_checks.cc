#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <ranges>

#include "base/text.h"
#include "doctor/gpu.h"
#include "doctor/words.h"

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

std::string gpu_bytes_text(uint64_t bytes) {
  constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;
  return bytes % kGiB == 0 ? concat(bytes / kGiB, " GiB") : concat(bytes / kMiB, " MiB");
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

struct GpuGroup {
  const GpuFacts& facts;
  const Verdict severe = facts.expected.vendor_path ? Verdict::kFail : Verdict::kWarn;
  Findings findings = {};

  Findings run() {
    if (facts.gpus.empty() && facts.cuda.gpus.empty()) return {absence()};
    add_driver();
    add_nodes();
    add_cuda();
    add_count();
    add_compute();
    add_dma_buf();
    add_bar1();
    add_distances();
    add_nics_of_gpus();
    return std::move(findings);
  }

  void add(Finding finding) { findings.push_back(std::move(finding)); }
  /// A failure where GPUDirect-TCPX is expected: elsewhere host memory can stand in.
  void wrong(std::string check, std::string found, std::string why, std::string mend) {
    add({std::move(check), severe, std::move(found), std::move(why), std::move(mend)});
  }

  Finding absence() const {
    if (!facts.expected.vendor_path) {
      return not_applicable("gpus", "no NVIDIA GPU",
                            "Host memory stands in for GPU memory: same calls, same path, no GPU needed.");
    }
    return fail(
        "gpus", "no NVIDIA GPU on the PCI bus, and none that CUDA sees",
        concat("GPUDirect-TCPX moves the memory of GPUs, and is expected here: ", facts.expected.because, "."),
        "gcloud compute instances describe $(hostname) --format='value(machineType)'   # a3-highgpu-8g has GPUs; else export "
        "UCCL_TCPX_PLUGIN_PATH=embedded");
  }

  void add_driver() {
    const auto &proc = facts.proc_version, &module = facts.module_version;
    if (proc || module) {
      const bool open = proc && proc->find("Open Kernel Module") != std::string::npos;
      add(ok("driver", concat(version_in(module ? *module : *proc), open ? ", open kernel modules" : "")));
    } else if (facts.cuda.end == LibraryAnswer::End::kAnswered) {  // a VM of Windows reaches the GPU without a module of its own
      add(ok("driver", "no kernel module here, but CUDA works"));
    } else {
      wrong("driver", concat(facts.gpus.size(), " NVIDIA GPUs, but the kernel module nvidia is not loaded"),
            "Without its driver a GPU's memory cannot be moved; only host memory can.", kInstallDriver);
    }
  }

  void add_nodes() {
    if (facts.gpus.empty()) return;
    std::vector<std::string> all, closed;
    for (const auto& [path, error] : facts.nodes) {
      all.push_back(path);
      if (error != 0) closed.push_back(concat(path, ": ", std::strerror(error)));
    }
    if (!facts.nodes.contains("/dev/nvidiactl") || gpu_nodes(facts) == 0) {
      wrong("nodes", all.empty() ? "no /dev/nvidia*" : concat("only ", joined(all)),
            "The PCI bus shows GPUs, but this process was not given them, as in a container that was started without.",
            kGiveToContainer);
    } else if (!closed.empty()) {
      wrong("nodes", joined(closed), "The GPU is there but may not be used by this user or in this container.",
            concat("ls -l /dev/nvidia*   # then sudo usermod -aG $(stat -c %G ", all.front(),
                   ") $USER; in a container: ", kGiveToContainer));
    } else if (!facts.nodes.contains("/dev/nvidia-uvm")) {
      wrong("nodes", "no /dev/nvidia-uvm", "CUDA cannot start without it.", "sudo nvidia-modprobe -u -c=0");
    } else {
      add(ok("nodes", concat("/dev/nvidiactl, /dev/nvidia-uvm and ", gpu_nodes(facts), " GPUs can be opened")));
    }
  }

  std::string mend_of_code() const {
    const int code = facts.cuda.code;
    if (code == kCudaStubLibrary)
      return "take directories named stubs out of LD_LIBRARY_PATH: echo $LD_LIBRARY_PATH | tr : '\\n' | grep stubs";
    if (code == kCudaNoDevice) return facts.visible ? "unset CUDA_VISIBLE_DEVICES" : kGiveToContainer;
    if (code == kCudaSystemNotReady) return "sudo systemctl restart nvidia-fabricmanager   # machines with NVSwitch need it";
    if (code == kCudaDriverMismatch)
      return "sudo reboot   # the kernel module is of another version than libcuda; in a container: start it anew";
    return concat(code == kCudaUnknown ? "sudo nvidia-modprobe -u -c=0; " : "", kLookAtDriver);
  }

  void add_cuda() {
    const CudaAnswer& cuda = facts.cuda;
    if (cuda.end == LibraryAnswer::End::kRefused && cuda.code == 0) {
      return wrong("cuda", cuda.detail, "Programs reach the GPU through this library of the driver.",
                   "ldconfig -p | grep libcuda.so.1   # on COS: export LD_LIBRARY_PATH=/usr/local/nvidia/lib64:$LD_LIBRARY_PATH");
    }
    if (cuda.end == LibraryAnswer::End::kRefused) {
      return wrong("cuda", concat(cuda.detail, " (", cuda.code, ")"), "No program can use a GPU here until that is mended.",
                   mend_of_code());
    }
    if (cuda.end != LibraryAnswer::End::kAnswered) {
      return wrong("cuda", concat("the process that asked the driver ", cuda.detail),
                   "Every program that uses a GPU here will end like that.", kLookAtDriver);
    }
    const bool new_enough = facts.build.cuda_major <= cuda.version / 1000;
    const std::string found = concat("the driver runs CUDA ", cuda.version / 1000, ".", cuda.version % 1000 / 10);
    add(judged(new_enough, severe, "cuda",
               new_enough ? found : concat(found, ", this build needs ", facts.build.cuda_major, ".0"),
               "The CUDA runtime in this build refuses an older driver, and GPU memory cannot be moved.",
               "update the driver, or rebuild with an older CUDA: CUDACXX=/usr/local/cuda-<version>/bin/nvcc cmake --preset "
               "release"));
  }

  void add_count() {
    if (facts.cuda.end != LibraryAnswer::End::kAnswered && facts.cuda.code != kCudaNoDevice) return;  // said above
    const size_t seen = facts.cuda.gpus.size(), there = facts.gpus.size();
    const std::string found = concat(there, " on the PCI bus, ", seen, " seen by CUDA");
    if (facts.visible && seen < there) {
      const std::string named = concat(found, ", CUDA_VISIBLE_DEVICES='", *facts.visible, "'");
      if (seen == 0)
        return add(fail("count", named, "The variable hides every GPU; an empty one does, too.", "unset CUDA_VISIBLE_DEVICES"));
      return add(warn_unless(split(*facts.visible, ",").size() <= seen, "count", named,
                             "An entry that is no GPU hides itself and all those behind it.",
                             concat("export CUDA_VISIBLE_DEVICES=0   # only numbers below ", there, ", or unset it")));
    }
    const bool given = seen > 0 && seen == gpu_nodes(facts);
    add(judged(
        seen >= there || given, severe, "count",
        seen < there && given ? concat(found, ": those that this container was given") : found,
        "A GPU that CUDA does not see is broken, or was not given to this container.",
        "sudo dmesg | grep -e NVRM -e Xid | tail   # a GPU that has fallen off the bus; in a container: docker run --gpus all"));
  }

  void add_compute() {
    const std::string& built = facts.build.architectures;
    if (built.empty()) {
      return wrong("compute", "this build is without CUDA", "There are GPUs, but this build moves host memory only.",
                   "cmake --preset release && cmake --build --preset release   # with nvcc in the PATH or /usr/local/cuda");
    }
    if (facts.cuda.gpus.empty()) return;
    std::vector<std::string> all;
    bool runs = true;
    for (const CudaGpu& gpu : facts.cuda.gpus) {
      all.push_back(concat(gpu.major, ".", gpu.minor));
      runs = runs && runs_on(built, gpu.major, gpu.minor).value_or(true);
    }
    add(judged(runs, severe, "compute", concat("compute capability ", counted(all), "; kernels built for ", built),
               "The unpack kernel does not run there, so received data cannot be gathered by it.",
               "cmake --preset release -DCMAKE_CUDA_ARCHITECTURES=native   # at least 75 (Turing); or export "
               "UCCL_TCPX_UNPACK_IMPL=d2d"));
  }

  void add_dma_buf() {
    const std::vector<CudaGpu>& gpus = facts.cuda.gpus;
    if (gpus.empty()) return;
    std::vector<std::string> without;
    for (const CudaGpu& gpu : gpus)
      if (!gpu.dma_buf) without.push_back(gpu.pci_address);
    const std::string found = concat(gpus.size() - without.size(), " of ", gpus.size(), " GPUs export their memory");
    if (without.empty()) return add(ok("dma_buf", found));
    if (!facts.expected.vendor_path)
      return add(not_applicable("dma_buf", found, "Only GPUDirect-TCPX needs it; plain TCP goes through host memory."));
    add(fail_unless(
        facts.internal_dma_buf, "dma_buf",
        facts.internal_dma_buf ? concat(found, " through CUDA, but the plugin is told to do it by itself, and can")
                               : concat(found, "; not ", joined(without)),
        "GPUDirect-TCPX registers GPU memory with the NIC as a dma-buf; it fails, or sends from nowhere, without one.",
        "sudo apt install nvidia-open   # open kernel modules, driver 525 or newer; on COS: sudo cos-extensions install gpu"));
  }

  void add_bar1() {
    if (facts.gpus.empty()) return;
    std::vector<std::string> all, small;
    for (const BusGpu& gpu : facts.gpus) {
      all.push_back(gpu.bar1_bytes ? gpu_bytes_text(*gpu.bar1_bytes) : "unknown");
      if (gpu.bar1_bytes && *gpu.bar1_bytes <= kRxdmPoolBytes) small.push_back(gpu.address);
    }
    const std::string found = concat("BAR 1: ", counted(all), small.empty() ? "" : "; too small: ", joined(small));
    if (!facts.expected.vendor_path) {
      return add(not_applicable("bar1", found,
                                "Only GPUDirect-TCPX lets the NIC reach into the GPU; plain TCP goes through host memory."));
    }
    add(fail_unless(
        small.empty(), "bar1", found,
        "RxDM's pool of 4 GiB and the memory that is sent must fit into the window through which the NIC reaches the GPU.",
        "switch on \"Above 4G decoding\" and \"Resizable BAR\" in the firmware; of a virtual machine: give it the whole BAR"));
  }

  bool has_distances() const { return !facts.gpus.empty() && !facts.gpus.front().nics.empty(); }
  static PciDistance nearest_of(const BusGpu& gpu) { return std::ranges::min(gpu.nics | std::views::values); }

  void add_distances() {
    if (!has_distances()) {
      return add(not_applicable("distances", "no GPU and network interface that both are on the PCI bus",
                                "Where one of them is not, no distance can be told."));
    }
    std::string matrix = concat("as nvidia-smi topo -m counts it\n", std::string(facts.gpus.front().address.size(), ' '));
    // Words stand below the first letter of the interface's name.
    const auto add_cell = [&](std::string_view text, const std::string& interface) {
      const size_t width = std::max(interface.size(), name_of(PciDistance::kSameNode).size());
      matrix += concat("  ", text, std::string(width - text.size(), ' '));
    };
    for (const auto& [interface, distance] : facts.gpus.front().nics) add_cell(interface, interface);
    std::vector<std::string> far;
    for (const BusGpu& gpu : facts.gpus) {
      matrix += concat("\n", gpu.address);
      for (const auto& [interface, distance] : gpu.nics) add_cell(name_of(distance), interface);
      if (nearest_of(gpu) > PciDistance::kBridges) far.push_back(gpu.address);
    }
    if (far.empty() || !facts.expected.vendor_path) return add(ok("distances", matrix));
    add(warn("distances", concat(matrix, "\nno NIC below a common PCI switch: ", joined(far)),
             "The NIC writes into the GPU's memory; over the host bridge that is slow, and NCCL does not do it unless told to.",
             "nvidia-smi topo -m   # on Google Cloud take an A3 machine type; for NCCL: export NCCL_NET_GDR_LEVEL=SYS"));
  }

  /// The NIC that a connection of each GPU has to use.
  void add_nics_of_gpus() {
    if (!has_distances() || !facts.expected.vendor_path) return;
    std::string found = "GPUDirect-TCPX gets payload into a GPU's memory over the NIC nearest to it and no other";
    std::vector<std::string> unclear;
    for (const BusGpu& gpu : facts.gpus) {
      const PciDistance least = nearest_of(gpu);
      std::vector<std::string> nearest;
      for (const auto& [interface, distance] : gpu.nics)
        if (distance == least) nearest.push_back(interface);
      found += concat("\n", gpu.address, ": ", joined(nearest), " (", name_of(least), ")");
      if (nearest.size() > 1 && least > PciDistance::kBridges) unclear.push_back(gpu.address);
    }
    add(warn_unless(
        unclear.empty(), "nic_of_gpu", found,
        concat("Where several are equally far away, nothing tells which one RxDM has for that GPU, and payload over another one "
               "ends the process: ",
               joined(unclear)),
        concat("export ", environment_info(Variable::kSocketIfname).name,
               "==NIC   # the one that RxDM's log names for the GPU")));
  }
};

}  // namespace

Findings check_gpu(const GpuFacts& facts) {
  return GpuGroup{facts}.run();
}

}  // namespace tcpx::doctor
