// From the control bytes of one recvmsg(MSG_SOCK_DEVMEM) to fragments and page tokens. Pure: no socket, no log, no global.
//
// Two dialects exist and nothing in the bytes tells them apart safely, so the caller chooses:
//  - kGoogle: cmsg types 98 (bytes in host memory) and 99 (bytes in device memory), 12-byte records.
//  - kLinux: cmsg types 78 and 79, 24-byte records.
// Their layouts, with sources, are in rx_cmsg_parser.cc.
//
// A token must go back to the kernel whatever happens to the message, or its page is lost until the socket closes. So an error
// does not end the walk: every device-memory record that is complete yields its token, as long as the next message can still be
// found.
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
  kTruncated,     ///< MSG_CTRUNC was set: the kernel had more records than control space. Reported before its consequences
  kShortHeader,   ///< fewer bytes left than a cmsghdr, or cmsg_len smaller than one: no later message can be found
  kShortRecord,   ///< cmsg_len smaller than its record, or beyond the control bytes (then no later message can be found)
  kUnknownType,   ///< SOL_SOCKET message of another type (the other dialect's, perhaps). Messages of other levels are skipped
  kLinear,        ///< bytes were delivered in host memory: header split is off or the flow is not steered. Not with takes_linear
  kZeroLength,    ///< a fragment of no bytes
  kOverflow,      ///< pool offset or its end past 4 GiB, more bytes than recvmsg returned, or dst_off wraps
  kTooMany,       ///< more fragments than kMaxFragments
  kMixedDmabufs,  ///< kLinux: records of two dma-bufs, whose offsets count from different bases
  kSizeMismatch,  ///< fragments add up to fewer bytes than recvmsg returned
  kNoRecord,      ///< bytes were received, but no record says where. Not with takes_linear
};
/// "truncated", "short header", ...
std::string_view name_of(CmsgError error);

struct CmsgInput {
  std::span<const std::byte> control;  ///< msg_control, msg_controllen bytes as the kernel left them; any alignment
  bool control_truncated = false;      ///< msg_flags & MSG_CTRUNC
  uint64_t received_bytes = 0;         ///< return value of recvmsg; 0 without records is the end of the stream and no error
  uint64_t dst_off = 0;                ///< offset of this read in the message
  CmsgDialect dialect = CmsgDialect::kLinux;
  /// The caller has given recvmsg host memory, and takes bytes that arrive there. A read without any record is then one of host
  /// memory alone.
  bool takes_linear = false;
};

struct ParsedCmsg {
  CmsgError error = CmsgError::kNone;  ///< the first one in the order of the bytes
  size_t error_at = 0;  ///< offset of the offending message in `control`, or its size when no single message is at fault
  /// Ascending, tiling [dst_off, dst_off + received_bytes), with takes_linear together with `linear`. Empty when `error` is set.
  std::vector<Fragment> fragments;
  std::vector<Fragment> linear;     ///< with takes_linear: their src_off counts from the host memory that recvmsg was given
  std::vector<uint32_t> tokens;     ///< one per complete device-memory record, also when `error` is set
  uint64_t linear_bytes = 0;        ///< bytes that landed in host memory
  uint32_t dmabuf_id = 0;           ///< kLinux: the buffer that `src_off` counts from; kGoogle has no such field
};

ParsedCmsg parse_rx_cmsg(const CmsgInput& input);

}  // namespace tcpx
