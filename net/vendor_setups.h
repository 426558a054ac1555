// Safe set-up and close of GPUDirect-TCPX connections: an accept is repeated until it has ended and never again, a listener is
// closed only then, no caller waits forever for a close, and memory registered with a comm goes with it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/mutex.h"
#include "net/abi/nccl_net_common.h"
#include "net/plugin_closer.h"
#include "net/vendor_sockets.h"

namespace tcpx {

/// Entries of the plugin's table, the same in each version of it.
struct VendorCalls {
  std::string plugin;
  int (*connect)(int dev, void* handle, void** send_comm, abi::NetDeviceHandle** send_dev_comm) = nullptr;
  int (*accept)(void* listen_comm, void** recv_comm, abi::NetDeviceHandle** recv_dev_comm) = nullptr;
  int (*close_send)(void* send_comm) = nullptr;
  int (*close_recv)(void* recv_comm) = nullptr;
  int (*close_listen)(void* listen_comm) = nullptr;
  int (*dereg_mr)(void* comm, void* mhandle) = nullptr;
};

/// State of each listener beyond the plugin's own. Thread-safe.
class VendorSetups {
 public:
  explicit VendorSetups(VendorCalls calls) : calls_(std::move(calls)), closer_(calls_.plugin) {}

  /// Call before listen, and before the first connect with a handle. @return kExhausted
  Status may_listen() const { return closer_.room_for("listen"); }
  Status may_connect(const Handle& handle) const;
  void listens(void* listen_comm, int dev, const Handle& handle);

  /// Call before each accept. @return kPlugin when this listener's accept has ended: the plugin would read freed memory (3)
  Status may_accept(void* listen_comm) const;
  /// Call after each accept, with its answer.
  void accept_answered(void* listen_comm, int result, const void* recv_comm);
  void connected(const void* send_comm, int dev);
  /// Call after each regMr.
  void registered(const void* comm, void* mhandle);
  /// Call before each deregMr. @return false when it must not be called: the memory went with its comm
  bool deregisters(const void* comm, void* mhandle);
  /// Device of a comm that was connected or accepted and is not closed. nullopt: unknown comm.
  std::optional<int> device_of(const void* comm) const;
  /// Call after each failed connect: closes those of its sockets that can still be found.
  static void connect_failed(const Handle& handle);

  /// As NetPlugin::give_up_connect.
  void give_up_connect(int dev, std::unique_ptr<Handle> handle);
  /// Returns soon. A listener that is still accepting is closed when its accept has ended, together with the resulting comm.
  Status close_listener(void* listen_comm);
  /// What is still registered with the comm is deregistered, on the same thread, when the plugin has returned: its threads may
  /// use the memory until then, and its deregMr does not look at the comm (39). Other plugins' may, so others deregister first.
  /// @return kTimeout when the plugin does not return
  Status close_send(void* comm) { return close_comm("closeSend", calls_.close_send, comm); }
  /// @return as above; kPeerGone when the plugin was not called, and the comm is left behind (38)
  Status close_recv(void* comm) { return close_comm("closeRecv", calls_.close_recv, comm); }

  LeftBehind left_behind() const { return closer_.left_behind(); }

 private:
  enum class Stage { kFresh, kAccepting, kAccepted, kFailed };
  struct Listener {
    int dev = 0;
    Handle handle;
    Stage stage = Stage::kFresh;
  };

  struct OpenComm {
    std::optional<int> dev = {};
    std::vector<VendorSocket> sockets = {};  // of one that receives
    std::unordered_multiset<void*> registered = {};
  };

  void add_comm(const void* comm, OpenComm added);
  Status close(const char* operation, int (*call)(void*), void* comm);
  Status close_comm(const char* operation, int (*call)(void*), void* comm);

  const VendorCalls calls_;
  mutable Mutex mutex_;
  std::map<const void*, Listener> listeners_ TCPX_GUARDED_BY(mutex_);
  std::map<const void*, OpenComm> comms_ TCPX_GUARDED_BY(mutex_);
  PluginCloser closer_;  // last, so that it calls nothing that is gone
};

}  // namespace tcpx
