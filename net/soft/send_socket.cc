#include "net/soft/send_socket.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

#include "base/socket_io.h"

namespace tcpx::soft {
namespace {

// Chunks in a row before other sockets of the thread get their turn.
constexpr int kChunksPerTurn = 4;

}  // namespace

Status SendSocket::prepare_staging(MemoryOps& memory, int device, uint32_t chunk_bytes) {
  if (lane_) return Status::ok();
  auto staging = memory.allocate_mapped(device, chunk_bytes);
  if (!staging.is_ok()) return staging.status();
  auto lane = memory.make_copy_lane(device);
  if (!lane.is_ok()) return lane.status();
  staging_ = std::move(*staging);
  lane_ = std::move(*lane);
  return Status::ok();
}

IoHandler::Next SendSocket::on_ready() {
  for (int i = 0; i < kChunksPerTurn; ++i) {
    if (!busy_) {
      if (!comm_.claim(index_, chunk_)) {
        check_peer();
        return Next::kWait;
      }
      if (!load_chunk()) return Next::kWait;
    }
    if (!write_chunk()) return Next::kWait;
    comm_.chunk_sent(chunk_);
    busy_ = false;
  }
  return Next::kAgain;
}

bool SendSocket::load_chunk() {
  payload_ = chunk_.data;
  if (!chunk_.host_readable && chunk_.header.bytes > 0) {
    if (Status status = lane_->copy(staging_.host(), chunk_.data, chunk_.header.bytes); !status.is_ok()) {
      comm_.fail(status);
      return false;
    }
    payload_ = staging_.host();
  }
  encode_chunk_header(chunk_.header, header_);
  written_ = 0;
  busy_ = true;
  return true;
}

bool SendSocket::write_chunk() {
  const size_t size = kChunkHeaderBytes + chunk_.header.bytes;
  while (written_ < size) {
    iovec pieces[2];
    msghdr message{};
    message.msg_iov = pieces;
    if (written_ < kChunkHeaderBytes) {
      pieces[message.msg_iovlen++] = {header_.data() + written_, kChunkHeaderBytes - written_};
    }
    const size_t payload_written = written_ < kChunkHeaderBytes ? 0 : written_ - kChunkHeaderBytes;
    if (chunk_.header.bytes > payload_written) {
      pieces[message.msg_iovlen++] = {const_cast<std::byte*>(payload_) + payload_written, chunk_.header.bytes - payload_written};
    }
    const ssize_t n = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      written_ += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      comm_.fail(system_error("send", errno));
      return false;
    }
  }
  return true;
}

// The receiver never writes to a data socket, so anything readable here is its end.
void SendSocket::check_peer() {
  std::byte byte;
  const ssize_t n = ::recv(fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n > 0) {
    comm_.fail(Status(Code::kProtocol, "data socket", "bytes from the receiving side"));
  } else if (n == 0) {
    comm_.fail(Status(Code::kPeerGone, "data socket", "closed by the peer"));
  } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    comm_.fail(system_error("data socket", errno));
  }
}

}  // namespace tcpx::soft
