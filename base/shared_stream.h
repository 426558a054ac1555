// SharedStream: a stream of bytes in each direction between two processes of one host, through rings in memory that both have
// mapped. Neither end calls the kernel while both are awake. An end that sleeps waits for a Unix socket, to which the other end
// writes a byte.
//
//   end that changes something:  store (written, read, ended), fence, load the other end's wants -> one byte on the socket
//   end that goes to sleep:      store own wants, fence, load what it waits for -> sleep until the socket can be read -> wants =
// 0
//
// No wake-up is lost. Both fences are sequentially consistent, so one of them comes first. If the fence of the end that changes
// something is first, the sleeper's load finds the change; if the sleeper's fence is first, the other end's load finds the wants.
// An end says what it wants to be woken for, so that it is not woken needlessly: bytes to read; room for bytes that wait to be
// written; and the same two for another ring that the ends share (lanes/ring/ring_lane.h), whose owner stores and loads in the
// same order.
//
// The peer may write anything into the rings. So its counters are checked before use, and bytes are copied out before they are
// examined.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/unique_fd.h"
#include "tcpx/status.h"

namespace tcpx {

/// Bits: the events for which a sleeping end is woken.
enum WakeFor : uint32_t { kWakeForBytes = 1, kWakeForRoom = 2, kWakeForBulkBytes = 4, kWakeForBulkRoom = 8 };

/// One direction, in shared memory. All zeros is an empty ring.
struct SharedRing {
  static constexpr size_t kBytes = 256u << 10;
  alignas(64) std::atomic<uint64_t> written;  ///< bytes written so far; stored by the writer
  std::atomic<uint32_t> ended;                ///< not 0: nothing follows; stored by the writer
  alignas(64) std::atomic<uint64_t> read;     ///< bytes read so far; stored by the reader
  /// Events (WakeFor) for which the reader, which sleeps, wants a byte on the socket; 0: it is awake. Stored by the reader.
  alignas(64) std::atomic<uint32_t> reader_wants;
  alignas(64) std::byte bytes[kBytes];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// One end. One thread at a time.
class SharedStream {
 public:
  /// @param out ring that this end writes. @param in ring that the peer writes. @param socket connected to the peer,
  /// non-blocking. All must outlive this object.
  SharedStream(SharedRing& out, SharedRing& in, ForeignFd& socket) : out_(out), in_(in), socket_(socket) {}
  SharedStream(const SharedStream&) = delete;
  SharedStream& operator=(const SharedStream&) = delete;

  /// The descriptor to sleep on.
  int fd() const { return socket_.get(); }

  /// Writes as much as there is room for. @return bytes written, may be 0; kProtocol: the peer's counters are inconsistent
  Result<size_t> write(std::span<const std::byte> data);
  /// Ends the stream: the peer reads the end after everything that was written.
  void end();

  /// True when bytes or the end can be read. Costs only loads from memory.
  bool has_something() const {
    return gone_ || in_.written.load(std::memory_order_relaxed) != read_ || in_.ended.load(std::memory_order_relaxed) != 0;
  }
  /// Reads what there is. @return bytes read, may be 0; kPeerGone: the end, after all bytes before it were read; kProtocol
  Result<size_t> read(std::span<std::byte> room);

  /// True when bytes can be written. Costs only a load from memory.
  bool has_room() const { return written_ - out_.read.load(std::memory_order_relaxed) != SharedRing::kBytes; }

  /// True while the peer has to be woken to read. Costs only a load from memory.
  bool peer_sleeps() const { return out_.reader_wants.load(std::memory_order_relaxed) != 0; }

  /// Makes the peer wake this end from now on. Before sleeping, the caller must check once more for everything in `wants`.
  /// @param wants WakeFor bits
  /// @return true when something can be read, or when kWakeForRoom is wanted and something can be written
  bool prepare_sleep(uint32_t wants = kWakeForBytes);
  /// Call after the sleep, on the thread that slept. Other threads may have read meanwhile.
  void end_sleep();
  /// Reads the socket: takes the bytes that woke this end, and finds out whether the peer's process still holds its end.
  void look_at_socket();
  /// Wakes the peer if it sleeps and wants `what`, which has already been stored in shared memory.
  void wake(uint32_t what);
  /// Closes the socket.
  void close() { socket_.reset(); }

 private:
  SharedRing& out_;
  SharedRing& in_;
  ForeignFd& socket_;
  // This end's own counters. The peer reads those in shared memory, and could change them.
  uint64_t written_ = 0, read_ = 0;
  uint64_t peer_read_ = 0;  // checked; looked up only when there seems to be too little room, as it is in the peer's cache
  bool asleep_ = false;
  bool gone_ = false;  // the socket has ended
};

}  // namespace tcpx
