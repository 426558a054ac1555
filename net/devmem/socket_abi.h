// Options that device-memory TCP adds to sockets, which the headers of older systems lack.
//
// torvalds/linux: include/uapi/asm-generic/socket.h (SO_DEVMEM_DONTNEED, SCM_DEVMEM_DMABUF), include/linux/socket.h
// (MSG_SOCK_DEVMEM), include/uapi/linux/uio.h (struct dmabuf_token), net/core/sock.c (MAX_DONTNEED_TOKENS, MAX_DONTNEED_FRAGS),
// include/linux/errno.h (ETOOSMALL); receiving since 6.12, sending since 6.16. alpha, mips, parisc and sparc have other numbers
// and are not supported. The records of recvmsg are in rx/rx_cmsg_parser.cc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tcpx::devmem {

inline constexpr int kScmDevmemDmabuf = 79;
inline constexpr int kSoDevmemDontneed = 80;
inline constexpr int kMsgSockDevmem = 0x2000000;
inline constexpr size_t kRecordBytes = 40;  // of control space: a header and a record
inline constexpr int kTooSmall = 525;       // the errno ETOOSMALL, which no C library names

/// A range of tokens to give back.
struct TokenRange {
  uint32_t start;
  uint32_t count;
};
static_assert(sizeof(TokenRange) == 8 && offsetof(TokenRange, count) == 4);

// Limits of one call. With more ranges it fails; with more tokens it gives back so many and says so.
inline constexpr size_t kMostRanges = 128;
inline constexpr size_t kMostTokens = 1024;

}  // namespace tcpx::devmem
