#include "wire/control_stream.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"
#include "wire/host_signs.h"
#include "wire/operation_payload.h"

namespace tcpx {
namespace {

constexpr size_t kSmallBufferBytes = 64u << 10;  // a quiet stream keeps at most this
constexpr size_t kReadBytes = 256u << 10;        // a busy stream reads this much at once
constexpr int kMaxReadsOfALeaver = 16;
constexpr size_t kReadPerCall = 1u << 20;  // bounded, so that one stream does not hold up the others
// The kernel probes an idle peer once a second. `check_alive` decides earlier whether the peer has been silent for too long, so
// the kernel is told to give up as late as possible.
constexpr KeepAlive kKeepAlive{.idle = std::chrono::seconds(1), .interval = std::chrono::seconds(1), .probes = 127};

bool is_tcp(int fd) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  return ::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 && protocol == IPPROTO_TCP;
}

// Checks an idle stream without a buffer. True for data, the end of the stream, and errors, all of which the next recv will
// return.
bool has_something(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) != 0;
}

// True when the buffer is larger than its use since the last look justifies.
bool is_unused(size_t buffer_bytes, size_t peak) {
  if (peak > kReadBytes) return false;
  return buffer_bytes > (peak == 0 ? 0 : peak <= kSmallBufferBytes ? kSmallBufferBytes : kReadBytes);
}

}  // namespace

std::unique_ptr<PeerMailbox> ControlStream::mailbox_to(bool sender) {
  class Mailbox final : public PeerMailbox {
   public:
    Mailbox(ControlStream& stream, bool to_sender) : stream_(stream), to_sender_(to_sender) {}
    Status post(PeerMessage type, std::span<const std::byte> payload) override {
      stream_.send(LaneFrame{.to_sender = to_sender_, .what = static_cast<uint64_t>(type), .words = payload});
      return stream_.status();
    }

   private:
    ControlStream& stream_;
    const bool to_sender_;
  };
  return std::make_unique<Mailbox>(*this, sender);
}

// Bytes that have come over the socket and were not taken are from before the change, and for nobody.
void ControlStream::attach(std::unique_ptr<SharedStream> shared) {
  assert(!shared_ && shared);
  close();
  incoming_begin_ = incoming_end_ = incoming_wanted_ = 0;
  holds_frame_ = false;
  shared_ = std::move(shared);
}

void ControlStream::attach(UniqueFd socket, std::unique_ptr<TlsSession> tls) {
  assert(!socket_ && !shared_ && socket);
  socket_ = std::move(socket);
  tls_ = std::move(tls);
  attached_at_ = Clock::steady().now();
  if (!is_tcp(socket_.get())) return;
  if (Status status = send_without_delay(socket_.get()); !status.is_ok()) fail(std::move(status));
  if (Status status = set_keep_alive(socket_.get(), kKeepAlive); !status.is_ok()) fail(std::move(status));
}

void ControlStream::fail(Status reason) {
  assert(!reason.is_ok());
  if (!status_.is_ok()) return;
  status_ = std::move(reason);
  is_cut_ = backlog() > 0 || !send_error_.is_ok();
  outgoing_.clear();
  outgoing_sent_ = 0;
  // This end may keep the stream for long, but the peer must learn of the end now.
  if (tls_ && !last_words_) tls_->say_goodbye();
  if (socket_ && !last_words_) (void)::shutdown(socket_.get(), SHUT_WR);
  if (shared_) shared_->end();
}

