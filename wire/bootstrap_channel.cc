#include "wire/bootstrap_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"
#include "wire/messages.h"

namespace tcpx {
namespace {

// Most frames that a peer can be ahead of this end. No use of the channel needs more, and it bounds what a peer can make us
// store.
constexpr size_t kMaxInbox = 8;
// Time that a stopped end still waits for the peer's result: long for a live peer, short for a user who pressed Ctrl-C.
constexpr Duration kFarewellAfterStop = std::chrono::seconds(1);

}  // namespace

Result<bool> read_frame_part(int fd, FrameAssembler& assembler, TlsSession* tls) {
  while (!assembler.whole()) {
    const auto wanted = assembler.wanted();
    if (wanted.empty()) return false;
    if (tls != nullptr) {
      TCPX_ASSIGN_OR_RETURN(const size_t come, tls->read(wanted));
      if (come == 0) return false;
      TCPX_RETURN_IF_ERROR(assembler.filled(come));
      continue;
    }
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

class BootstrapChannel::Mailbox final : public PeerMailbox {
 public:
  Mailbox(BootstrapChannel& channel, bool to_sender)
      : channel_(channel), mailbox_(channel.stream_->mailbox_to(to_sender)), sink_(channel.sinks_[to_sender ? 0 : 1]) {}
  ~Mailbox() override { deliver_to(nullptr); }

  void deliver_to(PeerMessageSink* sink) override {
    if (sink != nullptr || sink_ == mine_) sink_ = sink;
    mine_ = sink;
  }
  Status post(PeerMessage type, std::span<const std::byte> payload) override {
    TCPX_RETURN_IF_ERROR(channel_.verdict());
    TCPX_RETURN_IF_ERROR(channel_.broken_);
    if (Status status = mailbox_->post(type, payload); !status.is_ok()) return channel_.stick(std::move(status));
    return channel_.flush();
  }
  Result<bool> pump() override {
    TCPX_RETURN_IF_ERROR(channel_.flush());
    const Status status = channel_.peer_status();
    if (channel_.peer_final_ && channel_.peer_final_->is_ok()) return false;
    TCPX_RETURN_IF_ERROR(status);
    return true;
  }

 private:
  BootstrapChannel& channel_;
  const std::unique_ptr<PeerMailbox> mailbox_;
  PeerMessageSink*& sink_;  // of this end's half; the next pipeline's once there is one
  PeerMessageSink* mine_ = nullptr;
};

BootstrapChannel::BootstrapChannel(UniqueFd socket, const SocketAddress& peer, std::string peer_build,
                                   const std::atomic<bool>* stop, std::optional<Frame> first, std::unique_ptr<TlsSession> tls)
    : stream_(std::make_unique<ControlStream>()), peer_(peer), peer_build_(std::move(peer_build)), stop_(stop) {
  stream_->attach(std::move(socket), std::move(tls));
  stream_->set_last_words(true);
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

// The error for a call that expected the channel to go on when the peer has sent its last frame; ok when it has not.
Status BootstrapChannel::verdict() const {
  // The error waits until all frames that came before have been taken.
  if (peer_has_gone_on_ && inbox_.empty())
    return Status(Code::kProtocol, "bootstrap", "for the peer the connection is set up, for this end it is not");
  if (!peer_final_) return Status::ok();
  if (!peer_final_->is_ok()) return *peer_final_;
  return Status(Code::kProtocol, "bootstrap", "the peer has finished, this end has not");
}

// Reads what has arrived, so that a finish frame is seen even while no call has taken the frames before it.
Status BootstrapChannel::read_available() {
  if (!broken_.is_ok() || peer_final_) return broken_;
  peer_has_gone_on_ = false;
  stream_->receive(*this);
  if (!stream_->status().is_ok() && !peer_final_ && !peer_has_gone_on_) return stick(stream_->status());
  return broken_;
}

bool BootstrapChannel::takes(const FrameHeader& header) {
  const auto type = static_cast<FrameType>(header.type);
  peer_has_gone_on_ = !peer_final_ && !is_of_set_up(type) && !(has_mailboxes_ && type == FrameType::kLane);
  return !peer_final_ && !peer_has_gone_on_ && inbox_.size() < kMaxInbox;
}

Status BootstrapChannel::on_frame(const FrameHeader& header, std::span<const std::byte> payload) {
  if (heard_at_ != nullptr) *heard_at_ = Clock::steady().now();
  const auto type = static_cast<FrameType>(header.type);
  if (type == FrameType::kLane) {
    LaneFrame frame;
    TCPX_RETURN_IF_ERROR(decode(header, payload, frame));
    PeerMessageSink* const sink = sinks_[frame.to_sender ? 1 : 0];
    if (sink != nullptr) sink->on_peer_message(static_cast<PeerMessage>(frame.what), frame.words);
    return Status::ok();
  }
  Frame frame{.type = type, .payload = {payload.begin(), payload.end()}, .value = header.value};
  if (type != FrameType::kFinish) {
    inbox_.push_back(std::move(frame));
    return Status::ok();
  }
  Status reported;
  TCPX_RETURN_IF_ERROR(decode_finish(frame, reported));
  peer_final_ = std::move(reported);
  return Status::ok();
}

std::unique_ptr<PeerMailbox> BootstrapChannel::mailbox_to(bool sender) {
  has_mailboxes_ = true;
  return std::make_unique<Mailbox>(*this, sender);
}

// Sends as much as the socket takes now.
Status BootstrapChannel::flush() {
  stream_->flush();
  if (stream_->send_status().is_ok()) return broken_;
  Status why = stream_->send_status();
  (void)read_available();  // a peer that gave up has said why
  TCPX_RETURN_IF_ERROR(verdict());
  return stick(std::move(why));
}

Status BootstrapChannel::send_all(const Frame& frame, Deadline deadline) {
  stream_->send(frame);
  for (;;) {
    stream_->flush();
    TCPX_RETURN_IF_ERROR(stream_->send_status());
    if (stream_->backlog() == 0) return Status::ok();
    TCPX_RETURN_IF_ERROR(wait_for(stream_->fd(), POLLOUT, deadline, stop_));
  }
}

Status BootstrapChannel::send(const Frame& frame, Deadline deadline) {
  TCPX_RETURN_IF_ERROR(verdict());
  TCPX_RETURN_IF_ERROR(broken_);
  Status status = send_all(frame, deadline);
  if (status.is_ok()) return status;
  // A peer that gave up has sent its reason before it closed, in a frame or as an alert of TLS, and that is the better answer. The rest
  // of the frame cannot be sent later, so the channel is broken either way.
  (void)read_available();
  // The reason why nothing can be sent says more than the error that nothing more can be read.
  const bool says_why = broken_.code() == Code::kProtocol || broken_.code() == Code::kMismatch;
  if (!says_why) broken_ = std::move(status);
  TCPX_RETURN_IF_ERROR(verdict());
  return broken_;
}

Result<Frame> BootstrapChannel::receive(Deadline deadline) {
  for (;;) {
    const Status status = inbox_.empty() ? read_available() : Status::ok();
    if (!inbox_.empty()) {
      Frame frame = std::move(inbox_.front());
      inbox_.pop_front();
      return frame;
    }
    TCPX_RETURN_IF_ERROR(verdict());
    TCPX_RETURN_IF_ERROR(status);
    if (deadline.expired()) return Status(Code::kTimeout, "wait for the peer", "deadline passed");
    TCPX_RETURN_IF_ERROR(wait_for_bytes(deadline, stop_));
  }
}

Status BootstrapChannel::wait_for_bytes(Deadline deadline, const std::atomic<bool>* stop) const {
  return stream_->has_decrypted() ? Status::ok() : wait_for(stream_->fd(), POLLIN, deadline, stop);
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
  if (stream_ && !stream_->status().is_ok()) {
    stream_->close_with(encode_finish(mine));
  } else if (stream_) {
    const Status sent = send_all(encode_finish(mine), deadline);
    bool stopped = false;
    while (!peer_final_ && !peer_has_gone_on_ && broken_.is_ok()) {
      inbox_.clear();  // frames sent before the peer knew that this end is done
      (void)read_available();
      if (peer_final_ || peer_has_gone_on_ || !broken_.is_ok()) break;
      Status waited = sent;
      if (sent.is_ok()) waited = wait_for_bytes(deadline, stopped ? nullptr : stop_);
      if (!stopped && stop_ != nullptr && stop_->load()) {
        stopped = true;
        deadline = deadline.earlier(Deadline::after(kFarewellAfterStop));
        continue;
      }
      if (waited.is_ok() && deadline.expired()) waited = Status(Code::kTimeout, "bootstrap finish", "deadline passed");
      if (!waited.is_ok()) (void)stick(std::move(waited));
    }
  }
  stream_.reset();
  TCPX_RETURN_IF_ERROR(mine);
  if (peer_final_) return *peer_final_;
  TCPX_RETURN_IF_ERROR(broken_);
  return verdict();
}

void BootstrapChannel::leave(const Status& why) {
  if (stream_) stream_->close_with(encode_finish(why));
  stream_.reset();
}

Status BootstrapChannel::nothing_waits() const {
  if (inbox_.empty() && stream_->backlog() == 0) return Status::ok();
  return Status(Code::kProtocol, "set up connection",
                concat("this end has not taken ", inbox_.size(), " frames and not sent ", stream_->backlog(), " bytes"));
}

Result<std::unique_ptr<ControlStream>> BootstrapChannel::hand_over() {
  if (peer_final_) TCPX_RETURN_IF_ERROR(verdict());
  TCPX_RETURN_IF_ERROR(broken_);
  TCPX_RETURN_IF_ERROR(nothing_waits());
  stream_->set_last_words(false);
  return std::move(stream_);
}

}  // namespace tcpx
