#include "base/interface_kind.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "base/netlink.h"
#include "base/text.h"

namespace tcpx {
namespace {

using namespace std::string_view_literals;

constexpr char kWireless[] = "wireless";
// Kinds (IFLA_INFO_KIND, from the kernel drivers' rtnl_link_ops) with hardware below them or at the other end of a virtual cable.
// An Open vSwitch counts as one of them, because the kernel does not tell which NIC is among its ports.
constexpr std::array kLikeNics = {""sv,       "veth"sv,   "vlan"sv,  "bond"sv, "team"sv,   "macvlan"sv, "macvtap"sv,
                                  "ipvlan"sv, "ipvtap"sv, "ipoib"sv, "hsr"sv,  "netkit"sv, "dsa"sv,     "openvswitch"sv};
// Kinds that serve this host alone.
constexpr std::array kLocal = {"dummy"sv, "ifb"sv, "nlmon"sv, "vrf"sv, "netdevsim"sv};

struct Link {
  std::string kind;
  unsigned master = 0;  // index of the bridge, bond, ... of which it is a port; 0: none
};

std::optional<Link> ask_link(unsigned index) {
  ifinfomsg head{};
  head.ifi_index = static_cast<int>(index);
  const auto answer = ask_netlink(NETLINK_ROUTE, RTM_GETLINK, bytes_of(head));
  if (!answer.is_ok() || answer->size() < sizeof head) return std::nullopt;
  const std::span<const std::byte> attributes = std::span(*answer).subspan(NLMSG_ALIGN(sizeof head));
  Link link;
  if (const auto master = netlink_attribute(attributes, IFLA_MASTER)) link.master = value_of<unsigned>(*master).value_or(0);
  const auto info = netlink_attribute(attributes, IFLA_LINKINFO);
  const auto kind = info ? netlink_attribute(*info, IFLA_INFO_KIND) : std::nullopt;
  if (kind) link.kind.assign(reinterpret_cast<const char*>(kind->data()), kind->size());
  while (link.kind.ends_with('\0')) link.kind.pop_back();
  return link;
}

bool is_wireless(const std::string& interface) {
  struct stat info;
  return ::stat(concat("/sys/class/net/", interface, "/phy80211").c_str(), &info) == 0;
}

/// True when a port of the bridge leads to other hosts. Ports of guests and containers do not.
bool has_nic(unsigned bridge) {
  const std::unique_ptr<struct if_nameindex, decltype(&::if_freenameindex)> all(::if_nameindex(), &::if_freenameindex);
  for (const struct if_nameindex* each = all.get(); each != nullptr && each->if_index != 0; ++each) {
    const auto port = ask_link(each->if_index);
    if (port && port->master == bridge && port->kind != "veth" && reach_of(port->kind, false) == Reach::kNic) return true;
  }
  return false;
}

}  // namespace

Reach reach_of(std::string_view kind, bool joins_nic) {
  if (kind == "bridge") return joins_nic ? Reach::kNic : Reach::kHere;
  if (std::ranges::find(kLikeNics, kind) != kLikeNics.end()) return Reach::kNic;
  return std::ranges::find(kLocal, kind) != kLocal.end() ? Reach::kHere : Reach::kOverlay;
}

InterfaceKind kind_of_interface(const std::string& interface) {
  const unsigned index = ::if_nametoindex(interface.c_str());
  const auto link = index != 0 ? ask_link(index) : std::nullopt;
  if (!link) return {};
  if (link->kind.empty() && is_wireless(interface)) return {kWireless, Reach::kOverlay};
  return {link->kind, reach_of(link->kind, link->kind == "bridge" && has_nic(index))};
}

std::string describe_interface(const std::string& interface, const InterfaceKind& kind) {
  return kind.name.empty() ? interface : concat(interface, " (", kind.name, ")");
}

}  // namespace tcpx
