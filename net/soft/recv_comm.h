// The receiving end of a connection.
//
// Chunks name the message they belong to. A message begins when its first chunk has been read, strictly in order: its pages are
// then taken from the pool (CUDA memory) or its bytes go straight to the buffer (host memory). A socket whose next chunk cannot
// go anywhere yet (receive not posted, no pages, an earlier message has not begun) is parked: it is not read, TCP slows the
// sender down, and the missing event kicks it when it happens.
//
// Cursors, by message number: consumed_ <= reported_ <= begun_ <= posted_ <= consumed_ + kRequests; all before reported_ are
// complete. A message lies in slot number % kRequests, and its list in the metadata queue at number % kQueueDepth: no other message
// has that one, since as long as a receive of CUDA memory is not consumed only kQueueDepth are posted.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "net/soft/comm.h"
#include "net/soft/page_pool.h"
#include "net/soft/socket_choices.h"
#include "net/soft/unpack_queue.h"

namespace tcpx::soft {

class HeaderSocket;
class RecvSocket;

/// Destination of a chunk's bytes.
enum class Landing {
  kMemory,   ///< into the iovecs
  kPool,     ///< where the NIC puts them, else into the iovecs, which are in the DevicePool
  kDiscard,  ///< nowhere: its message was larger than posted
  kParked,   ///< not now
  kFailed,   ///< the comm has failed
};

class SoftRecvComm final : public SoftComm, private PagePool::Client {
 public:
  static Result<std::unique_ptr<SoftRecvComm>> create(MemoryOps& memory, int device, std::shared_ptr<IoPool> io,
                                                      std::shared_ptr<PagePool> pool, ConnectedSockets sockets);
  ~SoftRecvComm() override;

  /// kExhausted when kRequests receives are posted and not consumed, or kQueueDepth and one of them is of CUDA memory.
  Result<abi::TcpxRequest*> irecv(void* data, int size, int tag, const SoftRegion* region);
  /// Error kInvalidArgument for a message larger than posted: that receive has failed, is complete and can be consumed.
  Result<TestAnswer> test(const abi::TcpxRequest* request) override;
  Status consumed(const abi::TcpxRequest* request);
  abi::NetDeviceHandle device_handle() const { return queue_.device_handle(); }

  // For the sockets' handlers, on I/O threads.
  /// kParked: `asker` has been parked and will be kicked.
  Landing begin_chunk(RecvSocket& asker, const ChunkHeader& header, std::vector<iovec>& destination) TCPX_EXCLUDES(mutex_);
  void end_chunk(const ChunkHeader& header, Landing landing) TCPX_EXCLUDES(mutex_);
  /// Lists bytes of a chunk that lie in the DevicePool, of which data socket number `socket` holds `tokens` tokens until
  /// RecvSocket::let_go is called. False: nothing was listed, since the list would be too long. All bytes of the message belong
  /// into its pages from now on.
  Result<bool> list(const ChunkHeader& header, std::span<const Fragment> fragments, size_t socket, uint32_t tokens)
      TCPX_EXCLUDES(mutex_);
  /// One socket has reached its end, though it may not be fully read. Complete receives stay complete.
  void socket_ended(const Status& why) TCPX_EXCLUDES(mutex_);
  /// The stream can no longer be trusted.
  void fail(const Status& why) TCPX_EXCLUDES(mutex_);
  void fail_without_memory() noexcept override TCPX_EXCLUDES(mutex_);
  void on_control_closed(const Status& why) override { socket_ended(why); }
  void on_control_ready() override TCPX_EXCLUDES(mutex_);
  /// A data socket has taken a header out of a full queue.
  void header_taken() const { control_->kick(); }
  uint32_t most_chunk_bytes() const { return most_chunk_bytes_; }

 private:
  struct Message {
    std::byte* data = nullptr;
    const SoftRegion* region = nullptr;
    uint32_t posted_bytes = 0;
    int32_t posted_tag = 0;
    // From the first chunk on:
    uint32_t total = 0;
    uint32_t cut = 0;
    uint32_t missing_chunks = 0;
    bool too_large = false;
    std::vector<bool> chunk_seen;
    std::vector<uint32_t> pages;
    // With a DevicePool:
    bool is_listed = false;        // its bytes lie where its list says, not in its pages
    uint32_t fragments = 0;        // in the list
    std::vector<uint32_t> tokens;  // that the sockets hold, by number
    bool is_complete() const { return missing_chunks == 0; }
  };

