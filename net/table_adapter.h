// The adapter of versions 7 and 8 of the plugin ABI: one template over the version's table (net/abi/nccl_net_common.h). Only
// plugin_adapters.cc includes this file.
#pragma once

#include <climits>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "net/abi/nccl_net_common.h"
#include "net/host_receives.h"
#include "net/net_plugin.h"
#include "net/plugin_exit.h"
#include "net/plugin_log.h"
#include "net/plugin_status.h"
#include "net/received_message.h"
#include "net/soft/soft_table.h"
#include "net/soft/wire.h"
#include "net/vendor_plugin.h"
#include "net/vendor_setups.h"
#include "net/vendor_traps.h"

namespace tcpx {

inline NetDeviceType net_device_type_of(int foreign) {
  switch (foreign) {
    case abi::kNcclNetDeviceHost:
      return NetDeviceType::kHost;
    case abi::kNcclNetDeviceUnpack:
      return NetDeviceType::kUnpack;
    default:
      return NetDeviceType::kUnknown;
  }
}

/// The fields have the same name and meaning in every version. `reg_is_global` of version 8 has no counterpart: we register per
/// comm, which is right for both values.
template <class Properties>
DeviceProperties properties_of(const Properties& from) {
  DeviceProperties to;
  if (from.name != nullptr) to.name = from.name;
  if (from.pci_path != nullptr) to.pci_path = from.pci_path;
  to.guid = from.guid;
  to.host_memory = (from.ptr_support & abi::kNcclPtrHost) != 0;
  to.cuda_memory = (from.ptr_support & abi::kNcclPtrCuda) != 0;
  to.dma_buf = (from.ptr_support & abi::kNcclPtrDmaBuf) != 0;
  to.speed_mbps = from.speed;
  to.port = from.port;
  to.latency_us = from.latency;
  to.max_comms = from.max_comms;
  to.max_recvs = from.max_recvs;
  to.net_device_type = net_device_type_of(from.net_device_type);
  to.net_device_version = from.net_device_version;
  return to;
}

template <class Table>
Status check_table_entries(const Table& table, std::string_view symbol) {
  std::string missing;
  const auto require = [&missing](const char* entry, bool present) {
    if (!present) missing.append(missing.empty() ? "" : ", ").append(entry);
  };
  require("name", table.name != nullptr);
  require("init", table.init != nullptr);
  require("devices", table.devices != nullptr);
  require("getProperties", table.get_properties != nullptr);
  require("listen", table.listen != nullptr);
  require("connect", table.connect != nullptr);
  require("accept", table.accept != nullptr);
  require("regMr", table.reg_mr != nullptr);
  require("deregMr", table.dereg_mr != nullptr);
  require("isend", table.isend != nullptr);
  require("irecv", table.irecv != nullptr);
  require("test", table.test != nullptr);
  require("closeSend", table.close_send != nullptr);
  require("closeRecv", table.close_recv != nullptr);
  require("closeListen", table.close_listen != nullptr);
  if (missing.empty()) return Status::ok();
  return plugin_refused(Code::kUnsupported, "check plugin table", concat(symbol, " lacks ", missing));
}

template <class Table>
class TableAdapter final : public NetPlugin {
 public:
  static Result<std::shared_ptr<NetPlugin>> start(const Table& table) {
    auto adapter = std::make_shared<TableAdapter>(table);
    if (adapter->vendor_) {
      TCPX_ASSIGN_OR_RETURN(adapter->message_cut_, vendor_message_cut());
    }
    TCPX_RETURN_IF_ERROR(adapter->call("init", table.init, plugin_logger()));
    log(LogLevel::kDebug, adapter->name_, ": net->init rc=0");
    TCPX_RETURN_IF_ERROR(adapter->read_devices());
    return std::shared_ptr<NetPlugin>(std::move(adapter));
  }

  explicit TableAdapter(const Table& table)
      : table_(table), name_(table.name), vendor_(is_vendor_plugin(name_)), soft_(name_ == soft::kPluginName) {
    if (!vendor_) return;
    setups_ = std::make_unique<VendorSetups>(VendorCalls{.plugin = name_,
                                                         .connect = table.connect,
                                                         .accept = table.accept,
                                                         .close_send = table.close_send,
                                                         .close_recv = table.close_recv,
                                                         .close_listen = table.close_listen,
                                                         .dereg_mr = table.dereg_mr});
  }

