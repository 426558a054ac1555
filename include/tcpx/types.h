// Plain types and limits that every layer shares.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tcpx {

/// Kind of a registered region, as the net-plugin ABI numbers it (NCCL `src/include/plugin/nccl_net.h`, NCCL_PTR_*).
enum class MemoryType : int32_t { kHost = 1, kCuda = 2 };

/// One received fragment: `len` bytes lie at `src_off` of the bounce pool and belong at `dst_off` of the receive buffer.
/// Mirrors `loadMeta` (NCCL `src/device/network/unpack/unpack_defs.h`, v2.19 and later) to the byte.
struct Fragment {
  uint32_t src_off;
  uint32_t len;
  uint64_t dst_off;
  friend bool operator==(const Fragment&, const Fragment&) = default;
};
static_assert(sizeof(Fragment) == 16 && offsetof(Fragment, len) == 4 && offsetof(Fragment, dst_off) == 8);

/// Bounce-pool page, and with it the longest fragment the software plugin makes (NCCL unpack_defs.h, page size).
inline constexpr uint32_t kPageBytes = 4096;
/// Requests in flight per comm and direction (NCCL unpack_defs.h, queue depth).
inline constexpr uint32_t kQueueDepth = 16;
/// Fragments that one request can list (NCCL unpack_defs.h, max pages per slice).
inline constexpr uint32_t kMaxFragments = 2048;
/// Design size of one request; longer transfers are cut into chunks of at most this (NCCL unpack_defs.h, max slice).
inline constexpr uint32_t kMaxRequestBytes = 4u << 20;
/// `src_off` has 32 bits, so no pool is larger.
inline constexpr uint64_t kMaxPoolBytes = uint64_t{1} << 32;
/// No message with a scatter list is larger, so `dst_off` + `len` of a checked fragment is at most this. Ours, and far above
/// kMaxRequestBytes.
inline constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 32;

/// Connection handle: made by listen, shipped out of band, given to connect (NCCL_NET_HANDLE_MAXSIZE).
inline constexpr size_t kHandleBytes = 128;
struct alignas(8) Handle {
  std::array<std::byte, kHandleBytes> bytes{};
  friend bool operator==(const Handle&, const Handle&) = default;
};
static_assert(sizeof(Handle) == kHandleBytes);

}  // namespace tcpx
