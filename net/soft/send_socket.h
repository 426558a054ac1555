// One data socket of a SendComm: takes chunks and writes them, header first.
#pragma once

#include <array>
#include <memory>

#include "base/memory_ops.h"
#include "net/soft/send_comm.h"

namespace tcpx::soft {

class SendSocket final : public SocketHandler {
 public:
  SendSocket(UniqueFd fd, SendComm& comm, size_t index) : SocketHandler(std::move(fd)), comm_(comm), index_(index) {}
  ~SendSocket() override { stop(); }

  /// Makes the buffer and the copy lane through which memory goes that the host cannot read. Before the first such chunk is
  /// posted.
  Status prepare_staging(MemoryOps& memory, int device, uint32_t chunk_bytes);

  Next on_ready() override;

 private:
  /// Loads `chunk_` into header and payload. False: the comm has failed.
  bool load_chunk();
  /// True when the whole chunk is with the kernel; false when the socket is full or the comm has failed.
  bool write_chunk();
  /// Notices a peer that closed or died while there is nothing to send.
  void check_peer();

  SendComm& comm_;
  const size_t index_;
  bool busy_ = false;  // chunk_ is partly written
  OutgoingChunk chunk_;
  std::array<std::byte, kChunkHeaderBytes> header_{};
  const std::byte* payload_ = nullptr;
  size_t written_ = 0;  // of header and payload together
  std::unique_ptr<CopyLane> lane_;
  MemoryBuffer staging_;
};

}  // namespace tcpx::soft
