// Launches the kernels that copy segments, and defines the memory that one of them shares with the host. Seen by nvcc too, which
// compiles it as C++17.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tcpx {

/// A part of a segment, copied by one warp. bytes may be 0.
struct KernelSegment {
  std::byte* to;
  const std::byte* from;
  uint64_t bytes;  ///< below 2^32
};
inline constexpr uint32_t kKernelSegmentWords = 3;  // of 8 bytes
static_assert(sizeof(KernelSegment) == 8 * kKernelSegmentWords && offsetof(KernelSegment, bytes) == 16);

/// Starts copying on `stream`, whose device is current.
/// @param segments addressed by the GPU; must stay valid until the kernel has finished. @param count from 1.
cudaError_t launch_copy_segments(const KernelSegment* segments, uint32_t count, cudaStream_t stream);

/// Path of a short message through a ResidentBox.
enum class ResidentMode : uint32_t {
  kCopy,       ///< the kernel copies from `from` to `to`
  kInRequest,  ///< the request holds the bytes
  kInAnswer,   ///< the answer will hold the bytes; the host stores them in place
};

/// Eight bytes of which four tell whether the other four have arrived. GPU and host read and write them as one, so the reader
/// needs neither a flag after the data nor a fence before it.
struct alignas(8) TaggedWord {
  uint32_t data;
  uint32_t tag;
};

inline constexpr uint32_t kResidentWords = 64;
/// Data words of a request: address to (low, high), address from (low, high), bytes, mode; the rest is payload.
inline constexpr uint32_t kRequestHeaderWords = 6;
inline constexpr uint32_t kMostBytesInRequest = (kResidentWords - kRequestHeaderWords) * 4;
inline constexpr uint32_t kMostBytesInAnswer = kResidentWords * 4;

/// Request and answer carry the request's number as the tag of each word.
struct alignas(128) ResidentBox {
  TaggedWord request[kResidentWords];
  TaggedWord answer[kResidentWords];
};
/// Request n uses box n % kResidentBoxes.
inline constexpr uint32_t kResidentBoxes = 8;

/// Mapped host memory. The host writes requests; the kernel writes everything else.
struct ResidentMemory {
  ResidentBox boxes[kResidentBoxes];
  alignas(128) uint32_t done;     ///< number of the newest request whose bytes are in place (or in the answer)
  alignas(128) uint32_t started;  ///< number of the newest launch that runs
  alignas(128) uint32_t gone;     ///< number of the newest launch that no longer takes requests
};

struct ResidentLaunch {
  ResidentMemory* memory;
  uint32_t launch;       ///< this launch's number
  uint32_t request;      ///< the first request's number
  uint64_t patience_ns;  ///< exits when no request came for this long,
  uint64_t life_ns;      ///< and after this long in any case
};
/// Starts one block that serves requests in the order of their numbers until one of its time limits is reached.
cudaError_t launch_resident_copier(const ResidentLaunch& launch, cudaStream_t stream);

/// Loads the kernels' code onto the current device (see load_unpack_kernels).
cudaError_t load_segment_kernels();

}  // namespace tcpx
