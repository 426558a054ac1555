#include "net/devmem/netdev.h"

#include <linux/netlink.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "base/text.h"

namespace tcpx::devmem {
namespace {

constexpr char kFamily[] = "netdev";

// torvalds/linux: include/uapi/linux/netdev.h, generated from Documentation/netlink/specs/netdev.yaml; bind-rx since 6.12,
// bind-tx since 6.16. Headers of older systems lack it.
constexpr uint8_t kQueueGet = 10;                                                        // NETDEV_CMD_QUEUE_GET
constexpr uint8_t kBindRx = 13;                                                          // NETDEV_CMD_BIND_RX
constexpr uint8_t kBindTx = 15;                                                          // NETDEV_CMD_BIND_TX
constexpr uint16_t kDmabufIfindex = 1, kDmabufQueues = 2, kDmabufFd = 3, kDmabufId = 4;  // NETDEV_A_DMABUF_...
constexpr uint16_t kQueueId = 1, kQueueIfindex = 2, kQueueType = 3, kQueueDmabuf = 5;    // NETDEV_A_QUEUE_...
constexpr uint32_t kQueueTypeRx = 0;                                                     // NETDEV_QUEUE_TYPE_RX
constexpr uint32_t kMostQueues = 4096;

template <class T>
std::optional<T> number_in(std::span<const std::byte> attributes, uint16_t type) {
  const auto found = netlink_attribute(attributes, type);
  return found ? value_of<T>(*found) : std::nullopt;
}

/// The subject of a refused bind, or what to do.
std::string_view cure_of(uint8_t command, int error, std::string_view words) {
  const bool receives = command == kBindRx;
  switch (error) {
    case EPERM:
      return "binding receive queues needs CAP_NET_ADMIN over the network namespace";
    case EOPNOTSUPP:
      return receives ? "receiving into device memory takes Linux 6.12 and a driver that restarts single queues"
                      : "sending from device memory takes Linux 6.16 and a driver that can";
    case EEXIST:
    case EBUSY:
      return "something is bound to one of the queues already";
    case ENODEV:
      return "the interface is gone from this network namespace";
    case EBADF:
      return "the descriptor of the dma-buf is not open";
    case EINVAL:
      if (words.find("tcp-data-split") != words.npos) return "turn header split on: ethtool -G INTERFACE tcp-data-split on";
      if (words.find("hds-thresh") != words.npos) return "split all packets: ethtool -G INTERFACE hds-thresh 0";
      return receives ? "is there such a receive queue, and is the memory a dma-buf of whole pages?"
                      : "is the memory a dma-buf of whole pages?";
    default:
      return "the NIC may be unable to reach the memory: is there an IOMMU, or a PCIe switch with ACS, between them?";
  }
}

Code code_of_bind(int error, Code otherwise) {
  switch (error) {
    case EOPNOTSUPP:
    case EINVAL:
      return Code::kUnsupported;
    case EEXIST:
    case EBUSY:
      return Code::kExhausted;
    case ENODEV:
      return Code::kNotFound;
    default:
      return otherwise;
  }
}

}  // namespace

std::optional<uint32_t> spare_queue(std::span<const ReceiveQueue> queues) {
  const auto free = std::find_if(queues.rbegin(), queues.rend(), [](const auto& queue) { return !queue.dmabuf_id; });
  return free == queues.rend() || free->index == 0 ? std::nullopt : std::optional(free->index);
}

Result<uint32_t> interface_index(const std::string& interface) {
  const unsigned index = ::if_nametoindex(interface.c_str());
  if (index == 0)
    return Status(Code::kNotFound, "find the interface", "there is no interface " + interface, Domain::kErrno, errno);
  return index;
}

Result<Netdev> Netdev::open() {
  TCPX_ASSIGN_OR_RETURN(NetlinkSocket socket, NetlinkSocket::open(NETLINK_GENERIC));
  return over(std::move(socket));
}

Result<Netdev> Netdev::over(NetlinkSocket socket) {
  auto family = GenericFamily::over(std::move(socket), kFamily);
  if (family.status().code() == Code::kNotFound)
    return Status(Code::kUnsupported, "bind device memory", "this kernel is older than 6.3, and it takes 6.12");
  TCPX_RETURN_IF_ERROR(family.status());
  return Netdev(*std::move(family));
}

Result<std::vector<ReceiveQueue>> Netdev::receive_queues(uint32_t interface) {
  std::vector<ReceiveQueue> queues;
  for (uint32_t index = 0; index < kMostQueues; ++index) {
    Bytes question;
    append_attribute(question, kQueueIfindex, bytes_of(interface));
    append_attribute(question, kQueueType, bytes_of(kQueueTypeRx));
    append_attribute(question, kQueueId, bytes_of(index));
    const auto answer = family_.ask(kQueueGet, question);
    // There are no more: ENOENT, or EINVAL of other releases.
    const int error = answer.status().native();
    if (index > 0 && (error == ENOENT || error == EINVAL)) break;
    TCPX_RETURN_IF_ERROR(answer.status());
    queues.push_back({index, number_in<uint32_t>(*answer, kQueueDmabuf)});
  }
  return queues;
}

Result<uint32_t> Netdev::bind_receive(uint32_t interface, std::span<const uint32_t> queues, int dmabuf) {
  Bytes question;
  append_attribute(question, kDmabufIfindex, bytes_of(interface));
  append_attribute(question, kDmabufFd, bytes_of(dmabuf));
  for (const uint32_t queue : queues) {
    Bytes nest;
    append_attribute(nest, kQueueId, bytes_of(queue));
    append_attribute(nest, kQueueType, bytes_of(kQueueTypeRx));
    append_attribute(question, kDmabufQueues | NLA_F_NESTED, nest);
  }
  return bind(kBindRx, "bind device memory to receive queues", question);
}

Result<uint32_t> Netdev::bind_send(uint32_t interface, int dmabuf) {
  Bytes question;
  append_attribute(question, kDmabufIfindex, bytes_of(interface));
  append_attribute(question, kDmabufFd, bytes_of(dmabuf));
  return bind(kBindTx, "bind device memory for sending", question);
}

Result<uint32_t> Netdev::bind(uint8_t command, const char* operation, const Bytes& question) {
  const auto answer = family_.ask(command, question);
  if (const Status& status = answer.status(); !status.is_ok()) {
    if (status.domain() != Domain::kErrno) return status;
    return Status(code_of_bind(status.native(), status.code()), operation,
                  concat(status.detail(), "; ", cure_of(command, status.native(), status.detail())), Domain::kErrno,
                  status.native());
  }
  const auto id = number_in<uint32_t>(*answer, kDmabufId);
  if (!id) return Status(Code::kProtocol, operation, "the kernel tells no id");
  return *id;
}

}  // namespace tcpx::devmem
