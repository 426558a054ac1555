#include "measure/ends/pipeline.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "net/plugin_loader.h"
#include "transfer/local_machine.h"

namespace tcpx {
namespace {

constexpr Duration kFarewellLimit = std::chrono::seconds(10);

/// Contents of the handle of such an end; zeros follow.
struct Address {
  static constexpr uint64_t kMagic = 0x6c70'6970'7863'7074;  // "tpcxpipl"
  uint64_t magic = kMagic;
  uint64_t port = 0;
};
static_assert(std::is_trivially_copyable_v<Address> && sizeof(Address) == 16 && sizeof(Address) <= kHandleBytes);

}  // namespace

Result<std::unique_ptr<PipelineEnd>> PipelineEnd::create(const EndSetup& setup, Parts parts) {
  TCPX_ASSIGN_OR_RETURN(MessageMemory memory, MessageMemory::create(setup));
  return std::make_unique<PipelineEnd>(setup, std::move(parts), std::move(memory));
}

Result<Handle> PipelineEnd::listen() {
  Handle handle;
  if (channel_ != nullptr) return handle;
  TCPX_ASSIGN_OR_RETURN(server_, BootstrapServer::create({.host = kLoopback}));
  const Address address{.port = server_->port()};
  std::memcpy(handle.bytes.data(), &address, sizeof address);
  return handle;
}

Status PipelineEnd::connect(const Handle& other, Deadline deadline) {
  if (channel_ == nullptr) {
    Address address;
    std::memcpy(&address, other.bytes.data(), sizeof address);
    if (address.magic != Address::kMagic) return Status(Code::kProtocol, "connect", "not the handle of a pipeline end");
    TCPX_RETURN_IF_ERROR(meet(bootstrap_connect(kLoopback, static_cast<uint16_t>(address.port), deadline)));
  }
  return open(true, deadline);
}

Status PipelineEnd::accept(Deadline deadline) {
  if (channel_ == nullptr) TCPX_RETURN_IF_ERROR(meet(server_->accept(deadline)));
  return open(false, deadline);
}

Status PipelineEnd::meet(Result<BootstrapChannel> met) {
  if (!met.is_ok()) return met.status();
  channel_ = &own_.emplace(std::move(met).value());
  return Status::ok();
}

Status PipelineEnd::open(bool sends, Deadline deadline) {
  const HandshakeWait wait{.deadline = deadline, .peer = channel_, .stop = channel_->stop()};
  const PipelineOptions options = parts_.settings.options(sends ? Direction::kSend : Direction::kRecv);
  const ReceiverParts receiver{
      .unpacker = parts_.unpacker.get(), .memory = &memory_.machine(), .lane = memory_.on_gpu() ? &memory_.copies() : nullptr};
  auto opened = sends ? open_sender(*parts_.plugin, parts_.devices, options, wait)
                      : open_receiver(*parts_.plugin, parts_.devices, receiver, options, wait);
  // The other end is told, so that it does not wait for this one.
  if (!opened.is_ok()) return own_ ? own_->finish(opened.status(), deadline) : opened.status();
  (sends ? send_ : receive_).pipeline = std::move(opened).value();
  return Status::ok();
}

Status PipelineEnd::use(const TestMemory& memory, MemoryType type, Way& way) {
  if (!way.pipeline || way.memory.data == memory.data()) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(way.memory, way.pipeline->register_memory(memory.data(), memory.size(), type));
  return Status::ok();
}

Status PipelineEnd::allocate(const RowSetup& row) {
  TCPX_RETURN_IF_ERROR(memory_.allocate(row));
  if (memory_.sends()) TCPX_RETURN_IF_ERROR(use(memory_.to_send(), setup_.memory, send_));
  return memory_.receives() ? use(memory_.received(), setup_.memory, receive_) : Status::ok();
}

Status PipelineEnd::prepare(uint64_t count) {
  TCPX_RETURN_IF_ERROR(memory_.begin_round(count));
  const MessagePlan& plan = memory_.plan();
  TransferSeries::Plan transfers{.memory = {}, .bytes = plan.message_bytes(), .window = plan.slots(), .offset_of = {}};
  if (memory_.sends()) {
    transfers.memory = send_.memory;
    transfers.offset_of = [&plan](uint64_t message) { return plan.content_off(message); };
    send_.series.start(*send_.pipeline, transfers, memory_.first());
  }
  if (!memory_.receives()) return Status::ok();
  transfers.memory = receive_.memory;
  transfers.offset_of = [&plan](uint64_t message) { return plan.slot_off(message); };
  receive_.series.start(*receive_.pipeline, transfers, memory_.first());
  receive_.series.allow(count);
  // The caller of a shared channel may do much before the round, which the pipeline would take for a stall of what is posted.
  return !own_ ? Status::ok() : receive_.series.progress().status();
}

Result<Timing> PipelineEnd::run(const RoundWait& wait) {
  return MessageRound(memory_, send_.series, receive_.series, wait).run();
}

NicBytes PipelineEnd::nic_bytes() const {
  NicBytes nics;
  for (const Way* way : {&send_, &receive_}) {
    if (!way->pipeline) continue;
    for (const ChannelCounters& channel : way->pipeline->counters()) nics[channel.nic] += channel.bytes;
  }
  return nics;
}

// The way from the leader first, at both ends: each waits for the other's farewell.
Status PipelineEnd::close() {
  for (Way* way : {setup_.leads ? &send_ : &receive_, setup_.leads ? &receive_ : &send_}) {
    if (!way->pipeline) continue;
    TCPX_RETURN_IF_ERROR(way->pipeline->close());
    way->pipeline.reset();
  }
  return own_ ? own_->finish(Status::ok(), Deadline::after(kFarewellLimit)) : Status::ok();
}

Result<std::unique_ptr<BenchEnd>> make_pipeline_end(const EndSetup& setup) {
  // Memory first: it makes the GPU current, which a plugin may look at when it is opened.
  TCPX_ASSIGN_OR_RETURN(MessageMemory memory, MessageMemory::create(setup));
  TCPX_ASSIGN_OR_RETURN(const LocalMachine loaded, LocalMachine::create(*setup.plugin == '\0' ? kEmbedded : setup.plugin));
  PipelineEnd::Parts parts{.plugin = loaded.plugin, .devices = {}, .settings = {}, .unpacker = nullptr};
  TCPX_ASSIGN_OR_RETURN(const int count, loaded.plugin->device_count());
  if (count < 1) return Status(Code::kNotFound, "choose devices", "the plugin has none");
  for (uint32_t i = 0; i < setup.channels; ++i) parts.devices.push_back(static_cast<int>(i) % count);  // in turn
  if (memory.on_gpu()) {
    TCPX_ASSIGN_OR_RETURN(parts.unpacker, memory.make_unpacker());
  }
  TCPX_ASSIGN_OR_RETURN(parts.settings, PipelineSettings::from_environment());
  parts.settings.chunk_bytes = static_cast<uint32_t>(setup.request_bytes);
  parts.settings.longest_chunk_bytes = static_cast<uint32_t>(setup.longest_request_bytes);
  return std::unique_ptr<BenchEnd>(std::make_unique<PipelineEnd>(setup, std::move(parts), std::move(memory)));
}

}  // namespace tcpx
