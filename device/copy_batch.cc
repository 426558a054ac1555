#include "device/copy_batch.h"

#include "base/log.h"

namespace tcpx {
namespace {

bool is_pageable(const void* address) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, address) == cudaSuccess) return attributes.type == cudaMemoryTypeUnregistered;
  [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
  return true;  // unknown memory
}

}  // namespace

CopyBatch::CopyBatch(StreamView stream) : stream_(stream) {
  to_.reserve(kMostCopies);
  from_.reserve(kMostCopies);
  bytes_.reserve(kMostCopies);
}

Status CopyBatch::between(const std::byte* to, const std::byte* from) {
  const bool pageable = is_pageable(to) || is_pageable(from);
  if (pageable != pageable_) TCPX_RETURN_IF_ERROR(start());
  pageable_ = pageable;
  return Status::ok();
}

Status CopyBatch::add(std::byte* to, const std::byte* from, size_t bytes) {
  if (to_.size() == kMostCopies) TCPX_RETURN_IF_ERROR(start());
  to_.push_back(to);
  from_.push_back(from);
  bytes_.push_back(bytes);
  return Status::ok();
}

Status CopyBatch::start() {
  if (to_.empty()) return Status::ok();
  // The one call takes pageable memory too, but with a few such calls in flight the process ended by a segmentation fault inside
  // the driver (580.159).
  cudaError_t error = one_call_ && !pageable_ ? start_in_one_call() : cudaErrorNotSupported;
  // Copies that a refused call has started nevertheless are merely made twice.
  if (error != cudaSuccess) error = start_one_by_one();
  to_.clear();
  from_.clear();
  bytes_.clear();
  return cuda_status(error, "start copies");
}

cudaError_t CopyBatch::start_in_one_call() {
#if CUDART_VERSION >= 12080
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first_with_attributes = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t error = cudaMemcpyBatchAsync(to_.data(), from_.data(), bytes_.data(), to_.size(), &attributes,
                                                 &first_with_attributes, 1, stream_.get());
#else
  size_t failed = 0;
  const cudaError_t error = cudaMemcpyBatchAsync(to_.data(), const_cast<void**>(from_.data()), bytes_.data(), to_.size(),
                                                 &attributes, &first_with_attributes, 1, &failed, stream_.get());
#endif
#else
  const cudaError_t error = cudaErrorNotSupported;
#endif
  if (error == cudaSuccess) return error;
  // A driver older than the call, or memory that it does not take. Either would recur, and copies one by one are merely slower;
  // an error not specific to the call comes back from them.
  [[maybe_unused]] const cudaError_t cleared = cudaGetLastError();
  log(LogLevel::kDebug, "copies start one by one, because one call for many is refused: ", cudaGetErrorName(error));
  one_call_ = false;
  return error;
}

cudaError_t CopyBatch::start_one_by_one() const {
  cudaError_t error = cudaSuccess;
  for (size_t i = 0; i < to_.size() && error == cudaSuccess; ++i) {
    // cudaMemcpyDefault, because the runtime knows the kind of memory: a pool may be the GPU's or pinned host memory.
    error = cudaMemcpyAsync(to_[i], from_[i], bytes_[i], cudaMemcpyDefault, stream_.get());
  }
  return error;
}

}  // namespace tcpx
