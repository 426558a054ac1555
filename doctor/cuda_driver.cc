// The driver of the GPUs, asked in child processes: one in trouble may hang or crash its caller.
#include <dlfcn.h>
#include <fcntl.h>

#include <cctype>
#include <cerrno>
#include <sstream>

#include "base/text.h"
#include "base/unique_fd.h"
#include "doctor/child_answer.h"
#include "doctor/gpu.h"

namespace tcpx::doctor {
namespace {

// Mirrored from NVIDIA's cuda.h, CUDA 12: enum CUdevice_attribute.
constexpr int kComputeCapabilityMajor = 75, kComputeCapabilityMinor = 76, kDmaBufSupported = 124;

struct Symbol {
  void* address;
  template <class Function>
  operator Function*() const {  // NOLINT: whatever pointer it is stored in
    return reinterpret_cast<Function*>(address);
  }
};

/// The functions of the driver that are asked (cuda.h; CUdevice and CUresult are ints).
struct Driver {
  void* library;
  std::string missing = {};  ///< the first that it does not have
  int (*init)(unsigned flags) = find("cuInit");
  int (*version)(int* version) = find("cuDriverGetVersion");
  int (*count)(int* count) = find("cuDeviceGetCount");
  int (*get)(int* device, int ordinal) = find("cuDeviceGet");
  int (*attribute)(int* value, int attribute, int device) = find("cuDeviceGetAttribute");
  int (*pci_bus_id)(char* text, int bytes, int device) = find("cuDeviceGetPCIBusId");
  int (*error_name)(int error, const char** name) = find("cuGetErrorName");

  Symbol find(const char* name) {
    const Symbol symbol{::dlsym(library, name)};
    if (symbol.address == nullptr && missing.empty()) missing = name;
    return symbol;
  }
};

// The child's answer, line by line: "refused REASON", "failed CODE CALL: NAME", "version N", "gpu PCI MAJOR MINOR DMABUF".

void ask_driver(const std::string& path, const Say& say) {
  void* const library = open_library(path, say);
  if (library == nullptr) return;
  const Driver driver{library};
  if (!driver.missing.empty()) return say(concat("refused ", path, " lacks ", driver.missing, "\n"));
  const auto works = [&](int result, const char* call) {
    if (result == 0) return true;
    const char* name = nullptr;
    driver.error_name(result, &name);
    say(concat("failed ", result, " ", call, ": ", name != nullptr ? name : "an error without a name", "\n"));
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
  const ChildAnswer child = ask_child([&](const Say& say) { ask_driver(library, say); }, limit);
  CudaAnswer answer;
  answer.end = LibraryAnswer::End::kAnswered;
  for (const auto& [word, rest] : child.lines()) {
    std::istringstream fields(rest);
    if (word == "version") fields >> answer.version;
    if (word == "failed") fields >> answer.code;
    if (word == "refused" || word == "failed") {
      answer.end = LibraryAnswer::End::kRefused;
      std::getline(fields >> std::ws, answer.detail);
    }
    CudaGpu gpu;
    if (word != "gpu" || !(fields >> gpu.pci_address >> gpu.major >> gpu.minor >> gpu.dma_buf)) continue;
    for (char& c : gpu.pci_address) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    answer.gpus.push_back(gpu);
  }
  answer.note_bad_end(child);
  return answer;
}

}  // namespace tcpx::doctor
