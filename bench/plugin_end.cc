// An end that drives a net plugin through its version 7 table: posts, tests, unpacks and consumes by itself.
#include <dlfcn.h>

#include <cstring>
#include <optional>
#include <vector>

#include "base/environment.h"
#include "base/text.h"
#include "bench/bench_end.h"
#include "bench/table_lanes.h"
#include "device/unpacker_factory.h"
#include "net/plugin_log.h"
#include "net/plugin_status.h"
#include "net/received_message.h"
#include "net/soft/soft_table.h"
#include "perf/pattern.h"

namespace tcpx::bench {
namespace {

constexpr int kDev = 0;
constexpr std::byte kPoison{0xa5};

Result<const abi::NetTable_v7*> open_table(const char* path) {
  if (*path == '\0') return &soft::net_table();
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);  // never closed: plugins own threads
  if (library == nullptr) return Status(Code::kNotFound, "open plugin", ::dlerror());
  const auto* table = static_cast<const abi::NetTable_v7*>(::dlsym(library, abi::kNetPluginV7Symbol));
  if (table == nullptr) return Status(Code::kUnsupported, "open plugin", concat(path, " has no ", abi::kNetPluginV7Symbol));
  return table;
}

class PluginEnd final : public BenchEnd {
 public:
  PluginEnd(const EndSetup& setup, const abi::NetTable_v7& table)
      : setup_(setup), table_(table), machine_memory_(make_machine_memory_ops()), host_memory_(make_host_memory_ops()) {}
  ~PluginEnd() override = default;  // comms of a failed end go with its process

  Status set_up();
  Result<Handle> listen() override;
  Status connect(const Handle& other, Deadline deadline) override;
  Status accept(Deadline deadline) override;
  Status allocate(const RowSetup& row) override;
  Status prepare(uint64_t count) override;
  Result<Timing> run(Deadline deadline) override;
  Status verify() override;
  Status close() override;

 private:
  bool on_gpu() const { return setup_.memory == MemoryType::kCuda; }
  MemoryOps& memory() { return on_gpu() ? *machine_memory_ : *host_memory_; }
  bool sends() const { return setup_.leads || row_.pattern == Pattern::kPingPong; }
  bool receives() const { return !setup_.leads || row_.pattern == Pattern::kPingPong; }
  uint64_t own_seed() const { return 2 * row_.seed + (setup_.leads ? 1 : 0); }
  uint64_t other_seed() const { return 2 * row_.seed + (setup_.leads ? 0 : 1); }
  Status answer(const char* operation, int result) const;
  Status make_receive_lane();
  Status register_memory(void* comm, const MemoryBuffer& buffer, RegisteredMemory& registered);
  Status free_memory();
  Status stream(Patience& patience);
  Status play(Patience& patience);
  Status turn(Patience& patience);

  const EndSetup setup_;
  const abi::NetTable_v7& table_;
  const std::unique_ptr<MemoryOps> machine_memory_;  // what the plugin takes for that of a GPU
  const std::unique_ptr<MemoryOps> host_memory_;
  std::unique_ptr<CopyLane> copies_;
  bool needs_unpack_ = false;
  void* listener_ = nullptr;
  void* send_comm_ = nullptr;
  void* recv_comm_ = nullptr;
  DeviceHandleStorage device_handle_;
  std::unique_ptr<Unpacker> unpacker_;
  std::optional<SendLane> sender_;
  std::optional<ReceiveLane> receiver_;