  const std::string& name() const override { return name_; }
  int abi_version() const override { return Table::kVersion; }
  std::optional<MessageCut> message_cut() const override { return message_cut_; }
  bool steers_flows() const override { return vendor_; }
  bool encrypts() const override { return is_embedded() && soft::encrypts(); }
  uint32_t queue_depth() const override { return soft_ ? soft::kRequests : kQueueDepth; }
  Result<int> device_count() override { return static_cast<int>(devices_.size()); }

  Result<DeviceProperties> properties(int dev) override {
    TCPX_RETURN_IF_ERROR(check_device("get properties", dev));
    return devices_[static_cast<size_t>(dev)];
  }

  Result<ListenComm> listen(int dev, Handle& handle) override {
    TCPX_RETURN_IF_ERROR(check_device("listen", dev));
    std::call_once(first_connection_, report_exit_first);
    if (setups_) TCPX_RETURN_IF_ERROR(setups_->may_listen());
    void* comm = nullptr;
    TCPX_RETURN_IF_ERROR(call("listen", table_.listen, dev, handle.bytes.data(), &comm));
    if (comm == nullptr) return plugin_refused(Code::kPlugin, "listen", name_ + " reports success without a comm");
    if (setups_) setups_->listens(comm, dev, handle);
    return typed<ListenComm>(comm);
  }

  Result<std::optional<SendComm>> try_connect(int dev, Handle& handle) override {
    TCPX_RETURN_IF_ERROR(check_device("connect", dev));
    std::call_once(first_connection_, report_exit_first);
    if (setups_) TCPX_RETURN_IF_ERROR(setups_->may_connect(handle));
    if (soft_) soft::answer_in_steps(handle);
    void* comm = nullptr;
    abi::NetDeviceHandle* no_device_handle = nullptr;  // the sending side has none; NCCL passes the same
    Status status = set_up_call("connect", table_.connect, dev, handle.bytes.data(), &comm, &no_device_handle);
    if (setups_ && !status.is_ok()) VendorSetups::connect_failed(handle);
    if (!status.is_ok()) return status;
    if (setups_ && comm != nullptr) setups_->connected(comm, dev);
    return optional<SendComm>(comm);
  }

  Status give_up_connect(int dev, std::unique_ptr<Handle> handle) override {
    if (setups_) setups_->give_up_connect(dev, std::move(handle));
    // Only the software plugin accepts NULL as the place for the comm; others do not check it.
    if (!soft_) return Status::ok();
    std::string words;
    const PluginCall marked(name_, "connect", &words);
    const int result = table_.connect(dev, handle->bytes.data(), nullptr, nullptr);
    return result == abi::kNcclSuccess ? Status::ok() : plugin_failure(name_, "connect", result, LogLevel::kDebug, words);
  }

  Result<std::optional<RecvComm>> try_accept(ListenComm comm, DeviceHandleStorage& device_handle) override {
    if (setups_) TCPX_RETURN_IF_ERROR(setups_->may_accept(raw(comm)));
    void* accepted = nullptr;
    // Both levels are needed: the plugin writes through the pointer unchecked, and without it creates no queue (4, 5).
    auto* room = reinterpret_cast<abi::NetDeviceHandle*>(device_handle.bytes);
    Status status = set_up_call("accept", table_.accept, raw(comm), &accepted, &room);
    if (setups_) setups_->accept_answered(raw(comm), status.native(), accepted);
    if (!status.is_ok()) return status;
    return optional<RecvComm>(accepted);
  }

  // The software plugin of another library may be of another version.
  std::unique_ptr<IoLoop> borrow_io() override { return is_embedded() ? soft::borrow_io() : nullptr; }
  bool tell_changes(SendComm comm, std::function<void()> told) override {
    return is_embedded() && soft::tell_changes(raw(comm), std::move(told));
  }
  bool tell_changes(RecvComm comm, std::function<void()> told) override {
    return is_embedded() && soft::tell_changes(raw(comm), std::move(told));
  }

