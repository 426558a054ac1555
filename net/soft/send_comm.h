// The sending end of a connection.
//
// isend queues a message; the data sockets' handlers cut it into chunks, each taking the next chunk whenever its socket has room,
// so a slow socket does not hold the others back. A message is done when its last byte has been handed to the kernel: its memory
// may then be reused, which tells nothing about the receiver.
//
// Memory that the host cannot read goes through slots of the staging pool, piece by piece. A socket copies ahead of its writes;
// the first piece of a message may be copied by isend already, while the I/O thread wakes up.
//
// Headers that go apart (net/soft/wire.h) are sent as their chunks are claimed, which is in the order of messages. While the control
// socket is full nothing is claimed.
//
// Where there are device sockets, a message goes by those or by the ordinary ones (net/soft/wire.h), and messages are claimed one after the
// other by sockets of different kinds.
//
// Cursors, by message number: reported_ <= claimed_ <= posted_ <= reported_ + kRequests. A message lies in slot number % kRequests.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/soft/comm.h"
#include "net/soft/socket_choices.h"
#include "net/soft/staging_pool.h"

namespace tcpx::soft {

/// A chunk of a message that one socket has taken.
struct OutgoingChunk {
  ChunkHeader header;
  bool header_is_sent = false;
  const std::byte* data = nullptr;
  bool host_readable = true;
  const BoundSource* source = nullptr;  ///< SoftRegion::source, where the socket sends from it
  bool is_copied = false;               ///< its socket copies it into slots of its own before it writes
  const RangeList* list = nullptr;      ///< SoftRegion::list
  StagingPool::Staged staged;           ///< of its message
};

class SendSocket;

class SoftSendComm final : public SoftComm, private StagingPool::Client {
 public:
  static Result<std::unique_ptr<SoftSendComm>> create(MemoryOps& memory, int device, std::shared_ptr<IoPool> io,
                                                      std::shared_ptr<StagingPool> staging, ConnectedSockets sockets);
  ~SoftSendComm() override;

  /// kExhausted when kRequests requests are outstanding. `data` must stay unchanged until the request is done.
  Result<abi::TcpxRequest*> isend(const void* data, int size, int tag, const SoftRegion* region);
  Result<TestAnswer> test(const abi::TcpxRequest* request) override;

  // For the sockets' handlers, on I/O threads.
  /// Next chunk for data socket number `socket`. False: nothing to send now; a later isend kicks.
  /// @param queued bytes that the socket already has to write: then it gets only chunks worth taking early. These are so small that
  /// several go out together, or need a copy first and are more than the sockets that are on their way here will take, while the socket
  /// has less than its share of all that is left to send.
  bool claim(size_t socket, uint64_t queued, OutgoingChunk& chunk) TCPX_EXCLUDES(mutex_);
  /// Drops what is staged of chunks that are not claimed yet: their sockets will copy it again.
  void drop_staged() TCPX_EXCLUDES(mutex_);
  /// All bytes of one chunk of message `sequence` have been handed to the kernel.
  void chunk_sent(uint64_t sequence);
  void fail(const Status& why) TCPX_EXCLUDES(mutex_);
  void on_control_closed(const Status& why) override { fail(why); }
  void on_control_ready() override TCPX_EXCLUDES(mutex_);
  Status on_control_bytes(std::span<const std::byte> bytes) override TCPX_EXCLUDES(mutex_);

 private:
  struct Message {
    const std::byte* data = nullptr;
    const SoftRegion* region = nullptr;
    uint32_t size = 0;
    int32_t tag = 0;
    uint32_t cut = 0;
    uint32_t next_offset = 0;  // of the next chunk to be claimed
    bool by_device = false;    // by device sockets
    StagingPool::Staged staged;
  };

