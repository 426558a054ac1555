// XferRequest: a request of NIXL, from prepare to release. It keeps a plan of the lists it was prepared with, for NIXL takes the remote
// ones away while a request may still be polled or released.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "integrations/nixl/nixl_abi.h"
#include "integrations/nixl/peers.h"

namespace tcpx::nixl {

/// One thread at a time.
class XferRequest final : public abi::BackendReq {
 public:
  /// Checks that each range lies in what its region's owner advertised, and makes a plan of them.
  /// @return kInvalidArgument naming the range; else as Endpoint::prepare
  static Result<std::unique_ptr<XferRequest>> create(const Endpoint& endpoint, abi::XferOp operation,
                                                     const abi::DescList<abi::MetaDesc>& local,
                                                     const abi::DescList<abi::MetaDesc>& remote, std::string agent);

  /// Starts it, once more if it has ended. @param notification delivered at the other side when the bytes are in place
  /// @return ok: ask `poll`. kExhausted: the last one has not ended
  Status post(Endpoint& endpoint, Peers& peers, std::optional<NotifyMsg> notification);
  /// @return nullopt: it goes on; ok: the bytes are in place; else why it failed
  std::optional<Status> poll(Endpoint& endpoint, Peers& peers);
  /// Gives it up: nothing touches memory any more when this returns ok. @return kTimeout: something still may
  Status cancel(Endpoint& endpoint);

  const std::string& agent() const { return agent_; }

 private:
  XferRequest(abi::XferOp operation, std::string agent, TransferPlan plan)
      : operation_(operation), agent_(std::move(agent)), plan_(std::move(plan)) {}
  std::optional<Status> start(Endpoint& endpoint, Peers& peers);

  const abi::XferOp operation_;
  const std::string agent_;
  const TransferPlan plan_;
  std::optional<NotifyMsg> notification_;
  bool posted_ = false;  // and not ended
  std::optional<OperationId> running_;
};

}  // namespace tcpx::nixl
