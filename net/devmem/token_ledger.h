// Tokens of received fragments, from the kernel's record to the day they are given back.
//
// Each fragment holds a page of the pool until its token is back (SO_DEVMEM_DONTNEED). A pool whose pages stay away runs dry,
// and then every connection of its queue stands still. So tokens leave in batches as large as one call takes, and the rest
// whenever the socket is about to wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "net/devmem/socket_calls.h"
#include "tcpx/status.h"

namespace tcpx::devmem {

/// The tokens of one socket. One thread at a time.
class TokenLedger {
 public:
  /// @param fd must stay open as long as the ledger
  TokenLedger(SocketCalls& calls, int fd) : calls_(calls), fd_(fd) {}
  TokenLedger(const TokenLedger&) = delete;
  TokenLedger& operator=(const TokenLedger&) = delete;
  /// Gives back all tokens. The kernel does the same with those that it refuses when the socket closes.
  ~TokenLedger();

  /// The kernel has told these tokens.
  void hold(std::span<const uint32_t> tokens);
  /// Nobody reads the `count` oldest fragments any longer, of those of which this has not been said yet. Makes a call only when
  /// it can be a full one.
  Status give_back(size_t count);
  /// The same of the `count` newest.
  Status give_back_newest(size_t count);
  /// Makes the call for the rest of them.
  Status flush();

  uint64_t calls() const { return calls_made_; }
  /// Tokens that the kernel has not got back.
  size_t held() const { return held_.size() + leaving_.size(); }

 private:
  Status give_back_full();
  /// Gives back as many as one call takes.
  Status give_back_some();

  SocketCalls& calls_;
  const int fd_;
  std::deque<uint32_t> held_;  // oldest first
  std::deque<uint32_t> leaving_;
  uint64_t calls_made_ = 0;
};

}  // namespace tcpx::devmem
