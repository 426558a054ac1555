// The receiving end of a control socket that brings the chunk headers (net/soft/wire.h): each goes to the queue of its data socket.
//
// While that queue is full the control socket is not read, and TCP slows the sender down. This holds up no message that could arrive:
// headers come in the order of messages, so all that the oldest one needs lie before the header that waits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "net/soft/recv_comm.h"

namespace tcpx::soft {

class HeaderSocket final : public ControlSocket {
 public:
  /// @param sockets the data sockets by number; all are there before this is started
  HeaderSocket(UniqueFd fd, SoftRecvComm& comm, const std::vector<std::unique_ptr<RecvSocket>>& sockets)
      : ControlSocket(std::move(fd), comm), comm_(comm), sockets_(sockets) {}
  ~HeaderSocket() override { stop(); }

  Next on_ready() override;
  void on_hang_up() override;
  void on_out_of_memory() noexcept override;

  /// Bytes that have arrived and will be read without anybody's help. Any thread.
  uint32_t unread() const;
  /// Changes whenever bytes have been read. Any thread.
  uint64_t reads() const { return reads_.load(std::memory_order_relaxed); }

 private:
  /// Gives the headers that have come to the data sockets. False: a queue is full, or the comm has failed.
  bool hand_out();
  Status check(const ChunkHeader& header) const;
  bool fail(const Status& why);

  SoftRecvComm& comm_;
  const std::vector<std::unique_ptr<RecvSocket>>& sockets_;
  std::array<std::byte, 64 * kChunkHeaderBytes> bytes_;
  size_t held_ = 0;        // at the beginning of bytes_
  uint64_t sequence_ = 0;  // of the last header
  bool failed_ = false;
  std::atomic<bool> waits_{false};  // for a data socket to take a header, or for nothing
  std::atomic<uint64_t> reads_{0};
};

}  // namespace tcpx::soft
