// Copy of one fragment by the 32 lanes of a warp between addresses of any alignment: plain arithmetic, shared by the GPU
// kernels and by the host test that proves it.
//
// The destination defines the grid. Its aligned 16-byte words are written whole, each by one lane. If the source has the same
// alignment, a word is one aligned load. If not, a word is cut out of two adjacent source words by shifting in registers, and a
// lane gets the second of them from its neighbour: memory sees every byte once, in 16-byte accesses. The rest at the two ends
// is copied byte by byte.
//
//     source        ..[....|........|........|........|...]..          | every 16 bytes
//     destination   ......[..|........|........|.....]......           [ ] the fragment
//                         head   words            tail
//
// Only bytes of the fragment itself are read or written: an aligned word that extends beyond it is left to head or tail, which
// therefore grow by one word when the alignments differ, to 31 and 30 bytes: still one pass of 32 lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/host_device.h"

#if defined(__CUDACC__)
#define TCPX_UNROLL _Pragma("unroll")
#else
#define TCPX_UNROLL
#endif

namespace tcpx {

/// The unit of memory traffic.
struct alignas(16) CopyWord {
  uint32_t part[4];
};

inline constexpr uint32_t kCopyWordBytes = sizeof(CopyWord);
inline constexpr uint32_t kWarpThreads = 32;
/// Bytes that a warp moves with one load and one store.
inline constexpr uint32_t kRowBytes = kWarpThreads * kCopyWordBytes;

/// head bytes, then `words` aligned destination words, then the remaining bytes.
struct FragmentPlan {
  uint32_t head;
  uint32_t words;
  uint32_t shift;  ///< offset of (destination + head)'s source from an aligned source word: 0 ... 15 bytes
};

/// @param destination, source addresses; only their low four bits matter.
TCPX_HOST_DEVICE inline FragmentPlan plan_fragment(uintptr_t destination, uintptr_t source, uint32_t bytes) {
  FragmentPlan plan{};
  plan.head = static_cast<uint32_t>(0 - destination) % kCopyWordBytes;
  plan.shift = static_cast<uint32_t>(source + plan.head) % kCopyWordBytes;
  // The first source word begins `shift` bytes before the first destination word's data: inside the fragment if head covers that.
  if (plan.head < plan.shift) plan.head += kCopyWordBytes;
  if (bytes < plan.head + kCopyWordBytes) return FragmentPlan{bytes, 0, 0};
  const uint32_t rest = bytes - plan.head;
  // Shifted words read one source word more than they write, which must end inside the fragment: 16 (words + 1) <= rest + shift.
  plan.words = (plan.shift == 0 ? rest : rest - (kCopyWordBytes - plan.shift)) / kCopyWordBytes;
  return plan;
}

/// Four bytes that begin `bits` (0 ... 24) into low, high. Little-endian.
TCPX_HOST_DEVICE inline uint32_t shifted_part(uint32_t low, uint32_t high, uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __funnelshift_r(low, high, bits);
#else
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> bits);
#endif
}

/// Part `kAt` (0 ... 7) of the 32 bytes low, high. By template, because registers cannot be indexed.
template <uint32_t kAt>
TCPX_HOST_DEVICE inline uint32_t part_of(const CopyWord& low, const CopyWord& high) {
  return kAt < 4 ? low.part[kAt % 4] : high.part[kAt % 4];
}

/// The 16 bytes that begin `kParts` parts and `bits` (0, 8, 16 or 24) bits into the 32 bytes low, high.
template <uint32_t kParts>
TCPX_HOST_DEVICE inline CopyWord cut_word(const CopyWord& low, const CopyWord& high, uint32_t bits) {
  return CopyWord{{shifted_part(part_of<kParts>(low, high), part_of<kParts + 1>(low, high), bits),
                   shifted_part(part_of<kParts + 1>(low, high), part_of<kParts + 2>(low, high), bits),
                   shifted_part(part_of<kParts + 2>(low, high), part_of<kParts + 3>(low, high), bits),
                   shifted_part(part_of<kParts + 3>(low, high), part_of<kParts + 4>(low, high), bits)}};
}

/// One round: copies `words` (1 ... 32 kRows) words of equal alignment. See copy_fragment for `Warp`.
template <uint32_t kRows, class Warp>
TCPX_HOST_DEVICE inline void copy_round(Warp& warp, std::byte* to, const std::byte* from, uint32_t words) {
  typename Warp::Row row[kRows];
  TCPX_UNROLL
  for (uint32_t u = 0; u < kRows; ++u) row[u] = warp.load_row(from, u, words);
  TCPX_UNROLL
  for (uint32_t u = 0; u < kRows; ++u) warp.store_row(to, u, words, row[u]);
}

/// The same for data that lies `kParts` parts and `bits` bits after the source words. Reads words + 1 source words, each once:
/// the other half of a lane's word was loaded by its neighbour.
template <uint32_t kRows, uint32_t kParts, class Warp>
TCPX_HOST_DEVICE inline void copy_shifted_round(Warp& warp, std::byte* to, const std::byte* from, uint32_t words, uint32_t bits) {
  typename Warp::Row row[kRows + 1];
  TCPX_UNROLL
  for (uint32_t u = 0; u <= kRows; ++u) row[u] = warp.load_row(from, u, words + 1);
  TCPX_UNROLL
  for (uint32_t u = 0; u < kRows; ++u) {
    warp.store_row(to, u, words, warp.template shifted_row<kParts>(row[u], row[u + 1], bits));
  }
}

