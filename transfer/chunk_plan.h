// ChunkPlan: cuts a transfer into chunks. Arithmetic only: the plan of a terabyte takes as much memory as that of a byte.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/text.h"
#include "tcpx/status.h"
#include "tcpx/types.h"

namespace tcpx {

/// The part of a transfer that one plugin request moves.
struct Chunk {
  uint64_t index = 0;   ///< 0, 1, ... in the order of the bytes
  uint64_t offset = 0;  ///< bytes from the start of the transfer
  uint32_t bytes = 0;   ///< at most kMaxRequestBytes; 0 only for the single chunk of an empty transfer
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

/// All chunks but the last have the same size. Long transfers can have longer chunks: these move faster and cost less, because a
/// window is a number of chunks, and a transfer of many chunks still begins and ends with a small part of itself. An empty
/// transfer is one chunk of 0 bytes, because the other end still waits for a message.
class ChunkPlan {
 public:
  ChunkPlan() = default;

  /// With several channels, chunks grow only as long as a transfer keeps at least this many of them per channel. A slow channel
  /// then costs no more than its share, because it can leave chunks to the others; that takes chunks that are small beside the
  /// transfer.
  static constexpr uint64_t kManyChunks = 16;
  /// A single channel has no others to leave chunks to. Any transfer of two chunks or more has them doubled once. They grow
  /// further only as long as the transfer keeps this many, because the receiver works on one chunk while the next one travels.
  static constexpr uint64_t kFewChunks = 4;

  /// Makes the plan. All parameters but `transfer_bytes` must be the same at both ends, or messages do not fit what was posted
  /// for them.
  /// @param chunk_bytes 1 ... kMaxRequestBytes
  /// @param longest_bytes chunks are doubled up to this size, at most kMaxRequestBytes; if not above `chunk_bytes`, they never
  /// grow
  /// @param channels number of channels that the transfer is spread over, at least 1
  /// @return kInvalidArgument for a chunk size out of range
  static Result<ChunkPlan> make(uint64_t transfer_bytes, uint64_t chunk_bytes, uint64_t longest_bytes = 0,
                                uint64_t channels = 1) {
    if (chunk_bytes == 0 || chunk_bytes > kMaxRequestBytes || longest_bytes > kMaxRequestBytes) {
      return Status(Code::kInvalidArgument, "plan chunks",
                    concat("chunk of ", std::max(chunk_bytes, longest_bytes), " bytes, must be 1 to ", kMaxRequestBytes));
    }
    ChunkPlan plan;
    plan.transfer_bytes_ = transfer_bytes;
    uint64_t chunks = channels > 1 ? kManyChunks * channels : 1;
    while (2 * chunk_bytes <= longest_bytes && 2 * chunk_bytes * chunks <= transfer_bytes) {
      chunk_bytes *= 2;
      chunks = std::max(chunks, kFewChunks);
    }
    plan.chunk_bytes_ = static_cast<uint32_t>(chunk_bytes);
    return plan;
  }

  uint64_t count() const {
    if (transfer_bytes_ == 0) return 1;
    return transfer_bytes_ / chunk_bytes_ + (transfer_bytes_ % chunk_bytes_ != 0 ? 1 : 0);
  }
  /// @param index below count()
  Chunk operator[](uint64_t index) const {
    const uint64_t offset = index * chunk_bytes_;
    const uint64_t left = transfer_bytes_ - offset;
    return {index, offset, left < chunk_bytes_ ? static_cast<uint32_t>(left) : chunk_bytes_};
  }
  uint64_t transfer_bytes() const { return transfer_bytes_; }

 private:
  uint64_t transfer_bytes_ = 0;
  uint32_t chunk_bytes_ = kMaxRequestBytes;
};

}  // namespace tcpx
