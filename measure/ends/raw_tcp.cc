// An end that is nothing but TCP over loopback: the speed of the machine's kernel without an added protocol or copy.
//
// A message is cut into one share per stream. Each stream has a thread at each end, which writes or reads its share in blocking
// calls, over and over from the same memory: messages small enough stay in cache. In a ping-pong no thread sleeps, and the answer leaves
// when the whole message is there. A single stream has the calling thread.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <latch>
#include <span>
#include <thread>
#include <vector>

#include "base/socket_io.h"
#include "base/text.h"
#include "measure/end.h"
#include "measure/pattern.h"

namespace tcpx {
namespace {

constexpr std::byte kPoison{0xa5};

class RawTcpEnd final : public BenchEnd {
 public:
  explicit RawTcpEnd(const EndSetup& setup) : setup_(setup) {}

  Result<Handle> listen() override;
  Status connect(const Handle& other, Deadline deadline) override;
  Status accept(Deadline deadline) override;
  Status allocate(const RowSetup& row) override;
  Status prepare(uint64_t count) override;
  Result<Timing> run(const RoundWait& wait) override;
  Result<ComparedBytes> compare() override;
  Status close() override;

 private:
  using Share = std::span<std::byte>;

  bool receives() const { return !setup_.leads || row_.pattern == Pattern::kPingPong; }
  Status on_every_stream(const std::function<Status(size_t stream_idx)>& work, Timing& timing) const;
  Status stream(size_t stream_idx);
  Status play(size_t stream_idx, Deadline deadline);
  /// The part of `memory` that travels on a stream.
  Share share(std::vector<std::byte>& memory, size_t stream_idx) const;
  Status write_share(int fd, Share share) const;
  Status read_share(int fd, Share share) const;

  const EndSetup setup_;
  UniqueFd listener_;
  std::vector<UniqueFd> out_, in_;
  RowSetup row_;
  uint64_t count_ = 0;
  std::atomic<uint64_t> shares_in_ = 0;  // of the messages of a ping-pong
  std::vector<std::byte> sent_, received_;
};

Status set_blocking_with_limit(int fd, Deadline deadline) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) return system_error("make socket blocking", errno);
  const int ms = deadline.poll_ms();
  const timeval limit{.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 + 1};  // 0 would mean no limit
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    if (::setsockopt(fd, SOL_SOCKET, option, &limit, sizeof limit) != 0) return system_error("limit socket", errno);
  }
  return Status::ok();
}

/// Meaning of a call that moved nothing.
Status stream_failure(const char* operation, ssize_t moved) {
  if (moved == 0) return Status(Code::kPeerGone, operation, "the other end has closed");
  if (errno == EAGAIN) return Status(Code::kTimeout, operation, "nothing moved in time");
  return system_error(operation, errno);
}

Result<Handle> RawTcpEnd::listen() {
  Result<UniqueFd> listener =
      listen_tcp(on_this_machine(setup_.peer) ? SocketAddress::loopback(0) : SocketAddress::any(setup_.peer.family(), 0),
                 static_cast<int>(setup_.streams));
  if (!listener.is_ok()) return listener.status();
  listener_ = std::move(listener).value();
  TCPX_ASSIGN_OR_RETURN(const SocketAddress address, local_address(listener_.get()));
  Handle handle;
  const uint16_t port = address.port();
  std::memcpy(handle.bytes.data(), &port, sizeof port);
  return handle;
}

Status RawTcpEnd::connect(const Handle& other, Deadline deadline) {
  uint16_t port = 0;
  std::memcpy(&port, other.bytes.data(), sizeof port);
  // One after the other, so that both ends count the streams alike.
  while (out_.size() < setup_.streams) {
    TCPX_ASSIGN_OR_RETURN(UniqueFd stream, connect_tcp(setup_.peer.with_port(port), deadline));
    TCPX_RETURN_IF_ERROR(send_without_delay(stream.get()));
    out_.push_back(std::move(stream));
  }
  return Status::ok();
}

Status RawTcpEnd::accept(Deadline deadline) {
  while (in_.size() < setup_.streams) {
    TCPX_RETURN_IF_ERROR(wait_for(listener_.get(), POLLIN, deadline));
    UniqueFd stream(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!stream) return system_error("accept", errno);
    in_.push_back(std::move(stream));
  }
  return Status::ok();
}

Status RawTcpEnd::allocate(const RowSetup& row) {
  row_ = row;
  sent_.resize(row.message_bytes);
  received_.resize(row.message_bytes);
  fill_pattern(sent_, row.seed);
  return Status::ok();
}

Status RawTcpEnd::prepare(uint64_t count) {
  count_ = count;
  shares_in_ = 0;
  if (receives()) std::memset(received_.data(), static_cast<int>(kPoison), received_.size());
  return Status::ok();
}

