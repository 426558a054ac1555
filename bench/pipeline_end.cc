// An end that leaves the plugin to the library: messages are transfers, and a Connection each way cuts, posts, unpacks and gives
// back. It polls as an end that drives the plugin bare does, so that the difference is the pipeline's.
#include <optional>
#include <utility>

#include "base/text.h"
#include "bench/bench_end.h"
#include "bench/message_memory.h"
#include "bench/pipeline_lane.h"
#include "net/plugin_loader.h"
#include "transfer/handshake.h"

namespace tcpx::bench {
namespace {

constexpr int kDev = 0;
constexpr char kLinkedIn[] = "embedded";

class PipelineEnd final : public BenchEnd {
 public:
  PipelineEnd(const EndSetup& setup, std::shared_ptr<NetPlugin> plugin, MessageMemory memory)
      : setup_(setup), plugin_(std::move(plugin)), memory_(std::move(memory)) {}
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
  /// A direction: what it takes to move messages one way.
  struct Way {
    std::unique_ptr<Connection> connection;
    RegisteredMemory memory;
    std::optional<PipelineLane> lane;
  };

  Status open(Comm comm, const ReceiveParts& parts, Way& way);
  /// Registers `buffer` in place of the memory before.
  Status use(const MemoryBuffer& buffer, Way& way);
  Status stream(Patience& patience);
  Status play(Patience& patience);
  Status turn(Patience& patience);

  const EndSetup setup_;
  const std::shared_ptr<NetPlugin> plugin_;  // shared with the loader's registry
  MessageMemory memory_;
  std::unique_ptr<Unpacker> unpacker_;
  DeviceHandleStorage device_handle_;
  std::optional<Listener> listener_;
  Way send_, receive_;  // destroyed first: a connection touches all of the above
};

Result<Handle> PipelineEnd::listen() {
  Result<Listener> listener = Listener::create(*plugin_, kDev);
  if (!listener.is_ok()) return listener.status();
  listener_.emplace(std::move(listener).value());
  return listener_->handle();
}

Status PipelineEnd::connect(const Handle& other, Deadline deadline) {
  Result<Comm> comm = connect_comm(*plugin_, kDev, other, {.deadline = deadline});
  if (!comm.is_ok()) return comm.status();
  return open(std::move(comm).value(), {}, send_);
}

Status PipelineEnd::accept(Deadline deadline) {
  Result<Comm> comm = listener_->accept(device_handle_, {.deadline = deadline});
  if (!comm.is_ok()) return comm.status();
  ReceiveParts parts;
  if (memory_.on_gpu()) {
    const Result<BouncePool> pool = plugin_->bounce_pool(device_handle_, memory_.machine(), memory_.copies());
    if (!pool.is_ok()) return pool.status();
    Result<std::unique_ptr<Unpacker>> unpacker = memory_.make_unpacker();
    if (!unpacker.is_ok()) return unpacker.status();
    unpacker_ = std::move(unpacker).value();
    parts = {.unpacker = unpacker_.get(), .pool = *pool};
  }
  return open(std::move(comm).value(), parts, receive_);
}

Status PipelineEnd::open(Comm comm, const ReceiveParts& parts, Way& way) {
  ConnectionOptions options{.limits = {}, .chunk_bytes = static_cast<uint32_t>(setup_.request_bytes)};
  options.limits.window = comm.direction() == Direction::kSend ? kDefaultSendWindow : kDefaultRecvWindow;
  Result<std::unique_ptr<Connection>> connection = Connection::create(std::move(comm), parts, Clock::steady(), options);
  if (!connection.is_ok()) return connection.status();
  way.connection = std::move(connection).value();
  way.lane.emplace(*way.connection);
  return Status::ok();
}

Status PipelineEnd::use(const MemoryBuffer& buffer, Way& way) {
  if (way.memory.data == buffer.device()) return Status::ok();
  const Result<RegisteredMemory> registered = way.connection->register_memory(buffer.device(), buffer.size(), setup_.memory);
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
  if (memory_.sends()) send_.lane->start(memory_.plan(), send_.memory, memory_.first());
  if (!memory_.receives()) return Status::ok();
  receive_.lane->start(memory_.plan(), receive_.memory, memory_.first());
  receive_.lane->allow(count);
  return receive_.lane->progress().status();  // posts the first receives
}

Result<Timing> PipelineEnd::run(Deadline deadline) {
  const bool one_way = memory_.row().pattern == Pattern::kOneWay;
  Patience patience(one_way ? "one-way round" : "ping-pong", deadline, one_way ? memory_.plan().bytes_under_way() : 0);
  const Stopwatch begin = Stopwatch::read();
  TCPX_RETURN_IF_ERROR(one_way ? stream(patience) : play(patience));
  return begin.until(Stopwatch::read());
}

Status PipelineEnd::stream(Patience& patience) {
  if (memory_.sends()) send_.lane->allow(memory_.count());
  const PipelineLane& lane = memory_.sends() ? *send_.lane : *receive_.lane;
  while (!lane.is_done()) TCPX_RETURN_IF_ERROR(turn(patience));
  return Status::ok();
}

Status PipelineEnd::play(Patience& patience) {
  for (uint64_t i = 0; i < memory_.count(); ++i) {
    if (memory_.leads()) send_.lane->allow(1);
    while (receive_.lane->finished_messages() <= i) TCPX_RETURN_IF_ERROR(turn(patience));
    if (!memory_.leads()) send_.lane->allow(1);
  }
  while (!send_.lane->is_done()) TCPX_RETURN_IF_ERROR(turn(patience));
  return Status::ok();
}

Status PipelineEnd::turn(Patience& patience) {
  bool advanced = false;
  for (const auto& [works, way] : {std::pair(memory_.sends(), &send_), std::pair(memory_.receives(), &receive_)}) {
    if (!works) continue;
    const Result<bool> progress = way->lane->progress();
    if (!progress.is_ok()) return progress.status();
    advanced |= *progress;
  }
  return patience.after_turn(advanced);
}

Status PipelineEnd::close() {
  TCPX_RETURN_IF_ERROR(send_.connection->close());
  TCPX_RETURN_IF_ERROR(receive_.connection->close());
  memory_.release();
  return listener_->close();
}

}  // namespace

Result<std::unique_ptr<BenchEnd>> make_pipeline_end(const EndSetup& setup) {
  // Memory first: it makes the GPU current, which a plugin may look at when it is opened.
  Result<MessageMemory> memory = MessageMemory::create(setup);
  if (!memory.is_ok()) return memory.status();
  const Result<PluginLoader::Loaded> loaded =
      PluginLoader::load({.path = *setup.plugin == '\0' ? kLinkedIn : setup.plugin, .installed_paths = {}});
  if (!loaded.is_ok()) return loaded.status();
  return std::unique_ptr<BenchEnd>(std::make_unique<PipelineEnd>(setup, loaded->plugin, std::move(memory).value()));
}

}  // namespace tcpx::bench
