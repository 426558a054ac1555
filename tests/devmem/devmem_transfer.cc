// Moves bytes from a dma-buf to a dma-buf through net/devmem, over NICs that can (tests/devmem/run_vm.sh):
//
//   devmem_transfer receive INTERFACE QUEUE ADDRESS PORT MIB
//   devmem_transfer send INTERFACE ADDRESS PORT MIB
//   devmem_transfer rule INTERFACE QUEUE ADDRESS PORT       as an administrator adds one, for IPv4
//   devmem_transfer remove INTERFACE LOCATION
//   devmem_transfer channels INTERFACE COUNT                as `ethtool -L INTERFACE combined COUNT`
//   devmem_transfer rules INTERFACE                         prints rules, RSS table, and how many queues are bound
//
// The dma-bufs are host memory (/dev/udmabuf), so every byte can be compared with the pattern. Prints what has come how; exit
// code 1 when something went wrong or nothing came into device memory.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/memory_ops.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "measure/pattern.h"
#include "net/devmem/netdev.h"
#include "net/devmem/receiver.h"
#include "net/devmem/sender.h"
#include "net/devmem/steering.h"

namespace tcpx {
namespace {

using devmem::DevmemReceiver;
using devmem::DevmemSender;
using devmem::EthtoolCalls;
using devmem::FlowTable;
using devmem::Netdev;
using devmem::SocketCalls;
using devmem::Steering;

constexpr size_t kMiB = 1 << 20;
constexpr size_t kPoolBytes = 8 * kMiB;  // less than what is moved: pages have to be used again
constexpr size_t kRoomBytes = 256 * 1024;
constexpr uint64_t kSeed = 39;
const Deadline kEnd = Deadline::after(std::chrono::seconds(90));

/// Memory that a NIC can be given.
struct ExportedMemory {
  static Result<ExportedMemory> create(size_t bytes) {
    static const std::unique_ptr<MemoryOps> memory = make_host_memory_ops();
    ExportedMemory made;
    TCPX_ASSIGN_OR_RETURN(made.memory, memory->allocate_device(0, bytes));
    TCPX_ASSIGN_OR_RETURN(made.dmabuf, memory->export_dmabuf(0, {made.memory.device(), bytes}));
    return made;
  }
  std::span<std::byte> bytes() const { return {memory.host(), memory.size()}; }

