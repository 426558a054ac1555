#include "net/soft/recv_socket.h"

#include <limits.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/guarded_copy.h"
#include "base/log.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx::soft {
namespace {

// Work of a socket before others of its thread get their turn: bytes read, plus the bookkeeping of each chunk in bytes. More
// than a sending socket writes in its turn: where one thread does both, bytes in transit must not pile up and leave the cache.
constexpr size_t kReadPerTurn = 1 << 20;
constexpr size_t kCostOfAChunk = 16384;
// A chunk that is long enough for its reader to sleep long, and the most that the reader then sleeps through.
constexpr uint32_t kLongChunk = 256 * 1024;
constexpr uint32_t kLongSleep = 128 * 1024;
// It sleeps through no more than this part of the window. Else the sender waits for it with a window that is almost used up, which grows
// only as it is read, and takes a network with distance for a narrow one: over 50 ms a first 16 MiB took 1.1 s, without such sleep 0.4 s.
constexpr uint32_t kPartOfWindow = 16;
// Over 50 ms a first 1 MiB over four sockets takes 204 ms with it, 255 to 310 without, and no less with more.
constexpr uint32_t kFirstWindow = 256 * 1024;
// Of the pages of a DevicePool, what a socket may hold unread.
constexpr uint64_t kShareOfASocket = 64, kLeastBuffer = 128 * 1024;

// Destination for the payload of a refused message, and for what comes to host memory and not to a DevicePool. Not itself a variable of
// the thread: those of a library that is loaded later, as NCCL loads the plugin, have little room beside one that a signal handler reads
// (base/guarded_copy.cc).
std::span<std::byte> waste_bin() {
  constexpr size_t kBytes = 256 * 1024;
  thread_local const auto bin = std::make_unique<std::byte[]>(kBytes);
  return {bin.get(), kBytes};
}

}  // namespace

RecvSocket::RecvSocket(UniqueFd data, SoftRecvComm& comm, size_t index, bool sleeps_long, std::unique_ptr<RecordCipher> cipher,
                       bool headers_apart, const DevicePool* pool, bool is_device)
    : SocketHandler(std::move(data)),
      comm_(comm),
      index_(index),
      sleeps_long_(sleeps_long),
      records_(cipher != nullptr ? std::make_unique<RecordReader>(fd(), std::move(cipher)) : nullptr),
      headers_(headers_apart ? std::make_unique<HeaderQueue>() : nullptr),
      pool_(pool) {
  if (!is_device) {
    widen_receive_window(fd(), kFirstWindow);
    return;
  }
  device_.emplace(pool_->calls, fd(), pool_->bound);
  // What is not read yet lies in the NIC's pages, too.
  const auto most = static_cast<int>(std::max(pool_->bound.bytes / kShareOfASocket, kLeastBuffer));
  ::setsockopt(fd(), SOL_SOCKET, SO_RCVBUF, &most, sizeof most);
}

IoHandler::Next RecvSocket::on_ready() {
  const Next next = read_on();
  // An idle socket keeps no pages that nobody reads.
  if (const Status status = give_back_pages(); !status.is_ok()) comm_.fail(status);
  return next;
}

IoHandler::Next RecvSocket::read_on() {
  for (moved_ = 0; moved_ < kReadPerTurn;) {
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
  }
  return Next::kAgain;
}

// The end itself is read after all bytes before it. A parked socket gets there late, or never.
void RecvSocket::on_hang_up() {
  comm_.socket_ended(Status(Code::kPeerGone, "data socket", "closed by the peer"));
}

void RecvSocket::on_out_of_memory() noexcept {
  stage_ = Stage::kEnded;
  ended_.store(true);
  comm_.fail_without_memory();
}

