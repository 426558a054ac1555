// An end that leaves the plugin to the library: messages are transfers, and a Pipeline each way cuts, posts, unpacks and gives
// back. It polls as an end that drives the plugin bare does, so that the difference is the pipeline's.
//
// The ends meet over bootstrap channels of loopback, one for each way.
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/text.h"
#include "measure/end.h"
#include "measure/ends/run_lanes.h"
#include "measure/message_memory.h"
#include "measure/round.h"
#include "transfer/bootstrap.h"
#include "transfer/local_machine.h"
#include "transfer/pipeline_setup.h"

namespace tcpx {
namespace {

constexpr Duration kFarewellLimit = std::chrono::seconds(10);

/// Contents of the handle of such an end; zeros follow.
struct Address {
  static constexpr uint64_t kMagic = 0x6c70'6970'7863'7074;  // "tpcxpipl"
  uint64_t magic = kMagic;
  uint16_t port = 0;
  uint16_t reserved[3] = {};
};
static_assert(std::is_trivially_copyable_v<Address> && sizeof(Address) == 16 && sizeof(Address) <= kHandleBytes);

/// The devices in turn.
Result<ChannelDevices> channel_devices(NetPlugin& plugin, uint32_t channels) {
  TCPX_ASSIGN_OR_RETURN(const int count, plugin.device_count());
  if (count < 1) return Status(Code::kNotFound, "choose devices", "the plugin has none");
  ChannelDevices devices;
  for (uint32_t i = 0; i < channels; ++i) devices.push_back(static_cast<int>(i) % count);
  return devices;
}

class PipelineEnd final : public BenchEnd {
 public:
  PipelineEnd(const EndSetup& setup, const PipelineSettings& settings, std::shared_ptr<NetPlugin> plugin, ChannelDevices devices,
              MessageMemory memory, std::unique_ptr<Unpacker> unpacker)
      : setup_(setup),
        settings_(settings),
        plugin_(std::move(plugin)),
        devices_(std::move(devices)),
        memory_(std::move(memory)),
        unpacker_(std::move(unpacker)) {}
  ~PipelineEnd() override = default;

  Result<Handle> listen() override;
  Status connect(const Handle& other, Deadline deadline) override;
  Status accept(Deadline deadline) override;
  Status allocate(const RowSetup& row) override;
  Status prepare(uint64_t count) override;
  Result<Timing> run(Deadline deadline) override;
  Status verify() override { return memory_.verify(); }
  Status close() override;

 private:
  /// A direction: the parts that move messages one way.
  struct Way {
    std::unique_ptr<BootstrapChannel> peer;  // outlives the connection
    std::unique_ptr<Pipeline> pipeline;
    RegisteredMemory memory;
    std::optional<TransferSeries> series;
  };

  PipelineOptions options(Direction direction) const;
  /// Takes the outcome of opening a connection; tells the other end of an error, so that it does not wait for this one.
  Status take(Result<std::unique_ptr<Pipeline>> opened, std::unique_ptr<BootstrapChannel> peer, Deadline deadline, Way& way);
  Status close(Way& way, Deadline deadline);
  /// Registers `memory` in place of the memory before.
  Status use(const TestMemory& memory, Way& way);

