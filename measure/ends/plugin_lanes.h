// The loops that drive one comm of a version 7 table each, as a consumer of the ABI does: no adapter in between.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "measure/message_plan.h"
#include "net/abi/nccl_net_v7.h"
#include "net/net_plugin.h"
#include "rx/unpacker.h"

namespace tcpx {

/// The Status of what a function of `table` returned.
Status answer_of(const abi::NetTable_v7& table, const char* operation, int result);

/// Memory that is registered with a comm.
struct CommMemory {
  std::byte* data = nullptr;
  void* mhandle = nullptr;
};

/// One thread at a time. After an error only destruction.
class SendLane {
 public:
  SendLane(const abi::NetTable_v7& table, void* comm) : table_(table), comm_(comm) {}

  /// The next requests send messages of `plan` out of `memory`, starting with message `first`. Nothing is in flight.
  void start(const MessagePlan& plan, CommMemory memory, uint64_t first);
  /// Lets `count` more messages go.
  void allow(uint64_t count) { end_ += count * plan_.requests_per_message(); }
  /// Posts what may go, as far as there is room, and tests what is posted. @return whether anything happened.
  Result<bool> progress();
  /// Whole messages that are sent, of this start.
  uint64_t finished() const { return (done_ - begin_) / plan_.requests_per_message(); }

 private:
  const abi::NetTable_v7& table_;
  void* const comm_;
  MessagePlan plan_{1, 1};
  CommMemory memory_;
  // Numbers of requests: begin_ <= done_ <= posted_ <= end_.
  uint64_t begin_ = 0, done_ = 0, posted_ = 0, end_ = 0;
  std::array<void*, kQueueDepth> requests_{};
};

/// One thread at a time. After an error only destruction.
class ReceiveLane {
 public:
  /// Unpacking of messages to their place. A plugin whose devices are not of type UNPACK puts them there by itself.
  struct Unpack {
    bool needed = false;
    Unpacker* unpacker = nullptr;  ///< must outlive the lane; null for host memory
    BouncePool pool;
  };
  ReceiveLane(const abi::NetTable_v7& table, void* comm, const Unpack& unpack) : table_(table), comm_(comm), unpack_(unpack) {}

  /// The next `count` messages come, starting with message `first`, and lie in `memory` as `plan` says. Nothing is in flight.
  void start(const MessagePlan& plan, CommMemory memory, uint64_t first, uint64_t count);
  /// Posts ahead as far as there is room. Part of `progress`; by itself before a round begins.
  Result<bool> post();
  /// Tests, hands all that has arrived to the unpacker at once, gives back what is unpacked, posts. @return whether anything
  /// happened.
  Result<bool> progress();
  /// Whole messages that are where they belong, of this start.
  uint64_t finished() const { return (consumed_ - begin_) / plan_.requests_per_message(); }

 private:
  struct Flight {
    void* request = nullptr;
    std::optional<UnpackTicket> ticket;
  };
  Result<bool> test();
  Status take(const Flight& flight, int reported_bytes);
  Result<bool> submit();
  Result<bool> consume();
  Flight& flight(uint64_t request) { return flights_[request % kQueueDepth]; }

  const abi::NetTable_v7& table_;
  void* const comm_;
  const Unpack unpack_;
  MessagePlan plan_{1, 1};
  CommMemory memory_;
  // Numbers of requests: begin_ <= consumed_ <= submitted_ <= arrived_ <= posted_ <= end_.
  uint64_t begin_ = 0, consumed_ = 0, submitted_ = 0, arrived_ = 0, posted_ = 0, end_ = 0;
  std::array<Flight, kQueueDepth> flights_;
  std::array<DescriptorBlock, kMaxBatchBlocks> batch_;  // of the requests from submitted_ to arrived_
  static_assert(kMaxBatchBlocks >= kQueueDepth);
  size_t batch_blocks_ = 0;
  std::optional<UnpackTicket> newest_done_;
};

}  // namespace tcpx
