// Values in device memory, for the baselines.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "device/cuda_handles.h"

namespace tcpx::bench {

template <class T>
class DeviceArray {
 public:
  /// Replaces the content by a copy of `values`, on the current device; waits for it.
  Status assign(const std::vector<T>& values) {
    memory_.reset();
    size_ = 0;
    if (values.empty()) return Status::ok();
    void* memory = nullptr;
    TCPX_RETURN_IF_ERROR(cuda_status(cudaMalloc(&memory, values.size() * sizeof(T)), "allocate device memory"));
    memory_.reset(static_cast<T*>(memory));
    TCPX_RETURN_IF_ERROR(
        cuda_status(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "fill device memory"));
    size_ = values.size();
    return Status::ok();
  }
  T* get() const { return memory_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* memory) const { report_cuda_failure(cudaFree(memory), "free device memory"); }
  };
  std::unique_ptr<T, Free> memory_;
  size_t size_ = 0;
};

}  // namespace tcpx::bench