  std::string nic_of(SendComm comm) override { return nic_of(raw(comm)); }
  std::string nic_of(RecvComm comm) override { return nic_of(raw(comm)); }

  Result<MemoryHandle> register_memory(SendComm comm, void* data, size_t bytes, MemoryType type) override {
    return register_memory(raw(comm), data, bytes, type);
  }
  Result<MemoryHandle> register_memory(RecvComm comm, void* data, size_t bytes, MemoryType type) override {
    // The kernel answers EFAULT to an ordinary read of a steered flow, and the plugin's thread ends silently.
    if (vendor_ && type == MemoryType::kHost) {
      return plugin_refused(Code::kUnsupported, "regMr",
                            concat(bytes, " bytes of host memory to receive into: ", name_,
                                   " receives into GPU memory only, for what it is sent is steered there"));
    }
    return register_memory(raw(comm), data, bytes, type);
  }
  Status deregister_memory(SendComm comm, MemoryHandle handle) override { return deregister_memory(raw(comm), raw(handle)); }
  Status deregister_memory(RecvComm comm, MemoryHandle handle) override { return deregister_memory(raw(comm), raw(handle)); }

  bool takes_lists() const override { return is_embedded(); }
  Result<MemoryHandle> register_list(SendComm comm, std::shared_ptr<const RangeList> list) override {
    return register_list(raw(comm), std::move(list));
  }
  Result<MemoryHandle> register_list(RecvComm comm, std::shared_ptr<const RangeList> list) override {
    return register_list(raw(comm), std::move(list));
  }

  Result<std::optional<Request>> try_send(SendComm comm, const void* data, size_t bytes, int tag, MemoryHandle handle) override {
    TCPX_RETURN_IF_ERROR(check_size("isend", bytes, INT_MAX));
    void* request = nullptr;
    TCPX_RETURN_IF_ERROR(repeated_call("isend", table_.isend, raw(comm), const_cast<void*>(data), static_cast<int>(bytes), tag,
                                       raw(handle), &request));
    return optional<Request>(request);
  }

  Result<std::optional<Request>> try_recv(RecvComm comm, void* data, size_t bytes, int tag, MemoryHandle handle) override {
    TCPX_RETURN_IF_ERROR(check_size("irecv", bytes, INT_MAX));
    int size = static_cast<int>(bytes);
    void* mhandle = raw(handle);
    void* request = nullptr;
    TCPX_RETURN_IF_ERROR(repeated_call("irecv", table_.irecv, raw(comm), 1, &data, &size, &tag, &mhandle, &request));
    if (is_host() && request != nullptr) host_receives_.posted(comm, typed<Request>(request));
    return optional<Request>(request);
  }

  Result<Completion> test(Request request) override {
    int done = 0;
    int size = -1;  // stays so with GPUDirect-TCPX (15)
    TCPX_RETURN_IF_ERROR(repeated_call("test", table_.test, raw(request), &done, &size));
    const Completion completion{.done = done != 0, .reported_bytes = size < 0 ? -1 : size};
    if (is_host() && completion.done) host_receives_.done(request, completion.reported_bytes);
    return completion;
  }

  Result<ReceivedMessage> received(Request request) override {
    if (device_type_ == NetDeviceType::kUnpack) return read_received_message(raw(request));
    if (!is_host()) return Status(Code::kUnsupported, "read received message", name_ + " has devices of an unknown type");
    const auto bytes = host_receives_.bytes(request);
    if (!bytes) return plugin_refused(Code::kProtocol, "read received message", name_ + " reported no size for this receive");
    return ReceivedMessage{.bytes = *bytes, .in_place = true};
  }

  Status consumed(RecvComm comm, Request request) override {
    if (is_host()) host_receives_.consumed(request);
    if (table_.irecv_consumed == nullptr) return Status::ok();  // not of type UNPACK: there are no pages to return
    return call("irecvConsumed", table_.irecv_consumed, raw(comm), 1, raw(request));
  }

  Result<BouncePool> bounce_pool(const DeviceHandleStorage& device_handle, const MemoryOps& memory, CopyLane& lane) override {
    if (is_host()) return BouncePool{};
    return read_bounce_pool(device_handle, memory, lane);
  }

