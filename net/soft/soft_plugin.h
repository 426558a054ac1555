// The software plugin behind its table: settings, devices, and the parts that all connections of the process share.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/memory_ops.h"
#include "net/soft/config.h"
#include "net/soft/connector.h"
#include "net/soft/device_network.h"
#include "net/soft/interfaces.h"
#include "net/soft/listener.h"
#include "net/soft/recv_comm.h"
#include "net/soft/send_comm.h"

namespace tcpx::soft {

class SoftPlugin {
 public:
  /// Created once per process, on first use: a table of C functions has no other place for its state. Never destroyed, because
  /// other libraries may call until the very end of the process.
  static SoftPlugin& instance();

  /// Reads the settings and the secret, and finds the devices. Repeating it is harmless.
  Status init() TCPX_EXCLUDES(mutex_);

  /// NetPlugin::borrow_io
  std::unique_ptr<IoLoop> borrow_io() TCPX_EXCLUDES(mutex_);

  /// UCCL_TCPX_SECURITY=encrypt, as init has read it.
  bool encrypts() TCPX_EXCLUDES(mutex_);

  // All other calls fail until init has succeeded.
  Result<int> device_count() TCPX_EXCLUDES(mutex_);
  /// Lives as long as the process.
  Result<const InterfaceAddress*> device(int dev) TCPX_EXCLUDES(mutex_);
  Result<std::unique_ptr<SoftListener>> listen(int dev) TCPX_EXCLUDES(mutex_);
  /// Blocks until connected, at most UCCL_TCPX_SOFT_CONNECT_TIMEOUT_MS: consumers call it once and treat "not yet" as a
  /// failure. With a handle marked by `answer_in_steps` nullptr means "not yet": call again with the same handle, which
  /// identifies the attempt meanwhile. The comm belongs to the calling thread's current GPU.
  Result<std::unique_ptr<SoftSendComm>> connect(int dev, Handle& handle) TCPX_EXCLUDES(mutex_);
  /// Ends the attempt that the handle identifies. @return why it has come to nothing so far, ok when nothing is known to be wrong;
  /// nullopt: there is no such attempt
  std::optional<Status> give_up_connect(const Handle& handle) TCPX_EXCLUDES(mutex_);
  /// nullptr: no peer yet. kExhausted: peers wait because this process or machine is out of something. The comm and its bounce pool belong to the calling thread's current GPU.
  Result<std::unique_ptr<SoftRecvComm>> accept(SoftListener& listener) TCPX_EXCLUDES(mutex_);

 private:
  SoftPlugin();
  /// The threads that run on `cores`.
  Result<std::shared_ptr<IoPool>> io_on(const CoreSet& cores) TCPX_EXCLUDES(mutex_);
  Result<std::shared_ptr<PagePool>> pool_of(int gpu) TCPX_EXCLUDES(mutex_);
  /// Where connections that are accepted at a device receive; null: not into device memory, and a line says why once.
  std::shared_ptr<const DevicePool> device_pool_of(const InterfaceAddress& interface) TCPX_EXCLUDES(mutex_);
  void tell_why_not(const std::string& interface, const Status& why) TCPX_EXCLUDES(mutex_);
  /// True where device-memory TCP is worth trying.
  bool tries_device_memory() const;
  std::shared_ptr<StagingPool> staging_of(int gpu) TCPX_EXCLUDES(mutex_);
  std::unique_ptr<Connector> take_attempt(uint64_t number) TCPX_EXCLUDES(mutex_);
  Result<uint64_t> keep_attempt(std::unique_ptr<Connector> connector) TCPX_EXCLUDES(mutex_);

  const std::unique_ptr<MemoryOps> memory_;
  Mutex mutex_;
  bool initialised_ TCPX_GUARDED_BY(mutex_) = false;
  // Written once, in init, before any other call succeeds.
  Config config_;
  std::unique_ptr<Prover> secret_;  // null: there is none
  bool encrypts_ = false;
  std::unique_ptr<DeviceNetwork> device_network_;
  std::vector<InterfaceAddress> devices_;
  std::vector<SocketAddress> control_addresses_;
  // Weak: these live as long as a connection uses them.
  std::map<CoreSet, std::weak_ptr<IoPool>> io_ TCPX_GUARDED_BY(mutex_);
  struct GpuPool {
    Mutex making;  // allocating is slow: other GPUs, and calls that need no pool, do not wait for it
    std::weak_ptr<PagePool> pool TCPX_GUARDED_BY(making);
  };
  std::map<int, GpuPool> pools_ TCPX_GUARDED_BY(mutex_);  // entries never move
  std::map<int, std::weak_ptr<StagingPool>> staging_ TCPX_GUARDED_BY(mutex_);
  std::set<std::string> told_ TCPX_GUARDED_BY(mutex_);                               // why no device memory is received into
  std::map<uint64_t, std::unique_ptr<Connector>> attempts_ TCPX_GUARDED_BY(mutex_);  // connects in progress, between two calls
};

}  // namespace tcpx::soft
