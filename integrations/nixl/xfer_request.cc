#include "integrations/nixl/xfer_request.h"

#include <algorithm>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/usable_cores.h"
#include "integrations/nixl/regions.h"

namespace tcpx::nixl {

namespace {

// Time after its deadline in which an operation says itself why it ended.
constexpr Duration kOverdue = std::chrono::milliseconds(50);
constexpr Duration kShort = std::chrono::microseconds(300), kSoon = std::chrono::microseconds(100);
// An agent that leaves withdraws its memory, region by region, and ends its connections then.
constexpr Duration kLeaving = std::chrono::milliseconds(250), kBetweenLooks = std::chrono::milliseconds(2);
constexpr Duration kRest = std::chrono::microseconds(50);

// An operation that ended so says that its connection did: it fails all that comes later, too, with the same.
bool has_ended_with(Code code, const Deadline& deadline) {
  switch (code) {
    case Code::kPeerGone:
    case Code::kProtocol:
    case Code::kPlugin:
    case Code::kSystem:
    case Code::kCuda:
      return true;
    case Code::kTimeout:  // of another one, that did not end in its grace
      return !deadline.expired();
    default:
      return false;
  }
}

bool is_alive(const Endpoint& endpoint, ConnId conn) {
  const EndpointStats stats = endpoint.stats();
  return std::any_of(stats.connections.begin(), stats.connections.end(),
                     [conn](const ConnectionStats& one) { return one.conn == conn && one.alive; });
}

}  // namespace

Result<std::unique_ptr<XferRequest>> XferRequest::create(const Endpoint& endpoint, Peers& peers, abi::XferOp operation,
                                                         const abi::DescList<abi::MetaDesc>& local,
                                                         const abi::DescList<abi::MetaDesc>& remote, std::string agent) {
  if (local.descs.size() != remote.descs.size()) {
    return Status(Code::kInvalidArgument, "prepare transfer",
                  concat(local.descs.size(), " local ranges for ", remote.descs.size(), " remote ones"));
  }
  std::vector<LocalRange> from;
  std::vector<RemoteRange> to;
  uint64_t bytes = 0;
  from.reserve(local.descs.size());
  to.reserve(local.descs.size());
  std::set<MemoryId> memories;
  const LocalRegion* region = nullptr;
  const RemoteRegion* target = nullptr;
  for (size_t i = 0; i < local.descs.size(); ++i) {
    const abi::MetaDesc &here = local.descs[i], &there = remote.descs[i];
    // Lists name the same few regions thousands of times, and a cast takes longer than everything else here.
    if (i == 0 || here.metadata != local.descs[i - 1].metadata) region = dynamic_cast<const LocalRegion*>(here.metadata);
    if (i == 0 || there.metadata != remote.descs[i - 1].metadata) target = dynamic_cast<const RemoteRegion*>(there.metadata);
    if (region == nullptr || target == nullptr || here.bytes != there.bytes) {
      return Status(Code::kInvalidArgument, "prepare transfer",
                    concat("range ", i, ": ", here.bytes, " local bytes, ", there.bytes, " remote ones",
                           region == nullptr ? ", the local region is not registered here" : "",
                           target == nullptr ? ", the remote region was not loaded" : ""));
    }
    const uint64_t offset = there.address - target->address;
    if (there.address < target->address || offset > target->slot.bytes || there.bytes > target->slot.bytes - offset) {
      return Status(Code::kInvalidArgument, "prepare transfer",
                    concat("range ", i, ": ", there.bytes, " bytes at ", Hex{there.address}, " do not lie in the ",
                           target->slot.bytes, " registered bytes at ", Hex{target->address}));
    }
    if (i == 0 || here.metadata != local.descs[i - 1].metadata) memories.insert(region->memory);
    bytes += here.bytes;
    from.push_back({.memory = region->memory, .data = reinterpret_cast<void*>(here.address), .bytes = here.bytes});
    to.push_back({.slot = target->slot, .offset = offset});
  }
  const uint64_t incarnation = peers.incarnation(agent);
  TCPX_ASSIGN_OR_RETURN(auto plan, endpoint.prepare(from, to));
  return std::unique_ptr<XferRequest>(
      new XferRequest(operation, std::move(agent), std::move(plan), {memories.begin(), memories.end()}, bytes, incarnation));
}

Status XferRequest::post(Endpoint& endpoint, Peers& peers, std::optional<NotifyMsg> notification, Duration timeout) {
  if (running_ && endpoint.poll(*running_).state != OperationState::kPending) running_.reset();
  if (posted_ || running_) return Status(Code::kExhausted, "post transfer", "the last one has not ended");
  notification_ = std::move(notification);
  posted_ = true;
  withdrawn_.reset();
  conn_ = {};
  posted_at_ = Clock::steady().now();
  deadline_ = Deadline(later(posted_at_, timeout));
  if (auto ended = start(endpoint, peers)) {
    posted_ = false;
    return end_with(*std::move(ended), peers);
  }
  return Status::ok();
}

// Starts the operation as soon as the connection stands. @return why it never will
std::optional<Status> XferRequest::start(Endpoint& endpoint, Peers& peers) {
  const auto conn = peers.connection_to(agent_, posted_at_);
  if (!conn.is_ok()) return conn.status();
  if (deadline_.expired())
    return Status(Code::kTimeout, "post transfer", concat("there was no connection to ", agent_, " in its time"));
  if (!*conn) return std::nullopt;
  conn_ = **conn;
  const bool writes = operation_ == abi::XferOp::kWrite;
  SubmitOptions options;
  options.timeout = std::chrono::milliseconds(std::max(1, deadline_.poll_ms()));
  if (notification_) options.notify = &*notification_;
  const auto id = writes ? endpoint.write_async(conn_, plan_, options) : endpoint.read_async(conn_, plan_, options);
  if (!id.is_ok()) {
    return id.status();
  }
  running_ = *id;
  began_at_ = Clock::steady().now();
  return std::nullopt;
}

std::optional<Status> XferRequest::poll(Endpoint& endpoint, Peers& peers) {
  if (!posted_) return Status(Code::kInvalidArgument, "poll transfer", "it was not posted");
  std::optional<Status> ended;
  if (withdrawn_ && !running_) {
    ended = ask_again(endpoint, peers);
  } else if (!running_) {
    ended = start(endpoint, peers);
  } else if (const OperationAnswer answer = endpoint.poll(*running_); answer.state != OperationState::kPending) {
    ended = answer.status;
    running_.reset();
    if (ended->code() == Code::kNotFound && !withdrawn_) {
      withdrawn_ = std::exchange(ended, std::nullopt);
      withdrawn_at_ = Clock::steady().now();
      asked_at_ = {};
      ended = ask_again(endpoint, peers);
    }
  } else if (operation_ == abi::XferOp::kWrite && Clock::steady().now() >= later(deadline_.at(), kOverdue)) {
    // The operation itself may need seconds more until nobody reads its source; `cancel` and whoever deregisters it wait for that.
    ended = Status(Code::kTimeout, "write", concat("deadline passed; ", agent_, " does not take it"));
  }
  if (!ended) {
    rest();
    return std::nullopt;
  }
  posted_ = false;
  return end_with(*std::move(ended), peers);
}

// What an agent of that name does that was loaded since is no matter of this request: the connection may have the id of the one that
// failed, and at the word that an agent has gone NIXL forgets the one that it knows now.
Status XferRequest::end_with(Status status, Peers& peers) {
  if (status.is_ok()) return status;
  const uint64_t now = peers.incarnation(agent_);
  if (now == incarnation_ && has_ended_with(status.code(), deadline_)) peers.lost(agent_, conn_);
  if (now == incarnation_ || now == 0 || status.code() != Code::kPeerGone) return status;
  return Status(Code::kNotFound, "end transfer",
                concat("the metadata of ", agent_, " was loaded anew; it had gone before: ", status.detail()));
}

// While its connection lives, the peer is there, as far as anybody knows. When it has ended, it says itself why.
std::optional<Status> XferRequest::ask_again(Endpoint& endpoint, Peers& peers) {
  const TimePoint now = Clock::steady().now();
  if (now - asked_at_ < kBetweenLooks) return std::nullopt;
  asked_at_ = now;
  if (!is_alive(endpoint, conn_)) return start(endpoint, peers);
  const bool stays = now >= later(withdrawn_at_, kLeaving) || now >= deadline_.at();
  return stays ? withdrawn_ : std::nullopt;
}

// Where cores are few, a caller that looks again and again takes one from the threads that move the bytes: with two, half of the
// rate. So to look at a request that is not a short one, soon after the last look, takes a moment.
void XferRequest::rest() {
  const bool few_cores = usable_cores() < 4;  // as for EndpointConfig::num_cpus
  if (!few_cores) return;
  const TimePoint now = Clock::steady().now();
  const bool soon = now - looked_at_ < kSoon, is_short = now - posted_at_ < kShort;
  if (soon && !is_short) std::this_thread::sleep_for(kRest);
  looked_at_ = Clock::steady().now();
}

void XferRequest::give_up(Endpoint& endpoint) {
  if (running_) static_cast<void>(endpoint.cancel(*running_));  // ok unless it has ended
}

Status XferRequest::cancel(Endpoint& endpoint) {
  posted_ = false;
  if (!running_) return Status::ok();
  TCPX_RETURN_IF_ERROR(endpoint.cancel(*running_));
  const Status ended = endpoint.wait(*running_);
  if (ended.code() == Code::kTimeout && endpoint.poll(*running_).state == OperationState::kPending) return ended;
  running_.reset();
  return Status::ok();
}

}  // namespace tcpx::nixl