  MemoryBuffer memory;
  UniqueFd dmabuf;
};

/// A socket that leaves by `interface` alone, to which the dma-buf is bound.
Result<UniqueFd> connect_by(const std::string& interface, const SocketAddress& address) {
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(UniqueFd fd, begin_connect(address, nullptr, interface));
    TCPX_RETURN_IF_ERROR(wait_for(fd.get(), POLLOUT, kEnd));
    const Status status = end_connect(fd.get(), address);
    if (status.is_ok()) return fd;
    if (kEnd.expired()) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the receiver is not up yet
  }
}

Status send(const std::string& interface, const SocketAddress& address, size_t bytes) {
  TCPX_ASSIGN_OR_RETURN(const ExportedMemory source, ExportedMemory::create(bytes));
  fill_pattern(source.bytes(), kSeed);
  TCPX_ASSIGN_OR_RETURN(const uint32_t index, devmem::interface_index(interface));
  TCPX_ASSIGN_OR_RETURN(Netdev netdev, Netdev::open());
  TCPX_ASSIGN_OR_RETURN(const uint32_t id, netdev.bind_send(index, source.dmabuf.get()));
  TCPX_ASSIGN_OR_RETURN(const UniqueFd fd, connect_by(interface, address));
  TCPX_ASSIGN_OR_RETURN(DevmemSender sender, DevmemSender::create(SocketCalls::real(), fd.get()));
  for (size_t at = 0; at < bytes || !sender.are_over(sender.sends());) {
    size_t sent = 0;
    if (at < bytes) {
      TCPX_ASSIGN_OR_RETURN(sent, sender.try_send({id, bytes}, at, std::min<size_t>(bytes - at, 256 * 1024)));
      at += sent;
    }
    // POLLERR, which is always waited for, tells of completions.
    if (sent == 0) TCPX_RETURN_IF_ERROR(wait_for(fd.get(), at < bytes ? POLLOUT : 0, kEnd));
    TCPX_RETURN_IF_ERROR(sender.read_completions());
  }
  std::printf("sent %zu bytes: %llu zero-copy sends, all over, %llu copied\n", bytes,
              static_cast<unsigned long long>(sender.sends()), static_cast<unsigned long long>(sender.copied()));
  return Status::ok();
}

Status receive(const std::string& interface, uint32_t queue, const SocketAddress& address, size_t bytes) {
  TCPX_ASSIGN_OR_RETURN(const ExportedMemory pool, ExportedMemory::create(kPoolBytes));
  std::vector<std::byte> target(bytes);
  TCPX_ASSIGN_OR_RETURN(const uint32_t index, devmem::interface_index(interface));
  TCPX_ASSIGN_OR_RETURN(Steering steering, Steering::open(EthtoolCalls::real(), interface));
  const auto apart = steering.take_out_of_rss(queue);
  // Without an RSS table no other packets are spread to the queue.
  if (!apart.is_ok() && apart.status().code() != Code::kUnsupported) return apart.status();
  TCPX_ASSIGN_OR_RETURN(Netdev netdev, Netdev::open());
  TCPX_ASSIGN_OR_RETURN(const uint32_t id, netdev.bind_receive(index, std::span(&queue, 1), pool.dmabuf.get()));
  TCPX_ASSIGN_OR_RETURN(const auto queues, netdev.receive_queues(index));
  for (const auto& each : queues) {
    if (each.dmabuf_id.has_value() != (each.index == queue) || (each.dmabuf_id && each.dmabuf_id != id))
      return Status(Code::kMismatch, "look at the queues", "what the kernel tells is not what was bound");
  }
  TCPX_ASSIGN_OR_RETURN(Netdev other, Netdev::open());
  const Status twice = other.bind_receive(index, std::span(&queue, 1), pool.dmabuf.get()).status();
  if (twice.code() != Code::kExhausted) return Status(Code::kMismatch, "bind a queue twice", twice.to_string());

  TCPX_ASSIGN_OR_RETURN(const auto rule, steering.lead(address, queue));
  std::printf("the rule is %s\n", rule.is_ours() ? "ours" : "an administrator's");
  TCPX_ASSIGN_OR_RETURN(const UniqueFd listener, listen_tcp(address, 1));
  TCPX_RETURN_IF_ERROR(wait_for(listener.get(), POLLIN, kEnd));
  const UniqueFd fd = accept_tcp(listener.get());
  if (!fd) return system_error("accept", errno);
  std::vector<std::byte> room(kRoomBytes);
  DevmemReceiver receiver(SocketCalls::real(), fd.get(), {id, kPoolBytes});
  uint64_t at = 0;
  size_t reads = 0, most_held = 0;
  while (at < bytes) {
    TCPX_ASSIGN_OR_RETURN(const auto arrival, receiver.receive(room, at));
    if (!arrival) {
      TCPX_RETURN_IF_ERROR(wait_for(fd.get(), POLLIN, kEnd));
      continue;
    }
    if (arrival->bytes == 0 || arrival->bytes > bytes - at)
      return Status(Code::kMismatch, "receive", concat(arrival->bytes, " bytes at ", at));
    const auto gather = [&](std::span<const std::byte> from, const std::vector<Fragment>& fragments) {
      for (const Fragment& fragment : fragments)
        std::memcpy(target.data() + fragment.dst_off, from.data() + fragment.src_off, fragment.len);
    };
    gather(pool.bytes(), arrival->fragments);
    gather(room, arrival->linear);
    at += arrival->bytes;
    ++reads;
    most_held = std::max(most_held, receiver.held());
    TCPX_RETURN_IF_ERROR(receiver.consumed(arrival->fragments.size()));
  }
  TCPX_RETURN_IF_ERROR(verify_pattern(target, kSeed));
  const auto& counts = receiver.counts();
  std::printf(
      "received %zu bytes, all right: %llu fragments with %llu bytes, %llu linear bytes, %zu reads, at most %zu tokens held\n",
      bytes, static_cast<unsigned long long>(counts.fragments), static_cast<unsigned long long>(counts.pool_bytes),
      static_cast<unsigned long long>(counts.linear_bytes), reads, most_held);
  if (counts.pool_bytes == 0) return Status(Code::kMismatch, "receive", "nothing came into device memory");
  return Status::ok();
}

Result<SocketAddress> address_of(const char* host, const char* port) {
  TCPX_ASSIGN_OR_RETURN(const auto addresses, resolve(host, static_cast<uint16_t>(std::atoi(port))));
  return addresses.front();
}

Status add_rule(const FlowTable& table, uint32_t queue, const SocketAddress& address) {
  ethtool_rx_flow_spec rule{};
  rule.flow_type = TCP_V4_FLOW;
  rule.ring_cookie = queue;
  rule.h_u.tcp_ip4_spec.ip4dst = reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr.s_addr;
  rule.m_u.tcp_ip4_spec.ip4dst = ~uint32_t{0};
  rule.h_u.tcp_ip4_spec.pdst = htons(address.port());
  rule.m_u.tcp_ip4_spec.pdst = 0xffff;
  return table.insert(rule).status();
}

Status print_rules(const FlowTable& table) {
  TCPX_ASSIGN_OR_RETURN(const uint32_t index, devmem::interface_index(table.interface()));
  TCPX_ASSIGN_OR_RETURN(Netdev netdev, Netdev::open());
  TCPX_ASSIGN_OR_RETURN(const auto queues, netdev.receive_queues(index));
  TCPX_ASSIGN_OR_RETURN(const auto rules, table.rules());
  TCPX_ASSIGN_OR_RETURN(const auto rss, table.rss());
  std::printf("%zu rules:", rules.size());
  for (const auto& rule : rules) std::printf(" %u to queue %u", rule.spec.location, static_cast<unsigned>(rule.spec.ring_cookie));
  std::printf("; RSS:");
  for (const uint32_t queue : rss) std::printf(" %u", queue);
  const auto bound = std::count_if(queues.begin(), queues.end(), [](const auto& queue) { return queue.dmabuf_id.has_value(); });
  std::printf("; bound: %d\n", static_cast<int>(bound));
  return Status::ok();
}

Status set_channels(const std::string& interface, uint32_t count) {
  ethtool_channels channels{};
  channels.cmd = ETHTOOL_GCHANNELS;
  if (EthtoolCalls::real().ethtool(interface, &channels) != 0) return system_error("ask for the channels", errno);
  channels.cmd = ETHTOOL_SCHANNELS;
  channels.combined_count = count;
  if (EthtoolCalls::real().ethtool(interface, &channels) != 0) return system_error("set the channels", errno);
  return Status::ok();
}

Status run(std::span<char*> words) {
  const std::string command = words[0];
  const FlowTable table(EthtoolCalls::real(), words[1]);
  if (command == "rules") return print_rules(table);
  if (command == "remove") return table.remove(static_cast<uint32_t>(std::atoi(words[2])));
  if (command == "channels") return set_channels(words[1], static_cast<uint32_t>(std::atoi(words[2])));
  if (command == "rule") {
    TCPX_ASSIGN_OR_RETURN(const SocketAddress target, address_of(words[3], words[4]));
    return add_rule(table, static_cast<uint32_t>(std::atoi(words[2])), target);
  }
  const size_t bytes = std::strtoull(words.back(), nullptr, 10) * kMiB;
  TCPX_ASSIGN_OR_RETURN(const SocketAddress address, address_of(words[words.size() - 3], words[words.size() - 2]));
  if (command == "receive") return receive(words[1], static_cast<uint32_t>(std::atoi(words[2])), address, bytes);
  return send(words[1], address, bytes);
}

}  // namespace
}  // namespace tcpx

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (!(argc == 7 && command == "receive") && !(argc == 6 && (command == "send" || command == "rule")) &&
      !(argc == 4 && (command == "remove" || command == "channels")) && !(argc == 3 && command == "rules")) {
    std::fprintf(stderr,
                 "usage: devmem_transfer receive INTERFACE QUEUE ADDRESS PORT MIB\n"
                 "       devmem_transfer send INTERFACE ADDRESS PORT MIB\n"
                 "       devmem_transfer rule INTERFACE QUEUE ADDRESS PORT\n"
                 "       devmem_transfer remove INTERFACE LOCATION\n"
                 "       devmem_transfer channels INTERFACE COUNT\n"
                 "       devmem_transfer rules INTERFACE\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const tcpx::Status status = tcpx::run({argv + 1, argv + argc});
  if (!status.is_ok()) std::printf("%s: %s\n", argv[1], status.to_string().c_str());
  return status.is_ok() ? 0 : 1;
}
