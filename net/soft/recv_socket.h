// One data socket of a RecvComm: reads a chunk header, asks the comm where the chunk goes, reads it there.
#pragma once

#include <array>
#include <atomic>
#include <span>
#include <vector>

#include "net/soft/recv_comm.h"

namespace tcpx::soft {

class RecvSocket final : public SocketHandler {
 public:
  RecvSocket(UniqueFd fd, RecvComm& comm) : SocketHandler(std::move(fd)), comm_(comm) {}
  ~RecvSocket() override { stop(); }

  /// Any thread: what this socket waited for may have come.
  void kick_if_parked() const {
    if (parked_.load(std::memory_order_seq_cst)) kick();
  }

  Next on_ready() override;

 private:
  enum class Stage { kHeader, kLanding, kPayload, kEnded };
  enum class Step { kGoOn, kStop };
  Step read_header();
  Step find_landing();
  Step read_payload();
  /// Reads once into `pieces`. @return bytes read, 0 when the socket is empty for now or has ended (stage_ tells).
  size_t read_some(std::span<iovec> pieces);
  void end(const Status& why);
  void finish_chunk();

  RecvComm& comm_;
  Stage stage_ = Stage::kHeader;
  std::array<std::byte, kChunkHeaderBytes> header_bytes_{};
  size_t header_read_ = 0;
  ChunkHeader header_;
  Landing landing_ = Landing::kMemory;
  std::vector<iovec> destination_;  // what is still to be filled starts at piece_
  size_t piece_ = 0;
  uint32_t payload_left_ = 0;
  std::atomic<bool> parked_{false};
};

}  // namespace tcpx::soft
