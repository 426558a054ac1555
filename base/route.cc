#include "base/route.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstring>
#include <optional>
#include <span>

#include "base/netlink.h"

namespace tcpx {
namespace {

in_addr in_addr_of(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr;
}

SocketAddress address_of(in_addr address) {
  sockaddr_in whole{};
  whole.sin_family = AF_INET;
  whole.sin_addr = address;
  return *SocketAddress::from(reinterpret_cast<const sockaddr*>(&whole), sizeof whole);
}

}  // namespace

Result<Route> find_route(const SocketAddress& target, const SocketAddress* source) {
  constexpr char kOperation[] = "ask for a route";
  if (target.family() != AF_INET || (source != nullptr && source->family() != AF_INET))
    return Status(Code::kUnsupported, kOperation, "only IPv4");
  rtmsg head{};
  head.rtm_family = AF_INET;
  head.rtm_dst_len = 32;
  head.rtm_src_len = source != nullptr ? 32 : 0;
  Bytes question = bytes_of(head);
  append_attribute(question, RTA_DST, bytes_of(in_addr_of(target)));
  if (source != nullptr) append_attribute(question, RTA_SRC, bytes_of(in_addr_of(*source)));
  TCPX_ASSIGN_OR_RETURN(const Bytes answer, ask_netlink(NETLINK_ROUTE, RTM_GETROUTE, question));
  if (answer.size() < sizeof head) return Status(Code::kProtocol, kOperation, "a short answer");
  std::memcpy(&head, answer.data(), sizeof head);
  const auto attributes = std::span(answer).subspan(sizeof head);
  const auto out = netlink_attribute(attributes, RTA_OIF), from = netlink_attribute(attributes, RTA_PREFSRC);
  const auto index = out ? value_of<uint32_t>(*out) : std::nullopt;
  const auto address = from ? value_of<in_addr>(*from) : std::nullopt;
  char name[IF_NAMESIZE] = {};
  if (index) ::if_indextoname(*index, name);
  return Route{.interface = name, .source = address ? address_of(*address).host() : "", .local = head.rtm_type == RTN_LOCAL};
}

}  // namespace tcpx
