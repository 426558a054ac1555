// An end that drives a net plugin through its version 7 table: posts, tests, unpacks and consumes by itself.
#include <dlfcn.h>

#include <climits>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "measure/end.h"
#include "measure/ends/plugin_lanes.h"
#include "measure/message_memory.h"
#include "measure/round.h"
#include "net/plugin_loader.h"
#include "net/plugin_log.h"
#include "net/received_message.h"
#include "net/soft/soft_table.h"

namespace tcpx {
namespace {

constexpr int kDev = 0;

/// Opened by the loader, which knows what a plugin needs before its init, and that it takes one init in a process (30).
Result<const abi::NetTable_v7*> open_table(const EndSetup& setup) {
  const bool linked_in = *setup.plugin == '\0';
  TCPX_ASSIGN_OR_RETURN(const auto loaded, PluginLoader::load({.path = linked_in ? kEmbedded : setup.plugin}));
  if (loaded.plugin->steers_flows() && setup.memory == MemoryType::kHost) {
    return Status(Code::kUnsupported, "open plugin", concat(loaded.plugin->name(), " receives into GPU memory only"));
  }
  if (linked_in) return &soft::net_table();
  void* const library = ::dlopen(setup.plugin, RTLD_NOW | RTLD_LOCAL);  // open already, and never closed: plugins own threads
  if (library == nullptr) return Status(Code::kNotFound, "open plugin", ::dlerror());
  const auto* table = static_cast<const abi::NetTable_v7*>(::dlsym(library, abi::kNetPluginV7Symbol));
  if (table == nullptr)
    return Status(Code::kUnsupported, "open plugin", concat(setup.plugin, " has no ", abi::kNetPluginV7Symbol));
  // The loader's choice is the newest table.
  if (loaded.plugin->abi_version() != abi::NetTable_v7::kVersion) {
    TCPX_RETURN_IF_ERROR(answer_of(*table, "init", table->init(plugin_logger())));
  }
  return table;
}

class PluginEnd final : public BenchEnd {
 public:
  PluginEnd(const EndSetup& setup, const abi::NetTable_v7& table, MessageMemory memory)
      : setup_(setup), table_(table), memory_(std::move(memory)) {}
  ~PluginEnd() override = default;  // comms of a failed end go with its process

  Status set_up();
  Result<Handle> listen() override;
  Status connect(const Handle& other, Deadline deadline) override;
  Status accept(Deadline deadline) override;
  Status allocate(const RowSetup& row) override;
  Status prepare(uint64_t count) override;
  Result<Timing> run(const RoundWait& wait) override;
  Result<ComparedBytes> compare() override { return memory_.compare(); }
  Status close() override;

 private:
  Status make_receive_lane();
  /// Makes `memory` the `current` memory of `comm`, registered.
  Status use(void* comm, const TestMemory& memory, CommMemory& current);

