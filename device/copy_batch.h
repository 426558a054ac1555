// Starts many copies on a stream: in one call where the runtime and the driver have one (cudaMemcpyBatchAsync, CUDA 12.8 and
// later), else one by one. Only this class knows the versions of that call.
#pragma once

#include <cstddef>
#include <vector>

#include "device/cuda_handles.h"
#include "tcpx/status.h"

namespace tcpx {

/// Collects copies and starts them. One thread at a time; adding and starting allocate nothing.
///
/// Copies added between two starts are unordered, so none may read or write bytes that another writes; a start as a whole is in
/// stream order.
class CopyBatch {
 public:
  /// @param stream not the legacy default stream, which the batch call does not take; must outlive the batch.
  explicit CopyBatch(StreamView stream);

  /// Sets the memory of the copies added from now on. Starts the waiting ones when they need a different kind of start.
  /// @param to, from any address of the memory. @return as add.
  Status between(const std::byte* to, const std::byte* from);
  /// Adds one copy; if kMostCopies are waiting, starts those first. The stream's device must be current.
  /// @param to, from device memory or host memory, each range within one allocation; `from` is read in stream order.
  /// @param bytes at least 1.
  /// @return kCuda with the native code when copies could not be started. Some of them may run nevertheless.
  Status add(std::byte* to, const std::byte* from, size_t bytes);
  /// Starts all waiting copies. The stream's device must be current.
  /// @return as add.
  Status start();

 private:
  /// Copies per call: enough to make its fixed cost small, few enough for the lists to stay in the cache.
  static constexpr size_t kMostCopies = 2048;

  cudaError_t start_in_one_call();
  cudaError_t start_one_by_one() const;

  const StreamView stream_;
  // Waiting copies, in three lists, because the call takes three.
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<size_t> bytes_;
  bool one_call_ = true;   // until it is refused
  bool pageable_ = false;  // waiting copies read or write host memory that CUDA does not know
};

}  // namespace tcpx
