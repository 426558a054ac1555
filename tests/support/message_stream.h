// A stream of messages of mixed sizes over one comm. The number of a message determines its content, so either end can check
// it, in any process.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "measure/pattern.h"
#include "net/soft/recv_comm.h"
#include "net/soft/send_comm.h"

namespace tcpx::testing {

inline constexpr uint32_t kStreamChunkBytes = 64 * 1024;
inline constexpr size_t kLargestMessage = 5 * kStreamChunkBytes;

/// The bytes that all messages are cut from.
inline const std::vector<std::byte>& stream_content() {
  static const std::vector<std::byte> content = [] {
    std::vector<std::byte> bytes(1 << 20);
    fill_pattern(bytes, 4);
    return bytes;
  }();
  return content;
}

/// Message `number` of every stream: empty ones, small ones, some of several chunks, at odd places.
inline std::span<const std::byte> stream_message(uint64_t number) {
  const uint64_t mixed = (number + 1) * 0x9e3779b97f4a7c15u;  // Fibonacci hashing: neighbours look unrelated
  const uint64_t size = mixed >> 40;
  const size_t most[] = {1, 100, 5000, 5000, 20000, 70000, kStreamChunkBytes + 1, kLargestMessage};
  const size_t bytes = number % 31 == 7 ? kStreamChunkBytes : size % (most[mixed >> 61] + 1);
  const std::vector<std::byte>& content = stream_content();
  return std::span(content).subspan((mixed >> 20) % (content.size() - bytes + 1), bytes);
}

/// Limits of the streams in both directions: at most `window` messages outstanding, `total` messages.
struct StreamLimits {
  uint32_t window = kQueueDepth;
  uint64_t total = ~uint64_t{0};
};

/// Sends from memory of one type. One thread.
class SendStream {
 public:
  static Result<SendStream> create(MemoryOps& memory, soft::SoftSendComm& comm, MemoryType type, StreamLimits limits = {}) {
    const std::vector<std::byte>& content = stream_content();
    auto source =
        type == MemoryType::kCuda ? memory.allocate_device(0, content.size()) : memory.allocate_mapped(0, content.size());
    if (!source.is_ok()) return source.status();
    TCPX_ASSIGN_OR_RETURN(auto lane, memory.make_copy_lane(0));
    TCPX_RETURN_IF_ERROR(lane->copy(source->device(), content.data(), content.size()));
    TCPX_ASSIGN_OR_RETURN(auto region, comm.register_region(source->device(), content.size(), type));
    return SendStream(comm, std::move(*source), region, limits);
  }

  /// Posts up to the window and tests the oldest. @return true when there was anything to do, or the comm's error.
  Result<bool> step() {
    bool moved = false;
    for (; outstanding_.size() < limits_.window && posted_ < limits_.total; ++posted_, moved = true) {
      const std::span<const std::byte> message = stream_message(posted_);
      const std::byte* data = source_.device() + (message.data() - stream_content().data());
      TCPX_ASSIGN_OR_RETURN(const auto request,
                            comm_->isend(data, static_cast<int>(message.size()), static_cast<int>(posted_), region_));
      outstanding_.push_back(request);
    }
    if (outstanding_.empty()) return moved;
    TCPX_ASSIGN_OR_RETURN(const auto answer, comm_->test(outstanding_.front()));
    if (!answer.done) return moved;
    outstanding_.pop_front();
    ++finished_;
    return true;
  }
  /// Messages done.
  uint64_t finished() const { return finished_; }

 private:
  SendStream(soft::SoftSendComm& comm, MemoryBuffer source, soft::SoftRegion* region, StreamLimits limits)
      : comm_(&comm), source_(std::move(source)), region_(region), limits_(limits) {}

  soft::SoftSendComm* comm_;
  MemoryBuffer source_;
  soft::SoftRegion* region_;
  StreamLimits limits_;
  std::deque<abi::TcpxRequest*> outstanding_;
  uint64_t posted_ = 0, finished_ = 0;
};

/// Receives into memory of one type and compares. One thread.
class RecvStream {
 public:
  /// `pool` is the comm's.
  static Result<RecvStream> create(MemoryOps& memory, soft::SoftRecvComm& comm, const soft::PagePool& pool, MemoryType type,
                                   StreamLimits limits = {}) {
    constexpr size_t kBytes = kQueueDepth * kLargestMessage;
    TCPX_ASSIGN_OR_RETURN(auto target,
                          type == MemoryType::kCuda ? memory.allocate_device(0, kBytes) : memory.allocate_mapped(0, kBytes));
    TCPX_ASSIGN_OR_RETURN(auto region, comm.register_region(target.device(), kBytes, type));
    TCPX_ASSIGN_OR_RETURN(auto lane, memory.make_copy_lane(0));
    return RecvStream(comm, pool, std::move(target), region, limits, std::move(lane));
  }

