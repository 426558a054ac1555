#include "net/soft/send_socket.h"

#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/log.h"
#include "base/socket_io.h"

namespace tcpx::soft {
namespace {

// Least bytes that a socket writes before other sockets of the thread get their turn. Few: when the thread receives as well,
// bytes over a loopback are then read while they are in the cache.
constexpr size_t kWrittenPerTurn = 128 * 1024;
// Pieces are taken ahead up to this many bytes: two full slots, one being written and one being copied.
constexpr uint64_t kAheadBytes = 2 * StagingPool::kSlotBytes;
// So much is enough for a write where nothing has to be copied first: the comm would add short chunks only, and while each socket asks it
// twice for its part of a message, the others wait for the lock.
constexpr uint64_t kEnoughBytes = 64 * 1024;
// Copying fewer bytes costs less than holding their pages and being notified.
constexpr uint32_t kLeastWithoutCopy = 64 * 1024;

}  // namespace

void SendSocket::close() {
  stop();
  try {
    collect_lent();
  } catch (const std::bad_alloc&) {  // the pool goes on with those
  }
  for (Piece& piece : pieces_) let_go_of_slot(piece);
  chunk_.staged = {};
  staging_.forget(*this);
  // The kernel would send what is in the memory by then.
  if (device_ && !device_->are_over(device_->sends())) reset_connection(take_fd());
  if (!lent_.empty()) staging_.depart(std::move(departure_), take_fd(), std::move(sends_), std::exchange(lent_, {}));
}

void SendSocket::on_hang_up() {
  collect_lent();
  if (const Status status = collect_acknowledged(); !status.is_ok()) comm_.fail(status);
  check_peer();
}

IoHandler::Next SendSocket::on_ready() {
  if (failed_) return give_way();
  size_t written = 0;
  while (written < kWrittenPerTurn) {
    take_pieces();
    if (count_ == 0) {
      check_peer();
      return Next::kWait;
    }
    switch (write_pieces(written)) {
      case Step::kWrote:
        break;
      case Step::kCopying:
        return Next::kAgain;  // a few microseconds: less than a wake-up takes
      case Step::kNoSlot:
        return Next::kWait;  // in line; the pool kicks
      case Step::kFull:
      case Step::kFailed:
        return give_way();
    }
  }
  return Next::kAgain;
}

void SendSocket::take_pieces() {
  while (count_ < kPieces && queued_bytes_ - written_ < kAheadBytes) {
    if (!cutting_) {
      if (!chunk_.is_copied && queued_bytes_ - written_ >= kEnoughBytes) return;
      if (!comm_.claim(index_, queued_bytes_ - written_, chunk_)) return;
      if (chunk_.header_is_sent && chunk_.header.bytes == 0) {  // nothing is left of it
        comm_.chunk_sent(chunk_.header.sequence);
        continue;
      }
      cutting_ = true;
      cut_ = 0;
    }
    append_piece();
  }
}

void SendSocket::append_piece() {
  Piece& next = piece(count_);
  next.header_bytes = 0;
  if (cut_ == 0 && !chunk_.header_is_sent) {
    encode_chunk_header(chunk_.header, next.header);
    next.header_bytes = kChunkHeaderBytes;
  }
  next.source = chunk_.data + cut_;
  next.bound = chunk_.source;
  next.list = chunk_.list;
  next.bytes = chunk_.header.bytes - cut_;
  next.state = State::kReady;
  if (!chunk_.host_readable && next.bound == nullptr && next.bytes > 0) {
    const uint32_t at = chunk_.header.offset + cut_;
    if (const auto& slot = StagingPool::slot_of(chunk_.staged, at); slot != nullptr) {
      next.slot = slot;
      next.slot_at = at % StagingPool::kSlotBytes;
      next.bytes = std::min(next.bytes, slot->bytes() - next.slot_at);
      next.state = State::kCopying;
    } else {
      next.bytes = std::min(next.bytes, StagingPool::kSlotBytes);
      next.state = State::kUncopied;
    }
  }
  next.sequence = chunk_.header.sequence;
  cut_ += next.bytes;
  next.ends_chunk = cut_ == chunk_.header.bytes;
  cutting_ = !next.ends_chunk;
  if (!cutting_) chunk_.staged = {};
  queued_bytes_ += next.size();
  ++count_;
}

void SendSocket::start_copies() {
  for (uint32_t i = 0; i < count_; ++i) {
    Piece& next = piece(i);
    if (next.state != State::kUncopied) continue;
    StagingPool::Slot slot = staging_.try_take(*this);
    if (!slot && i == 0 && holds_slots()) {
      // Later pieces that came with their slots. A socket that cannot go on must wait in line, holding none meanwhile.
      give_slots_back();
      slot = staging_.try_take(*this);
    }
    if (!slot) break;
    // A piece that gave its slot back may have been written in part.
    const uint32_t done = i == 0 && written_ > next.header_bytes ? written_ - next.header_bytes : 0;
    slot.copy(done, next.source + done, next.bytes - done);
    next.slot = std::make_shared<StagingPool::SharedSlot>(std::move(slot), next.bytes);
    next.slot_at = 0;
    next.state = State::kCopying;
  }
}

Status SendSocket::see_copied(Piece& piece) {
  if (piece.state != State::kCopying) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(const auto copied, piece.slot->is_copied());
  if (copied) piece.state = State::kReady;
  return Status::ok();
}

SendSocket::Step SendSocket::write_pieces(size_t& written) {
  // A full socket waiting in line for a slot would only pass it on.
  if (full_ && piece(0).state == State::kUncopied && !has_room()) return Step::kFull;
  start_copies();  // first of all: it takes what was kept for it, and if the socket is full, passes it on
  if (records_ != nullptr && records_->has_unsent()) return write_records({}, written);
  if (piece(0).bound != nullptr) return write_bound(written);
  parts_.clear();
  int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
  bool without_copy = false;
  uint32_t skip = written_;
  // As many as a call takes; perhaps not all of the last piece.
  for (uint32_t i = 0; i < count_ && parts_.size() + 2 <= IOV_MAX; ++i) {
    Piece& next = piece(i);
    if (Status status = see_copied(next); !status.is_ok()) return fail(status);
    if (next.state != State::kReady || next.bound != nullptr) break;
    if (next.header_bytes > skip) parts_.push_back({next.header.data() + skip, next.header_bytes - skip});
    skip -= std::min(skip, next.header_bytes);
    if (goes_without_copy(next, skip)) {
      // Alone: the memory of headers is reused at once.
      without_copy = parts_.empty();
      if (!without_copy) {
        flags |= MSG_MORE;
        break;
      }
    }
    const std::byte* payload = next.slot ? next.slot->data() + next.slot_at : next.source;
    if (next.list != nullptr) {
      next.list->append_to(parts_, static_cast<uint64_t>(payload - next.list->begin()) + skip, next.bytes - skip, IOV_MAX);
    } else if (next.bytes > skip) {
      parts_.push_back({const_cast<std::byte*>(payload) + skip, next.bytes - skip});
    }
    if (without_copy) break;
    skip = 0;
  }
  if (parts_.empty()) return piece(0).state == State::kUncopied ? Step::kNoSlot : Step::kCopying;
  if (records_ != nullptr) return write_records(parts_, written);
  ssize_t n = send_parts(without_copy ? flags | MSG_ZEROCOPY : flags);
  if (without_copy && n >= 0) piece(0).zero_copy_send = sends_.sent();
  if (without_copy && n < 0 && is_refusal(errno)) {
    sends_.refused();
    judge_zero_copy();
    n = send_parts(flags);
  }
  full_ = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  if (full_) return Step::kFull;
  if (n < 0) return fail(stream_error("send", errno));
  written += static_cast<size_t>(n);
  retire(static_cast<size_t>(n));
  return Step::kWrote;
}

SendSocket::Step SendSocket::write_bound(size_t& written) {
  const Piece& next = piece(0);
  const auto off = static_cast<uint64_t>(next.source - next.bound->begin);
  const auto sent = device_->try_send(next.bound->dmabuf, off + written_, next.bytes - written_);
  if (!sent.is_ok()) return fail(sent.status());
  if (*sent == 0) {
    // Perhaps the kernel could not note more sends, and has read of the end of all of them just now.
    full_ = !device_->are_over(device_->sends()) || !has_room();
    return full_ ? Step::kFull : Step::kCopying;
  }
  full_ = false;
  written += *sent;
  retire(*sent);
  return Step::kWrote;
}

Status SendSocket::collect_acknowledged() {
  if (!device_ || device_->are_over(device_->sends())) return Status::ok();
  TCPX_RETURN_IF_ERROR(device_->read_completions());
  for (; !unacknowledged_.empty() && device_->are_over(unacknowledged_.front().sends); unacknowledged_.pop_front())
    comm_.chunk_sent(unacknowledged_.front().sequence);
  return Status::ok();
}

bool SendSocket::goes_without_copy(Piece& piece, uint32_t done) {
  if (!zero_copy_ || !piece.slot || piece.bytes - done < kLeastWithoutCopy) return false;
  return piece.zero_copy_send || (lent_.size() < kMostLent && piece.slot->lend());
}

SendSocket::Step SendSocket::write_records(std::span<const iovec> parts, size_t& written) {
  const auto gone = records_->write(parts);
  if (!gone.is_ok()) return fail(gone.status());
  full_ = *gone == 0;
  if (full_) return Step::kFull;
  written += *gone;
  retire(*gone);
  return Step::kWrote;
}

ssize_t SendSocket::send_parts(int flags) {
  msghdr message{};
  message.msg_iov = parts_.data();
  message.msg_iovlen = parts_.size();
  ssize_t n;
  do n = ::sendmsg(fd(), &message, flags);
  while (n < 0 && errno == EINTR);
  return n;
}

void SendSocket::let_go_of_slot(Piece& piece) {
  if (is_read(piece)) {
    piece.slot->leave_client();
    lent_.push_back({std::move(piece.slot), *piece.zero_copy_send});
  }
  piece.slot.reset();
  piece.zero_copy_send.reset();
}

void SendSocket::collect_lent() {
  if (sends_.all_over()) return;
  read_notifications(fd(), sends_);
  std::erase_if(lent_, [&](const StagingPool::LentSlot& lent) { return sends_.is_over(lent.last_send); });
  judge_zero_copy();
}

void SendSocket::judge_zero_copy() {
  if (!zero_copy_ || sends_.is_worth_it()) return;
  zero_copy_ = false;
  log(LogLevel::kDebug, "tcpx-soft: to ", comm_.peer(), " bytes are copied from now on: ", sends_.trouble());
}

void SendSocket::retire(size_t written) {
  written += written_;
  for (; count_ > 0 && written >= piece(0).size(); --count_) {
    Piece& done = piece(0);
    written -= done.size();
    queued_bytes_ -= done.size();
    let_go_of_slot(done);
    if (done.bound != nullptr) {
      unacknowledged_.push_back({done.sequence, device_->sends()});
    } else if (done.ends_chunk) {
      comm_.chunk_sent(done.sequence);
    }
    first_ = (first_ + 1) % kPieces;
  }
  written_ = static_cast<uint32_t>(written);
}

SendSocket::Step SendSocket::fail(const Status& why) {
  comm_.fail(why);
  stand_still();
  return Step::kFailed;
}

void SendSocket::stand_still() noexcept {
  staging_.forget(*this);  // a client that never takes its slot must not stay in line
  failed_ = true;
}

void SendSocket::on_out_of_memory() noexcept {
  comm_.fail_without_memory();
  stand_still();
}

IoHandler::Next SendSocket::give_way() {
  if (!staging_.is_contended()) return Next::kWait;
  comm_.drop_staged();
  bool copying = false;
  for (uint32_t i = 0; i < count_; ++i) {
    // A failed copy is reported by the next write.
    if (see_copied(piece(i)).is_ok() && piece(i).state == State::kCopying) copying = true;
  }
  if (copying) return Next::kAgain;
  give_slots_back();
  return Next::kWait;
}

bool SendSocket::holds_slots() const {
  return std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return piece.slot != nullptr; });
}

void SendSocket::give_slots_back() {
  for (Piece& piece : pieces_) {
    if (!piece.slot || is_read(piece)) continue;
    let_go_of_slot(piece);
    piece.state = State::kUncopied;
  }
  chunk_.staged = {};
}

bool SendSocket::has_room() const {
  pollfd entry{fd(), POLLOUT, 0};
  return ::poll(&entry, 1, 0) > 0;
}

// The receiver never writes to a data socket, so readable means that it has ended.
void SendSocket::check_peer() {
  std::byte byte;
  const ssize_t n = ::recv(fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n > 0) {
    comm_.fail(Status(Code::kProtocol, "data socket", "bytes from the receiving side"));
  } else if (n == 0) {
    comm_.fail(Status(Code::kPeerGone, "data socket", "closed by the peer"));
  } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    comm_.fail(stream_error("data socket", errno));
  }
}

}  // namespace tcpx::soft
