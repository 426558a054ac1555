#include "wire/bootstrap_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"
#include "wire/messages.h"

namespace tcpx {
namespace {

// Most frames that a peer can be ahead of this end. No use of the channel needs more, and it bounds what a peer can make us
// store.
constexpr size_t kMaxInbox = 8;
// Most frames read in one call, so that a peer that never stops sending holds up no deadline.
constexpr int kMaxFramesPerLook = 256;
// Most bytes of peer messages that wait for the socket. Windows keep the messages for a peer that does not read far below this.
constexpr size_t kMaxOutgoingBytes = 1u << 20;
// Most reads before this end closes: with unread data the close would reset the connection, and the last message could be lost.
constexpr int kMaxReadsOfALeaver = 16;
// Time that a stopped end still waits for the peer's result: long for a live peer, short for a user who pressed Ctrl-C.
constexpr Duration kFarewellAfterStop = std::chrono::seconds(1);

}  // namespace

Result<bool> read_frame_part(int fd, FrameAssembler& assembler) {
  while (!assembler.whole()) {
    const auto wanted = assembler.wanted();
    if (wanted.empty()) return false;
    const ssize_t n = ::recv(fd, wanted.data(), wanted.size(), MSG_DONTWAIT);
    if (n > 0) {
      TCPX_RETURN_IF_ERROR(assembler.filled(static_cast<size_t>(n)));
    } else if (n == 0) {
      return Status(Code::kPeerGone, "read frame",
                    assembler.size() == 0
                        ? std::string("connection closed by the peer")
                        : concat("connection closed by the peer after ", assembler.size(), " bytes of a frame"));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      return system_error("read frame", errno);
    }
  }
  return true;
}

class BootstrapChannel::Flow final : public PeerLink {
 public:
  Flow(BootstrapChannel& channel, uint64_t number) : channel_(channel), number_(number) {}
  ~Flow() override { deliver_to(nullptr); }

  void deliver_to(PeerMessageSink* sink) override {
    if (sink == nullptr) {
      channel_.sinks_.erase(number_);
    } else {
      channel_.sinks_[number_] = sink;
    }
  }
  Status post(PeerMessage type, std::span<const std::byte> payload) override { return channel_.post(number_, type, payload); }
  Result<bool> pump() override {
    TCPX_RETURN_IF_ERROR(channel_.flush());
    const Status status = channel_.peer_status();
    if (channel_.peer_final_ && channel_.peer_final_->is_ok()) return false;
    TCPX_RETURN_IF_ERROR(status);
    return true;
  }

 private:
  BootstrapChannel& channel_;
  const uint64_t number_;
};

BootstrapChannel::BootstrapChannel(UniqueFd socket, const SocketAddress& peer, std::string peer_build,
                                   const std::atomic<bool>* stop, std::optional<Frame> first)
    : socket_(std::move(socket)), peer_(peer), peer_build_(std::move(peer_build)), stop_(stop) {
  if (first) inbox_.push_back(std::move(*first));
}

void BootstrapChannel::watch_with(ChannelWatch& watch) {
  stop_ = &watch.stop;
  heard_at_ = &watch.heard_at;
  watch.heard_at = Clock::steady().now();
}

Status BootstrapChannel::stick(Status status) {
  if (broken_.is_ok()) broken_ = std::move(status);
  return broken_;
}

// True when the next frame is not of the set-up and is no message for a flow.
bool BootstrapChannel::peer_has_gone_on() const {
  return assembler_.ends_set_up() && (next_flow_ == 0 || assembler_.type() != FrameType::kLane);
}

// The error for a call that expected the channel to go on when the peer has sent its last frame; ok when it has not.
Status BootstrapChannel::verdict() const {
  // The error waits until all frames that came before have been taken.
  if (peer_has_gone_on() && inbox_.empty())
    return Status(Code::kProtocol, "bootstrap", "for the peer the connection is set up, for this end it is not");
  if (!peer_final_) return Status::ok();
  if (!peer_final_->is_ok()) return *peer_final_;
  return Status(Code::kProtocol, "bootstrap", "the peer has finished, this end has not");
}

// Reads what has arrived, so that a finish frame is seen even while no call has taken the frames before it.
Status BootstrapChannel::read_available() {
  const auto may_read = [&] { return broken_.is_ok() && !peer_final_ && !peer_has_gone_on() && inbox_.size() < kMaxInbox; };
  for (int taken = 0; taken < kMaxFramesPerLook && may_read(); ++taken) {
    Result<bool> whole = read_frame_part(socket_.get(), assembler_);
    if (whole.is_ok() && assembler_.ends_set_up() && !peer_has_gone_on()) {
      assembler_.go_on();
      whole = read_frame_part(socket_.get(), assembler_);
    }
    if (!whole.is_ok()) return stick(whole.status());
    if (!*whole) break;
    if (heard_at_ != nullptr) *heard_at_ = Clock::steady().now();
    if (assembler_.type() == FrameType::kLane) {
      TCPX_RETURN_IF_ERROR(deliver());
      continue;
    }
    Frame frame = assembler_.take();
    if (frame.type != FrameType::kFinish) {
      inbox_.push_back(std::move(frame));
      continue;
    }
    Status reported;
    if (Status status = decode_finish(frame, reported); !status.is_ok()) return stick(std::move(status));
    peer_final_ = std::move(reported);
  }
  return broken_;
}

std::unique_ptr<PeerLink> BootstrapChannel::open_flow() {
  return std::make_unique<Flow>(*this, next_flow_++);
}

// Hands the frame in the assembler to its flow.
Status BootstrapChannel::deliver() {
  LaneFrame frame;
  if (Status status = decode(assembler_.header(), assembler_.payload(), frame); !status.is_ok()) return stick(std::move(status));
  if (const auto sink = sinks_.find(frame.number); sink != sinks_.end())
    sink->second->on_peer_message(static_cast<PeerMessage>(frame.what), frame.words);
  (void)assembler_.take_bytes();
  return Status::ok();
}

Status BootstrapChannel::post(uint64_t flow, PeerMessage type, std::span<const std::byte> payload) {
  TCPX_RETURN_IF_ERROR(verdict());
  TCPX_RETURN_IF_ERROR(broken_);
  if (outgoing_.size() > kMaxOutgoingBytes)
    return stick(Status(Code::kExhausted, "send peer message", concat("the peer has not read ", outgoing_.size(), " bytes")));
  encode(LaneFrame{.what = static_cast<uint64_t>(type), .number = flow, .words = payload}, outgoing_);
  return flush();
}

// Sends as many peer messages as the socket takes now.
Status BootstrapChannel::flush() {
  while (outgoing_sent_ < outgoing_.size() && broken_.is_ok()) {
    const auto rest = std::span(outgoing_).subspan(outgoing_sent_);
    const ssize_t n = ::send(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      outgoing_sent_ += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<ptrdiff_t>(outgoing_sent_));
      outgoing_sent_ = 0;
      return Status::ok();
    } else if (errno != EINTR) {
      const int error = errno;
      (void)read_available();  // a peer that gave up has said why
      TCPX_RETURN_IF_ERROR(verdict());
      return stick(system_error("send peer message", error));
    }
  }
  outgoing_.clear();
  outgoing_sent_ = 0;
  return broken_;
}

