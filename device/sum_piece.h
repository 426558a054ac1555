// The arithmetic of a checksum on a GPU (base/byte_sum.h): what one thread of a block adds to the sum of a piece of the string.
// Seen by nvcc too; on the host its test runs it.
//
// The string's words have nothing to do with how memory is aligned: each thread takes every 256th word of the piece, and puts
// it together from the one or two aligned words of memory in which it lies. An aligned word that contains a byte of the piece
// is in the same page as that byte, so it can be read, and no other one is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/host_device.h"

namespace tcpx {

/// Modulo 2^61 - 1, as ByteSumKey computes on the host. Operands are below that.
inline constexpr uint64_t kSumPrime = (uint64_t{1} << 61) - 1;
TCPX_HOST_DEVICE inline uint64_t sum_add(uint64_t a, uint64_t b) {
  const uint64_t sum = a + b;
  return sum >= kSumPrime ? sum - kSumPrime : sum;
}
TCPX_HOST_DEVICE inline uint64_t sum_multiply(uint64_t a, uint64_t b) {
  const uint64_t low = a * b;
#if defined(__CUDA_ARCH__)
  const uint64_t high = __umul64hi(a, b);
#else
  const auto high = static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
#endif
  return sum_add(low & kSumPrime, high << 3 | low >> 61);  // 2^61 is 1
}

/// Bytes of the string that follow each other in memory.
struct SumPiece {
  const std::byte* from;  ///< any alignment
  uint64_t position;      ///< of its first byte in the string
  uint64_t bytes;         ///< at least 1
};

/// Threads of a block: with as many words as a block of ByteSumKey, their factors are its powers.
inline constexpr uint32_t kSumThreads = 256;

/// Words of the string up to this position, the last one included if it is not whole.
TCPX_HOST_DEVICE inline uint64_t words_up_to(uint64_t position) {
  return position / 4 + (position % 4 != 0 ? 1 : 0);
}

/// The words of a piece, as they are in the string; what is before the piece or behind it counts as zero.
class PieceWords {
 public:
  TCPX_HOST_DEVICE explicit PieceWords(const SumPiece& piece)
      : begin_(reinterpret_cast<uintptr_t>(piece.from)),
        end_(begin_ + piece.bytes),
        first_(begin_ - piece.position % 4),
        shift_(static_cast<uint32_t>(first_ % 4) * 8),
        count_(words_up_to(piece.position + piece.bytes) - piece.position / 4) {}

  TCPX_HOST_DEVICE uint64_t count() const { return count_; }
  TCPX_HOST_DEVICE uint32_t operator[](uint64_t i) const {
    const uintptr_t at = first_ + 4 * i, aligned = at - shift_ / 8;
    uint32_t word = join(load_if(aligned), load_if(aligned + 4));
    if (at < begin_) word &= ~uint32_t{0} << (8 * (begin_ - at));
    if (at + 4 > end_) word &= ~uint32_t{0} >> (8 * (at + 4 - end_));
    return word;
  }
  /// The same faster; neither the first word nor the last.
  TCPX_HOST_DEVICE uint32_t inner(uint64_t i) const {
    const uintptr_t aligned = first_ + 4 * i - shift_ / 8;
    return join(load(aligned), shift_ == 0 ? 0 : load(aligned + 4));
  }

 private:
  TCPX_HOST_DEVICE static uint32_t load(uintptr_t at) {
    const auto* const word = reinterpret_cast<const uint32_t*>(at);
#if defined(__CUDA_ARCH__)
    return __ldcg(word);  // not from the cache of a multiprocessor: a checksum is of what the memory has
#else
    return *word;
#endif
  }
  TCPX_HOST_DEVICE uint32_t load_if(uintptr_t at) const { return at + 4 > begin_ && at < end_ ? load(at) : 0; }
  TCPX_HOST_DEVICE uint32_t join(uint32_t low, uint32_t high) const {
    return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> shift_);
  }

  uintptr_t begin_, end_;
  uintptr_t first_;  // where the first word would begin
  uint32_t shift_;   // bits by which words lie behind aligned ones
  uint64_t count_;
};

/// A thread's share of the sum of the piece's words, of which the last one counts once; still to be multiplied with
/// multiplier^(kSumThreads - 1 - thread). Words are counted from the end: where threads lack one, it is in the first round.
/// @param step multiplier^kSumThreads
TCPX_HOST_DEVICE inline uint64_t sum_of_thread(const PieceWords& words, uint32_t thread, uint64_t step) {
  const uint64_t rounds = (words.count() + kSumThreads - 1) / kSumThreads, missing = rounds * kSumThreads - words.count();
  uint64_t sum = thread < missing ? 0 : words[thread - missing];
  uint64_t i = kSumThreads + thread - missing;
#if defined(__CUDA_ARCH__)
#pragma unroll 4  // several loads are under way
#endif
  for (uint64_t round = 2; round < rounds; ++round, i += kSumThreads) sum = sum_add(sum_multiply(sum, step), words.inner(i));
  return rounds > 1 ? sum_add(sum_multiply(sum, step), words[i]) : sum;
}

/// A factor of the power with this exponent; the product of those of 32 threads is the power.
/// @param squares ByteSumKey::squares
TCPX_HOST_DEVICE inline uint64_t power_of_thread(const uint64_t* squares, uint64_t exponent, uint32_t thread) {
  const uint64_t low = (exponent >> thread & 1) != 0 ? squares[thread] : 1;
  return (exponent >> thread >> 32 & 1) != 0 ? sum_multiply(low, squares[thread + 32]) : low;
}

}  // namespace tcpx
