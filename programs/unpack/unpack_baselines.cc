#include <cuda_runtime_api.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "programs/unpack/unpack_method.h"

namespace tcpx {
namespace {

/// Values in device memory.
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

std::vector<BaselineEntry> entries_of(const UnpackWorkload& workload) {
  std::vector<BaselineEntry> entries;
  entries.reserve(workload.fragments().size());
  for (const Fragment& f : workload.fragments()) {
    entries.push_back({workload.place().pool + f.src_off, workload.place().destination + f.dst_off, f.len});
  }
  return entries;
}

class WarpLoopMethod final : public UnpackMethod {
 public:
  WarpLoopMethod(WarpLoop kind, uint32_t blocks)
      : UnpackMethod(concat(kind == WarpLoop::kSimple ? "simple" : "NCCL-like", " warp loop, ", blocks, " blocks")),
        kind_(kind),
        blocks_(blocks) {}

  Status prepare(const UnpackWorkload& workload) override { return entries_.assign(entries_of(workload)); }
  Status run(StreamView stream) override {
    return cuda_status(launch_warp_loop(kind_, blocks_, entries_.get(), static_cast<uint32_t>(entries_.size()), stream.get()),
                       "launch warp loop");
  }

 private:
  const WarpLoop kind_;
  const uint32_t blocks_;
  DeviceArray<BaselineEntry> entries_;
};

class ContiguousCopy final : public UnpackMethod {
 public:
  ContiguousCopy() : UnpackMethod("contiguous copy (ceiling)") {}

  Status run(StreamView stream) override {
    const WorkloadPlace& place = workload().place();
    return copy_contiguously(place.destination, place.pool, workload().bytes(), stream);
  }
  bool gathers() const override { return false; }
};

class CopyPerFragment final : public UnpackMethod {
 public:
  CopyPerFragment() : UnpackMethod("one cudaMemcpyAsync per fragment") {}

  Status prepare(const UnpackWorkload& workload) override {
    entries_ = entries_of(workload);
    return Status::ok();
  }
  Status run(StreamView stream) override {
    for (const BaselineEntry& e : entries_) {
      TCPX_RETURN_IF_ERROR(
          cuda_status(cudaMemcpyAsync(e.destination, e.source, e.len, cudaMemcpyDefault, stream.get()), "copy a fragment"));
    }
    return Status::ok();
  }
  bool host_bound() const override { return true; }

 private:
  std::vector<BaselineEntry> entries_;
};

class CubBatch final : public UnpackMethod {
 public:
  CubBatch() : UnpackMethod("cub::DeviceMemcpy::Batched") {}

  Status prepare(const UnpackWorkload& workload) override {
    std::vector<const void*> sources;
    std::vector<void*> destinations;
    std::vector<uint32_t> lengths;
    for (const BaselineEntry& e : entries_of(workload)) {
      sources.push_back(e.source);
      destinations.push_back(e.destination);
      lengths.push_back(e.len);
    }
    TCPX_RETURN_IF_ERROR(sources_.assign(sources));
    TCPX_RETURN_IF_ERROR(destinations_.assign(destinations));
    TCPX_RETURN_IF_ERROR(lengths_.assign(lengths));
    size_t scratch_bytes = 0;
    TCPX_RETURN_IF_ERROR(cuda_status(batched(nullptr, scratch_bytes, nullptr), "size the scratch memory of cub"));
    return scratch_.assign(std::vector<std::byte>(scratch_bytes));
  }
  Status run(StreamView stream) override {
    size_t scratch_bytes = scratch_.size();
    return cuda_status(batched(scratch_.get(), scratch_bytes, stream.get()), "run cub::DeviceMemcpy::Batched");
  }

 private:
  cudaError_t batched(void* scratch, size_t& scratch_bytes, cudaStream_t stream) const {
    return launch_cub_batch(scratch, scratch_bytes, sources_.get(), destinations_.get(), lengths_.get(),
                            static_cast<uint32_t>(lengths_.size()), stream);
  }
  DeviceArray<const void*> sources_;
  DeviceArray<void*> destinations_;
  DeviceArray<uint32_t> lengths_;
  DeviceArray<std::byte> scratch_;
};

}  // namespace

Status copy_contiguously(std::byte* to, const std::byte* from, uint64_t bytes, StreamView stream) {
  return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()), "copy contiguously");
}

std::unique_ptr<UnpackMethod> make_contiguous_copy() {
  return std::make_unique<ContiguousCopy>();
}
std::unique_ptr<UnpackMethod> make_copy_per_fragment() {
  return std::make_unique<CopyPerFragment>();
}
std::unique_ptr<UnpackMethod> make_cub_batch() {
  return std::make_unique<CubBatch>();
}
std::unique_ptr<UnpackMethod> make_warp_loop(WarpLoop kind, uint32_t blocks) {
  return std::make_unique<WarpLoopMethod>(kind, blocks);
}

}  // namespace tcpx
