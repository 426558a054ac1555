// An NVML of four GPUs: 0000:01:00.0 and 0000:02:00.0 are joined by NVLink, 0000:03:00.0 reaches neither, and 0000:04:00.0 reaches
// all by PCIe. FAKE_ANSWER is what it answers when it is opened.
#include <cstring>

extern "C" {

struct Gpu {
  const char* bus_id;
};
static Gpu gpus[] = {{"0000:01:00.0"}, {"0000:02:00.0"}, {"0000:03:00.0"}, {"0000:04:00.0"}};
__attribute__((visibility("default"))) int fake_nvml_opened = 0;  // and not closed

__attribute__((visibility("default"))) int nvmlInit_v2() {
  ++fake_nvml_opened;
  return FAKE_ANSWER;
}

__attribute__((visibility("default"))) int nvmlShutdown() {
  --fake_nvml_opened;
  return 0;
}

__attribute__((visibility("default"))) int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Gpu** found) {
  constexpr int kNotFound = 6;
  for (Gpu& gpu : gpus) {
    if (std::strcmp(gpu.bus_id, bus_id) != 0) continue;
    *found = &gpu;
    return 0;
  }
  return kNotFound;
}

__attribute__((visibility("default"))) int nvmlDeviceGetP2PStatus(Gpu* a, Gpu* b, int capability, int* status) {
  constexpr int kNvlink = 2, kNotSupported = 5;
  const long first = (a < b ? a : b) - gpus, second = (a < b ? b : a) - gpus;
  const bool nvlink = first == 0 && second == 1, pcie = second == 3;
  *status = nvlink || (pcie && capability != kNvlink) ? 0 : kNotSupported;
  return 0;
}
}
