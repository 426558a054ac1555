#include "net/devmem/queue_binding.h"

#include <optional>
#include <span>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx::devmem {
namespace {

class OwnBinding final : public QueueBinding {
 public:
  OwnBinding(BoundQueue bound, std::string interface)
      : QueueBinding(bound.dmabuf_id, bound.queue), bound_(std::move(bound)), interface_(std::move(interface)) {}

  Result<std::shared_ptr<const void>> lead(int listener) override {
    TCPX_ASSIGN_OR_RETURN(const SocketAddress local, local_address(listener));
    TCPX_ASSIGN_OR_RETURN(Steering steering, Steering::open(EthtoolCalls::real(), interface_));
    TCPX_ASSIGN_OR_RETURN(SteeringChange rule, steering.lead(local, queue()));
    return std::shared_ptr<const void>(std::make_shared<const SteeringChange>(std::move(rule)));
  }

 private:
  const BoundQueue bound_;
  const std::string interface_;
};

}  // namespace

Result<uint32_t> find_spare_queue(Netdev& netdev, const std::string& interface) {
  TCPX_ASSIGN_OR_RETURN(const uint32_t index, interface_index(interface));
  TCPX_ASSIGN_OR_RETURN(const auto queues, netdev.receive_queues(index));
  if (const auto queue = spare_queue(queues)) return *queue;
  return Status(
      Code::kUnsupported, "bind device memory",
      concat(interface, " has no receive queue to spare, of ", queues.size(), ": ethtool -L ", interface, " combined 2"));
}

Result<BoundQueue> BoundQueue::bind(EthtoolCalls& ethtool, Netdev netdev, const std::string& interface, int dmabuf,
                                    const std::string& records) {
  TCPX_ASSIGN_OR_RETURN(const uint32_t index, interface_index(interface));
  TCPX_ASSIGN_OR_RETURN(Steering steering, Steering::open(ethtool, interface, records));
  for (std::optional<uint32_t> lost;;) {
    TCPX_ASSIGN_OR_RETURN(const uint32_t queue, find_spare_queue(netdev, interface));
    TCPX_ASSIGN_OR_RETURN(SteeringChange away, steering.take_out_of_rss(queue));
    const auto id = netdev.bind_receive(index, std::span(&queue, 1), dmabuf);
    if (id.is_ok()) return BoundQueue{queue, *id, std::move(away), std::move(netdev)};
    // Another thread or process was faster, and the next queue is nearer to the first.
    if (id.status().code() != Code::kExhausted || (lost && queue >= *lost)) return id.status();
    lost = queue;
  }
}

Result<std::shared_ptr<QueueBinding>> bind_here(const std::string& interface, int dmabuf) {
  TCPX_ASSIGN_OR_RETURN(Netdev netdev, Netdev::open());
  TCPX_ASSIGN_OR_RETURN(BoundQueue bound, BoundQueue::bind(EthtoolCalls::real(), std::move(netdev), interface, dmabuf));
  return std::shared_ptr<QueueBinding>(std::make_shared<OwnBinding>(std::move(bound), interface));
}

}  // namespace tcpx::devmem
