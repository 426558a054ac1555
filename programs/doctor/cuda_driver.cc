#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <sstream>

#include "base/text.h"
#include "base/unique_fd.h"
#include "programs/doctor/child_answer.h"
#include "programs/doctor/gpu.h"

namespace tcpx::doctor {
namespace {

// Mirrored from NVIDIA's cuda.h, CUDA 12: enum CUdevice_attribute.
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;
constexpr int kDmaBufSupported = 124;

/// The functions of the driver that are asked (cuda.h; CUdevice and CUresult are ints).
struct Driver {
  int (*init)(unsigned flags) = nullptr;
  int (*version)(int* version) = nullptr;
  int (*count)(int* count) = nullptr;
  int (*get)(int* device, int ordinal) = nullptr;
  int (*attribute)(int* value, int attribute, int device) = nullptr;
  int (*pci_bus_id)(char* text, int bytes, int device) = nullptr;
  int (*error_name)(int error, const char** name) = nullptr;

  /// @return the name of a function that is missing, or ""
  std::string find_in(void* library) {
    std::string missing;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      if (function == nullptr && missing.empty()) missing = name;
    };
    find(init, "cuInit");
    find(version, "cuDriverGetVersion");
    find(count, "cuDeviceGetCount");
    find(get, "cuDeviceGet");
    find(attribute, "cuDeviceGetAttribute");
    find(pci_bus_id, "cuDeviceGetPCIBusId");
    find(error_name, "cuGetErrorName");
    return missing;
  }
};

// The child's answer, line by line: "library REASON", "refused CODE CALL: NAME", "version N", "gpu PCI MAJOR MINOR DMABUF".

void ask_driver(const std::string& path, const Say& say) {
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    say(concat("library ", one_line(why != nullptr ? why : "?"), "\n"));
    return;
  }
  Driver driver;
  if (const std::string missing = driver.find_in(library); !missing.empty()) {
    say(concat("library ", path, " lacks ", missing, "\n"));
    return;
  }
  const auto works = [&](int result, const char* call) {
    if (result == 0) return true;
    const char* name = nullptr;
    driver.error_name(result, &name);
    say(concat("refused ", result, " ", call, ": ", name != nullptr ? name : "an error without a name", "\n"));
    return false;
  };
  int version = 0, count = 0;
  if (driver.version(&version) == 0) say(concat("version ", version, "\n"));  // needs no cuInit
  if (!works(driver.init(0), "cuInit") || !works(driver.count(&count), "cuDeviceGetCount")) return;
  for (int i = 0; i < count; ++i) {
    int device = 0, major = 0, minor = 0, dma_buf = 0;
    char address[32] = {};
    if (!works(driver.get(&device, i), "cuDeviceGet") ||
        !works(driver.attribute(&major, kComputeCapabilityMajor, device), "cuDeviceGetAttribute") ||
        !works(driver.attribute(&minor, kComputeCapabilityMinor, device), "cuDeviceGetAttribute") ||
        !works(driver.pci_bus_id(address, sizeof address, device), "cuDeviceGetPCIBusId")) {
      return;
    }
    // Drivers before CUDA 11.7 do not know the question.
    if (driver.attribute(&dma_buf, kDmaBufSupported, device) != 0) dma_buf = 0;
    say(concat("gpu ", address, " ", major, " ", minor, " ", dma_buf, "\n"));
  }
}

CudaAnswer understood(const ChildAnswer& child) {
  CudaAnswer answer;
  answer.end = CudaAnswer::End::kAnswered;
  std::istringstream lines(child.said);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string word;
    fields >> word;
    if (word == "version") fields >> answer.version;
    if (word == "library" || word == "refused") {
      answer.end = word == "library" ? CudaAnswer::End::kNoLibrary : CudaAnswer::End::kRefused;
      if (word == "refused") fields >> answer.code;
      std::getline(fields >> std::ws, answer.detail);
    }
    CudaGpu gpu;
    if (word == "gpu" && fields >> gpu.pci_address >> gpu.major >> gpu.minor >> gpu.dma_buf) {
      std::transform(gpu.pci_address.begin(), gpu.pci_address.end(), gpu.pci_address.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      answer.gpus.push_back(gpu);
    }
  }
  if (child.end != ChildAnswer::End::kDone) {
    answer.end = child.end == ChildAnswer::End::kTimedOut ? CudaAnswer::End::kHung : CudaAnswer::End::kDied;
    answer.detail = child.how_it_ended();
  }
  return answer;
}

}  // namespace

void try_open(std::map<std::string, int>& nodes, Duration limit) {
  if (nodes.empty()) return;
  const ChildAnswer answer = ask_child(
      [&](const Say& say) {
        for (const auto& [path, error] : nodes) {
          const UniqueFd opened(::open(path.c_str(), O_RDWR | O_CLOEXEC));
          say(concat(opened ? 0 : errno, "\n"));
        }
      },
      limit);
  std::istringstream numbers(answer.said);
  for (auto& [path, error] : nodes) {
    if (!(numbers >> error)) error = ETIMEDOUT;
  }
}

CudaAnswer ask_cuda(const std::string& library, Duration limit) {
  return understood(ask_child([&](const Say& say) { ask_driver(library, say); }, limit));
}

}  // namespace tcpx::doctor