  Status close(SendComm comm) override {
    return setups_ ? setups_->close_send(raw(comm)) : call("closeSend", table_.close_send, raw(comm));
  }
  Status close(RecvComm comm) override {
    if (is_host()) host_receives_.closed(comm);
    return setups_ ? setups_->close_recv(raw(comm)) : call("closeRecv", table_.close_recv, raw(comm));
  }
  Status close(ListenComm comm) override {
    return setups_ ? setups_->close_listener(raw(comm)) : call("closeListen", table_.close_listen, raw(comm));
  }
  LeftBehind left_behind() const override { return setups_ ? setups_->left_behind() : LeftBehind{}; }

 private:
  static constexpr int kMaxDevices = 1024;  // a plausibility bound, far above any machine

  template <class Id>
  static void* raw(Id id) {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(id));
  }
  template <class Id>
  static Id typed(void* pointer) {
    return static_cast<Id>(reinterpret_cast<uintptr_t>(pointer));
  }
  /// NULL with success means "not yet".
  template <class Id>
  static std::optional<Id> optional(void* pointer) {
    return pointer != nullptr ? std::optional<Id>(typed<Id>(pointer)) : std::nullopt;
  }

  bool is_host() const { return device_type_ == NetDeviceType::kHost; }

  /// Every call into the table goes through here, so that an exit from within it can be reported.
  template <class Function, class... Arguments>
  int enter(const char* operation, Function function, Arguments&&... arguments) const {
    const PluginCall marked(name_, operation);
    return function(std::forward<Arguments>(arguments)...);
  }

  /// As above; a failure includes the plugin's own message.
  template <class Function, class... Arguments>
  Status call(const char* operation, Function function, Arguments&&... arguments) const {
    std::string words;
    const PluginCall marked(name_, operation, &words);
    const int result = function(std::forward<Arguments>(arguments)...);
    return result == abi::kNcclSuccess ? Status::ok() : plugin_failure(name_, operation, result, LogLevel::kWarning, words);
  }

  /// For connect and accept: GPUDirect-TCPX works on these in threads of its own, where it gives the cause and nothing else does.
  template <class Function, class... Arguments>
  Status set_up_call(const char* operation, Function function, Arguments&&... arguments) const {
    std::string words;
    const PluginCall marked(name_, operation, &words);
    const int result = function(std::forward<Arguments>(arguments)...);
    if (result == abi::kNcclSuccess) return Status::ok();
    return plugin_failure(name_, operation, result, LogLevel::kWarning, words.empty() ? take_words_of_own_threads() : words);
  }

  /// For calls that are repeated in a loop while their failure may be transient: 3 for a full queue (11), 2 at the end of a
  /// stream (12). A warning each time would flood the log.
  template <class... Arguments>
  Status repeated_call(const char* operation, Arguments&&... arguments) const {
    const int result = enter(operation, std::forward<Arguments>(arguments)...);
    return result == abi::kNcclSuccess ? Status::ok() : plugin_failure(name_, operation, result, LogLevel::kDebug);
  }

  /// The plugin does not check it itself.
  Status check_device(const char* operation, int dev) const {
    if (dev >= 0 && static_cast<size_t>(dev) < devices_.size()) return Status::ok();
    return Status(Code::kInvalidArgument, operation, concat("device ", dev, ", but ", name_, " has ", devices_.size()));
  }

  static Status check_size(const char* operation, size_t bytes, size_t most) {
    if (bytes <= most) return Status::ok();
    return Status(Code::kInvalidArgument, operation,
                  concat(bytes, " bytes, but version ", Table::kVersion, " takes at most ", most));
  }

  bool is_embedded() const { return soft_ && table_.isend == soft::net_table().isend; }

  /// Only the software plugin takes the comm for a memory handle.
  std::string nic_of(void* comm) const {
    void* name = nullptr;
    if (soft_ && table_.get_device_mr != nullptr) enter("getDeviceMr", table_.get_device_mr, comm, comm, &name);
    return name != nullptr ? static_cast<const char*>(name) : "";
  }

