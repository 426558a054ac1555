// A NIC that puts payload into device memory and sends from it, played over ordinary TCP sockets: everything but the NIC is real, the GPU,
// too, if there is one. A page whose token comes back is scribbled over, as the next packet would.
//
// What it receives it cuts into fragments at random, some of which come in host memory, and some reads as a whole. Sends are the kernel's
// own without a copy, so their ends are told through the socket's error queue, unless the test holds those back.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "net/soft/device_pool.h"
#include "net/soft/device_sources.h"
#include "tests/support/cmsg_builder.h"
#include "tests/support/ok.h"

namespace tcpx::testing {

class PlayedNic final : public devmem::SocketCalls {
 public:
  static constexpr uint32_t kPoolId = 7, kSourceId = 9, kProofId = 11;
  struct Traits {
    uint32_t pool_pages = 4096;
    uint32_t longest_fragment = kPageBytes;
    uint32_t linear_of_ten = 1;  // fragments
    uint32_t whole_of_ten = 1;   // reads
    enum class Fault { kNone, kGarbles, kLoses, kCannotSend, kSendsOther } fault = Fault::kNone;
  };

  explicit PlayedNic(MemoryOps& memory) : PlayedNic(memory, Traits()) {}
  /// @param message_pages of the DevicePool, behind the NIC's
  PlayedNic(MemoryOps& memory, const Traits& traits, uint32_t message_pages = 1024) : traits_(traits) {
    const uint64_t front = uint64_t{traits.pool_pages} * kPageBytes;
    auto buffer = must(memory.allocate_device(0, front + uint64_t{message_pages} * kPageBytes));
    base_ = buffer.device();
    for (uint32_t page = 0; page < traits.pool_pages; ++page) free_.push_back(page);
    pool_ = std::make_shared<soft::DevicePool>(soft::DevicePool{.pages = soft::PagePool::behind(std::move(buffer), front),
                                                                .bound = {kPoolId, front},
                                                                .calls = *this,
                                                                .copies = must(memory.make_copy_lane(0))});
  }

  const std::shared_ptr<soft::DevicePool>& pool() const { return pool_; }
  /// Tokens that are away.
  size_t tokens_out() const {
    const MutexLock lock(mutex_);
    return out_.size();
  }
  uint64_t fragments() const {
    const MutexLock lock(mutex_);
    return fragments_;
  }
  uint64_t sends() const {
    const MutexLock lock(mutex_);
    return sends_;
  }
  /// While true, nobody is told of the ends of sends.
  void hold_ends(bool holds) {
    const MutexLock lock(mutex_);
    holds_ends_ = holds;
  }

  ssize_t recvmsg(int fd, msghdr& message, int flags) override {
    const MutexLock lock(mutex_);
    if ((flags & MSG_ERRQUEUE) != 0) return holds_ends_ ? refuse(EAGAIN) : ::recvmsg(fd, &message, flags);
    EXPECT_EQ(flags, 0x2000000 | MSG_DONTWAIT);
    if (traits_.fault == Traits::Fault::kLoses) return refuse(EAGAIN);
    auto* const room = static_cast<std::byte*>(message.msg_iov->iov_base);
    const bool whole = random_() % 10 < traits_.whole_of_ten;
    std::vector<std::byte> bytes(std::min<size_t>(message.msg_iov->iov_len, 1 + random_() % kLongestRead));
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) message.msg_controllen = 0;
    if (got <= 0) return got;
    if (traits_.fault == Traits::Fault::kGarbles && got > 1000) bytes[500] ^= std::byte{1};
    CmsgBuilder records(CmsgDialect::kLinux);
    size_t linear = 0;
    for (size_t at = 0, n = 0; at < static_cast<size_t>(got); at += n) {
      // As many records as a call has room for.
      const bool is_last = records.bytes().size() + 80 > message.msg_controllen;
      n = std::min<size_t>(static_cast<size_t>(got) - at, is_last ? got : 1 + random_() % traits_.longest_fragment);
      if (whole || is_last || free_.empty() || random_() % 10 < traits_.linear_of_ten) {
        std::memcpy(room + linear, bytes.data() + at, n);
        linear += n;
        if (!whole) records.linear(static_cast<uint32_t>(n));
        continue;
      }
      const uint32_t page = free_.back();
      free_.pop_back();
      const uint64_t off = uint64_t{page} * kPageBytes + random_() % (kPageBytes - n + 1);
      EXPECT_OK(pool_->copies->copy(base_ + off, bytes.data() + at, n));
      out_.emplace(std::pair(fd, next_token_), page);
      records.device(off, static_cast<uint32_t>(n), next_token_++, kPoolId);
      ++fragments_;
    }
    std::copy(records.bytes().begin(), records.bytes().end(), static_cast<std::byte*>(message.msg_control));
    message.msg_controllen = records.bytes().size();
    message.msg_flags = 0;
    return got;
  }