void ControlStream::close_with(const Frame& last) {
  if (socket_ && backlog() == 0 && send_error_.is_ok() && !is_cut_) {
    const auto bytes = encode_frame(last);
    if (tls_) {
      (void)tls_->write(bytes);
      tls_->say_goodbye();
    } else {
      (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    (void)::shutdown(socket_.get(), SHUT_WR);
    // Closing a socket with unread data would reset the connection, and the frame could be lost.
    std::array<std::byte, 4096> unread;
    for (int i = 0; i<kMaxReadsOfALeaver&& ::recv(socket_.get(), unread.data(), unread.size(), MSG_DONTWAIT)> 0; ++i) {
    }
  }
  close();
}

bool ControlStream::takes_frames() {
  if (backlog() > kMaxBacklogBytes)
    fail(Status(Code::kExhausted, "send frame", concat("the peer does not read: ", backlog(), " bytes wait for it")));
  return status_.is_ok() && send_error_.is_ok();
}

// Gives the backlog, `data` and `end` to the socket or the shared memory. @return number of bytes taken, may be 0
Result<size_t> ControlStream::hand_over(std::span<const std::byte> data, std::span<const std::byte> end) {
  const std::span<const std::byte> waiting = std::span(outgoing_).subspan(outgoing_sent_);
  const std::array<std::span<const std::byte>, 3> all{waiting, data, end};
  const auto in_turn = [&](auto& to) -> Result<size_t> {
    size_t total = 0;
    for (const auto part : all) {
      if (part.empty()) continue;
      TCPX_ASSIGN_OR_RETURN(const size_t taken, to.write(part));
      total += taken;
      if (taken < part.size()) break;
    }
    return total;
  };
  if (shared_) return in_turn(*shared_);
  if (tls_) return in_turn(*tls_);
  if (!socket_) return size_t{0};
  std::array<iovec, all.size()> parts;
  std::transform(all.begin(), all.end(), parts.begin(), [](auto part) {
    return iovec{const_cast<std::byte*>(part.data()), part.size()};
  });
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t n = 0;
  do n = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n >= 0) return static_cast<size_t>(n);
  if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
  return stream_error("send frame", errno);
}

// Reads bytes into `room`. @return number of bytes read, may be 0; kPeerGone without an errno at the end of the stream
Result<size_t> ControlStream::take_in(std::span<std::byte> room) {
  if (shared_) return shared_->read(room);
  if (tls_) return tls_->read(room);
  ssize_t n = 0;
  do n = ::recv(socket_.get(), room.data(), room.size(), MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n > 0) return static_cast<size_t>(n);
  if (n == 0) return Status(Code::kPeerGone, "read frame", "connection closed by the peer");
  if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
  return stream_error("read frame", errno);
}

// @param begin of the frame in the backlog, which has all but its data
void ControlStream::send_with_backlog(size_t begin, std::span<const std::byte> data) {
  const FrameCheck check = check_of(std::span(outgoing_).subspan(begin));
  const auto end = std::as_bytes(std::span(&check, 1));
  const size_t before = backlog();
  // TLS gets all from the backlog: a record and a system call for all, not for each part.
  const Result<size_t> taken = tls_ ? Result<size_t>(size_t{0}) : hand_over(data, end);
  if (!taken.is_ok()) return fail_to_send(taken.status());
  const size_t of_rest = *taken - std::min(*taken, before), of_data = std::min(of_rest, data.size());
  drop_sent(*taken - of_rest);
  append(outgoing_, data.subspan(of_data));
  append(outgoing_, end.subspan(of_rest - of_data));
  outgoing_peak_ = std::max(outgoing_peak_, outgoing_.size());
  if (tls_) (void)flush_backlog();
}

bool ControlStream::flush_backlog() {
  const Result<size_t> taken = hand_over({}, {});
  if (!taken.is_ok()) {
    fail_to_send(taken.status());
    return false;
  }
  drop_sent(*taken);
  return *taken > 0;
}

void ControlStream::fail_to_send(const Status& why) {
  send_error_ = why;
  outgoing_.clear();
  outgoing_sent_ = 0;
}

void ControlStream::drop_sent(size_t bytes) {
  outgoing_sent_ += bytes;
  if (outgoing_sent_ == outgoing_.size()) {
    outgoing_.clear();
    outgoing_sent_ = 0;
  } else if (outgoing_sent_ > outgoing_.size() / 2) {  // each byte is moved once at most, on average
    outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<ptrdiff_t>(outgoing_sent_));
    outgoing_sent_ = 0;
  }
}

// Makes the buffer hold `bytes` bytes from `incoming_begin_` on.
void ControlStream::make_room(size_t bytes) {
  const size_t kept = incoming_end_ - incoming_begin_;
  if (bytes > incoming_bytes_) {
    auto larger = std::make_unique_for_overwrite<std::byte[]>(bytes);
    if (kept > 0) std::memcpy(larger.get(), incoming_.get() + incoming_begin_, kept);
    incoming_ = std::move(larger);
    incoming_bytes_ = bytes;
  } else if (incoming_begin_ > 0 && kept > 0) {
    std::memmove(incoming_.get(), incoming_.get() + incoming_begin_, kept);
  }
  incoming_begin_ = 0;
  incoming_end_ = kept;
}

