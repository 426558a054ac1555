#include "net/soft/socket_nic.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "base/cgroup.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx::soft {
namespace {

constexpr int kOn = 1, kOff = 0;

// The kernel keeps the index of the interface that the last packet of the handshake came by, and gives it to who asks for packet
// information, which a stream has no other use for.
template <class Info, class Index>
unsigned arrival_index(int fd, int level, int wish, int question, int answer, Index Info::*index) {
  if (::setsockopt(fd, level, wish, &kOn, sizeof kOn) != 0) return 0;
  alignas(cmsghdr) std::array<std::byte, 256> room{};
  socklen_t length = room.size();
  const bool told = ::getsockopt(fd, level, question, room.data(), &length) == 0;
  ::setsockopt(fd, level, wish, &kOff, sizeof kOff);
  if (!told) return 0;
  msghdr message{};
  message.msg_control = room.data();
  message.msg_controllen = length;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != level || head->cmsg_type != answer || head->cmsg_len < CMSG_LEN(sizeof(Info))) continue;
    Info info;
    std::memcpy(&info, CMSG_DATA(head), sizeof info);
    return static_cast<unsigned>(info.*index);
  }
  return 0;
}

}  // namespace

std::string nic_to_bind(const std::string& nic, const SocketAddress& target, const SocketAddress& source) {
  return must_bind(nic, find_route(target, &source), find_route(target, &source, nic)) ? nic : "";
}

bool answers_alone(const std::string& nic) {
  const auto is_set = [](const std::string& of) {
    const auto text = text_of_file(concat("/proc/sys/net/ipv4/conf/", of, "/arp_ignore"));
    return text && !text->empty() && text->front() != '0';
  };
  return is_set("all") || is_set(nic);
}

std::string nic_of_sender(int fd) {
  std::array<char, IF_NAMESIZE> name{};
  socklen_t length = name.size();
  if (::getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name.data(), &length) == 0 && length > 1) return name.data();
  const auto own = local_address(fd), peer = peer_address(fd);
  if (!own.is_ok() || !peer.is_ok()) return "";
  const auto route = find_route(*peer, &*own);
  return route.is_ok() ? route->interface : "";
}

std::string nic_of_receiver(int fd) {
  const auto own = local_address(fd), peer = peer_address(fd);
  if (!own.is_ok() || !peer.is_ok()) return "";
  // To what stays in this host the kernel gives the index of the interface that has the address.
  if (const auto route = find_route(*peer, &*own); route.is_ok() && route->local) return route->interface;
  const unsigned index =
      own->family() == AF_INET6
          ? arrival_index(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, IPV6_2292PKTOPTIONS, IPV6_PKTINFO, &in6_pktinfo::ipi6_ifindex)
          : arrival_index(fd, IPPROTO_IP, IP_PKTINFO, IP_PKTOPTIONS, IP_PKTINFO, &in_pktinfo::ipi_ifindex);
  std::array<char, IF_NAMESIZE> name{};
  return index != 0 && ::if_indextoname(index, name.data()) != nullptr ? name.data() : "";
}

}  // namespace tcpx::soft
