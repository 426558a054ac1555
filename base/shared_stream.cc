#include "base/shared_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/shared_order.h"
#include "base/unix_socket.h"

namespace tcpx {
namespace {

// Most reads of the socket in one call, so that a peer that never stops sending wake-ups holds up nobody.
constexpr int kMaxReadsOfSocket = 4;

Status broken() {
  return Status(Code::kProtocol, "use shared ring", "the peer's counters do not add up");
}

}  // namespace

Result<size_t> SharedStream::write(std::span<const std::byte> data) {
  uint64_t held = written_ - peer_read_;
  if (SharedRing::kBytes - held < data.size()) {
    const uint64_t read = out_.read.load(std::memory_order_acquire);
    held = written_ - read;
    if (held > SharedRing::kBytes) return broken();
    peer_read_ = read;
  }
  const size_t bytes = std::min(data.size(), SharedRing::kBytes - static_cast<size_t>(held));
  if (bytes == 0) return size_t{0};
  const size_t at = written_ % SharedRing::kBytes;
  const size_t before_end = std::min(bytes, SharedRing::kBytes - at);
  std::memcpy(out_.bytes + at, data.data(), before_end);
  std::memcpy(out_.bytes, data.data() + before_end, bytes - before_end);
  written_ += bytes;
  tell_written();
  out_.written.store(written_, std::memory_order_release);
  wake(kWakeForBytes);
  return bytes;
}

void SharedStream::end() {
  tell_written();
  out_.ended.store(1, std::memory_order_release);
  wake(kWakeForBytes);
}

// `reader_wants` stays set until the sleeper has woken: another thread may take this byte from the socket, and then a further
// change must send another one.
void SharedStream::wake(uint32_t what) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if ((out_.reader_wants.load(std::memory_order_relaxed) & what) == 0 || !socket_) return;
  const char byte = 0;
  // A failed send is ignored: when the socket is full, its bytes wake the sleeper.
  (void)::send(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

Result<size_t> SharedStream::read(std::span<std::byte> room) {
  const bool ended = gone_ || in_.ended.load(std::memory_order_acquire) != 0;  // before `written`, so that all bytes are seen
  const uint64_t held = in_.written.load(std::memory_order_acquire) - read_;
  if (held > SharedRing::kBytes) return broken();
  if (held == 0 && ended) return Status(Code::kPeerGone, "read shared ring", "connection closed by the peer");
  const size_t bytes = std::min(room.size(), static_cast<size_t>(held));
  if (bytes == 0) return size_t{0};
  tell_read();
  const size_t at = read_ % SharedRing::kBytes;
  const size_t before_end = std::min(bytes, SharedRing::kBytes - at);
  std::memcpy(room.data(), in_.bytes + at, before_end);
  std::memcpy(room.data() + before_end, in_.bytes, bytes - before_end);
  read_ += bytes;
  in_.read.store(read_, std::memory_order_release);
  wake(kWakeForRoom);
  return bytes;
}

bool SharedStream::prepare_sleep(uint32_t wants) {
  asleep_ = true;
  in_.reader_wants.store(wants, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return has_something() || ((wants & kWakeForRoom) != 0 && has_room());
}

void SharedStream::end_sleep() {
  if (!asleep_) return;
  asleep_ = false;
  in_.reader_wants.store(0, std::memory_order_relaxed);
}

void SharedStream::look_at_socket() {
  std::array<std::byte, 64> woken;
  for (int i = 0; i < kMaxReadsOfSocket && socket_ && !gone_; ++i) {
    const auto received = receive_descriptor(socket_.get(), woken);
    gone_ = !received.is_ok();
    if (gone_ || received->bytes < woken.size()) return;
  }
}

}  // namespace tcpx