  RowSetup row_;
  MessagePlan plan_{1, 1};
  MemoryBuffer send_buffer_, receive_buffer_;
  RegisteredMemory send_memory_, receive_memory_;
  std::vector<std::byte> expected_;  // the other end's send memory, made here
  std::vector<std::byte> scratch_;   // as large as the receive memory
  uint64_t first_ = 0, count_ = 0;   // messages of the round
};

Status PluginEnd::answer(const char* operation, int result) const {
  return result == abi::kNcclSuccess ? Status::ok() : plugin_failure(table_.name, operation, result);
}

Status PluginEnd::set_up() {
  // Before listen, connect and accept, which bind what they make to the current GPU.
  if (machine_memory_->has_gpu()) TCPX_RETURN_IF_ERROR(machine_memory_->set_current_device(setup_.gpu));
  TCPX_RETURN_IF_ERROR(answer("init", table_.init(plugin_logger())));
  int devices = 0;
  TCPX_RETURN_IF_ERROR(answer("devices", table_.devices(&devices)));
  if (devices <= kDev) return Status(Code::kNotFound, "find network device", concat(table_.name, " has none"));
  abi::NetProperties_v7 properties{};
  TCPX_RETURN_IF_ERROR(answer("getProperties", table_.get_properties(kDev, &properties)));
  needs_unpack_ = properties.net_device_type == abi::kNcclNetDeviceUnpack;
  if ((properties.ptr_support & static_cast<int>(setup_.memory)) == 0) {
    return Status(Code::kUnsupported, "find network device", concat(table_.name, " does not take this kind of memory"));
  }
  Result<std::unique_ptr<CopyLane>> lane = memory().make_copy_lane(on_gpu() ? setup_.gpu : 0);
  if (!lane.is_ok()) return lane.status();
  copies_ = std::move(lane).value();
  return Status::ok();
}

Result<Handle> PluginEnd::listen() {
  Handle handle;
  TCPX_RETURN_IF_ERROR(answer("listen", table_.listen(kDev, handle.bytes.data(), &listener_)));
  return handle;
}

Status PluginEnd::connect(const Handle& other, Deadline deadline) {
  Handle handle = other;
  Patience patience("connect", deadline);
  while (send_comm_ == nullptr) {
    abi::NetDeviceHandle* none = nullptr;
    TCPX_RETURN_IF_ERROR(answer("connect", table_.connect(kDev, handle.bytes.data(), &send_comm_, &none)));
    TCPX_RETURN_IF_ERROR(patience.after_turn(false));
  }
  sender_.emplace(table_, send_comm_);
  return Status::ok();
}

Status PluginEnd::accept(Deadline deadline) {
  Patience patience("accept", deadline);
  while (recv_comm_ == nullptr) {
    auto* room = reinterpret_cast<abi::NetDeviceHandle*>(device_handle_.bytes);
    TCPX_RETURN_IF_ERROR(answer("accept", table_.accept(listener_, &recv_comm_, &room)));
    TCPX_RETURN_IF_ERROR(patience.after_turn(false));
  }
  return make_receive_lane();
}

Status PluginEnd::make_receive_lane() {
  ReceiveLane::Unpack unpack{.needed = needs_unpack_, .unpacker = nullptr, .pool = {}};
  if (needs_unpack_ && on_gpu()) {
    const Result<BouncePool> pool = read_bounce_pool(device_handle_, *machine_memory_, *copies_);
    if (!pool.is_ok()) return pool.status();
    const Result<int64_t> kind = environment_choice(Variable::kUnpackImpl);
    if (!kind.is_ok()) return kind.status();
    Result<std::unique_ptr<Unpacker>> unpacker = make_unpacker(static_cast<UnpackKind>(*kind), setup_.gpu, *machine_memory_);
    if (!unpacker.is_ok()) return unpacker.status();
    unpacker_ = std::move(unpacker).value();
    unpack.unpacker = unpacker_.get();
    unpack.pool = *pool;
  }
  receiver_.emplace(table_, recv_comm_, unpack);
  return Status::ok();
}

Status PluginEnd::register_memory(void* comm, const MemoryBuffer& buffer, RegisteredMemory& registered) {
  registered = {.data = buffer.device(), .mhandle = nullptr};
  return answer("regMr", table_.reg_mr(comm, buffer.device(), static_cast<int>(buffer.size()), static_cast<int>(setup_.memory),
                                       &registered.mhandle));
}

Status PluginEnd::free_memory() {
  if (send_buffer_) TCPX_RETURN_IF_ERROR(answer("deregMr", table_.dereg_mr(send_comm_, send_memory_.mhandle)));
  send_buffer_ = {};
  if (receive_buffer_) TCPX_RETURN_IF_ERROR(answer("deregMr", table_.dereg_mr(recv_comm_, receive_memory_.mhandle)));
  receive_buffer_ = {};
  return Status::ok();
}

Status PluginEnd::allocate(const RowSetup& row) {
  TCPX_RETURN_IF_ERROR(free_memory());
  row_ = row;
  plan_ = MessagePlan(row.message_bytes, setup_.request_bytes);
  first_ = count_ = 0;
  const int device = on_gpu() ? setup_.gpu : 0;
  if (sends()) {
    Result<MemoryBuffer> buffer = memory().allocate_device(device, plan_.send_memory_bytes());
    if (!buffer.is_ok()) return buffer.status();
    send_buffer_ = std::move(buffer).value();
    scratch_.resize(plan_.send_memory_bytes());
    fill_pattern(scratch_, own_seed());
    TCPX_RETURN_IF_ERROR(copies_->copy(send_buffer_.device(), scratch_.data(), scratch_.size()));
    TCPX_RETURN_IF_ERROR(register_memory(send_comm_, send_buffer_, send_memory_));
  }
  if (receives()) {
    Result<MemoryBuffer> buffer = memory().allocate_device(device, plan_.receive_memory_bytes());
    if (!buffer.is_ok()) return buffer.status();
    receive_buffer_ = std::move(buffer).value();
    scratch_.resize(plan_.receive_memory_bytes());
    expected_.resize(plan_.send_memory_bytes());
    fill_pattern(expected_, other_seed());
    TCPX_RETURN_IF_ERROR(register_memory(recv_comm_, receive_buffer_, receive_memory_));
  }
  return Status::ok();
}

Status PluginEnd::prepare(uint64_t count) {
  first_ += count_;
  count_ = count;
  if (sends()) sender_->start(plan_, send_memory_, first_);
  if (!receives()) return Status::ok();
  std::memset(scratch_.data(), static_cast<int>(kPoison), scratch_.size());
  TCPX_RETURN_IF_ERROR(copies_->copy(receive_memory_.data, scratch_.data(), scratch_.size()));
  receiver_->start(plan_, receive_memory_, first_, count);
  return receiver_->post().status();
}

Result<Timing> PluginEnd::run(Deadline deadline) {
  Patience patience(row_.pattern == Pattern::kOneWay ? "one-way round" : "ping-pong", deadline);
  const Stopwatch begin = Stopwatch::read();
  TCPX_RETURN_IF_ERROR(row_.pattern == Pattern::kOneWay ? stream(patience) : play(patience));
  const Stopwatch end = Stopwatch::read();
  return Timing{begin.now_ns, end.now_ns, end.cpu_seconds - begin.cpu_seconds};
}

Status PluginEnd::stream(Patience& patience) {
  if (sends()) sender_->allow(count_);
  while (!(sends() ? sender_->is_done() : receiver_->is_done())) TCPX_RETURN_IF_ERROR(turn(patience));
  return Status::ok();
}

Status PluginEnd::play(Patience& patience) {
  for (uint64_t i = 0; i < count_; ++i) {
    if (setup_.leads) sender_->allow(1);
    while (receiver_->finished_messages() <= i) TCPX_RETURN_IF_ERROR(turn(patience));
    if (!setup_.leads) sender_->allow(1);
  }
  while (!sender_->is_done()) TCPX_RETURN_IF_ERROR(turn(patience));
  return Status::ok();
}

Status PluginEnd::turn(Patience& patience) {
  bool advanced = false;
  if (sends()) {
    const Result<bool> sent = sender_->progress();
    if (!sent.is_ok()) return sent.status();
    advanced |= *sent;
  }
  if (receives()) {
    const Result<bool> received = receiver_->progress();
    if (!received.is_ok()) return received.status();
    advanced |= *received;
  }
  return patience.after_turn(advanced);
}

Status PluginEnd::verify() {
  if (!receives()) return Status::ok();
  TCPX_RETURN_IF_ERROR(copies_->copy(scratch_.data(), receive_memory_.data, scratch_.size()));
  const uint64_t end = first_ + count_;
  for (uint64_t message = end - std::min(count_, plan_.slots()); message < end; ++message) {
    const std::byte* const received = scratch_.data() + plan_.slot_off(message);
    const uint64_t off = MessagePlan::content_off(message);
    if (std::memcmp(received, expected_.data() + off, row_.message_bytes) == 0) continue;
    const Status wrong = verify_pattern({received, row_.message_bytes}, other_seed(), off);
    return Status(Code::kMismatch, concat("message ", message - first_, " of ", count_), wrong.detail());
  }
  return Status::ok();
}

Status PluginEnd::close() {
  TCPX_RETURN_IF_ERROR(free_memory());
  TCPX_RETURN_IF_ERROR(answer("closeSend", table_.close_send(send_comm_)));
  TCPX_RETURN_IF_ERROR(answer("closeRecv", table_.close_recv(recv_comm_)));
  return answer("closeListen", table_.close_listen(listener_));
}

}  // namespace

Result<std::unique_ptr<BenchEnd>> make_plugin_end(const EndSetup& setup) {
  const Result<const abi::NetTable_v7*> table = open_table(setup.plugin);
  if (!table.is_ok()) return table.status();
  auto end = std::make_unique<PluginEnd>(setup, **table);
  TCPX_RETURN_IF_ERROR(end->set_up());
  return std::unique_ptr<BenchEnd>(std::move(end));
}

}  // namespace tcpx::bench
