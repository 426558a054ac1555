// One data socket of a SoftRecvComm: reads a chunk header, asks the comm for the chunk's destination, reads it there.
//
// Every read asks for a little more than the missing payload, into `ahead_`: the next header and a small payload behind it have
// then arrived already. A small message thus takes one read, and of a large one at most kAheadBytes are copied.
//
// Towards a NIC a socket in the middle of a long chunk is woken for much at once (SO_RCVLOWAT), but never waits for more than the
// chunk's rest: what comes next may be long in coming. The end of the stream wakes it at any time.
//
// Where headers come apart (net/soft/header_socket.h) they are taken from a queue, and the socket is read no further than the payload of
// the one that was taken: bytes without a header stay in the kernel, which bounds them.
//
// Where a NIC puts the payload into a DevicePool, a read tells where it is. It is copied only where it cannot stay: it has come in host
// memory, or its message is for host memory or in too many places. The socket holds a token of each fragment until its message is
// consumed, or it has been copied. An ordinary socket beside such ones copies what belongs into the pool.
//
// With a cipher the bytes are the content of records (secure/record_reader.h). What the reader has of a record that is not whole is no
// longer in the socket, and is not waited for there.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "net/devmem/receiver.h"
#include "net/soft/header_queue.h"
#include "net/soft/recv_comm.h"
#include "secure/record_reader.h"

namespace tcpx::soft {

class RecvSocket final : public SocketHandler {
 public:
  /// @param cipher null: in clear
  /// @param pool of messages for device memory; null: they are for the pages of the comm's. With one, headers are apart
  /// @param is_device its payload comes into `pool`
  RecvSocket(UniqueFd fd, SoftRecvComm& comm, size_t index, bool sleeps_long, std::unique_ptr<RecordCipher> cipher,
             bool headers_apart, const DevicePool* pool, bool is_device);
  ~RecvSocket() override { stop(); }

  /// Of its DevicePool. After stop().
  devmem::ReceiveCounts device_counts() const { return device_ ? device_->counts() : devmem::ReceiveCounts{}; }
  uint64_t give_backs() const { return device_ ? device_->give_backs() : 0; }
  /// Any thread: nobody reads the `tokens` oldest fragments any longer.
  void let_go(uint32_t tokens) {
    let_go_.fetch_add(tokens, std::memory_order_release);
    kick();
  }
  /// Called by the comm, under its lock: a chunk of message `sequence` waits here until kicked.
  void park(uint64_t sequence) { parked_.store(sequence); }
  void unpark() { parked_.store(kNotParked); }
  /// Any thread: the event that chunks up to message `sequence` waited for may have happened.
  void kick_if_parked(uint64_t sequence) {
    uint64_t parked = parked_.load();
    if (parked <= sequence && parked_.compare_exchange_strong(parked, kNotParked)) kick();
  }
  /// True when it has ended, or holds the chunk of a message that has not begun: it will deliver no more of those that have.
  bool is_past_begun() const { return ended_.load() || parked_.load() != kNotParked; }
  /// Bytes that have arrived and will be read. Any thread.
  uint32_t unread() const;
  /// So many unread bytes wake the I/O thread. Any thread.
  uint32_t wakes_at() const { return wakes_at_.load(std::memory_order_relaxed); }
  /// Changes whenever bytes have been read. Any thread.
  uint64_t reads() const { return reads_.load(std::memory_order_relaxed); }

  Next on_ready() override;
  void on_hang_up() override;
  void on_out_of_memory() noexcept override;

  // For the control socket's handler, where headers come apart.
  /// False: the queue is full. SoftRecvComm::header_taken is called when that changes.
  bool push_header(const ChunkHeader& header);
  /// No more headers come.
  void end_headers();

 private:
  static constexpr uint64_t kNotParked = ~uint64_t{0};
  static constexpr size_t kAheadBytes = kChunkHeaderBytes + 1024;  // the rest of a payload then begins at a multiple of 64

  enum class Stage { kHeader, kLanding, kPayload, kEnded };
  enum class Step { kGoOn, kStop };
  Next read_on();
  Step read_header();
  Step take_header();
  Step find_landing();
  Step read_payload();
  /// The same from the DevicePool.
  Step read_device();
  /// Reads payload from an ordinary socket, and copies it into the DevicePool's pages.
  Step read_into_pool();
  /// Puts the bytes of a read where they belong, and counts them.
  Step take_payload(const devmem::DevmemRead& read);
  /// Puts the bytes of a read where they belong.
  Status place(const devmem::DevmemRead& read);
  /// Gives the pages back that nobody reads any longer.
  Status give_back_pages();
  /// Reads once into `pieces`. @return bytes read, 0 when the socket is empty for now or has ended (stage_ tells).
  size_t read_some(std::span<iovec> pieces);
  /// The same with a cipher.
  size_t read_records(std::span<const iovec> pieces);
  void end_of_stream();
  /// Call when the socket is empty.
  void choose_wake_up();
  /// Takes up to `bytes` bytes that were read ahead.
  std::span<const std::byte> take_ahead(size_t bytes);
  /// Moves payload that was read ahead to its destination.
  void place_ahead();
  /// Counts `bytes` of the payload as placed.
  void advance(size_t bytes);
  void end(const Status& why);
  void finish_chunk();

  SoftRecvComm& comm_;
  const size_t index_;
  const bool sleeps_long_;
  const std::unique_ptr<RecordReader> records_;  // null: in clear
  const std::unique_ptr<HeaderQueue> headers_;   // null: they are in front of the payload
  Stage stage_ = Stage::kHeader;
  std::array<std::byte, kAheadBytes> ahead_;  // valid from ahead_begin_ to ahead_end_
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
  ChunkHeader header_;
  Landing landing_ = Landing::kMemory;
  std::vector<iovec> destination_;  // the part still to be filled starts at piece_
  size_t piece_ = 0;
  uint32_t payload_left_ = 0;
  size_t moved_ = 0;  // bytes read in this turn
  const DevicePool* const pool_;                  // null: there is none
  std::optional<devmem::DevmemReceiver> device_;  // none: its payload comes to host memory
  std::atomic<uint32_t> let_go_{0};
  std::atomic<uint64_t> parked_{kNotParked};
  std::atomic<bool> ended_{false};
  std::atomic<uint64_t> reads_{0};
  std::atomic<uint32_t> wakes_at_{1};
};

}  // namespace tcpx::soft
