#include <charconv>
#include <string_view>

#include "base/text.h"
#include "programs/doctor/gpu.h"
#include "programs/doctor/words.h"

namespace tcpx::doctor {

GpuBuild this_build() {
  return {.architectures = TCPX_CUDA_ARCHITECTURES, .cuda_major = TCPX_CUDA_MAJOR};
}

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
    for (const PciDevice& interface : interfaces) gpu.nics.emplace_back(interface.name, pci_distance(files, device, interface));
    facts.gpus.push_back(std::move(gpu));
  }
  facts.module_version = files.read("/sys/module/nvidia/version");
  facts.proc_version = files.read("/proc/driver/nvidia/version");
  for (const std::string& name : files.list("/dev")) {
    const bool gpu =
        name.starts_with("nvidia") && name.size() > 6 && name.find_first_not_of("0123456789", 6) == std::string::npos;
    if (gpu || name == "nvidiactl" || name == "nvidia-uvm") facts.nodes["/dev/" + name] = 0;
  }
  for (const auto& [name, value] : machine.variables.all) {
    if (name == "CUDA_VISIBLE_DEVICES") facts.visible = value;
  }
  facts.internal_dma_buf = machine.variables.get("NCCL_GPUDIRECTTCPX_REG_DMABUF_USE_INTERNAL_API").value_or("0") != "0" &&
                           files.exists("/proc/driver/nvp2p_dma_buf");
  facts.build = this_build();
  return facts;
}

}  // namespace tcpx::doctor
