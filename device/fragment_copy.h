// How the threads of one warp copy one fragment between addresses of any alignment: plain arithmetic, shared by the GPU kernel
// and by the host test that proves it.
//
// The destination decides the grid. Its aligned 16-byte words are written whole, each by one thread. Where the source has the
// same alignment, a word is one aligned load. Where it has not, a word is cut out of two neighbouring aligned loads by shifting
// in registers, so memory sees 16-byte accesses in both cases. What is left at the two ends is copied byte by byte.
//
//     source        ..[....|........|........|........|...]..          | every 16 bytes
//     destination   ......[..|........|........|.....]......           [ ] the fragment
//                         head   words            tail
//
// Only bytes of the fragment itself are read or written: an aligned word that reaches outside is left to head or tail, which
// therefore grow by one word when the alignments differ, to 31 and 30 bytes: still one pass of 32 threads.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define TCPX_HOST_DEVICE __host__ __device__
#define TCPX_UNROLL _Pragma("unroll")
#else
#define TCPX_HOST_DEVICE
#define TCPX_UNROLL
#endif

namespace tcpx {

/// The unit of memory traffic.
struct alignas(16) CopyWord {
  uint32_t part[4];
};

inline constexpr uint32_t kCopyWordBytes = sizeof(CopyWord);
/// Loads that a thread starts before it needs the first: they hide the latency of the memory.
inline constexpr uint32_t kLoadsInFlight = 4;

/// head bytes, then `words` aligned destination words, then the remaining bytes.
struct FragmentPlan {
  uint32_t head;
  uint32_t words;
  uint32_t shift;  ///< how far (destination + head)'s source lies behind an aligned source word: 0 ... 15 bytes
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

/// The 16 bytes that begin `shift` (0 ... 15) bytes into the 32 bytes low, high.
TCPX_HOST_DEVICE inline CopyWord shifted_word(const CopyWord& low, const CopyWord& high, uint32_t shift) {
  // By selection, because registers cannot be indexed: first whole parts, two and one, then the bytes within a part.
  const bool two = (shift & 8) != 0;
  const bool one = (shift & 4) != 0;
  const uint32_t bits = shift % 4 * 8;
  const uint32_t a0 = two ? low.part[2] : low.part[0];
  const uint32_t a1 = two ? low.part[3] : low.part[1];
  const uint32_t a2 = two ? high.part[0] : low.part[2];
  const uint32_t a3 = two ? high.part[1] : low.part[3];
  const uint32_t a4 = two ? high.part[2] : high.part[0];
  const uint32_t a5 = two ? high.part[3] : high.part[1];
  const uint32_t b0 = one ? a1 : a0;
  const uint32_t b1 = one ? a2 : a1;
  const uint32_t b2 = one ? a3 : a2;
  const uint32_t b3 = one ? a4 : a3;
  const uint32_t b4 = one ? a5 : a4;
  return CopyWord{
      {shifted_part(b0, b1, bits), shifted_part(b1, b2, bits), shifted_part(b2, b3, bits), shifted_part(b3, b4, bits)}};
}

/// Does the share of thread `lane` of `lanes` in copying `bytes` bytes; all lanes together write every byte exactly once.
/// @tparam kShifts false promises that both addresses are equal modulo 16; the code for shifting is then left out.
/// @tparam Access the memory: load_byte, load_word, store_byte, store_word; word addresses are multiples of 16.
template <bool kShifts, class Access>
TCPX_HOST_DEVICE inline void copy_fragment_share(Access access, std::byte* destination, const std::byte* source, uint32_t bytes,
                                                 uint32_t lane, uint32_t lanes) {
  const FragmentPlan plan = plan_fragment(reinterpret_cast<uintptr_t>(destination), reinterpret_cast<uintptr_t>(source), bytes);
  for (uint32_t i = lane; i < plan.head; i += lanes) access.store_byte(destination + i, access.load_byte(source + i));

  std::byte* const to = destination + plan.head;
  const std::byte* const from = source + plan.head - plan.shift;
  for (uint32_t first = lane; first < plan.words; first += lanes * kLoadsInFlight) {
    CopyWord low[kLoadsInFlight];
    CopyWord high[kLoadsInFlight];
    TCPX_UNROLL
    for (uint32_t u = 0; u < kLoadsInFlight; ++u) {
      const uint32_t i = first + u * lanes;
      if (i >= plan.words) continue;
      low[u] = access.load_word(from + size_t{i} * kCopyWordBytes);
      if (kShifts && plan.shift != 0) high[u] = access.load_word(from + (size_t{i} + 1) * kCopyWordBytes);
    }
    TCPX_UNROLL
    for (uint32_t u = 0; u < kLoadsInFlight; ++u) {
      const uint32_t i = first + u * lanes;
      if (i >= plan.words) continue;
      const CopyWord word = kShifts && plan.shift != 0 ? shifted_word(low[u], high[u], plan.shift) : low[u];
      access.store_word(to + size_t{i} * kCopyWordBytes, word);
    }
  }

  const uint32_t done = plan.head + plan.words * kCopyWordBytes;
  for (uint32_t i = lane; i < bytes - done; i += lanes) {
    access.store_byte(destination + done + i, access.load_byte(source + done + i));
  }
}

/// Neighbouring items: begin, begin + 1, ... begin + count - 1.
struct Stretch {
  uint32_t begin;
  uint32_t count;
};

/// The stretch of `total` items that falls to `part` of `parts`. Counts differ by at most one, the longer ones come first.
TCPX_HOST_DEVICE inline Stretch stretch_of(uint32_t total, uint32_t part, uint32_t parts) {
  const uint32_t least = total / parts;
  const uint32_t longer = total % parts;
  return Stretch{part * least + (part < longer ? part : longer), least + (part < longer ? 1 : 0)};
}

/// The stretch of a fragment's bytes that is `piece` of `pieces`; all but the last end on a whole word, so that every piece has
/// the fragment's alignment. Short fragments leave the last pieces empty.
TCPX_HOST_DEVICE inline Stretch piece_of(uint32_t bytes, uint32_t piece, uint32_t pieces) {
  const uint32_t words = bytes / kCopyWordBytes + (bytes % kCopyWordBytes != 0 ? 1 : 0);
  const Stretch own = stretch_of(words, piece, pieces);
  if (own.count == 0) return Stretch{0, 0};
  const uint32_t begin = own.begin * kCopyWordBytes;
  // The last word of all may be a partial one. Compared in words, because 2^28 of them have more bytes than 32 bits count.
  const uint32_t rest = bytes - begin;
  return Stretch{begin, rest / kCopyWordBytes < own.count ? rest : own.count * kCopyWordBytes};
}

}  // namespace tcpx