Result<Timing> RawTcpEnd::run(const RoundWait& wait) {
  for (const auto* sockets : {&out_, &in_}) {
    for (const UniqueFd& socket : *sockets) TCPX_RETURN_IF_ERROR(set_blocking_with_limit(socket.get(), wait.deadline));
  }
  Timing timing;
  const bool one_way = row_.pattern == Pattern::kOneWay;
  TCPX_RETURN_IF_ERROR(on_every_stream([&](size_t i) { return one_way ? stream(i) : play(i, wait.deadline); }, timing));
  return timing;
}

RawTcpEnd::Share RawTcpEnd::share(std::vector<std::byte>& memory, size_t stream_idx) const {
  const size_t begin = memory.size() * stream_idx / setup_.streams;
  return Share(memory).subspan(begin, memory.size() * (stream_idx + 1) / setup_.streams - begin);
}

Status RawTcpEnd::write_share(int fd, Share share) const {
  while (!share.empty()) {
    const ssize_t n = ::send(fd, share.data(), std::min<size_t>(share.size(), setup_.request_bytes), MSG_NOSIGNAL);
    if (n <= 0) return stream_failure("send", n);
    share = share.subspan(static_cast<size_t>(n));
  }
  return Status::ok();
}

Status RawTcpEnd::read_share(int fd, Share share) const {
  while (!share.empty()) {
    const ssize_t n = ::recv(fd, share.data(), std::min<size_t>(share.size(), setup_.request_bytes), 0);
    if (n <= 0) return stream_failure("receive", n);
    share = share.subspan(static_cast<size_t>(n));
  }
  return Status::ok();
}

Status RawTcpEnd::on_every_stream(const std::function<Status(size_t stream_idx)>& work, Timing& timing) const {
  std::vector<Status> statuses(setup_.streams);
  std::latch ready(setup_.streams - 1), go(1);
  std::vector<std::jthread> threads;
  for (size_t i = 1; i < setup_.streams; ++i) {
    threads.emplace_back([&, i] {
      ready.count_down();
      go.wait();
      statuses[i] = work(i);
    });
  }
  ready.wait();
  const Stopwatch watch;
  go.count_down();
  statuses[0] = work(0);
  threads.clear();  // joins
  timing = watch.stop();
  for (const Status& status : statuses) TCPX_RETURN_IF_ERROR(status);
  return Status::ok();
}

Status RawTcpEnd::stream(size_t stream_idx) {
  for (uint64_t message = 0; message < count_; ++message) {
    TCPX_RETURN_IF_ERROR(setup_.leads ? write_share(out_[stream_idx].get(), share(sent_, stream_idx))
                                      : read_share(in_[stream_idx].get(), share(received_, stream_idx)));
  }
  return Status::ok();
}

Status RawTcpEnd::play(size_t stream_idx, Deadline deadline) {
  Patience patience("raw ping-pong", deadline);
  // `call` moves what it can of a share without waiting.
  const auto spin = [&](const char* operation, Share share, const auto& call) -> Status {
    while (!share.empty()) {
      const ssize_t n = call(share);
      if (n == 0 || (n < 0 && errno != EAGAIN)) return stream_failure(operation, n);
      if (n > 0) share = share.subspan(static_cast<size_t>(n));
      TCPX_RETURN_IF_ERROR(patience.after_turn(n > 0));
    }
    return Status::ok();
  };
  const auto send = [&] {
    return spin("send", share(sent_, stream_idx), [&](Share share) {
      return ::send(out_[stream_idx].get(), share.data(), share.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    });
  };
  const auto receive = [&] {
    return spin("receive", share(received_, stream_idx),
                [&](Share share) { return ::recv(in_[stream_idx].get(), share.data(), share.size(), MSG_DONTWAIT); });
  };
  for (uint64_t i = 0; i < count_; ++i) {
    if (setup_.leads) TCPX_RETURN_IF_ERROR(send());
    TCPX_RETURN_IF_ERROR(receive());
    ++shares_in_;
    while (shares_in_ < (i + 1) * setup_.streams) TCPX_RETURN_IF_ERROR(patience.after_turn(false));
    if (!setup_.leads) TCPX_RETURN_IF_ERROR(send());
  }
  return Status::ok();
}

Result<ComparedBytes> RawTcpEnd::compare() {
  if (!receives()) return ComparedBytes();
  const uint64_t wrong = check_pattern(received_, row_.seed).wrong;
  return ComparedBytes{wrong, wrong == 0 ? Status::ok() : verify_pattern(received_, row_.seed)};
}

Status RawTcpEnd::close() {
  out_.clear();
  in_.clear();
  listener_.reset();
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<BenchEnd>> make_raw_tcp_end(const EndSetup& setup) {
  if (setup.streams == 0) return Status(Code::kInvalidArgument, "make raw TCP end", "no streams");
  return std::unique_ptr<BenchEnd>(std::make_unique<RawTcpEnd>(setup));
}

}  // namespace tcpx