uint32_t RecvSocket::unread() const {
  int bytes = 0;
  // What an ended one has is never read: its bytes had nowhere to go.
  // Nor, for now, is payload that has no header.
  const bool reads = !ended_.load() && parked_.load() == kNotParked && (headers_ == nullptr || !headers_->is_awaited());
  if (!reads || ::ioctl(fd(), FIONREAD, &bytes) != 0) return 0;
  return static_cast<uint32_t>(bytes) + (headers_ != nullptr ? headers_->untaken_bytes() : 0);
}

// The kernel wakes at once if so much has arrived since the read, as of Linux 4.18.
void RecvSocket::choose_wake_up() {
  const bool is_long = sleeps_long_ && stage_ == Stage::kPayload && header_.bytes >= kLongChunk;
  const size_t held = records_ != nullptr ? records_->held() : 0;
  uint32_t bytes = 1;
  if (is_long && held < payload_left_) {
    const uint32_t part_of_window = std::max(receive_window(fd()) / kPartOfWindow, 1u);
    bytes = std::min({payload_left_ - static_cast<uint32_t>(held), kLongSleep, part_of_window});
  }
  if (bytes == wakes_at()) return;
  const int value = static_cast<int>(bytes);
  if (::setsockopt(fd(), SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value) == 0) wakes_at_.store(bytes, std::memory_order_relaxed);
}

size_t RecvSocket::read_some(std::span<iovec> pieces) {
  if (records_ != nullptr) return read_records(pieces);
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = std::min<size_t>(pieces.size(), IOV_MAX);
  ssize_t n;
  do n = ::recvmsg(fd(), &message, MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n > 0) {
    reads_.store(reads() + 1, std::memory_order_relaxed);  // no other thread writes it
    moved_ += static_cast<size_t>(n);
    return static_cast<size_t>(n);
  }
  if (n == 0) {
    end_of_stream();
  } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
    choose_wake_up();
  } else {
    end(stream_error("data socket", errno));
  }
  return 0;
}

size_t RecvSocket::read_records(std::span<const iovec> pieces) {
  const uint64_t received = records_->received();
  const auto come = records_->read(pieces);
  if (records_->received() != received) reads_.store(reads() + 1, std::memory_order_relaxed);
  if (come.status().code() == Code::kProtocol) {
    stage_ = Stage::kEnded;
    comm_.fail(come.status());
  } else if (!come.is_ok()) {
    end(come.status());
  } else if (!come->has_value()) {
    choose_wake_up();
  } else if (**come == 0) {
    end_of_stream();
  } else {
    moved_ += **come;
    return **come;
  }
  return 0;
}

void RecvSocket::end_of_stream() {
  const bool between_chunks =
      stage_ == Stage::kHeader && ahead_begin_ == ahead_end_ && (records_ == nullptr || records_->held() == 0);
  end(Status(Code::kPeerGone, "data socket",
             between_chunks ? "closed by the peer" : "closed by the peer in the middle of a message"));
}

std::span<const std::byte> RecvSocket::take_ahead(size_t bytes) {
  const auto taken = std::span(ahead_).first(ahead_end_).subspan(ahead_begin_, std::min(bytes, ahead_end_ - ahead_begin_));
  ahead_begin_ += taken.size();
  return taken;
}

void RecvSocket::end(const Status& why) {
  stage_ = Stage::kEnded;
  ended_.store(true);
  comm_.socket_ended(why);
}

bool RecvSocket::push_header(const ChunkHeader& header) {
  const HeaderQueue::Pushed pushed = headers_->push(header);
  if (pushed == HeaderQueue::Pushed::kAwaited) kick();
  return pushed != HeaderQueue::Pushed::kFull;
}

void RecvSocket::end_headers() {
  headers_->end();
  kick();
}

RecvSocket::Step RecvSocket::take_header() {
  const HeaderQueue::Taken taken = headers_->take();
  if (taken.from_full) comm_.header_taken();
  if (taken.header) {
    header_ = *taken.header;
    stage_ = Stage::kLanding;
    return Step::kGoOn;
  }
  if (taken.is_end) end(Status(Code::kPeerGone, "control socket", "closed by the peer, and no header is left"));
  return Step::kStop;
}

