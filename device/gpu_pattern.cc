#include "device/gpu_pattern.h"

#include "device/cuda_handles.h"
#include "device/gpu_presence.h"
#include "device/pattern_kernels.h"

namespace tcpx {
namespace {

class CudaPattern final : public GpuPattern {
 public:
  CudaPattern(int device, Stream stream, MemoryBuffer check, std::unique_ptr<CopyLane> lane)
      : device_(device), stream_(std::move(stream)), check_(std::move(check)), lane_(std::move(lane)) {}

  Status fill(std::byte* data, size_t bytes, uint64_t seed, uint64_t offset) override {
    TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device_));
    TCPX_RETURN_IF_ERROR(
        cuda_status(launch_pattern_fill(data, bytes, seed, offset, stream_.view().get()), "fill with a pattern"));
    return stream_.view().synchronize();
  }

  Result<PatternCheck> check(const std::byte* data, size_t bytes, uint64_t seed, uint64_t offset) override {
    TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device_));
    PatternCheck found{0, UINT64_MAX};
    TCPX_RETURN_IF_ERROR(lane_->copy(check_.device(), &found, sizeof found));
    auto* const on_device = reinterpret_cast<PatternCheck*>(check_.device());
    TCPX_RETURN_IF_ERROR(
        cuda_status(launch_pattern_check(data, bytes, seed, offset, on_device, stream_.view().get()), "check a pattern"));
    TCPX_RETURN_IF_ERROR(stream_.view().synchronize());
    TCPX_RETURN_IF_ERROR(lane_->copy(&found, check_.device(), sizeof found));
    if (found.wrong == 0) found.first_wrong = 0;
    return found;
  }

 private:
  const int device_;
  const Stream stream_;
  const MemoryBuffer check_;
  const std::unique_ptr<CopyLane> lane_;
};

}  // namespace

Result<std::unique_ptr<GpuPattern>> GpuPattern::create(int device, MemoryOps& memory) {
  if (!gpu_count().is_ok()) return gpu_count().status();
  if (!memory.has_gpu()) return Status(Code::kUnsupported, "fill with a pattern", "host memory stands in for device memory");
  TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device));
  TCPX_ASSIGN_OR_RETURN(Stream stream, Stream::create());
  TCPX_ASSIGN_OR_RETURN(MemoryBuffer check, memory.allocate_device(device, sizeof(PatternCheck)));
  TCPX_ASSIGN_OR_RETURN(std::unique_ptr<CopyLane> lane, memory.make_copy_lane(device));
  return std::unique_ptr<GpuPattern>(std::make_unique<CudaPattern>(device, std::move(stream), std::move(check), std::move(lane)));
}

Result<uint64_t> free_gpu_bytes(int device) {
  if (!gpu_count().is_ok()) return gpu_count().status();
  TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device));
  size_t free_bytes = 0, all_bytes = 0;
  TCPX_RETURN_IF_ERROR(cuda_status(cudaMemGetInfo(&free_bytes, &all_bytes), "ask for free GPU memory"));
  return uint64_t{free_bytes};
}

}  // namespace tcpx
