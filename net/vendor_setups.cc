#include "net/vendor_setups.h"

#include <cstring>
#include <utility>

#include "base/text.h"
#include "net/plugin_exit.h"
#include "net/plugin_status.h"

namespace tcpx {
namespace {

// Offset of the plugin's connect state in the caller's handle (google/nccl-plugin-gpudirecttcpx, 4b8ea7f: src/common.h,
// tcpxHandle::connect_args).
constexpr size_t kConnectStateOff = 80;

bool has_begun(const Handle& handle) {
  const void* state = nullptr;
  std::memcpy(&state, handle.bytes.data() + kConnectStateOff, sizeof state);
  return state != nullptr;
}

Status called(const std::string& plugin, const char* operation, int (*call)(void*), void* comm) {
  const PluginCall marked(plugin, operation);
  const int result = call(comm);
  return result == abi::kNcclSuccess ? Status::ok() : plugin_failure(plugin, operation, result);
}

}  // namespace

Status VendorSetups::may_connect(const Handle& handle) const {
  return has_begun(handle) ? Status::ok() : closer_.room_for("connect");
}

void VendorSetups::listens(void* listen_comm, int dev, const Handle& handle) {
  const MutexLock lock(mutex_);
  listeners_.insert_or_assign(listen_comm, Listener{.dev = dev, .handle = handle});
}

void VendorSetups::add_comm(const void* comm, OpenComm added) {
  const MutexLock lock(mutex_);
  comms_.insert_or_assign(comm, std::move(added));
}

void VendorSetups::connected(const void* send_comm, int dev) {
  add_comm(send_comm, {.dev = dev});
}

void VendorSetups::registered(const void* comm, void* mhandle) {
  const MutexLock lock(mutex_);
  comms_[comm].registered.insert(mhandle);
}

bool VendorSetups::deregisters(const void* comm, void* mhandle) {
  const MutexLock lock(mutex_);
  const auto known = comms_.find(comm);
  if (known == comms_.end()) return false;
  const auto found = known->second.registered.find(mhandle);
  if (found == known->second.registered.end()) return false;
  known->second.registered.erase(found);
  return true;
}

std::optional<int> VendorSetups::device_of(const void* comm) const {
  const MutexLock lock(mutex_);
  const auto known = comms_.find(comm);
  return known != comms_.end() ? known->second.dev : std::nullopt;
}

Status VendorSetups::may_accept(void* listen_comm) const {
  const MutexLock lock(mutex_);
  const auto known = listeners_.find(listen_comm);
  if (known == listeners_.end() || known->second.stage < Stage::kAccepted) return Status::ok();
  return plugin_refused(Code::kPlugin, "accept",
                        concat("a listener of ", calls_.plugin, " takes one connection, and this one's accept has ended"));
}

void VendorSetups::accept_answered(void* listen_comm, int result, const void* recv_comm) {
  Listener listener;
  {
    const MutexLock lock(mutex_);
    const auto known = listeners_.find(listen_comm);
    if (known == listeners_.end()) return;
    known->second.stage = result != abi::kNcclSuccess ? Stage::kFailed
                          : recv_comm != nullptr      ? Stage::kAccepted
                                                      : Stage::kAccepting;
    if (recv_comm == nullptr) return;
    listener = known->second;
  }
  // Looked for now, because later another listener may have the same ports.
  add_comm(recv_comm, {.dev = listener.dev, .sockets = accepted_sockets(listener.handle)});
}

void VendorSetups::connect_failed(const Handle& handle) {
  close_forgotten(connected_sockets(handle));
}

void VendorSetups::give_up_connect(int dev, std::unique_ptr<Handle> handle) {
  if (!has_begun(*handle)) return;
  auto sockets = connected_sockets(*handle);
  shut_down(sockets);
  // Shared, because a std::function must be copyable.
  closer_.keep("a connect", [this, dev, sockets = std::move(sockets),
                             handle = std::shared_ptr<Handle>(std::move(handle))]() mutable {
    if (sockets.empty()) {  // its thread may not have connected until now
      sockets = connected_sockets(*handle);
      shut_down(sockets);
    }
    void* comm = nullptr;
    abi::NetDeviceHandle* no_device_handle = nullptr;
    int result = 0;
    {
      const PluginCall marked(calls_.plugin, "connect");
      result = calls_.connect(dev, handle->bytes.data(), &comm, &no_device_handle);
    }
    if (result == abi::kNcclSuccess && comm == nullptr) return false;
    if (comm != nullptr) {
      (void)close_send(comm);
    } else {
      close_forgotten(sockets);
      connect_failed(*handle);
    }
    return true;
  });
}

Status VendorSetups::close_listener(void* listen_comm) {
  Listener listener;
  {
    const MutexLock lock(mutex_);
    if (const auto known = listeners_.extract(listen_comm)) listener = known.mapped();
  }
  if (listener.stage == Stage::kFailed) close_forgotten(accepted_sockets(listener.handle));
  if (listener.stage != Stage::kAccepting) return close("closeListen", calls_.close_listen, listen_comm);

  auto sockets = shut_down_listener(listener.handle);
  closer_.keep("an accept", [this, listen_comm, dev = listener.dev, sockets = std::move(sockets)] {
    void* comm = nullptr;
    int result = 0;
    {
      const PluginCall marked(calls_.plugin, "accept");
      result = calls_.accept(listen_comm, &comm, nullptr);  // it never receives, so it needs no queue (5)
    }
    if (result == abi::kNcclSuccess && comm == nullptr) return false;
    if (comm != nullptr) {
      add_comm(comm, {.dev = dev, .sockets = sockets});
      (void)close_recv(comm);
    } else {
      close_forgotten(sockets);
    }
    (void)close("closeListen", calls_.close_listen, listen_comm);
    return true;
  });
  return Status::ok();
}

Status VendorSetups::close_comm(const char* operation, int (*call)(void*), void* comm) {
  OpenComm closed;
  {
    const MutexLock lock(mutex_);
    if (auto known = comms_.extract(comm)) closed = std::move(known.mapped());
  }
  const auto take_back = [plugin = calls_.plugin, dereg_mr = calls_.dereg_mr, comm, mhandles = std::move(closed.registered)] {
    const PluginCall marked(plugin, "deregMr");
    for (void* const mhandle : mhandles) {
      const int result = dereg_mr(comm, mhandle);
      if (result != abi::kNcclSuccess) (void)plugin_failure(plugin, "deregMr", result);
    }
  };
  if (!have_peers(closed.sockets)) {
    take_back();  // a comm that receives uses no memory but the pool's
    return plugin_refused(Code::kPeerGone, operation,
                          concat("a data socket of the comm was reset, and ", calls_.plugin,
                                 " would end the process: the comm is left behind, with its threads and sockets"));
  }
  return closer_.close(operation, [plugin = calls_.plugin, operation, call, comm, take_back] {
    Status status = called(plugin, operation, call, comm);
    take_back();
    return status;
  });
}

Status VendorSetups::close(const char* operation, int (*call)(void*), void* comm) {
  return closer_.close(operation,
                       [plugin = calls_.plugin, operation, call, comm] { return called(plugin, operation, call, comm); });
}

}  // namespace tcpx
