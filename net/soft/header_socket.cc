#include "net/soft/header_socket.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <span>

#include "base/text.h"
#include "net/soft/recv_socket.h"

namespace tcpx::soft {
namespace {

// Reads before other sockets of the thread get their turn.
constexpr int kReadsPerTurn = 8;

}  // namespace

IoHandler::Next HeaderSocket::on_ready() {
  comm_.on_control_ready();
  for (int i = 0; i < kReadsPerTurn; ++i) {
    waits_.store(!hand_out());
    if (waits_.load()) return Next::kWait;
    const bool was_closed = is_closed();
    const size_t n = read(std::span(bytes_).subspan(held_));
    if (n == 0) {
      if (is_closed() && !was_closed)
        for (const auto& socket : sockets_) socket->end_headers();
      return Next::kWait;
    }
    held_ += n;
    reads_.store(reads() + 1, std::memory_order_relaxed);  // no other thread writes it
  }
  return Next::kAgain;
}

// The end itself is read after all headers before it: late, or never, while a data socket takes none.
void HeaderSocket::on_hang_up() {
  comm_.socket_ended(Status(Code::kPeerGone, "control socket", "closed by the peer"));
}

// Headers that were handed out may still be in bytes_.
void HeaderSocket::on_out_of_memory() noexcept {
  failed_ = true;
  ControlSocket::on_out_of_memory();
}

bool HeaderSocket::hand_out() {
  if (failed_) return false;
  size_t given = 0;
  bool has_room = true;
  for (; has_room && held_ - given >= kChunkHeaderBytes; given += has_room ? kChunkHeaderBytes : 0) {
    const auto header =
        decode_chunk_header(std::span(bytes_).subspan(given).first<kChunkHeaderBytes>(), comm_.most_chunk_bytes());
    if (!header.is_ok()) return fail(header.status());
    if (const Status status = check(*header); !status.is_ok()) return fail(status);
    sequence_ = header->sequence;
    has_room = sockets_[header->socket]->push_header(*header);
  }
  std::copy(bytes_.begin() + given, bytes_.begin() + held_, bytes_.begin());
  held_ -= given;
  return has_room;
}

Status HeaderSocket::check(const ChunkHeader& header) const {
  constexpr const char* kOperation = "receive header";
  if (header.socket >= sockets_.size())
    return Status(Code::kProtocol, kOperation, concat("data socket ", header.socket, " of ", sockets_.size()));
  if (header.sequence < sequence_)
    return Status(Code::kProtocol, kOperation, concat("message ", header.sequence, " after message ", sequence_));
  return Status::ok();
}

bool HeaderSocket::fail(const Status& why) {
  failed_ = true;
  comm_.fail(why);
  return false;
}

uint32_t HeaderSocket::unread() const {
  int bytes = 0;
  return !waits_.load() && ::ioctl(fd(), FIONREAD, &bytes) == 0 ? static_cast<uint32_t>(bytes) : 0;
}

}  // namespace tcpx::soft