// Peer messages that wait are sent first: frames must stay in order, and none may be sent inside another.
Status BootstrapChannel::send_bytes(std::span<const std::byte> bytes, Deadline deadline) {
  if (outgoing_sent_ < outgoing_.size()) {
    TCPX_RETURN_IF_ERROR(send_all(socket_.get(), std::span(outgoing_).subspan(outgoing_sent_), deadline, stop_));
    outgoing_.clear();
    outgoing_sent_ = 0;
  }
  return send_all(socket_.get(), bytes, deadline, stop_);
}

Status BootstrapChannel::send(const Frame& frame, Deadline deadline) {
  TCPX_RETURN_IF_ERROR(verdict());
  TCPX_RETURN_IF_ERROR(broken_);
  Status status = send_bytes(encode_frame(frame), deadline);
  if (status.is_ok()) return status;
  // A peer that gave up has sent its reason before it closed, and that is the better answer. The rest of the frame cannot be sent
  // later, so the channel is broken either way.
  (void)read_available();
  // The reason why nothing can be sent says more than the error that nothing more can be read.
  if (broken_.code() != Code::kProtocol) broken_ = std::move(status);
  TCPX_RETURN_IF_ERROR(verdict());
  return broken_;
}

Result<Frame> BootstrapChannel::receive(Deadline deadline) {
  for (;;) {
    const Status status = read_available();
    if (!inbox_.empty()) {
      Frame frame = std::move(inbox_.front());
      inbox_.pop_front();
      return frame;
    }
    TCPX_RETURN_IF_ERROR(verdict());
    TCPX_RETURN_IF_ERROR(status);
    if (deadline.expired()) return Status(Code::kTimeout, "wait for the peer", "deadline passed");
    TCPX_RETURN_IF_ERROR(wait_for(socket_.get(), POLLIN, deadline, stop_));
  }
}

Status BootstrapChannel::say_hello(Deadline deadline) {
  return send(encode_hello(TCPX_VERSION), deadline);
}

Status BootstrapChannel::hear_hello(Deadline deadline) {
  const auto frame = receive(deadline);
  if (!frame.is_ok() && peer_final_ && !peer_final_->is_ok()) return *peer_final_;
  auto build = frame.is_ok() ? decode_hello(*frame) : Result<std::string>(frame.status());
  if (build.is_ok()) {
    peer_build_ = std::move(*build);
    return Status::ok();
  }
  const Status& why = build.status();
  return Status(why.code(), concat("bootstrap with ", peer_.to_string()), why.detail(), why.domain(), why.native());
}

