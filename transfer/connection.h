// Connection: transfers of any size over one direction's comm.
//
//   submit -> [ transfers, oldest first ] -> chunks -> Channel (comm, window) -> poll
//
// The caller drives: `progress` posts chunks while there is room, tests, unpacks and gives back; nothing happens in between.
// Transfers are cut and posted in the order of submission, at both ends alike, because the n-th send of a comm meets its n-th
// receive.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transfer/channel.h"

namespace tcpx {

struct ConnectionOptions {
  ChannelLimits limits;
  uint32_t chunk_bytes = kDefaultChunkBytes;  ///< 1 ... kMaxRequestBytes; must be the same at both ends
  uint32_t max_transfers = 1024;              ///< submitted and not yet polled to their end; at least 1
};

/// What to move: `bytes` bytes from (send) or into (receive) `memory`, starting at `offset`.
struct TransferSpec {
  RegisteredMemory memory;
  size_t offset = 0;
  size_t bytes = 0;
  int tag = 0;  ///< chunk i carries tag + i; known plugins ignore tags (17), another may match them
};

enum class TransferState { kPending, kDone, kFailed, kUnknown };

struct TransferAnswer {
  TransferState state = TransferState::kUnknown;
  Status status;            ///< kFailed: why
  uint64_t bytes_done = 0;  ///< of chunks that reached their good end
};

/// One thread at a time. All parts must outlive it.
class Connection {
 public:
  /// @param comm owned from here on, also when the result is an error
  /// @param receive ignored for sends
  /// @return kInvalidArgument for options out of range
  static Result<std::unique_ptr<Connection>> create(Comm comm, const ReceiveParts& receive, const Clock& clock,
                                                    const ConnectionOptions& options = {});
  /// Fails what is pending and drains: returns when nothing touches the memory of any transfer, or after the drain limit.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Direction direction() const { return channel_.direction(); }

  /// The memory must live until the connection is closed or destroyed. The device's GPU must be current for kCuda.
  Result<RegisteredMemory> register_memory(void* data, size_t bytes, MemoryType type);

  /// Queues a transfer. Its memory must be left alone until `poll` says done or failed.
  /// @return kInvalidArgument: beyond the memory, or tags past INT_MAX; kExhausted: max_transfers wait to be polled; the
  /// connection's error once there is one.
  Result<TransferId> submit(const TransferSpec& spec);

  /// @return true when something advanced; a caller with nothing else to do waits a little on false.
  bool progress();

  /// Pending: go on with progress. Done (receive: every byte in place; send: the memory is free again, which does not mean that
  /// the peer has the bytes) and failed (nothing touches the memory any more) are said once: the id is unknown afterwards, like
  /// any other number that names no transfer.
  TransferAnswer poll(TransferId id);

  /// Ends the connection early. Pending transfers fail with `reason` after some more progress calls.
  void cancel(Status reason) { channel_.fail(std::move(reason)); }
  /// Deregisters all memory and closes the comm.
  /// @return kInvalidArgument while transfers are pending; the connection's error if there was one (progress closes it then).
  Status close();

  /// The first error; ok while all is well.
  const Status& status() const { return channel_.status(); }
  /// Transfers that are neither done nor failed.
  uint64_t pending() const { return pending_; }
  /// Requests the plugin holds for us.
  uint64_t in_flight() const { return channel_.in_flight(); }
  std::string flight_record() const { return channel_.flight_record(); }

 private:
  struct Transfer {
    TransferId id{};
    TransferState state = TransferState::kUnknown;
    TransferSpec spec;
    ChunkPlan plan;
    uint64_t posted_chunks = 0;
    uint64_t finished_chunks = 0;
  };

  Connection(Comm comm, const ReceiveParts& receive, const Clock& clock, const ConnectionOptions& options);
  bool post_chunks();
  void count_finished(TransferId id);
  void fail_pending();
  Transfer& slot(uint64_t number) { return transfers_[number % transfers_.size()]; }

  Channel channel_;
  uint32_t chunk_bytes_;
  // Ring by id: transfer n lives in slot n modulo the size until it has been polled to its end.
  std::vector<Transfer> transfers_;
  uint64_t next_id_ = 1;     // of the next submit
  uint64_t posting_id_ = 1;  // oldest transfer with chunks not yet posted; next_id_ when there is none
  uint64_t pending_ = 0;
};

}  // namespace tcpx
