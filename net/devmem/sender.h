// Sends from a dma-buf that is bound for sending (net/devmem/netdev.h): the NIC reads the bytes out of it, and no processor
// copies them.
//
// So the memory must not change before the peer has acknowledged the bytes, because the NIC reads them again when they are
// lost. The kernel tells by the socket's error queue, as with any other send without a copy (base/zero_copy.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/zero_copy.h"
#include "net/devmem/netdev.h"
#include "net/devmem/socket_calls.h"
#include "tcpx/status.h"

namespace tcpx::devmem {

/// One socket's sending side. One thread at a time.
class DevmemSender {
 public:
  /// @param fd a non-blocking TCP socket on which nothing was sent without a copy before, nor is but by this; must stay open as long
  /// as this
  static Result<DevmemSender> create(SocketCalls& calls, int fd);

  /// Sends bytes of a dma-buf from its offset `off` on. @return how many the socket took; 0: none for now
  Result<size_t> try_send(const BoundDmabuf& dmabuf, uint64_t off, size_t bytes);
  /// Reads what the kernel tells. Call when poll(2) tells POLLERR, and now and then.
  Status read_completions();

  /// Calls that took bytes, so far; the next one has this number.
  uint64_t sends() const { return sends_; }
  /// The memory of all sends before number `sends` may change.
  bool are_over(uint64_t sends) const { return sends == 0 || zero_copy_.is_over(sends - 1); }
  /// Sends that the kernel has copied after all, as far as it has told.
  uint64_t copied() const { return zero_copy_.all_copied(); }

 private:
  DevmemSender(SocketCalls& calls, int fd) : calls_(&calls), fd_(fd) {}

  SocketCalls* calls_;
  int fd_;
  uint64_t sends_ = 0;
  ZeroCopySends zero_copy_;
};

}  // namespace tcpx::devmem