/// Rounds for any number of words, from 1. Full ones have a constant number of words, and so no conditions.
/// @tparam kOneLoop for both kinds of rounds. The compiler optimises the two forms differently: one loop is faster without
///         shifting (190 against 182 GB/s with four blocks on an H200), two are with it (157 against 130).
template <bool kOneLoop, uint32_t kRows, class Round>
TCPX_HOST_DEVICE inline void copy_in_rounds(std::byte* to, const std::byte* from, uint32_t words, Round&& round) {
  constexpr uint32_t kFull = kRows * kWarpThreads;
  if constexpr (kOneLoop) {
    for (;;) {
      if (words >= kFull) {
        round(to, from, kFull);
      } else {
        round(to, from, words);
      }
      if (words <= kFull) return;
      words -= kFull;
      to += kRows * kRowBytes;
      from += kRows * kRowBytes;
    }
  } else {
    for (; words >= kFull; words -= kFull) {
      round(to, from, kFull);
      to += kRows * kRowBytes;
      from += kRows * kRowBytes;
    }
    if (words != 0) round(to, from, words);
  }
}

template <uint32_t kRows, uint32_t kParts, class Warp>
TCPX_HOST_DEVICE inline void copy_shifted_words(Warp& warp, std::byte* to, const std::byte* from, uint32_t words, uint32_t bits) {
  copy_in_rounds<false, kRows>(to, from, words, [&](std::byte* t, const std::byte* f, uint32_t count) {
    copy_shifted_round<kRows, kParts>(warp, t, f, count, bits);
  });
}

/// Copies `bytes` bytes with the 32 lanes of a warp; every byte is read and written once.
/// @tparam kShifts false promises that both addresses are equal modulo 16; the code for shifting is then left out.
/// @tparam kRows rows of 32 words whose loads start before the first store: they hide the latency of the memory.
/// @tparam Warp the lanes and the memory. Row and Bytes hold a word and a byte per lane.
///   Bytes load_bytes(from, count), void store_bytes(to, count, Bytes): lane l moves byte l if l < count;
///   Row load_row(from, row, count), void store_row(to, row, count, Row): lane l moves word i = 32 row + l if i < count; word
///   addresses are multiples of 16;
///   Row shifted_row<kParts>(low, above, bits): cut_word of each lane's word in `low` and of the next lane's, the last lane
///   taking lane 0's of `above`.
template <bool kShifts, uint32_t kRows, class Warp>
TCPX_HOST_DEVICE inline void copy_fragment(Warp& warp, std::byte* destination, const std::byte* source, uint32_t bytes) {
  const FragmentPlan plan = plan_fragment(reinterpret_cast<uintptr_t>(destination), reinterpret_cast<uintptr_t>(source), bytes);
  if (plan.words == 0) {  // at most 46 bytes
    for (uint32_t at = 0; at < bytes; at += kWarpThreads) {
      warp.store_bytes(destination + at, bytes - at, warp.load_bytes(source + at, bytes - at));
    }
    return;
  }
  // Both ends are loaded before the words and stored after them: one latency for a whole short fragment instead of three.
  const uint32_t done = plan.head + plan.words * kCopyWordBytes;
  const typename Warp::Bytes head = warp.load_bytes(source, plan.head);
  const typename Warp::Bytes tail = warp.load_bytes(source + done, bytes - done);

  std::byte* const to = destination + plan.head;
  const std::byte* const from = source + plan.head - plan.shift;
  const uint32_t bits = plan.shift % 4 * 8;
  if (!kShifts || plan.shift == 0) {
    copy_in_rounds<!kShifts, kRows>(
        to, from, plan.words, [&](std::byte* t, const std::byte* f, uint32_t count) { copy_round<kRows>(warp, t, f, count); });
  } else if (plan.shift < 4) {
    copy_shifted_words<kRows, 0>(warp, to, from, plan.words, bits);
  } else if (plan.shift < 8) {
    copy_shifted_words<kRows, 1>(warp, to, from, plan.words, bits);
  } else if (plan.shift < 12) {
    copy_shifted_words<kRows, 2>(warp, to, from, plan.words, bits);
  } else {
    copy_shifted_words<kRows, 3>(warp, to, from, plan.words, bits);
  }

  warp.store_bytes(destination, plan.head, head);
  warp.store_bytes(destination + done, bytes - done, tail);
}

/// Neighbouring items: begin, begin + 1, ... begin + count - 1.
struct Stretch {
  uint32_t begin;
  uint32_t count;
};

/// The stretch of a fragment's bytes that is `piece` of 2^pieces_log2; pieces differ by at most one word, and all but the last
/// end on a whole word, so that every piece has the fragment's alignment. Short fragments leave the last pieces empty.
TCPX_HOST_DEVICE inline Stretch piece_of(uint32_t bytes, uint32_t piece, uint32_t pieces_log2) {
  const uint32_t words = bytes / kCopyWordBytes + (bytes % kCopyWordBytes != 0 ? 1 : 0);
  const uint32_t least = words >> pieces_log2;
  const uint32_t longer = words & ((1u << pieces_log2) - 1);  // as many first pieces have one word more
  const uint32_t count = least + (piece < longer ? 1 : 0);
  if (count == 0) return Stretch{0, 0};
  const uint32_t begin = (piece * least + (piece < longer ? piece : longer)) * kCopyWordBytes;
  // The very last word may be a partial one. Compared in words, because the bytes of 2^28 words overflow 32 bits.
  const uint32_t rest = bytes - begin;
  return Stretch{begin, rest / kCopyWordBytes < count ? rest : count * kCopyWordBytes};
}

}  // namespace tcpx