RecvSocket::Step RecvSocket::read_header() {
  if (headers_ != nullptr) return take_header();
  if (ahead_end_ - ahead_begin_ < kChunkHeaderBytes) {
    std::copy(ahead_.begin() + ahead_begin_, ahead_.begin() + ahead_end_, ahead_.begin());
    ahead_end_ -= ahead_begin_;
    ahead_begin_ = 0;
    iovec piece = {ahead_.data() + ahead_end_, kAheadBytes - ahead_end_};
    const size_t n = read_some({&piece, 1});
    if (n == 0) return Step::kStop;
    ahead_end_ += n;
    if (ahead_end_ < kChunkHeaderBytes) return Step::kGoOn;
  }
  const auto header = decode_chunk_header(take_ahead(kChunkHeaderBytes).first<kChunkHeaderBytes>(), comm_.most_chunk_bytes());
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
  landing_ = comm_.begin_chunk(*this, header_, destination_);
  if (landing_ == Landing::kParked) return Step::kStop;
  if (landing_ == Landing::kFailed) {
    stage_ = Stage::kEnded;
    return Step::kStop;
  }
  payload_left_ = header_.bytes;
  piece_ = 0;
  stage_ = Stage::kPayload;
  place_ahead();
  if (stage_ == Stage::kEnded) return Step::kStop;
  if (payload_left_ == 0) finish_chunk();
  return Step::kGoOn;
}

void RecvSocket::place_ahead() {
  for (std::span<const std::byte> bytes = take_ahead(payload_left_); !bytes.empty();) {
    size_t n = bytes.size();
    if (landing_ == Landing::kMemory) {
      n = std::min(n, destination_[piece_].iov_len);
      if (const int error = guarded_copy(destination_[piece_].iov_base, bytes.data(), n); error != 0)
        return end(system_error("data socket", error));
    }
    advance(n);
    bytes = bytes.subspan(n);
  }
}

// Payload is missing, so nothing is left in ahead_.
RecvSocket::Step RecvSocket::read_payload() {
  if (device_) return read_device();
  if (landing_ == Landing::kPool) return read_into_pool();
  size_t n;
  if (landing_ == Landing::kDiscard) {
    const std::span<std::byte> bin = waste_bin();
    iovec piece = {bin.data(), std::min<size_t>(bin.size(), payload_left_)};
    n = read_some({&piece, 1});
  } else {
    const bool reads_ahead = headers_ == nullptr;
    if (reads_ahead) destination_.push_back({ahead_.data(), kAheadBytes});
    n = read_some(std::span(destination_).subspan(piece_));
    if (reads_ahead) destination_.pop_back();
  }
  if (n == 0) return Step::kStop;
  const size_t payload = std::min<size_t>(n, payload_left_);
  ahead_begin_ = 0;
  ahead_end_ = n - payload;
  advance(payload);
  if (payload_left_ == 0) finish_chunk();
  return Step::kGoOn;
}

RecvSocket::Step RecvSocket::read_device() {
  const std::span<std::byte> room = waste_bin();
  const auto come = device_->receive(room.first(std::min<size_t>(room.size(), payload_left_)),
                                     uint64_t{header_.offset} + header_.bytes - payload_left_);
  if (!come.is_ok()) {
    end(come.status());
  } else if (!come->has_value()) {
    choose_wake_up();
  } else if ((*come)->bytes == 0) {
    end_of_stream();
  } else {
    reads_.store(reads() + 1, std::memory_order_relaxed);  // no other thread writes it
    moved_ += (*come)->bytes;
    return take_payload(**come);
  }
  return Step::kStop;
}

RecvSocket::Step RecvSocket::read_into_pool() {
  const std::span<std::byte> room = waste_bin();
  iovec piece = {room.data(), std::min<size_t>(room.size(), payload_left_)};
  const auto n = static_cast<uint32_t>(read_some({&piece, 1}));
  if (n == 0) return Step::kStop;
  return take_payload({.bytes = n, .linear = {{0, n, uint64_t{header_.offset} + header_.bytes - payload_left_}}});
}

