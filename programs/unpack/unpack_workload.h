// Workloads of bench_unpack: fragments that lie permuted in a large pool and belong side by side in one destination. No CUDA
// here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rx/rx_descriptor.h"
#include "tcpx/status.h"

namespace tcpx {

/// One kind of fragments. Destinations follow each other, so their alignment comes from the length.
struct FragmentKind {
  enum class Source {
    kAligned,  ///< at the begin of a page
    kOff3,     ///< three bytes behind it
    kMixed,    ///< 0 ... 15 bytes behind it, at random
  };
  std::string name;
  uint32_t bytes = 4096;
  Source source = Source::kAligned;
};

/// A gather with its addresses. Addresses are those of the memory that does the work (device addresses on a GPU).
struct WorkloadPlace {
  const std::byte* pool = nullptr;
  uint64_t pool_bytes = 0;
  std::byte* destination = nullptr;
};

class UnpackWorkload {
 public:
  /// `total_bytes` cut into fragments of `kind`, each at a page of its own of the pool while there are enough, in an order drawn
  /// from a fixed seed. Split into blocks of at most kMaxFragments.
  /// @return kInvalidArgument when the pool has not a single page of that length.
  static Result<UnpackWorkload> create(const FragmentKind& kind, uint64_t total_bytes, const WorkloadPlace& place);

  const FragmentKind& kind() const { return kind_; }
  uint64_t bytes() const { return bytes_; }
  const WorkloadPlace& place() const { return place_; }
  std::span<const DescriptorBlock> blocks() const { return blocks_; }
  /// All fragments; `dst_off` counts from the destination of the workload.
  std::span<const Fragment> fragments() const { return fragments_; }

  /// Compares what was gathered with what the pool holds. @param pool, destination copies that the host can read.
  /// @return kMismatch naming the first wrong byte.
  Status check(std::span<const std::byte> pool, std::span<const std::byte> destination) const;

 private:
  FragmentKind kind_;
  uint64_t bytes_ = 0;
  WorkloadPlace place_;
  std::vector<Fragment> fragments_;
  std::vector<DescriptorBlock> blocks_;
};

}  // namespace tcpx