  static constexpr uint64_t kAllMessages = ~uint64_t{0} - 1;

  SoftRecvComm(MemoryOps& memory, int device, std::shared_ptr<IoPool> io, std::shared_ptr<PagePool> pool, UnpackQueue queue,
               ConnectedSockets& sockets);
  bool region_in_use(const SoftRegion* region) const override TCPX_REQUIRES(mutex_);
  bool has_requests() const override TCPX_REQUIRES(mutex_) { return consumed_ != posted_; }
  Message& message(uint64_t sequence) TCPX_REQUIRES(mutex_) { return messages_[sequence % kRequests]; }
  bool begin_message(const ChunkHeader& header) TCPX_REQUIRES(mutex_);
  Status check_chunk(const ChunkHeader& header, const Message& target) const TCPX_REQUIRES(mutex_);
  void tell_choice() TCPX_REQUIRES(mutex_) { choice_waits_.store(!choices_.tell(*control_)); }
  /// Copies what is listed of a message into its pages.
  Status gather(std::span<const Fragment> listed, std::span<const uint32_t> pages) const;
  /// How the payload has come.
  void tell_counts() const;
  void publish(uint64_t sequence) TCPX_REQUIRES(mutex_);
  void locate(const ChunkHeader& header, const Message& target, std::vector<iovec>& destination) TCPX_REQUIRES(mutex_);
  void fail_locked(const Status& why) TCPX_REQUIRES(mutex_);
  /// Fails the comm when the oldest receive can no longer complete because a socket was lost.
  void give_up_if_stuck() TCPX_REQUIRES(mutex_);
  /// Restarts the timer of the peer's silence.
  void be_patient_again() TCPX_REQUIRES(mutex_);
  void pages_available() override { kick_sockets(kAllMessages); }
  /// Kicks sockets whose chunks belong to message `up_to` or an earlier one.
  void kick_sockets(uint64_t up_to);
  void stop_data_sockets() override;

  const uint32_t most_chunk_bytes_;
  const std::shared_ptr<PagePool> pool_;                 // shared: the last comm of a GPU frees its pool
  const std::shared_ptr<const DevicePool> device_pool_;  // pool_ is its; null: bytes come to host memory
  const bool has_device_sockets_;
  UnpackQueue queue_;
  Message messages_[kRequests] TCPX_GUARDED_BY(mutex_);
  ToldChoices choices_ TCPX_GUARDED_BY(mutex_);
  std::atomic<bool> choice_waits_{false};  // for room
  uint64_t begun_ TCPX_GUARDED_BY(mutex_) = 0;
  uint64_t consumed_ TCPX_GUARDED_BY(mutex_) = 0;
  uint32_t cuda_receives_ TCPX_GUARDED_BY(mutex_) = 0;  // posted and not consumed
  bool waiting_for_pages_ TCPX_GUARDED_BY(mutex_) = false;
  Status first_end_ TCPX_GUARDED_BY(mutex_);  // an error once a socket has ended
  // Used only after that:
  uint64_t progress_seen_ TCPX_GUARDED_BY(mutex_) = 0;
  TimePoint silent_since_ TCPX_GUARDED_BY(mutex_);

  // Incremented by everything but failure that may change the result of test for an unfinished receive. So test needs the lock
  // only when there is news, and a caller that tests in a loop does not hold up the sockets.
  std::atomic<uint64_t> news_{0};
  // Used by the calling thread: the receive that was unfinished as of news number unfinished_as_of_.
  const abi::TcpxRequest* unfinished_ = nullptr;
  uint64_t unfinished_as_of_ = 0;

  std::vector<std::unique_ptr<RecvSocket>> sockets_;
  HeaderSocket* headers_ = nullptr;  // control_, if headers come apart
};

}  // namespace tcpx::soft
