// SharedStream: a stream of bytes each way between two processes of one host, through rings in memory that both have mapped.
// Neither end calls the kernel while both are awake; one that sleeps waits for a Unix socket, to which the other writes a byte.
//
//   writer: copy, written += n, fence, look at reader_sleeps -> one byte on the socket
//   reader: reader_sleeps = 1, fence, look at written -> sleep until the socket can be read -> reader_sleeps = 0
//
// One of the two sees the other. A writer that finds no room comes again; nobody wakes it.
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

/// One direction, in shared memory. All zeros is an empty one.
struct SharedRing {
  static constexpr size_t kBytes = 256u << 10;
  alignas(64) std::atomic<uint64_t> written;        ///< bytes so far; the writer's
  std::atomic<uint32_t> ended;                      ///< nothing follows; the writer's
  alignas(64) std::atomic<uint64_t> read;           ///< bytes so far; the reader's
  alignas(64) std::atomic<uint32_t> reader_sleeps;  ///< it wants a byte on the socket when something comes; the reader's
  alignas(64) std::byte bytes[kBytes];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// One end. One thread at a time.
class SharedStream {
 public:
  /// @param out written by this end, @param in by the peer; @param socket connected to it, non-blocking. All must outlive it.
  SharedStream(SharedRing& out, SharedRing& in, UniqueFd& socket) : out_(out), in_(in), socket_(socket) {}
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

  /// From now on the peer wakes this end. Look once more before the sleep: @return true when something can be read
  bool prepare_sleep();
  /// After the sleep, on the thread that slept. Others may have read meanwhile.
  void end_sleep();
  /// Looks at the socket: takes bytes that woke this end, and learns whether the peer's process still holds its end.
  void look_at_socket();
  /// Lets go of the socket.
  void close() { socket_.reset(); }

 private:
  void wake();

  SharedRing& out_;
  SharedRing& in_;
  UniqueFd& socket_;
  // Own counters: those in shared memory are for the peer to read, and it could change them.
  uint64_t written_ = 0, read_ = 0;
  bool asleep_ = false;
  bool gone_ = false;  // the socket has ended
};

}  // namespace tcpx