  const EndSetup setup_;
  const abi::NetTable_v7& table_;
  MessageMemory memory_;
  bool needs_unpack_ = false;
  void* listener_ = nullptr;
  void* send_comm_ = nullptr;
  void* recv_comm_ = nullptr;
  DeviceHandleStorage device_handle_;
  std::unique_ptr<Unpacker> unpacker_;
  std::optional<SendLane> sender_;
  std::optional<ReceiveLane> receiver_;
  CommMemory send_memory_, receive_memory_;
  std::vector<std::pair<void*, void*>> registrations_;  // comm and mhandle, until close
};

Status PluginEnd::set_up() {
  int devices = 0;
  TCPX_RETURN_IF_ERROR(answer_of(table_, "devices", table_.devices(&devices)));
  if (devices <= kDev) return Status(Code::kNotFound, "find network device", concat(table_.name, " has none"));
  abi::NetProperties_v7 properties{};
  TCPX_RETURN_IF_ERROR(answer_of(table_, "getProperties", table_.get_properties(kDev, &properties)));
  needs_unpack_ = properties.net_device_type == abi::kNcclNetDeviceUnpack;
  if ((properties.ptr_support & static_cast<int>(setup_.memory)) == 0) {
    return Status(Code::kUnsupported, "find network device", concat(table_.name, " does not take this kind of memory"));
  }
  return Status::ok();
}

Result<Handle> PluginEnd::listen() {
  Handle handle;
  TCPX_RETURN_IF_ERROR(answer_of(table_, "listen", table_.listen(kDev, handle.bytes.data(), &listener_)));
  return handle;
}

Status PluginEnd::connect(const Handle& other, Deadline deadline) {
  Handle handle = other;
  Patience patience("connect", deadline);
  while (send_comm_ == nullptr) {
    abi::NetDeviceHandle* none = nullptr;
    TCPX_RETURN_IF_ERROR(answer_of(table_, "connect", table_.connect(kDev, handle.bytes.data(), &send_comm_, &none)));
    TCPX_RETURN_IF_ERROR(patience.after_turn(false));
  }
  sender_.emplace(table_, send_comm_);
  return Status::ok();
}

Status PluginEnd::accept(Deadline deadline) {
  Patience patience("accept", deadline);
  while (recv_comm_ == nullptr) {
    auto* room = reinterpret_cast<abi::NetDeviceHandle*>(device_handle_.bytes);
    TCPX_RETURN_IF_ERROR(answer_of(table_, "accept", table_.accept(listener_, &recv_comm_, &room)));
    TCPX_RETURN_IF_ERROR(patience.after_turn(false));
  }
  return make_receive_lane();
}

Status PluginEnd::make_receive_lane() {
  ReceiveLane::Unpack unpack{.needed = needs_unpack_, .unpacker = nullptr, .pool = {}};
  if (needs_unpack_ && memory_.on_gpu()) {
    TCPX_ASSIGN_OR_RETURN(const BouncePool pool, read_bounce_pool(device_handle_, memory_.machine(), memory_.copies()));
    TCPX_ASSIGN_OR_RETURN(std::unique_ptr<Unpacker> unpacker, memory_.make_unpacker());
    unpacker_ = std::move(unpacker);
    unpack.unpacker = unpacker_.get();
    unpack.pool = pool;
  }
  receiver_.emplace(table_, recv_comm_, unpack);
  return Status::ok();
}

Status PluginEnd::use(void* comm, const TestMemory& memory, CommMemory& current) {
  if (current.data == memory.data()) return Status::ok();
  if (memory.size() > INT_MAX) {
    return Status(Code::kInvalidArgument, "regMr",
                  concat(memory.size(), " bytes; a plugin of version 7 registers at most ", INT_MAX));
  }
  CommMemory registered{.data = memory.data(), .mhandle = nullptr};
  TCPX_RETURN_IF_ERROR(answer_of(
      table_, "regMr",
      table_.reg_mr(comm, memory.data(), static_cast<int>(memory.size()), static_cast<int>(setup_.memory), &registered.mhandle)));
  registrations_.emplace_back(comm, registered.mhandle);
  current = registered;
  return Status::ok();
}

Status PluginEnd::allocate(const RowSetup& row) {
  TCPX_RETURN_IF_ERROR(memory_.allocate(row));
  if (memory_.sends()) TCPX_RETURN_IF_ERROR(use(send_comm_, memory_.to_send(), send_memory_));
  return memory_.receives() ? use(recv_comm_, memory_.received(), receive_memory_) : Status::ok();
}

Status PluginEnd::prepare(uint64_t count) {
  TCPX_RETURN_IF_ERROR(memory_.begin_round(count));
  if (memory_.sends()) sender_->start(memory_.plan(), send_memory_, memory_.first());
  if (!memory_.receives()) return Status::ok();
  receiver_->start(memory_.plan(), receive_memory_, memory_.first(), count);
  return receiver_->post().status();
}

Result<Timing> PluginEnd::run(const RoundWait& wait) {
  return MessageRound(memory_, *sender_, *receiver_, wait).run();
}

Status PluginEnd::close() {
  for (const auto& [comm, mhandle] : registrations_)
    TCPX_RETURN_IF_ERROR(answer_of(table_, "deregMr", table_.dereg_mr(comm, mhandle)));
  memory_.release();
  TCPX_RETURN_IF_ERROR(answer_of(table_, "closeSend", table_.close_send(send_comm_)));
  TCPX_RETURN_IF_ERROR(answer_of(table_, "closeRecv", table_.close_recv(recv_comm_)));
  return answer_of(table_, "closeListen", table_.close_listen(listener_));
}

}  // namespace

Result<std::unique_ptr<BenchEnd>> make_plugin_end(const EndSetup& setup) {
  TCPX_ASSIGN_OR_RETURN(const abi::NetTable_v7* const table, open_table(setup));
  TCPX_ASSIGN_OR_RETURN(MessageMemory memory, MessageMemory::create(setup));
  auto end = std::make_unique<PluginEnd>(setup, *table, std::move(memory));
  TCPX_RETURN_IF_ERROR(end->set_up());
  return std::unique_ptr<BenchEnd>(std::move(end));
}

}  // namespace tcpx
