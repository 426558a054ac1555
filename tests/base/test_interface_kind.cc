#include "base/interface_kind.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

TEST(InterfaceKind, WhatAnInterfaceIsTellsHowFarItReaches) {
  for (const char* nic : {"", "veth", "vlan", "bond", "team", "macvlan", "ipvlan", "openvswitch"})
    EXPECT_EQ(reach_of(nic, false), Reach::kNic) << nic;
  for (const char* overlay : {"wireguard", "tun", "vxlan", "geneve", "gre", "ipip", "sit", "ip6tnl", "one of a later kernel"})
    EXPECT_EQ(reach_of(overlay, false), Reach::kOverlay) << overlay;
  for (const char* local : {"dummy", "ifb", "vrf", "bridge"}) EXPECT_EQ(reach_of(local, false), Reach::kHere) << local;
  EXPECT_EQ(reach_of("bridge", true), Reach::kNic) << "a host whose NIC is a port of its bridge has its address there";
}

TEST(InterfaceKind, WhatIsNotThereIsTakenForHardware) {
  const InterfaceKind kind = kind_of_interface("no-such-one");
  EXPECT_EQ(kind.name, "");
  EXPECT_EQ(kind.reach, Reach::kNic);
  EXPECT_EQ(describe_interface("eth0", kind), "eth0");
  EXPECT_EQ(describe_interface("docker0", {"bridge", Reach::kHere}), "docker0 (bridge)");
}

}  // namespace
}  // namespace tcpx
