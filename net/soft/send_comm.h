// The sending end of a connection.
//
// isend queues a message; the data sockets' handlers cut it into chunks, each taking the next chunk whenever its socket has room,
// so a slow socket does not hold the others back. A message is done when its last byte has been handed to the kernel: its memory
// may then be reused, which says nothing about the receiver.
//
// Cursors, by message number: reported_ <= claimed_ <= posted_ <= reported_ + kQueueDepth. A message lies in slot number %
// kQueueDepth.
#pragma once

#include <memory>
#include <vector>

#include "net/soft/comm.h"

namespace tcpx::soft {

/// A piece of a message that one socket has taken.
struct OutgoingChunk {
  ChunkHeader header;
  const std::byte* data = nullptr;
  bool host_readable = true;
};

class SendSocket;

class SendComm final : public Comm {
 public:
  static Result<std::unique_ptr<SendComm>> create(MemoryOps& memory, int device, std::shared_ptr<IoPool> io,
                                                  ConnectedSockets sockets);
  ~SendComm() override;

  /// kExhausted when kQueueDepth requests are outstanding. `data` must stay unchanged until the request is done.
  Result<abi::TcpxRequest*> isend(const void* data, int size, int tag, const Region* region);
  Result<TestAnswer> test(const abi::TcpxRequest* request) override;

  // For the sockets' handlers, on I/O threads.
  /// Next chunk for data socket number `socket`. False: nothing to send now; a later isend kicks.
  bool claim(size_t socket, OutgoingChunk& chunk) TCPX_EXCLUDES(mutex_);
  void chunk_sent(const OutgoingChunk& chunk) TCPX_EXCLUDES(mutex_);
  void fail(const Status& why) TCPX_EXCLUDES(mutex_);
  void on_control_closed(const Status& why) override { fail(why); }

 private:
  struct Message {
    const std::byte* data = nullptr;
    const Region* region = nullptr;
    uint32_t size = 0;
    int32_t tag = 0;
    uint32_t next_offset = 0;  // of the next chunk to be claimed
    uint32_t unsent_chunks = 0;
  };

  using Comm::Comm;
  bool region_in_use(const Region* region) const override TCPX_REQUIRES(mutex_);
  Status prepare_region(const Region& region) override;
  Message& message(uint64_t sequence) TCPX_REQUIRES(mutex_) { return messages_[sequence % kQueueDepth]; }
  /// Kicks up to `chunks` idle sockets.
  void wake_sockets(uint32_t chunks) TCPX_REQUIRES(mutex_);
  void stop_data_sockets() override;

  Message messages_[kQueueDepth] TCPX_GUARDED_BY(mutex_);
  uint64_t claimed_ TCPX_GUARDED_BY(mutex_) = 0;  // first message with chunks nobody has taken
  // Bit i: socket i found nothing to send and has not been kicked since. All others will claim again by themselves.
  uint32_t idle_ TCPX_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<SendSocket>> sockets_;
};

}  // namespace tcpx::soft
