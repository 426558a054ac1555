#include "integrations/nixl/backend.h"

#include <utility>

#include "base/environment.h"
#include "base/fork.h"
#include "base/memory_ops.h"
#include "base/text.h"
#include "integrations/nixl/outcome.h"
#include "integrations/nixl/parameters.h"
#include "integrations/nixl/regions.h"
#include "integrations/nixl/xfer_request.h"

namespace tcpx::nixl {
namespace {

using abi::NixlStatus;

// Operations that use memory may end so long after it was to be deregistered. Then peers are cut off, and requests of this agent given
// up, which takes a peer that has stopped up to 5 s (docs/endpoint.md).
constexpr std::chrono::milliseconds kPatienceWithUsers{100}, kUntilGivenUp{6000};

NixlStatus foreign(const std::string& agent) {
  return said(Status(Code::kInvalidArgument, "NIXL call", "it names an object that this back-end did not make"), agent);
}

}  // namespace

BackendPtr Backend::create(const abi::InitParams& params, TellEvent tell) {
  const auto refuse = [&](const Status& status) {
    said(status, params.local_agent);
    return nullptr;
  };
  if (params.local_agent.size() > NotifyMsg::kMaxNameBytes)
    return refuse(Status(Code::kInvalidArgument, "create back-end", "the name of an agent has at most 256 bytes"));
  const auto gpu = set_parameters(params.parameters != nullptr ? *params.parameters : abi::Parameters());
  if (!gpu.is_ok()) return refuse(gpu.status());
  // An engine makes its GPU current before it makes an agent.
  const auto main_gpu = *gpu ? Result<int>(**gpu) : make_machine_memory_ops()->current_device();
  if (!main_gpu.is_ok()) return refuse(main_gpu.status());
  EndpointConfig config;
  config.gpu_idx = *main_gpu;
  const auto timeout = environment_integer(Variable::kOpTimeoutMs);
  if (!timeout.is_ok()) return refuse(timeout.status());
  auto endpoint = Endpoint::create(config);
  if (!endpoint.is_ok()) return refuse(endpoint.status());
  if (const Status accepting = (*endpoint)->start_accepting(); !accepting.is_ok()) return refuse(accepting);
  return BackendPtr(new Backend(params.local_agent, std::chrono::milliseconds(*timeout), std::move(tell), std::move(*endpoint)));
}

Backend::Backend(std::string agent, Duration timeout, TellEvent tell, std::unique_ptr<Endpoint> endpoint)
    : born_in_(count_forks()),
      agent_(std::move(agent)),
      timeout_(timeout),
      tell_(std::move(tell)),
      endpoint_(std::move(endpoint)),
      peers_(*endpoint_) {}

void EndBackend::operator()(Backend* backend) const {
  if (backend->check_process() == NixlStatus::kSuccess) delete backend;
}

NixlStatus Backend::check_process() const {
  if (count_forks() == born_in_) return NixlStatus::kSuccess;
  return said(
      Status(Code::kUnsupported, "NIXL call", "this process is a fork of the one that made the agent: start a program instead"),
      agent_);
}

NixlStatus Backend::register_memory(const abi::BlobDesc& range, abi::MemSegment memory, abi::Metadata*& out) {
  if (memory != abi::MemSegment::kDram && memory != abi::MemSegment::kVram) return NixlStatus::kNotSupported;
  void* const data = reinterpret_cast<void*>(range.address);  // NOLINT(performance-no-int-to-ptr): an address is one
  const auto id =
      endpoint_->register_memory(data, range.bytes, memory == abi::MemSegment::kVram ? MemoryType::kCuda : MemoryType::kHost);
  if (!id.is_ok()) return said(id.status(), agent_);
  const LocalRange whole{.memory = *id, .data = data, .bytes = range.bytes};
  const auto slot = endpoint_->advertise(whole);
  if (!slot.is_ok()) {
    static_cast<void>(endpoint_->deregister(*id));  // nobody has used it
    return said(slot.status(), agent_);
  }
  out = new LocalRegion(range, *id, *slot);
  return NixlStatus::kSuccess;
}

NixlStatus Backend::deregister_memory(abi::Metadata* metadata) {
  auto* const region = dynamic_cast<LocalRegion*>(metadata);
  if (region == nullptr) return foreign(agent_);
  // Every thread of the agent may wait for this. What a peer of this host has mapped, Endpoint waits for by itself.
  Status ended = endpoint_->deregister(region->memory, kPatienceWithUsers);
  if (ended.code() == Code::kTimeout) {
    give_up_users_of(region->memory);
    ended = endpoint_->deregister(region->memory, kUntilGivenUp);
  }
  // While operations of this end use it, it stays registered: NIXL has no answer to that, and asks no second time.
  delete region;
  return said(ended, agent_);
}

// NIXL's lock keeps other calls for these requests away meanwhile.
void Backend::give_up_users_of(MemoryId memory) {
  MutexLock lock(mutex_);
  for (XferRequest* const request : requests_) {
    if (request->uses(memory)) request->give_up(*endpoint_);
  }
}

NixlStatus Backend::load_local(const abi::Metadata* in, abi::Metadata*& out) {
  const auto* const region = dynamic_cast<const LocalRegion*>(in);
  if (region == nullptr) return foreign(agent_);
  out = new RemoteRegion(region->range.address, region->slot);
  return NixlStatus::kSuccess;
}

NixlStatus Backend::load_remote(const abi::BlobDesc& range, const std::string& agent, abi::Metadata*& out) {
  if (const Status known = peers_.expect(agent); !known.is_ok()) return said(known, agent);
  RemoteSlot slot{};
  if (!decode_slot(range.blob, slot) || slot.bytes != range.bytes) {
    return said(Status(Code::kInvalidArgument, "load remote region",
                       concat("the public data of ", range.bytes, " bytes at ", Hex{range.address}, " is none of this back-end")),
                agent);
  }
  out = new RemoteRegion(range.address, slot);
  return NixlStatus::kSuccess;
}

NixlStatus Backend::unload(abi::Metadata* metadata) {
  delete metadata;
  return NixlStatus::kSuccess;
}

NixlStatus Backend::public_data(const abi::Metadata* metadata, std::string& out) const {
  const auto* const region = dynamic_cast<const LocalRegion*>(metadata);
  if (region == nullptr) return foreign(agent_);
  out = encode_slot(region->slot);
  return NixlStatus::kSuccess;
}

NixlStatus Backend::connection_info(std::string& out) const {
  const std::vector<uint8_t> metadata = endpoint_->get_metadata();
  out.assign(metadata.begin(), metadata.end());
  return NixlStatus::kSuccess;
}

NixlStatus Backend::load_connection_info(const std::string& agent, const std::string& info) {
  return said(peers_.add(agent, info), agent);
}

NixlStatus Backend::connect(const std::string& agent) {
  // To itself: no metadata of its own was loaded.
  if (agent == agent_) {
    std::string info;
    connection_info(info);
    return load_connection_info(agent, info);
  }
  const auto conn = peers_.connection_to(agent, Clock::steady().now());
  return conn.is_ok() ? NixlStatus::kSuccess : said(conn.status(), agent);
}

NixlStatus Backend::disconnect(const std::string& agent) {
  rates_.forget(agent);
  return said(peers_.remove(agent), agent);
}

NixlStatus Backend::prepare(abi::XferOp operation, const abi::DescList<abi::MetaDesc>& local,
                            const abi::DescList<abi::MetaDesc>& remote, const std::string& agent, abi::BackendReq*& request) {
  auto transfer = XferRequest::create(*endpoint_, peers_, operation, local, remote, agent);
  if (!transfer.is_ok()) return said(transfer.status(), agent);
  MutexLock lock(mutex_);
  requests_.insert(transfer->get());
  request = transfer->release();
  return NixlStatus::kSuccess;
}

NixlStatus Backend::post(abi::BackendReq* request, const abi::OptionalArgs* args) {
  auto* const transfer = dynamic_cast<XferRequest*>(request);
  if (transfer == nullptr) return foreign(agent_);
  std::optional<NotifyMsg> notification;
  if (args != nullptr && args->has_notification) {
    auto message = from_here(args->notification);
    if (!message.is_ok()) return said(message.status(), transfer->agent());
    notification = std::move(*message);
  }
  const Status started = transfer->post(*endpoint_, peers_, std::move(notification), timeout_);
  return started.is_ok() ? NixlStatus::kInProgress : said(started, transfer->agent());
}

NixlStatus Backend::check(abi::BackendReq* request) {
  auto* const transfer = dynamic_cast<XferRequest*>(request);
  if (transfer == nullptr) return foreign(agent_);
  const auto ended = transfer->poll(*endpoint_, peers_);
  if (!ended) return NixlStatus::kInProgress;
  if (ended->is_ok()) {
    const bool writes = transfer->operation() == abi::XferOp::kWrite;
    rates_.add(transfer->agent(), transfer->operation(), transfer->bytes(), Clock::steady().now() - transfer->began_at());
    if (tell_) tell_(writes ? "tcpx_tx_bytes" : "tcpx_rx_bytes", transfer->bytes());
  }
  return said(*ended, transfer->agent());
}

NixlStatus Backend::release(abi::BackendReq* request) {
  auto* const transfer = dynamic_cast<XferRequest*>(request);
  if (transfer == nullptr) return foreign(agent_);
  if (const Status ended = transfer->cancel(*endpoint_); !ended.is_ok()) return said(ended, transfer->agent());
  {
    MutexLock lock(mutex_);
    requests_.erase(transfer);
  }
  delete transfer;
  return NixlStatus::kSuccess;
}

NixlStatus Backend::estimate(const abi::BackendReq* request, std::chrono::microseconds& duration,
                             std::chrono::microseconds& error, abi::CostMethod& method) const {
  const auto* const transfer = dynamic_cast<const XferRequest*>(request);
  if (transfer == nullptr) return foreign(agent_);
  const auto estimate = rates_.estimate(transfer->agent(), transfer->operation(), transfer->bytes());
  if (!estimate) return NixlStatus::kNotSupported;
  duration = estimate->duration;
  error = estimate->error;
  method = abi::CostMethod::kAnalytical;
  return NixlStatus::kSuccess;
}

NixlStatus Backend::notify(const std::string& agent, const std::string& message) {
  const auto notification = from_here(message);
  return said(notification.is_ok() ? peers_.notify(agent, *notification) : notification.status(), agent);
}

// A notification of this agent. Checked here, because there may not be a connection yet that would refuse it.
Result<NotifyMsg> Backend::from_here(const std::string& text) const {
  if (text.size() <= NotifyMsg::kMaxTextBytes) return NotifyMsg{.name = agent_, .msg = text, .conn = {}};
  return Status(Code::kInvalidArgument, "notify", concat(text.size(), " bytes, at most ", NotifyMsg::kMaxTextBytes));
}

NixlStatus Backend::take_notifications(abi::Notifications& out) {
  std::vector<NotifyMsg> messages = endpoint_->get_notifs();
  if (tell_ && !messages.empty()) tell_("tcpx_rx_notifications", messages.size());
  for (NotifyMsg& message : messages) out.emplace_back(std::move(message.name), std::move(message.msg));
  return NixlStatus::kSuccess;
}

}  // namespace tcpx::nixl
