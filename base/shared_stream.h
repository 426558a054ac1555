// SharedStream: a stream of bytes each way between two processes of one host, through rings in memory that both have mapped.
// Neither end calls the kernel while both are awake; one that sleeps waits for a Unix socket, to which the other writes a byte.
//
//   who changes something:  store (written, read, ended), fence, load wants of the other end -> one byte on the socket
//   who goes to sleep:      store own wants, fence, load what it waits for -> sleep until the socket can be read -> wants = 0
//
// No wake-up is lost: both fences are sequentially consistent, so one of them comes first. If it is that of the end that changes
// something, the sleeper's load finds the change; if it is the sleeper's, the other end's load finds the wish. An end says what it
// wants, so that nobody is woken for nothing: bytes to read; room for bytes that wait here; and the same two for another ring that
// the ends share (lanes/ring/ring_lane.h), whose owner stores and loads in the same order.
//
// The peer may write anything into the rings: its counters are checked before they are used, and bytes are copied out before
// they are looked at.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

/// Bits: what an end that sleeps is woken for.
enum WakeFor : uint32_t { kWakeForBytes = 1, kWakeForRoom = 2, kWakeForBulkBytes = 4, kWakeForBulkRoom = 8 };

/// One direction, in shared memory. All zeros is an empty one.
struct SharedRing {
  static constexpr size_t kBytes = 256u << 10;
  alignas(64) std::atomic<uint64_t> written;  ///< bytes so far; the writer's
  std::atomic<uint32_t> ended;                ///< nothing follows; the writer's
  alignas(64) std::atomic<uint64_t> read;     ///< bytes so far; the reader's
  /// The reader's: it sleeps, and wants a byte on the socket for these (WakeFor); 0: awake.
  alignas(64) std::atomic<uint32_t> reader_wants;
  alignas(64) std::byte bytes[kBytes];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// One end. One thread at a time.
class SharedStream {
 public:
  /// @param out written by this end, @param in by the peer; @param socket connected to it, non-blocking. All must outlive it.
  SharedStream(SharedRing& out, SharedRing& in, ForeignFd& socket) : out_(out), in_(in), socket_(socket) {}
  SharedStream(const SharedStream&) = delete;
  SharedStream& operator=(const SharedStream&) = delete;

  /// The descriptor to sleep on.
  int fd() const { return socket_.get(); }

  /// Copies as much as there is room for. @return bytes, may be 0; kProtocol: the peer breaks the rules
  Result<size_t> write(std::span<const std::byte> data);
  /// Nothing follows: the peer reads the end behind what was written.
  void end();

  /// Something can be read, or the end. Costs a look at memory.
  bool has_something() const {
    return gone_ || in_.written.load(std::memory_order_relaxed) != read_ || in_.ended.load(std::memory_order_relaxed) != 0;
  }
  /// Copies what there is. @return bytes, may be 0; kPeerGone: the end, all before it was read; kProtocol
  Result<size_t> read(std::span<std::byte> room);

  /// Bytes can be written. Costs a look at memory.
  bool has_room() const { return written_ - out_.read.load(std::memory_order_relaxed) != SharedRing::kBytes; }

  /// From now on the peer wakes this end. Look once more before the sleep for all that is wanted. @param wants WakeFor
  /// @return true when something can be read, or written if kWakeForRoom is wanted
  bool prepare_sleep(uint32_t wants = kWakeForBytes);
  /// After the sleep, on the thread that slept. Others may have read meanwhile.
  void end_sleep();
  /// Looks at the socket: takes bytes that woke this end, and learns whether the peer's process still holds its end.
  void look_at_socket();
  /// Wakes the peer if it sleeps and wants that, which has been stored where it looks.
  void wake(uint32_t what);
  /// Lets go of the socket.
  void close() { socket_.reset(); }

 private:
  SharedRing& out_;
  SharedRing& in_;
  ForeignFd& socket_;
  // Own counters: those in shared memory are for the peer to read, and it could change them.
  uint64_t written_ = 0, read_ = 0;
  bool asleep_ = false;
  bool gone_ = false;  // the socket has ended
};

}  // namespace tcpx