RecvSocket::Step RecvSocket::take_payload(const devmem::DevmemRead& read) {
  if (const Status placed = place(read); !placed.is_ok()) {
    stage_ = Stage::kEnded;
    comm_.fail(placed);
    return Step::kStop;
  }
  payload_left_ -= static_cast<uint32_t>(read.bytes);
  if (payload_left_ == 0) finish_chunk();
  return Step::kGoOn;
}

Status RecvSocket::place(const devmem::DevmemRead& read) {
  const auto copied = [&] { return device_ ? device_->copied(read.fragments.size()) : Status::ok(); };
  if (landing_ == Landing::kDiscard) return copied();
  std::byte* const base = pool_->pages->device_base();
  std::vector<Fragment> listed;
  const auto copy_all = [&](const std::vector<Fragment>& fragments, const std::byte* from, bool lists) -> Status {
    size_t piece = 0;
    uint64_t skipped = header_.offset;  // bytes of the message before destination_[piece]
    for (const Fragment& fragment : fragments) {
      for (uint32_t done = 0, bytes = 0; done < fragment.len; done += bytes) {
        const uint64_t offset = fragment.dst_off + done;
        while (offset - skipped >= destination_[piece].iov_len) skipped += destination_[piece++].iov_len;
        std::byte* const into = static_cast<std::byte*>(destination_[piece].iov_base) + (offset - skipped);
        bytes = static_cast<uint32_t>(std::min<uint64_t>(fragment.len - done, destination_[piece].iov_len - (offset - skipped)));
        if (lists) bytes = std::min(bytes, kPageBytes);
        TCPX_RETURN_IF_ERROR(pool_->copies->copy(into, from + fragment.src_off + done, bytes));
        if (lists) listed.push_back({static_cast<uint32_t>(into - base), bytes, offset});
      }
    }
    return Status::ok();
  };
  const auto room = waste_bin();
  TCPX_RETURN_IF_ERROR(copy_all(read.linear, room.data(), landing_ == Landing::kPool));
  if (landing_ == Landing::kPool) {
    for (const Fragment& fragment : read.fragments) {
      for (uint32_t done = 0; done < fragment.len; done += kPageBytes)
        listed.push_back({fragment.src_off + done, std::min(kPageBytes, fragment.len - done), fragment.dst_off + done});
    }
    TCPX_ASSIGN_OR_RETURN(const bool stays, comm_.list(header_, listed, index_, static_cast<uint32_t>(read.fragments.size())));
    if (stays) return Status::ok();
  }
  TCPX_RETURN_IF_ERROR(copy_all(read.fragments, base, false));
  return copied();
}

Status RecvSocket::give_back_pages() {
  if (!device_) return Status::ok();
  // Pairs with let_go: the last look at the pages was before.
  if (const uint32_t count = let_go_.exchange(0, std::memory_order_acquire); count > 0)
    TCPX_RETURN_IF_ERROR(device_->consumed(count));
  return device_->flush();
}

void RecvSocket::advance(size_t bytes) {
  payload_left_ -= static_cast<uint32_t>(bytes);
  if (landing_ != Landing::kMemory || payload_left_ == 0) return;
  for (; bytes >= destination_[piece_].iov_len; ++piece_) bytes -= destination_[piece_].iov_len;
  iovec& piece = destination_[piece_];
  piece = {static_cast<std::byte*>(piece.iov_base) + bytes, piece.iov_len - bytes};
}

void RecvSocket::finish_chunk() {
  // A sender from device memory waits until its bytes are acknowledged.
  if (device_) acknowledge_now(fd());
  comm_.end_chunk(header_, landing_);
  moved_ += kCostOfAChunk;
  stage_ = Stage::kHeader;
}

}  // namespace tcpx::soft
