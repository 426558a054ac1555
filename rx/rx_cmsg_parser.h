// From the control bytes of one recvmsg(MSG_SOCK_DEVMEM) to fragments and page tokens. Pure: no socket, no log, no global.
//
// Two dialects exist and nothing in the bytes tells them apart safely, so the caller chooses:
//  - kGoogle: cmsg types 98 (bytes in host memory) and 99 (bytes in device memory), 12-byte records {u32 frag_offset, u32 frag_size,
//    u32 frag_token}. Source: google/nccl-plugin-gpudirecttcpx, src/sock/tcpx.h (process_recv_cmsg) and src/macro.h, 2024.
//  - kLinux: cmsg types 78 and 79, 24-byte `struct dmabuf_cmsg`. Source: torvalds/linux: include/uapi/linux/uio.h,
//    include/uapi/asm-generic/socket.h, Documentation/networking/devmem.rst, 6.12 and later.
//
// A token must go back to the kernel whatever happens to the message, or its page is lost until the socket closes. So every error
// still returns the tokens already seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tcpx/types.h"

namespace tcpx {

enum class CmsgDialect { kGoogle, kLinux };

enum class CmsgError {
  kNone,
  kTruncated,       ///< MSG_CTRUNC was set: the kernel had more records than control space
  kShortHeader,     ///< fewer bytes left than a cmsghdr, or cmsg_len smaller than one
  kShortRecord,     ///< cmsg_len smaller than its record, or beyond the control bytes
  kUnknownType,     ///< SOL_SOCKET message of another type (the other dialect's, perhaps)
  kLinear,          ///< bytes were delivered in host memory: header split is off or the flow is not steered
  kZeroLength,      ///< a fragment of no bytes
  kOverflow,        ///< offset or sum does not fit: pool offset + length past 4 GiB, or more than the message
  kTooMany,         ///< more fragments than kMaxFragments
  kSizeMismatch,    ///< fragments do not add up to what recvmsg returned
  kNoRecord,        ///< bytes were received, but no record says where
};
std::string_view name_of(CmsgError error);

/// Upstream tells which dma-buf; the Google dialect has no such field (0).
struct ParsedCmsg {
  CmsgError error = CmsgError::kNone;
  size_t error_at = 0;  ///< byte offset in the control buffer of the offending message
  std::vector<Fragment> fragments;  ///< dst_off counts from `dst_off` of the input
  std::vector<uint32_t> tokens;     ///< one per device-memory record seen, also when `error` is set
  uint64_t linear_bytes = 0;        ///< bytes that landed in host memory
  uint32_t dmabuf_id = 0;           ///< kLinux: the dma-buf of the first record; others must equal it
};

struct CmsgInput {
  std::span<const std::byte> control;  ///< msg_control, msg_controllen bytes as the kernel left them
  bool control_truncated = false;      ///< msg_flags & MSG_CTRUNC
  uint64_t received_bytes = 0;         ///< what recvmsg returned
  uint64_t dst_off = 0;                ///< where this read begins in the message
  CmsgDialect dialect = CmsgDialect::kLinux;
};

ParsedCmsg parse_rx_cmsg(const CmsgInput& input);

}  // namespace tcpx