  const EndSetup setup_;
  const PipelineSettings settings_;          // but for the chunks
  const std::shared_ptr<NetPlugin> plugin_;  // shared with the loader's registry
  const ChannelDevices devices_;
  MessageMemory memory_;
  const std::unique_ptr<Unpacker> unpacker_;  // null when only host memory is received
  std::unique_ptr<BootstrapServer> server_;
  Way send_, receive_;  // destroyed first: a connection touches all of the above
};

Result<Handle> PipelineEnd::listen() {
  TCPX_ASSIGN_OR_RETURN(std::unique_ptr<BootstrapServer> server, BootstrapServer::create({.host = kLoopback}));
  server_ = std::move(server);
  const Address address{.port = server_->port()};
  Handle handle;
  std::memcpy(handle.bytes.data(), &address, sizeof address);
  return handle;
}

Status PipelineEnd::connect(const Handle& other, Deadline deadline) {
  Address address;
  std::memcpy(&address, other.bytes.data(), sizeof address);
  if (address.magic != Address::kMagic) return Status(Code::kProtocol, "connect", "not the handle of a pipeline end");
  TCPX_ASSIGN_OR_RETURN(BootstrapChannel met, bootstrap_connect(kLoopback, address.port, deadline));
  auto peer = std::make_unique<BootstrapChannel>(std::move(met));
  auto opened = open_sender(*plugin_, devices_, options(Direction::kSend), {.deadline = deadline, .peer = peer.get()});
  return take(std::move(opened), std::move(peer), deadline, send_);
}

Status PipelineEnd::accept(Deadline deadline) {
  TCPX_ASSIGN_OR_RETURN(BootstrapChannel met, server_->accept(deadline));
  auto peer = std::make_unique<BootstrapChannel>(std::move(met));
  ReceiverParts parts;
  if (unpacker_) parts = {.unpacker = unpacker_.get(), .memory = &memory_.machine(), .lane = &memory_.copies()};
  auto opened = open_receiver(*plugin_, devices_, parts, options(Direction::kRecv), {.deadline = deadline, .peer = peer.get()});
  return take(std::move(opened), std::move(peer), deadline, receive_);
}

Status PipelineEnd::take(Result<std::unique_ptr<Pipeline>> opened, std::unique_ptr<BootstrapChannel> peer, Deadline deadline,
                         Way& way) {
  if (!opened.is_ok()) return peer->finish(opened.status(), deadline);
  way.peer = std::move(peer);
  way.pipeline = std::move(opened).value();
  way.series.emplace(*way.pipeline);
  return Status::ok();
}

PipelineOptions PipelineEnd::options(Direction direction) const {
  PipelineSettings settings = settings_;
  settings.chunk_bytes = static_cast<uint32_t>(setup_.request_bytes);
  return settings.options(direction);
}

Status PipelineEnd::use(const TestMemory& memory, Way& way) {
  if (way.memory.data == memory.data()) return Status::ok();
  const Result<RegisteredMemory> registered = way.pipeline->register_memory(memory.data(), memory.size(), setup_.memory);
  if (registered.is_ok()) way.memory = *registered;
  return registered.status();
}

Status PipelineEnd::allocate(const RowSetup& row) {
  TCPX_RETURN_IF_ERROR(memory_.allocate(row));
  if (memory_.sends()) TCPX_RETURN_IF_ERROR(use(memory_.to_send(), send_));
  return memory_.receives() ? use(memory_.received(), receive_) : Status::ok();
}

Status PipelineEnd::prepare(uint64_t count) {
  TCPX_RETURN_IF_ERROR(memory_.begin_round(count));
  const MessagePlan& plan = memory_.plan();
  if (memory_.sends()) {
    send_.series->start(
        {.memory = send_.memory, .bytes = plan.message_bytes(), .window = plan.slots(), .offset_of = MessagePlan::content_off},
        memory_.first());
  }
  if (!memory_.receives()) return Status::ok();
  receive_.series->start({.memory = receive_.memory,
                          .bytes = plan.message_bytes(),
                          .window = plan.slots(),
                          .offset_of = [&plan](uint64_t message) { return plan.slot_off(message); }},
                         memory_.first());
  receive_.series->allow(count);
  return receive_.series->progress().status();  // posts the first receives
}

Result<Timing> PipelineEnd::run(Deadline deadline) {
  return run_lanes(memory_, *send_.series, *receive_.series, deadline);
}

// The way from the leader first, at both ends: each waits for the other's farewell.
Status PipelineEnd::close() {
  const Deadline deadline = Deadline::after(kFarewellLimit);
  TCPX_RETURN_IF_ERROR(close(setup_.leads ? send_ : receive_, deadline));
  TCPX_RETURN_IF_ERROR(close(setup_.leads ? receive_ : send_, deadline));
  memory_.release();
  server_.reset();
  return Status::ok();
}

Status PipelineEnd::close(Way& way, Deadline deadline) {
  const Status closed = way.pipeline->close();
  return way.peer->finish(closed, deadline);
}

}  // namespace

Result<std::unique_ptr<BenchEnd>> make_pipeline_end(const EndSetup& setup) {
  // Memory first: it makes the GPU current, which a plugin may look at when it is opened.
  TCPX_ASSIGN_OR_RETURN(MessageMemory memory, MessageMemory::create(setup));
  TCPX_ASSIGN_OR_RETURN(const LocalMachine loaded, LocalMachine::create(*setup.plugin == '\0' ? kLinkedIn : setup.plugin));
  TCPX_ASSIGN_OR_RETURN(const ChannelDevices devices, channel_devices(*loaded.plugin, setup.channels));
  Result<std::unique_ptr<Unpacker>> unpacker = std::unique_ptr<Unpacker>();
  if (memory.on_gpu()) unpacker = memory.make_unpacker();
  if (!unpacker.is_ok()) return unpacker.status();
  TCPX_ASSIGN_OR_RETURN(const PipelineSettings settings, PipelineSettings::from_environment());
  return std::unique_ptr<BenchEnd>(
      std::make_unique<PipelineEnd>(setup, settings, loaded.plugin, devices, std::move(memory), std::move(unpacker).value()));
}

}  // namespace tcpx
