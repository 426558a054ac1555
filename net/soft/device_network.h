// Device-memory TCP of this process: the pools that NICs fill, and the memory that they send from.
//
// A pool is of one GPU and one interface. Its front is bound to the interface's last receive queue, which other packets are led away from.
// All connections that are accepted at that interface for that GPU share it, and the last one ends the binding. This process binds if it
// may (CAP_NET_ADMIN), else tcpx_devmemd in its place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/memory_ops.h"
#include "base/mutex.h"
#include "net/soft/device_pool.h"
#include "net/soft/device_sources.h"

namespace tcpx::soft {

/// Thread-safe.
class DeviceNetwork {
 public:
  /// @param message_bytes what a pool's messages may hold together; the NIC's part has kNicShare times as many
  /// @param broker the socket of tcpx_devmemd
  DeviceNetwork(MemoryOps& memory, uint64_t message_bytes, std::string broker)
      : memory_(memory), message_bytes_(message_bytes), broker_(std::move(broker)) {}

  /// The pool of `gpu` at `interface`. Makes it if there is none.
  /// @return kUnsupported and others: what is missing, in words
  Result<std::shared_ptr<const DevicePool>> pool(int gpu, const std::string& interface) TCPX_EXCLUDES(mutex_);

  /// What `gpu` sends by `interface`. kNotFound: there is no such interface
  Result<std::shared_ptr<DeviceSources>> sources(int gpu, const std::string& interface) TCPX_EXCLUDES(mutex_);

  /// A packet with 1500 bytes has 1448 of payload and takes a page. Kernel buffers and the NIC's ring want pages as well.
  static constexpr uint64_t kNicShare = 4;

 private:
  using Place = std::pair<int, uint32_t>;  // GPU and interface, whose number changes when it is taken away and made again
  /// Binds `front` bytes of new memory to a spare queue; `behind` more follow for messages.
  Result<std::shared_ptr<const DevicePool>> make_pool(int gpu, const std::string& interface, uint64_t front, uint64_t behind)
      TCPX_REQUIRES(mutex_);

  MemoryOps& memory_;
  const uint64_t message_bytes_;
  const std::string broker_;
  Mutex mutex_;  // held while a pool is made: another for the same queue must wait
  std::map<Place, std::weak_ptr<const DevicePool>> pools_ TCPX_GUARDED_BY(mutex_);
  std::map<Place, Status> why_not_ TCPX_GUARDED_BY(mutex_);  // asked once where none ever worked
  std::map<Place, std::weak_ptr<DeviceSources>> sources_ TCPX_GUARDED_BY(mutex_);
};

/// Leads what comes to listening sockets, which are at addresses of the pool's interface, to its queue. @return the pool; the rules live as
/// long as this
Result<std::shared_ptr<const DevicePool>> lead_to(std::shared_ptr<const DevicePool> pool, const std::vector<int>& listeners);

}  // namespace tcpx::soft
