// XferRequest: a request of NIXL, from prepare to release. It keeps a plan of the lists it was prepared with, for NIXL takes the
// remote ones away while a request may still be polled or released.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "integrations/nixl/nixl_abi.h"
#include "integrations/nixl/peers.h"

namespace tcpx::nixl {

/// One thread at a time.
class XferRequest final : public abi::BackendReq {
 public:
  /// Checks that each range lies in what its region's owner advertised, and makes a plan of them.
  /// @return kInvalidArgument naming the range; else as Endpoint::prepare
  static Result<std::unique_ptr<XferRequest>> create(const Endpoint& endpoint, Peers& peers, abi::XferOp operation,
                                                     const abi::DescList<abi::MetaDesc>& local,
                                                     const abi::DescList<abi::MetaDesc>& remote, std::string agent);

  /// Starts it, once more if it has ended. @param notification delivered at the other side when the bytes are in place
  /// @param timeout until its end, the time until there is a connection included
  /// @return ok: ask `poll`. kExhausted: the last one has not ended
  Status post(Endpoint& endpoint, Peers& peers, std::optional<NotifyMsg> notification, Duration timeout);
  /// @return nullopt: it goes on; ok: the bytes are in place; else why it failed. A write that fails with kTimeout may still read
  /// its source until it is given up
  std::optional<Status> poll(Endpoint& endpoint, Peers& peers);
  /// Gives it up: nothing touches memory any more when this returns ok. @return kTimeout: something still may
  Status cancel(Endpoint& endpoint);

  /// One of its local ranges lies in that memory.
  bool uses(MemoryId memory) const { return std::find(memories_.begin(), memories_.end(), memory) != memories_.end(); }
  /// Begins to give up what runs, and does not wait until that has ended.
  void give_up(Endpoint& endpoint);

  const std::string& agent() const { return agent_; }
  abi::XferOp operation() const { return operation_; }
  uint64_t bytes() const { return bytes_; }
  TimePoint began_at() const { return began_at_; }  ///< to move, last: when there was a connection

 private:
  XferRequest(abi::XferOp operation, std::string agent, TransferPlan plan, std::vector<MemoryId> memories, uint64_t bytes,
              uint64_t incarnation)
      : operation_(operation),
        agent_(std::move(agent)),
        plan_(std::move(plan)),
        memories_(std::move(memories)),
        bytes_(bytes),
        incarnation_(incarnation) {}
  std::optional<Status> start(Endpoint& endpoint, Peers& peers);
  Status end_with(Status status, Peers& peers);
  std::optional<Status> ask_again(Endpoint& endpoint, Peers& peers);
  void rest();

  const abi::XferOp operation_;
  const std::string agent_;
  const TransferPlan plan_;
  const std::vector<MemoryId> memories_;  // of its local ranges, each once
  const uint64_t bytes_;
  const uint64_t incarnation_;  // of the agent: its memory is named in the plan
  std::optional<NotifyMsg> notification_;
  bool posted_ = false;  // and not ended
  TimePoint posted_at_{}, began_at_{}, looked_at_{};
  Deadline deadline_{TimePoint{}};
  std::optional<OperationId> running_;
  ConnId conn_{};  // that it runs over
  // The peer has withdrawn its memory. It may be about to leave, which is another end of the request than this one.
  std::optional<Status> withdrawn_;
  TimePoint withdrawn_at_{}, asked_at_{};
};

}  // namespace tcpx::nixl