  SoftSendComm(MemoryOps& memory, int device, std::shared_ptr<IoPool> io, std::shared_ptr<StagingPool> staging,
               ConnectedSockets& sockets);
  bool region_in_use(const SoftRegion* region) const override TCPX_REQUIRES(mutex_);
  bool has_requests() const override TCPX_REQUIRES(mutex_) { return reported_ != posted_; }
  Status prepare_region(SoftRegion& region) override;
  Message& message(uint64_t sequence) TCPX_REQUIRES(mutex_) { return messages_[sequence % kRequests]; }
  Status check_send(const void* data, uint32_t bytes, const SoftRegion* region) const TCPX_REQUIRES(mutex_);
  /// Whether the next message goes by device sockets.
  bool goes_by_device(const SoftRegion& region) TCPX_REQUIRES(mutex_);
  /// Without kicking the sockets of the next message.
  bool claim_locked(size_t socket, uint64_t queued, OutgoingChunk& chunk) TCPX_REQUIRES(mutex_);
  /// Starts copying the first bytes of a message on the caller's thread, in few copies, which its sockets share. What has no slot then
  /// the sockets copy.
  Result<StagingPool::Staged> stage(const std::byte* data, uint32_t bytes);
  /// The sockets may hold shares of a slot that others wait for.
  void staging_changed() override;
  abi::TcpxRequest* post(Message message) TCPX_REQUIRES(mutex_);
  /// Whether the next chunk is for data socket number `socket`. Call while there is one.
  bool may_claim(size_t socket) TCPX_REQUIRES(mutex_) {
    return device_sockets_ == 0 || (socket < device_sockets_) == message(claimed_).by_device;
  }
  /// Takes up to `chunks` sockets that may claim out of idle_ and returns them in the same form.
  uint32_t take_idle_sockets(uint32_t chunks) TCPX_REQUIRES(mutex_);
  /// Without the lock, because a kicked socket takes it first thing.
  void kick_sockets(uint32_t taken) TCPX_EXCLUDES(mutex_);
  /// Hands a header to the kernel, ahead of its chunk. False: none of it; the control socket is full, or broken.
  bool send_header(const ChunkHeader& header) TCPX_REQUIRES(mutex_);
  /// Hands over what the kernel has left of the last header. False: not all of it.
  bool flush_header() TCPX_REQUIRES(mutex_);
  void stop_data_sockets() override;

  const Chunking chunking_;
  const size_t device_sockets_;  // 0: there is one kind
  const bool headers_apart_;
  const std::shared_ptr<DeviceSources> device_sources_;  // null: nothing is sent from device memory
  const std::shared_ptr<StagingPool> staging_;  // shared: the last sending comm of a GPU frees its pool
  Message messages_[kRequests] TCPX_GUARDED_BY(mutex_);
  uint64_t claimed_ TCPX_GUARDED_BY(mutex_) = 0;    // first message with untaken chunks
  uint32_t unclaimed_ TCPX_GUARDED_BY(mutex_) = 0;  // untaken chunks of all messages
  // Bit i: socket i found nothing to send, or no room for the header, and has not been kicked since. All others will claim again by
  // themselves.
  uint32_t idle_ TCPX_GUARDED_BY(mutex_) = 0;
  uint32_t coming_ TCPX_GUARDED_BY(mutex_);  // bit i: socket i is new or has been kicked, and has not claimed since
  HeardChoices choices_ TCPX_GUARDED_BY(mutex_);
  // The rest of a header that the kernel has taken in part. It counts as one more chunk of its message.
  std::array<std::byte, kChunkHeaderBytes> header_ TCPX_GUARDED_BY(mutex_);
  size_t header_left_ TCPX_GUARDED_BY(mutex_) = 0;
  uint64_t header_sequence_ TCPX_GUARDED_BY(mutex_) = 0;
  // Chunks of each message not yet handed to the kernel. Decremented without the lock: released by the socket that wrote the
  // chunk, acquired by test.
  std::array<std::atomic<uint32_t>, kRequests> unsent_chunks_{};
  std::array<std::atomic<uint32_t>, kRequests> sizes_{};  // for who sends the last of them
  // Used by the calling thread: the oldest request if it was unfinished at the last test. A caller that tests in a loop then
  // takes no lock that a socket needs.
  const abi::TcpxRequest* unfinished_ = nullptr;
  std::vector<std::unique_ptr<SendSocket>> sockets_;
};

}  // namespace tcpx::soft
