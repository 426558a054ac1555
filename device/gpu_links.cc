#include "device/gpu_links.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/log.h"

namespace tcpx {
namespace {

// Of NVML's interface, whose header comes with no toolkit: its reference manual, "Initialization and Cleanup", "Device Queries" and
// "NvmlDevice Definitions" (nvmlReturn_t, nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t).
using Device = void*;
constexpr int kSuccess = 0;
constexpr int kReads = 0, kNvlink = 2;  // capabilities
constexpr int kOk = 0;                  // status

// "0000:3b:00.0", with the domain's zeros or without.
bool is_bus_id(const std::string& id) {
  return id.size() >= 7 && id.size() <= 16 &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isxdigit(c) != 0 || c == ':' || c == '.'; });
}

}  // namespace

struct GpuLinks::Nvml {
  explicit Nvml(void* opened) : library(opened) {
    find("nvmlInit_v2", init);
    find("nvmlShutdown", shutdown);
    find("nvmlDeviceGetHandleByPciBusId_v2", by_bus_id);
    find("nvmlDeviceGetP2PStatus", p2p_status);
    ready = init != nullptr && shutdown != nullptr && by_bus_id != nullptr && p2p_status != nullptr && init() == kSuccess;
  }
  ~Nvml() {
    if (ready) (void)shutdown();
    (void)::dlclose(library);
  }
  Nvml(const Nvml&) = delete;

  template <class Function>
  void find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
  }
  bool has(Device here, Device there, int capability) const {
    int status = -1;
    return p2p_status(here, there, capability, &status) == kSuccess && status == kOk;
  }

  void* const library;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_bus_id)(const char*, Device*) = nullptr;
  int (*p2p_status)(Device, Device, int, int*) = nullptr;
  bool ready = false;
};

GpuLinks::GpuLinks(std::string library) : library_(std::move(library)) {}

GpuLinks::~GpuLinks() = default;

GpuLink GpuLinks::between(const std::string& here, const std::string& there) {
  if (!is_bus_id(here) || !is_bus_id(there)) return GpuLink::kUnknown;
  if (here == there) return GpuLink::kSame;
  const MutexLock lock(mutex_);
  if (!std::exchange(asked_, true)) {
    if (void* const library = ::dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL)) nvml_ = std::make_unique<Nvml>(library);
    if (nvml_ == nullptr || !nvml_->ready) {
      nvml_.reset();
      log(LogLevel::kInfo, "no ", library_, " that answers: what lies between two GPUs is not known");
    }
  }
  Device mine = nullptr, other = nullptr;
  if (nvml_ == nullptr || nvml_->by_bus_id(here.c_str(), &mine) != kSuccess ||
      nvml_->by_bus_id(there.c_str(), &other) != kSuccess)
    return GpuLink::kUnknown;
  if (nvml_->has(mine, other, kNvlink)) return GpuLink::kNvlink;
  return nvml_->has(mine, other, kReads) ? GpuLink::kPcie : GpuLink::kNone;
}

}  // namespace tcpx
