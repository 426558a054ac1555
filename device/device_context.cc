#include "device/device_context.h"

#include <cuda.h>
#include <cudaTypedefs.h>

#include <array>
#include <atomic>

#include "base/text.h"
#include "device/cuda_handles.h"
#include "device/driver_entry.h"

namespace tcpx {
namespace {

constexpr int kMostDevices = 64;

struct Driver {
  PFN_cuCtxGetCurrent_v4000 current = find_driver_function<PFN_cuCtxGetCurrent_v4000>("cuCtxGetCurrent", 4000);
  PFN_cuCtxPushCurrent_v4000 push = find_driver_function<PFN_cuCtxPushCurrent_v4000>("cuCtxPushCurrent", 4000);
  PFN_cuCtxPopCurrent_v4000 pop = find_driver_function<PFN_cuCtxPopCurrent_v4000>("cuCtxPopCurrent", 4000);
  PFN_cuDevicePrimaryCtxRetain_v7000 retain =
      find_driver_function<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain", 7000);
  bool is_complete() const { return current != nullptr && push != nullptr && pop != nullptr && retain != nullptr; }
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

std::array<std::atomic<CUcontext>, kMostDevices> contexts{};  // of the devices, once retained
std::atomic<CUcontext> last_entered{};

Status driver_status(CUresult result, const char* operation) {
  return cuda_status(static_cast<cudaError_t>(result), operation);  // the numbers are the same
}

// It does not matter how often a context is retained, as it is never released.
Result<CUcontext> retain_context(int device) {
  CUcontext context = nullptr;
  TCPX_RETURN_IF_ERROR(driver_status(driver().retain(&context, device), "make a context"));
  contexts[static_cast<size_t>(device)].store(context, std::memory_order_release);
  return context;
}

CUcontext current_context() {
  CUcontext context = nullptr;
  return driver().current(&context) == CUDA_SUCCESS ? context : nullptr;
}

void leave() {
  CUcontext left = nullptr;
  [[maybe_unused]] const CUresult popped = driver().pop(&left);
}

}  // namespace

Result<EnteredDevice> enter_device(int device) {
  constexpr const char* kOperation = "select device";
  if (!driver().is_complete()) return Status(Code::kUnsupported, kOperation, "the driver lacks a function that this takes");
  if (device < 0 || device >= kMostDevices) return Status(Code::kInvalidArgument, kOperation, concat("no GPU ", device));
  CUcontext context = contexts[static_cast<size_t>(device)].load(std::memory_order_acquire);
  if (context != nullptr && current_context() == context) return EnteredDevice();
  // One that is known is gone if the application has reset the device since.
  if (context == nullptr || driver().push(context) != CUDA_SUCCESS) {
    TCPX_ASSIGN_OR_RETURN(context, retain_context(device));
    TCPX_RETURN_IF_ERROR(driver_status(driver().push(context), kOperation));
  }
  last_entered.store(context, std::memory_order_release);
  return EnteredDevice(leave);
}

EnteredDevice enter_any_device() {
  const CUcontext context = last_entered.load(std::memory_order_acquire);
  if (context == nullptr || current_context() != nullptr || driver().push(context) != CUDA_SUCCESS) return EnteredDevice();
  return EnteredDevice(leave);
}

}  // namespace tcpx
