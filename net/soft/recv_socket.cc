#include "net/soft/recv_socket.h"

#include <limits.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx::soft {
namespace {

// Chunks in a row before other sockets of the thread get their turn.
constexpr int kChunksPerTurn = 4;

// Where the payload of a refused message goes.
std::span<std::byte> waste_bin() {
  thread_local std::array<std::byte, 65536> bin;
  return bin;
}

}  // namespace

IoHandler::Next RecvSocket::on_ready() {
  for (int chunks = 0; chunks < kChunksPerTurn;) {
    Step step = Step::kStop;
    switch (stage_) {
      case Stage::kHeader:
        step = read_header();
        break;
      case Stage::kLanding:
        step = find_landing();
        break;
      case Stage::kPayload:
        step = read_payload();
        break;
      case Stage::kEnded:
        break;
    }
    if (step == Step::kStop) return Next::kWait;
    if (stage_ == Stage::kHeader) ++chunks;
  }
  return Next::kAgain;
}

size_t RecvSocket::read_some(std::span<iovec> pieces) {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = std::min<size_t>(pieces.size(), IOV_MAX);
  ssize_t n;
  do n = ::recvmsg(fd(), &message, MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n > 0) return static_cast<size_t>(n);
  if (n == 0) {
    const bool between_chunks = stage_ == Stage::kHeader && header_read_ == 0;
    end(Status(Code::kPeerGone, "data socket",
               between_chunks ? "closed by the peer" : "closed by the peer in the middle of a message"));
  } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
    end(system_error("data socket", errno));
  }
  return 0;
}

void RecvSocket::end(const Status& why) {
  stage_ = Stage::kEnded;
  comm_.socket_ended(why);
}

RecvSocket::Step RecvSocket::read_header() {
  iovec piece = {header_bytes_.data() + header_read_, kChunkHeaderBytes - header_read_};
  const size_t n = read_some({&piece, 1});
  if (n == 0) return Step::kStop;
  header_read_ += n;
  if (header_read_ < kChunkHeaderBytes) return Step::kGoOn;
  header_read_ = 0;
  const auto header = decode_chunk_header(header_bytes_, comm_.chunk_bytes());
  if (!header.is_ok()) {
    stage_ = Stage::kEnded;
    comm_.fail(header.status());
    return Step::kStop;
  }
  header_ = *header;
  stage_ = Stage::kLanding;
  return Step::kGoOn;
}

RecvSocket::Step RecvSocket::find_landing() {
  // Parked is announced before asking, so that whatever changes after the answer finds it and kicks.
  parked_.store(true, std::memory_order_seq_cst);
  landing_ = comm_.begin_chunk(header_, destination_);
  if (landing_ == Landing::kParked) return Step::kStop;
  parked_.store(false, std::memory_order_seq_cst);
  if (landing_ == Landing::kFailed) {
    stage_ = Stage::kEnded;
    return Step::kStop;
  }
  payload_left_ = header_.bytes;
  piece_ = 0;
  stage_ = Stage::kPayload;
  if (payload_left_ == 0) finish_chunk();
  return Step::kGoOn;
}

RecvSocket::Step RecvSocket::read_payload() {
  size_t n;
  if (landing_ == Landing::kDiscard) {
    const std::span<std::byte> bin = waste_bin();
    iovec piece = {bin.data(), std::min<size_t>(bin.size(), payload_left_)};
    n = read_some({&piece, 1});
  } else {
    n = read_some(std::span(destination_).subspan(piece_));
  }
  if (n == 0) return Step::kStop;
  payload_left_ -= static_cast<uint32_t>(n);
  if (payload_left_ == 0) {
    finish_chunk();
    return Step::kGoOn;
  }
  if (landing_ == Landing::kMemory) {
    for (; n >= destination_[piece_].iov_len; ++piece_) n -= destination_[piece_].iov_len;
    destination_[piece_].iov_base = static_cast<std::byte*>(destination_[piece_].iov_base) + n;
    destination_[piece_].iov_len -= n;
  }
  comm_.made_progress();
  return Step::kGoOn;
}

void RecvSocket::finish_chunk() {
  comm_.end_chunk(header_, landing_);
  stage_ = Stage::kHeader;
}

}  // namespace tcpx::soft
