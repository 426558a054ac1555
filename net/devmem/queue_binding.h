// A dma-buf that a NIC fills: it is bound to a receive queue of its own, which other packets are led away from and the flows of
// chosen listeners are led to.
//
// Binding takes CAP_NET_ADMIN over the network namespace. A process without it asks tcpx_devmemd (net/devmem/broker_client.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "net/devmem/flow_table.h"
#include "net/devmem/netdev.h"
#include "net/devmem/steering.h"
#include "tcpx/status.h"

namespace tcpx::devmem {

/// Destruction ends the binding and frees the queue, before it returns. Thread-safe.
class QueueBinding {
 public:
  virtual ~QueueBinding() = default;

  uint32_t dmabuf_id() const { return dmabuf_id_; }
  uint32_t queue() const { return queue_; }

  /// Leads what comes to a listening TCP socket's address and port to the queue.
  /// @param listener may be closed after that
  /// @return the rule, which must not outlive the binding, and ends with its destruction; the errors of Steering::lead
  virtual Result<std::shared_ptr<const void>> lead(int listener) = 0;
  /// False: the binding has ended by itself, because the process that held it is gone.
  virtual bool is_there() const { return true; }

 protected:
  QueueBinding(uint32_t dmabuf_id, uint32_t queue) : dmabuf_id_(dmabuf_id), queue_(queue) {}

 private:
  const uint32_t dmabuf_id_, queue_;
};

/// Needs no privilege.
/// @return kUnsupported: the interface has no queue to spare, or the kernel knows of none
Result<uint32_t> find_spare_queue(Netdev& netdev, const std::string& interface);

/// A spare queue that is out of the RSS table and bound to a dma-buf. One thread at a time.
struct BoundQueue {
  uint32_t queue = 0;
  uint32_t dmabuf_id = 0;
  // The binding ends before other packets come to the queue.
  SteeringChange away;
  Netdev netdev;

  /// @param records of Steering::open
  /// A queue that others bind meanwhile is passed over.
  /// @return kUnsupported: no queue is to spare; and the errors of Netdev::bind_receive and Steering. EPERM: CAP_NET_ADMIN is missing
  static Result<BoundQueue> bind(EthtoolCalls& ethtool, Netdev netdev, const std::string& interface, int dmabuf,
                                 const std::string& records = SteeringRecords::default_directory());
};

/// Binds in this process. The descriptor may be closed after that.
Result<std::shared_ptr<QueueBinding>> bind_here(const std::string& interface, int dmabuf);

}  // namespace tcpx::devmem