  ssize_t sendmsg(int fd, const msghdr& message, int flags) override {
    const MutexLock lock(mutex_);
    uint32_t id = 0;
    std::memcpy(&id, static_cast<const cmsghdr*>(message.msg_control) + 1, sizeof id);
    EXPECT_TRUE(id == kSourceId || id == kProofId) << id;
    const auto off = reinterpret_cast<uint64_t>(message.msg_iov->iov_base);
    // The kernel reads a copy for as long as it likes, as only the NIC reads a GPU's memory.
    auto& copy = sent_.emplace_back(message.msg_iov->iov_len);
    if (id == kProofId) std::copy_n(proof_.begin() + static_cast<ptrdiff_t>(off), copy.size(), copy.begin());
    if (id == kSourceId) {
      EXPECT_OK(pool_->copies->copy(copy.data(), source_ + off, copy.size()));
    }
    iovec piece{copy.data(), copy.size()};
    msghdr real{};
    real.msg_iov = &piece;
    real.msg_iovlen = 1;
    const ssize_t sent = ::sendmsg(fd, &real, flags);
    if (sent > 0) ++sends_;
    return sent;
  }

  int setsockopt(int fd, int level, int name, const void* value, socklen_t bytes) override {
    if (name != 80) return ::setsockopt(fd, level, name, value, bytes);
    const MutexLock lock(mutex_);
    int freed = 0;
    for (socklen_t at = 0; at < bytes; at += 8) {
      uint32_t range[2];
      std::memcpy(range, static_cast<const std::byte*>(value) + at, sizeof range);
      for (uint32_t i = 0; i < range[1]; ++i) {
        const auto found = out_.find(std::pair(fd, range[0] + i));
        EXPECT_NE(found, out_.end()) << "a token that is not out";
        if (found == out_.end()) continue;
        EXPECT_OK(pool_->copies->copy(base_ + uint64_t{found->second} * kPageBytes, scribble_.data(), kPageBytes));
        free_.push_back(found->second);
        out_.erase(found);
        ++freed;
      }
    }
    return freed;
  }

  /// Binds any memory, one region at a time.
  std::shared_ptr<soft::DeviceSources> sources() { return std::make_shared<Sources>(*this); }

 private:
  static constexpr size_t kLongestRead = 200'000;

  class Sources final : public soft::DeviceSources {
   public:
    explicit Sources(PlayedNic& nic) : nic_(nic) {}
    Result<std::shared_ptr<const soft::BoundSource>> bind(const Pages& pages) override {
      nic_.source_ = pages.begin;
      return std::make_shared<const soft::BoundSource>(
          soft::BoundSource{.dmabuf = {kSourceId, pages.bytes}, .begin = pages.begin});
    }
    Result<soft::BoundPage> page(std::span<const std::byte, kPageBytes> content) override {
      if (nic_.traits_.fault == Traits::Fault::kCannotSend) return Status(Code::kUnsupported, "bind", "it cannot");
      nic_.proof_.assign(content.begin(), content.end());
      if (nic_.traits_.fault == Traits::Fault::kSendsOther) nic_.proof_[4000] ^= std::byte{1};
      return soft::BoundPage{.dmabuf = {kProofId, kPageBytes}, .off = 0, .keeps = nullptr};
    }
    SocketCalls& calls() override { return nic_; }

   private:
    PlayedNic& nic_;
  };

  static ssize_t refuse(int error) {
    errno = error;
    return -1;
  }

  const Traits traits_;
  std::shared_ptr<soft::DevicePool> pool_;
  std::byte* base_ = nullptr;
  std::byte* source_ = nullptr;  // of the one dma-buf that is bound for sending
  std::vector<std::byte> proof_;  // of the last page that was asked for
  mutable Mutex mutex_;
  std::mt19937 random_ TCPX_GUARDED_BY(mutex_){39};
  std::vector<uint32_t> free_ TCPX_GUARDED_BY(mutex_);
  std::map<std::pair<int, uint32_t>, uint32_t> out_ TCPX_GUARDED_BY(mutex_);  // socket and token: page
  uint32_t next_token_ TCPX_GUARDED_BY(mutex_) = 0;
  const std::vector<std::byte> scribble_ = std::vector<std::byte>(kPageBytes, std::byte{0xEE});
  std::deque<std::vector<std::byte>> sent_ TCPX_GUARDED_BY(mutex_);
  uint64_t fragments_ TCPX_GUARDED_BY(mutex_) = 0, sends_ TCPX_GUARDED_BY(mutex_) = 0;
  bool holds_ends_ TCPX_GUARDED_BY(mutex_) = false;
};

}  // namespace tcpx::testing