  Result<MemoryHandle> register_memory(void* comm, void* data, size_t bytes, MemoryType type) {
    using Size = typename Table::RegisterBytes;
    TCPX_RETURN_IF_ERROR(check_size("regMr", bytes, static_cast<size_t>(std::numeric_limits<Size>::max())));
    // It would miss CUDA's refusal and take standard input for the memory's descriptor, which it then closes (25).
    if (vendor_ && type == MemoryType::kCuda && bytes % kPageBytes != 0) {
      return plugin_refused(Code::kInvalidArgument, "regMr",
                            concat(bytes, " bytes of GPU memory: ", name_, " takes whole pages of ", kPageBytes, " bytes"));
    }
    if (vendor_ && type == MemoryType::kCuda) TCPX_RETURN_IF_ERROR(check_pci(setups_->device_of(comm)));
    void* mhandle = nullptr;
    TCPX_RETURN_IF_ERROR(call("regMr", table_.reg_mr, comm, data, static_cast<Size>(bytes), static_cast<int>(type), &mhandle));
    if (setups_) setups_->registered(comm, mhandle);
    return typed<MemoryHandle>(mhandle);
  }

  Result<MemoryHandle> register_list(void* comm, std::shared_ptr<const RangeList> list) {
    TCPX_ASSIGN_OR_RETURN(void* const mhandle, soft::register_list(comm, std::move(list)));
    return typed<MemoryHandle>(mhandle);
  }

  Status deregister_memory(void* comm, void* mhandle) {
    if (setups_ && !setups_->deregisters(comm, mhandle)) return Status::ok();
    return call("deregMr", table_.dereg_mr, comm, mhandle);
  }

  /// It would follow a null pointer (26).
  Status check_pci(std::optional<int> dev) const {
    if (!dev) return Status::ok();
    const DeviceProperties& device = devices_[static_cast<size_t>(*dev)];
    const auto trap = find_pci_trap(device.name, device.pci_path);
    return trap ? plugin_refused(trap->code, "regMr", refusal_of(*trap, "regMr").detail()) : Status::ok();
  }

  Status read_devices() {
    int count = 0;
    TCPX_RETURN_IF_ERROR(call("devices", table_.devices, &count));
    log(LogLevel::kDebug, name_, ": net->devices rc=0 ndev=", count);
    if (count < 0 || count > kMaxDevices) {
      return plugin_refused(Code::kProtocol, "devices", concat(name_, " claims ", count, " devices"));
    }
    for (int dev = 0; dev < count; ++dev) {
      typename Table::Properties properties{};
      TCPX_RETURN_IF_ERROR(call("getProperties", table_.get_properties, dev, &properties));
      // Compared in the plugin's numbering, so that two unknown types do not count as equal.
      if (dev == 0) {
        foreign_device_type_ = properties.net_device_type;
        device_type_ = net_device_type_of(properties.net_device_type);
      }
      if (properties.net_device_type != foreign_device_type_) {
        return plugin_refused(Code::kUnsupported, "getProperties",
                              concat(name_, ": device ", dev, " is of type ", properties.net_device_type, ", device 0 of type ",
                                     foreign_device_type_));
      }
      if (device_type_ == NetDeviceType::kUnpack && properties.net_device_version != abi::kNcclNetDeviceUnpackVersion) {
        return plugin_refused(Code::kUnsupported, "getProperties",
                              concat(name_, ": device ", dev, " has UNPACK version ", properties.net_device_version, ", not ",
                                     abi::kNcclNetDeviceUnpackVersion));
      }
      devices_.push_back(properties_of(properties));
    }
    if (device_type_ == NetDeviceType::kUnpack && table_.irecv_consumed == nullptr) {
      return plugin_refused(Code::kUnsupported, "check plugin table", name_ + " is of type UNPACK but lacks irecvConsumed");
    }
    return Status::ok();
  }

  const Table& table_;
  const std::string name_;
  const bool vendor_;
  const bool soft_;
  std::unique_ptr<VendorSetups> setups_;  // of GPUDirect-TCPX only
  std::optional<MessageCut> message_cut_;
  std::vector<DeviceProperties> devices_;  // filled once, before anyone else sees the adapter
  NetDeviceType device_type_ = NetDeviceType::kUnknown;
  int foreign_device_type_ = 0;
  HostReceives host_receives_;       // empty unless is_host()
  std::once_flag first_connection_;  // the objects that will use the plugin exist by then
};

}  // namespace tcpx
