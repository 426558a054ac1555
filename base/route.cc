#include "base/route.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include "base/netlink.h"
#include "base/socket_io.h"

namespace tcpx {
namespace {

constexpr char kAskForRoute[] = "ask for a route";

Bytes host_bytes_of(const SocketAddress& address) {
  if (address.family() == AF_INET6) return bytes_of(reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr);
  return bytes_of(reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr);
}

std::string host_of(std::span<const std::byte> address) {
  if (const auto four = value_of<in_addr>(address)) {
    sockaddr_in whole{};
    whole.sin_family = AF_INET;
    whole.sin_addr = *four;
    return SocketAddress::from(reinterpret_cast<const sockaddr*>(&whole), sizeof whole)->host();
  }
  if (const auto six = value_of<in6_addr>(address)) {
    sockaddr_in6 whole{};
    whole.sin6_family = AF_INET6;
    whole.sin6_addr = *six;
    return SocketAddress::from(reinterpret_cast<const sockaddr*>(&whole), sizeof whole)->host();
  }
  return "";
}

}  // namespace

Result<Route> find_route(const SocketAddress& target, const SocketAddress* source, const std::string& through) {
  if (source != nullptr && source->family() != target.family())
    return Status(Code::kInvalidArgument, kAskForRoute, "addresses of two families");
  rtmsg head{};
  head.rtm_family = static_cast<uint8_t>(target.family());
  head.rtm_dst_len = target.family() == AF_INET ? 32 : 128;
  head.rtm_src_len = source != nullptr ? head.rtm_dst_len : 0;
  // Without this flag the kernel makes up an IPv4 route over the interface when there is none.
  const bool entry_itself = !through.empty() && target.family() == AF_INET;
  if (entry_itself) head.rtm_flags = RTM_F_FIB_MATCH;
  Bytes question = bytes_of(head);
  append_attribute(question, RTA_DST, host_bytes_of(target));
  if (source != nullptr) append_attribute(question, RTA_SRC, host_bytes_of(*source));
  if (!through.empty()) {
    const unsigned index = ::if_nametoindex(through.c_str());
    if (index == 0) return system_error(kAskForRoute, errno);
    append_attribute(question, RTA_OIF, bytes_of(index));
  }
  TCPX_ASSIGN_OR_RETURN(const Bytes answer, ask_netlink(NETLINK_ROUTE, RTM_GETROUTE, question));
  if (answer.size() < sizeof head) return Status(Code::kProtocol, kAskForRoute, "a short answer");
  std::memcpy(&head, answer.data(), sizeof head);
  const auto attributes = std::span(answer).subspan(sizeof head);
  const auto out = netlink_attribute(attributes, RTA_OIF), from = netlink_attribute(attributes, RTA_PREFSRC);
  const auto index = out ? value_of<uint32_t>(*out) : std::nullopt;
  char name[IF_NAMESIZE] = {};
  if (index) ::if_indextoname(*index, name);
  // A routing entry with several next hops names no interface; it was found because one of them uses the requested interface.
  Route route{.interface = !index && entry_itself ? through : name,
              .source = from ? host_of(*from) : "",
              .local = head.rtm_type == RTN_LOCAL};
  // For IPv6 the kernel only prefers routes over the interface, and may return another one.
  if (!through.empty() && route.interface != through) return system_error(kAskForRoute, ENETUNREACH);
  return route;
}

bool must_bind(const std::string& nic, const Result<Route>& usual, const Result<Route>& through) {
  if (!usual.is_ok() || usual->local || usual->interface == nic) return false;
  return through.is_ok() && !through->local;
}

}  // namespace tcpx
