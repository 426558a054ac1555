// Starts many copies on a stream: in one call where the runtime and the driver have one (cudaMemcpyBatchAsync, CUDA 12.8 and
// later), else one by one. The only file that knows the versions of that call.
#pragma once

#include <cstddef>
#include <vector>

#include "device/cuda_handles.h"
#include "tcpx/status.h"

namespace tcpx {

/// Collects copies and starts them. One thread at a time; adding and starting allocate nothing.
///
/// Copies added between two starts have no order among themselves, so none may read or write what another writes; a start as a
/// whole is in the order of its stream.
class CopyBatch {
 public:
  /// @param stream not the legacy default stream, which the call for many copies does not take; must outlive the batch.
  explicit CopyBatch(StreamView stream);

  /// Says where the copies lie that are added from now on. Starts those that wait when they must start in another way.
  /// @param to, from any address of the memory. @return as add.
  Status between(const std::byte* to, const std::byte* from);
  /// Adds one copy; when kMostCopies are waiting, starts those first. The stream's device must be current.
  /// @param to, from device memory or host memory, each range within one allocation; `from` is read in the order of the stream.
  /// @param bytes at least 1.
  /// @return kCuda with the native code when copies could not be started. Some of them may run all the same.
  Status add(std::byte* to, const std::byte* from, size_t bytes);
  /// Starts every copy that waits. The stream's device must be current.
  /// @return as add.
  Status start();

 private:
  /// Copies per call: enough to make its fixed cost small, few enough for the lists to stay in the cache.
  static constexpr size_t kMostCopies = 2048;

  cudaError_t start_in_one_call();
  cudaError_t start_one_by_one() const;

  const StreamView stream_;
  // What waits. Three lists, because the call takes three.
  std::vector<void*> to_;
  std::vector<const void*> from_;
  std::vector<size_t> bytes_;
  bool one_call_ = true;   // until it is refused
  bool pageable_ = false;  // the copies that wait read or write host memory that CUDA does not know
};

}  // namespace tcpx