// True when a read is worth trying. Once there is a buffer it always is: recv itself shows whether data has come, which saves a
// system call.
bool ControlStream::may_read() {
  if (shared_) return shared_->has_something();
  return socket_ && (incoming_ || has_decrypted() || has_something(socket_.get()));
}

bool ControlStream::receive(ControlSink& sink, bool readable) {
  if (shared_ && readable) shared_->look_at_socket();
  size_t total = 0;
  const bool held = holds_frame_;
  if (held) parse(sink);
  const bool taken_up = held && !holds_frame_;
  bool more = !holds_frame_ && may_read();
  while (more && total < kReadPerCall && status_.is_ok() && !holds_frame_) {
    // A buffer that the last read filled was too small.
    const size_t usual = incoming_peak_ >= kSmallBufferBytes ? kReadBytes : kSmallBufferBytes;
    const size_t wanted = std::max(usual, incoming_wanted_);
    make_room(wanted);
    // Even a larger buffer is filled no further, so that its use shows when it can be freed.
    const size_t room = std::min(wanted - incoming_end_, kReadPerCall - total);
    const Result<size_t> taken = take_in({incoming_.get() + incoming_end_, room});
    if (!taken.is_ok()) {
      const Status& why = taken.status();
      const size_t left = incoming_end_ - incoming_begin_;
      const bool cut = why.code() == Code::kPeerGone && why.domain() != Domain::kErrno && left > 0;
      fail(cut ? Status(why.code(), why.operation(), concat(why.detail(), " after ", left, " bytes of a frame")) : why);
    } else if (*taken > 0) {
      incoming_end_ += *taken;
      incoming_peak_ = std::max(incoming_peak_, incoming_end_);
      total += *taken;
      parse(sink);
    }
    more = taken.is_ok() && *taken == room;
  }
  if (!more && !send_error_.is_ok()) fail(send_error_);  // everything that the peer has sent has been read
  return total > 0 || taken_up;
}

void ControlStream::parse(ControlSink& sink) {
  incoming_wanted_ = 0;
  holds_frame_ = false;
  while (status_.is_ok() && incoming_end_ - incoming_begin_ >= sizeof(FrameHeader)) {
    FrameHeader header;
    std::memcpy(&header, incoming_.get() + incoming_begin_, sizeof header);
    if (Status status = check_header(header); !status.is_ok()) return fail(std::move(status));
    holds_frame_ = !sink.takes(header);
    if (holds_frame_) return;
    const size_t frame_bytes = sizeof header + header.payload_bytes + sizeof(FrameCheck);
    if (frame_bytes > incoming_end_ - incoming_begin_) {
      incoming_wanted_ = frame_bytes;
      return;
    }
    if (Status status = verify_check({incoming_.get() + incoming_begin_, frame_bytes}); !status.is_ok())
      return fail(std::move(status));
    const std::span<const std::byte> payload(incoming_.get() + incoming_begin_ + sizeof header, header.payload_bytes);
    if (Status status = sink.on_frame(header, payload); !status.is_ok()) return fail(std::move(status));
    incoming_begin_ += frame_bytes;
  }
  const std::span<const std::byte> begun(incoming_.get() + incoming_begin_, incoming_end_ - incoming_begin_);
  if (Status status = check_magic(begun); status_.is_ok() && !status.is_ok()) fail(std::move(status));
}

void ControlStream::free_unused() {
  if (backlog() == 0 && is_unused(outgoing_.capacity(), outgoing_peak_)) std::vector<std::byte>().swap(outgoing_);
  if (incoming_begin_ == incoming_end_ && is_unused(incoming_bytes_, incoming_peak_)) {
    incoming_.reset();
    incoming_bytes_ = incoming_begin_ = incoming_end_ = 0;
  }
  outgoing_peak_ = backlog();
  incoming_peak_ = incoming_end_ - incoming_begin_;
}

void ControlStream::check_alive(Duration silence) {
  free_unused();
  if (shared_) shared_->look_at_socket();
  // Silence from before `attach` does not count: the keep-alive probes were not running yet.
  if (!socket_ || !status_.is_ok() || Clock::steady().now() - attached_at_ < silence) return;
  const std::optional<HostSigns> signs = host_signs(socket_.get());
  if (!signs || !is_silent(*signs, silence)) return;
  fail(Status(Code::kPeerGone, "check the peer",
              concat("its host has not answered for ", std::min(signs->since_ack, signs->since_data).count(), " ms")));
}

}  // namespace tcpx