Status BootstrapChannel::send_handles(std::span<const Handle> handles, Deadline deadline) {
  TCPX_ASSIGN_OR_RETURN(const Frame frame, encode_handles(handles));
  return send(frame, deadline);
}

Result<std::vector<Handle>> BootstrapChannel::receive_handles(size_t max_count, Deadline deadline) {
  TCPX_ASSIGN_OR_RETURN(const Frame frame, receive(deadline));
  auto handles = decode_handles(frame, max_count);
  if (!handles.is_ok()) return stick(handles.status());
  return handles;
}

Status BootstrapChannel::send_parameters(const Parameters& mine, Deadline deadline) {
  TCPX_ASSIGN_OR_RETURN(const Frame frame, encode_parameters(mine));
  return send(frame, deadline);
}

Result<Parameters> BootstrapChannel::receive_parameters(Deadline deadline) {
  TCPX_ASSIGN_OR_RETURN(const Frame frame, receive(deadline));
  auto theirs = decode_parameters(frame);
  if (!theirs.is_ok()) return stick(theirs.status());
  return theirs;
}

Result<Parameters> BootstrapChannel::exchange_parameters(const Parameters& mine, std::span<const std::string_view> must_match,
                                                         Deadline deadline) {
  TCPX_RETURN_IF_ERROR(send_parameters(mine, deadline));
  auto theirs = receive_parameters(deadline);
  if (!theirs.is_ok()) return theirs.status();
  TCPX_RETURN_IF_ERROR(compare_parameters(mine, *theirs, must_match));
  return theirs;
}

Status BootstrapChannel::barrier(Deadline deadline) {
  TCPX_RETURN_IF_ERROR(send(encode_barrier(++barriers_), deadline));
  TCPX_ASSIGN_OR_RETURN(const Frame frame, receive(deadline));
  const Result<uint64_t> number = decode_barrier(frame);
  if (!number.is_ok()) return stick(number.status());
  if (*number != barriers_) {
    return stick(
        Status(Code::kProtocol, "bootstrap barrier", concat("this end is at barrier ", barriers_, ", the peer at ", *number)));
  }
  return Status::ok();
}

Status BootstrapChannel::peer_status() {
  const Status status = read_available();
  TCPX_RETURN_IF_ERROR(verdict());
  return status;
}

Status BootstrapChannel::finish(const Status& mine, Deadline deadline) {
  // Even when the peer's frames were malformed, this end's last frame may still reach the peer and tell it why.
  if (socket_) {
    const Status sent = send_bytes(encode_frame(encode_finish(mine)), deadline);
    bool stopped = false;
    while (!peer_final_ && !peer_has_gone_on() && broken_.is_ok()) {
      inbox_.clear();  // frames sent before the peer knew that this end is done
      (void)read_available();
      if (peer_final_ || peer_has_gone_on() || !broken_.is_ok()) break;
      Status waited = sent;
      if (sent.is_ok()) waited = wait_for(socket_.get(), POLLIN, deadline, stopped ? nullptr : stop_);
      if (!stopped && stop_ != nullptr && stop_->load()) {
        stopped = true;
        deadline = deadline.earlier(Deadline::after(kFarewellAfterStop));
        continue;
      }
      if (waited.is_ok() && deadline.expired()) waited = Status(Code::kTimeout, "bootstrap finish", "deadline passed");
      if (!waited.is_ok()) (void)stick(std::move(waited));
    }
  }
  socket_.reset();
  TCPX_RETURN_IF_ERROR(mine);
  if (peer_final_) return *peer_final_;
  TCPX_RETURN_IF_ERROR(broken_);
  return verdict();
}

void BootstrapChannel::leave(const Status& why) {
  if (socket_ && outgoing_sent_ == outgoing_.size()) {
    const auto bytes = encode_frame(encode_finish(why));
    (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)::shutdown(socket_.get(), SHUT_WR);
    // Closing a socket with unread data would reset the connection.
    std::array<std::byte, 4096> unread;
    for (int i = 0; i<kMaxReadsOfALeaver&& ::recv(socket_.get(), unread.data(), unread.size(), MSG_DONTWAIT)> 0; ++i) {
    }
  }
  socket_.reset();
}

Status BootstrapChannel::nothing_waits() const {
  if (inbox_.empty() && outgoing_sent_ == outgoing_.size()) return Status::ok();
  return Status(Code::kProtocol, "set up connection",
                concat("this end has not taken ", inbox_.size(), " frames and not sent ", outgoing_.size() - outgoing_sent_,
                       " bytes of peer messages"));
}

Result<HandedOver> BootstrapChannel::hand_over() {
  (void)read_available();
  if (peer_final_) TCPX_RETURN_IF_ERROR(verdict());
  TCPX_RETURN_IF_ERROR(broken_);
  TCPX_RETURN_IF_ERROR(nothing_waits());
  return HandedOver{.socket = std::move(socket_), .begun = assembler_.take_bytes()};
}

}  // namespace tcpx
