// One direction of a PipelineEnd: messages as transfers of a Connection, several submitted ahead.
#pragma once

#include <cstdint>
#include <vector>

#include "measure/message_plan.h"
#include "transfer/connection.h"

namespace tcpx::bench {

/// One thread at a time. After an error only destruction.
class PipelineLane {
 public:
  /// @param connection must outlive the lane.
  explicit PipelineLane(Connection& connection) : connection_(connection) {}

  /// The next messages lie in `memory` as `plan` says, starting with message `first`. Nothing is in flight.
  void start(const MessagePlan& plan, RegisteredMemory memory, uint64_t first);
  /// Lets `count` more messages go.
  void allow(uint64_t count) { end_ += count; }
  /// Submits what may go, as far as there is room, and drives the connection. @return whether anything happened.
  Result<bool> progress();
  /// Whole messages of this start that are sent, or where they belong.
  uint64_t finished_messages() const { return finished_ - begin_; }
  bool is_done() const { return finished_ == end_; }

 private:
  Status submit();
  Result<bool> finish();

  Connection& connection_;
  MessagePlan plan_{1, 1};
  RegisteredMemory memory_;
  // Numbers of messages: begin_ <= finished_ <= submitted_ <= end_. No more are submitted than there are slots, because chunks of
  // several channels end in any order: two transfers in one slot could write over each other.
  uint64_t begin_ = 0, finished_ = 0, submitted_ = 0, end_ = 0;
  std::vector<TransferId> ids_;  // by slot
};

}  // namespace tcpx::bench