  /// Posts up to the window and tests the oldest. @return true when there was anything to do, the comm's error, or kMismatch.
  Result<bool> step() {
    bool moved = false;
    for (; outstanding_.size() < limits_.window && posted_ < limits_.total; ++posted_, moved = true) {
      TCPX_ASSIGN_OR_RETURN(const auto request,
                            comm_->irecv(place(posted_), kLargestMessage, static_cast<int>(posted_), region_));
      outstanding_.push_back(request);
    }
    if (outstanding_.empty()) return moved;
    const abi::TcpxRequest* oldest = outstanding_.front();
    TCPX_ASSIGN_OR_RETURN(const auto answer, comm_->test(oldest));
    if (!answer.done) return moved;
    TCPX_RETURN_IF_ERROR(compare(*oldest, static_cast<size_t>(answer.bytes)));
    TCPX_RETURN_IF_ERROR(comm_->consumed(oldest));
    outstanding_.pop_front();
    ++finished_;
    return true;
  }
  /// Messages received and consumed.
  uint64_t finished() const { return finished_; }

 private:
  RecvStream(soft::SoftRecvComm& comm, const soft::PagePool& pool, MemoryBuffer target, soft::SoftRegion* region,
             StreamLimits limits, std::unique_ptr<CopyLane> lane)
      : comm_(&comm), pool_(&pool), target_(std::move(target)), region_(region), limits_(limits), lane_(std::move(lane)) {}

  std::byte* place(uint64_t number) const { return target_.device() + number % kQueueDepth * kLargestMessage; }

  Status compare(const abi::TcpxRequest& request, size_t bytes) const {
    const std::span<const std::byte> sent = stream_message(finished_);
    const auto damaged = [&](std::string how) {
      return Status(Code::kMismatch, "compare", concat("message ", finished_, " of ", sent.size(), " bytes: ", how));
    };
    if (bytes != sent.size()) return damaged(concat(bytes, " came"));
    if (region_->type == MemoryType::kHost) {
      return std::memcmp(place(finished_), sent.data(), bytes) == 0 ? Status::ok() : damaged("not these");
    }
    const auto* first = static_cast<const Fragment*>(request.unpack_slot.mem);
    std::vector<Fragment> list(first, first + *request.unpack_slot.cnt);
    std::sort(list.begin(), list.end(), [](const Fragment& a, const Fragment& b) { return a.dst_off < b.dst_off; });
    size_t listed = 0;
    for (const Fragment& fragment : list) {
      if (fragment.dst_off != listed || fragment.len > bytes - listed) return damaged("a list that does not tile it");
      const std::byte* come = pool_->host_base() + fragment.src_off;
      std::vector<std::byte> fetched;
      if (pool_->host_base() == nullptr) {
        fetched.resize(fragment.len);
        TCPX_RETURN_IF_ERROR(lane_->copy(fetched.data(), pool_->device_base() + fragment.src_off, fragment.len));
        come = fetched.data();
      }
      if (std::memcmp(come, sent.data() + listed, fragment.len) != 0) return damaged("not these");
      listed += fragment.len;
    }
    return listed == bytes ? Status::ok() : damaged("a list that ends early");
  }

  soft::SoftRecvComm* comm_;
  const soft::PagePool* pool_;
  MemoryBuffer target_;
  soft::SoftRegion* region_;
  StreamLimits limits_;
  std::unique_ptr<CopyLane> lane_;
  std::deque<const abi::TcpxRequest*> outstanding_;
  uint64_t posted_ = 0, finished_ = 0;
};

/// Steps until `enough` returns true, or an error occurs.
template <class Stream, class Enough>
Status run_stream(Stream& stream, Enough enough) {
  while (!enough()) {
    TCPX_ASSIGN_OR_RETURN(const auto moved, stream.step());
    if (!moved) ::sched_yield();
  }
  return Status::ok();
}

}  // namespace tcpx::testing
