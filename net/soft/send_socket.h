// One data socket of a SoftSendComm: takes chunks, cuts them into pieces, and writes those in order, each chunk's header first unless
// the comm has sent it.
//
// A piece of host memory is the whole chunk, in place. A piece of GPU memory is what fits into a slot of the staging pool;
// while one is written, the next ones are being copied. Copies may end in any order, pieces are written in order.
//
// Towards a NIC the kernel sends from the slots without a copy (base/zero_copy.h), each piece by a call of its own. A piece is
// done as ever when the kernel has its last byte; its slot is kept in `lent_` until the kernel has done with it.
//
// Of memory that is bound to the NIC (net/soft/device_sources.h) a piece is the whole chunk, too, and the NIC reads it: until the peer has
// acknowledged all of it the chunk is not sent.
//
// With a cipher the bytes are written as records (secure/record_writer.h), and count as written when the kernel has their records.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/zero_copy.h"
#include "net/devmem/sender.h"
#include "net/soft/send_comm.h"
#include "secure/record_writer.h"

namespace tcpx::soft {

class SendSocket final : public SocketHandler, private StagingPool::Client {
 public:
  /// @param cipher null: in clear
  /// @param device over `fd`; none: it does not send from device memory
  SendSocket(UniqueFd fd, SoftSendComm& comm, StagingPool& staging, size_t index, bool spare_copies,
             std::unique_ptr<RecordCipher> cipher, std::optional<devmem::DevmemSender> device)
      : SocketHandler(std::move(fd)),
        comm_(comm),
        staging_(staging),
        index_(index),
        records_(cipher != nullptr ? std::make_unique<RecordWriter>(this->fd(), std::move(cipher)) : nullptr),
        device_(std::move(device)),
        zero_copy_(spare_copies && records_ == nullptr && !device_ && allow_zero_copy(this->fd())) {
    // Without room for it a slot would be given back while the kernel reads it.
    if (!zero_copy_) return;
    lent_.reserve(kMostLent + kPieces);
    departure_.resize(1);
  }
  ~SendSocket() override { close(); }

  Next on_ready() override;
  void on_hang_up() override;
  void on_out_of_memory() noexcept override;

  /// Sends from device memory, and those of them that the kernel has copied after all. After close().
  uint64_t device_sends() const { return device_ ? device_->sends() : 0; }
  uint64_t device_sends_copied() const { return device_ ? device_->copied() : 0; }

  /// Like `stop`, and returns the staging slots once their copies are done: from then on nothing reads the caller's memory. Those that
  /// the kernel still reads go to the pool, with the descriptor.
  void close();

 private:
  enum class State { kUncopied, kCopying, kReady };
  struct Piece {
    std::array<std::byte, kChunkHeaderBytes> header;
    uint32_t header_bytes = 0;  // 0: not the first of its chunk, or its header is sent
    uint32_t bytes = 0;         // of payload
    const std::byte* source = nullptr;
    const BoundSource* bound = nullptr;  // OutgoingChunk::source
    const RangeList* list = nullptr;  // SoftRegion::list
    std::shared_ptr<StagingPool::SharedSlot> slot;  // null: `source` itself is written, once kReady
    uint32_t slot_at = 0;                           // where its bytes begin there
    State state = State::kReady;
    std::optional<uint64_t> zero_copy_send;  // the last in which the kernel took the slot's own memory
    uint64_t sequence = 0;
    bool ends_chunk = false;
    uint32_t size() const { return header_bytes + bytes; }
  };
  enum class Step { kWrote, kFull, kCopying, kNoSlot, kFailed };

  Piece& piece(uint32_t i) { return pieces_[(first_ + i) % kPieces]; }
  /// Fills the ring with as many pieces as are useful.
  void take_pieces();
  void append_piece();
  /// Starts copies in order, as far as there are slots.
  void start_copies();
  Status see_copied(Piece& piece);
  /// Writes once, as many of the ready bytes as the socket takes.
  Step write_pieces(size_t& written);
  /// True when the payload from `done` on may be sent without a copy.
  bool goes_without_copy(Piece& piece, uint32_t done);
  ssize_t send_parts(int flags);
  /// Writes of the first piece, which is bound to the NIC.
  Step write_bound(size_t& written);
  /// Tells the comm of the chunks that the NIC has done with.
  Status collect_acknowledged();
  /// The same with a cipher.
  Step write_records(std::span<const iovec> parts, size_t& written);
  void retire(size_t written);
  /// The kernel still reads the slot's memory.
  bool is_read(const Piece& piece) const { return piece.zero_copy_send && !sends_.is_over(*piece.zero_copy_send); }
  void let_go_of_slot(Piece& piece);
  /// Returns the lent slots that the kernel has done with.
  void collect_lent();
  /// Stops asking for zero copy where it is in vain.
  void judge_zero_copy();
  Step fail(const Status& why);
  /// The comm has failed: nothing more is written.
  void stand_still() noexcept;
  /// Called when the socket is full, or broken, and others may need the slots more. kAgain: a copy must end first.
  Next give_way();
  bool holds_slots() const;
  /// Waits for their copies; the data will be copied again later. Keeps a slot that the kernel reads: nobody else could use it.
  void give_slots_back();
  bool has_room() const;
  void staging_changed() override { kick(); }
  /// Detects a peer that closed or died, whatever this socket waits for.
  void check_peer();

  static constexpr uint32_t kPieces = 8;
  // So that one slow peer does not have all that the pool lends.
  static constexpr uint32_t kMostLent = StagingPool::kMostLent / 2;

  SoftSendComm& comm_;
  StagingPool& staging_;
  const size_t index_;
  bool failed_ = false;
  bool full_ = false;  // the last write found no room

  OutgoingChunk chunk_;  // being cut, from cut_ on
  uint32_t cut_ = 0;
  bool cutting_ = false;

  // Ring of pieces to write. The kernel has `written_` bytes of the first one already.
  std::array<Piece, kPieces> pieces_;
  uint32_t first_ = 0;
  uint32_t count_ = 0;
  uint32_t written_ = 0;
  uint64_t queued_bytes_ = 0;  // in the ring, written ones included
  std::vector<iovec> parts_;   // reused

  const std::unique_ptr<RecordWriter> records_;  // null: in clear
  std::optional<devmem::DevmemSender> device_;
  struct Unacknowledged {
    uint64_t sequence;
    uint64_t sends;  // DevmemSender::are_over
  };
  std::deque<Unacknowledged> unacknowledged_;  // chunks that are written
  bool zero_copy_;
  ZeroCopySends sends_;
  std::vector<StagingPool::LentSlot> lent_;  // of pieces that are written, the earliest send first
  StagingPool::Departure departure_;         // for them
};

}  // namespace tcpx::soft
