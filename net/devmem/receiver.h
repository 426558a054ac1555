// Receives on a TCP socket whose packets a NIC puts into a bounce pool: a dma-buf that is bound to the socket's receive queue
// (net/devmem/netdev.h).
//
// A read tells where its bytes are, in two lists that tile the read: fragments in the pool, and linear fragments in host
// memory. The latter are those of packets that the NIC has not split into header and payload, or that came by another queue:
// the first of a connection, some of those sent twice. A few are ordinary; many say that header split or flow steering is
// wrong.
//
// The kernel's word is trusted no more than what a plugin tells: a fragment of another dma-buf or beyond the pool's end is
// the end of the connection, and so is an error. The tokens of a read that failed are given back at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "net/devmem/netdev.h"
#include "net/devmem/socket_abi.h"
#include "net/devmem/socket_calls.h"
#include "net/devmem/token_ledger.h"
#include "tcpx/status.h"
#include "tcpx/types.h"

namespace tcpx::devmem {

/// Places of the bytes of one read.
struct DevmemRead {
  uint64_t bytes = 0;               ///< 0: the peer sends no more
  std::vector<Fragment> fragments;  ///< src_off counts from the pool
  std::vector<Fragment> linear;     ///< src_off counts from the host memory that was given
};

struct ReceiveCounts {
  uint64_t reads = 0;      ///< that brought bytes
  uint64_t fragments = 0;  ///< in the pool
  uint64_t pool_bytes = 0;
  uint64_t linear_bytes = 0;  ///< in host memory, and to be copied
  void add(const ReceiveCounts& others) {
    reads += others.reads;
    fragments += others.fragments;
    pool_bytes += others.pool_bytes;
    linear_bytes += others.linear_bytes;
  }
};

/// One socket's receiving side. One thread at a time.
class DevmemReceiver {
 public:
  /// @param fd a non-blocking TCP socket, which must stay open as long as this
  DevmemReceiver(SocketCalls& calls, int fd, const BoundDmabuf& pool) : calls_(calls), fd_(fd), pool_(pool), tokens_(calls, fd) {}

  /// Reads once. nullopt: nothing has come. A failure is final.
  /// @param room host memory for linear fragments. A read is never longer, although most bytes do not land there
  /// @param dst_off offset of this read in the message
  Result<std::optional<DevmemRead>> receive(std::span<std::byte> room, uint64_t dst_off);

  /// Nobody reads the `count` oldest fragments any longer, of those that were received and not consumed: their pages may be
  /// filled again.
  Status consumed(size_t count) { return tokens_.give_back(count); }
  /// The same of the `count` newest.
  Status copied(size_t count) { return tokens_.give_back_newest(count); }
  /// Lets the NIC have all pages of which this was said.
  Status flush() { return tokens_.flush(); }

  const ReceiveCounts& counts() const { return counts_; }
  /// Calls that have given pages back.
  uint64_t give_backs() const { return tokens_.calls(); }
  /// Fragments whose pages the NIC has not got back.
  size_t held() const { return tokens_.held(); }

 private:
  static constexpr size_t kMostRecords = 512;  // of one read; more are told by the next one

  Result<std::optional<DevmemRead>> read(std::span<std::byte> room, uint64_t dst_off);

  SocketCalls& calls_;
  const int fd_;
  const BoundDmabuf pool_;
  TokenLedger tokens_;
  ReceiveCounts counts_;
  Status failure_;
  alignas(cmsghdr) std::array<std::byte, kMostRecords * kRecordBytes> control_;
};

}  // namespace tcpx::devmem
