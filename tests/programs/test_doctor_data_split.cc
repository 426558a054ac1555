// The kernel's answers over netlink, well formed and not.
#include <gtest/gtest.h>
#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>

#include <cstring>
#include <vector>

#include "programs/doctor/netlink.h"
#include "programs/doctor/nic.h"

namespace tcpx::doctor {
namespace {

Bytes operator+(Bytes left, const Bytes& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// `claimed` is written as its length instead of the right one.
Bytes attribute(uint16_t type, const Bytes& payload, std::optional<uint16_t> claimed = {}) {
  Bytes out;
  append_attribute(out, type, payload);
  if (claimed) std::memcpy(out.data(), &*claimed, sizeof *claimed);
  return out;
}

Bytes message(uint32_t sequence, uint16_t type, const Bytes& payload, std::optional<uint32_t> claimed = {}) {
  const auto length = static_cast<uint32_t>(sizeof(nlmsghdr) + payload.size());
  return bytes_of(nlmsghdr{.nlmsg_len = claimed.value_or(length),
                           .nlmsg_type = type,
                           .nlmsg_flags = 0,
                           .nlmsg_seq = sequence,
                           .nlmsg_pid = 0}) +
         payload;
}

Bytes rings(uint8_t split) {
  return attribute(ETHTOOL_A_RINGS_HEADER | NLA_F_NESTED, attribute(ETHTOOL_A_HEADER_DEV_INDEX, bytes_of(uint32_t{3}))) +
         attribute(ETHTOOL_A_RINGS_RX, bytes_of(uint32_t{1024})) + attribute(ETHTOOL_A_RINGS_TCP_DATA_SPLIT, bytes_of(split));
}

TEST(DoctorDataSplit, OnOffAndUnknownAreToldApart) {
  EXPECT_EQ(data_split_of(rings(ETHTOOL_TCP_DATA_SPLIT_ENABLED)), true);
  EXPECT_EQ(data_split_of(rings(ETHTOOL_TCP_DATA_SPLIT_DISABLED)), false);
  EXPECT_EQ(data_split_of(rings(ETHTOOL_TCP_DATA_SPLIT_UNKNOWN)), std::nullopt);
  EXPECT_EQ(data_split_of(rings(77)), std::nullopt);
  EXPECT_EQ(data_split_of(attribute(ETHTOOL_A_RINGS_RX, bytes_of(uint32_t{1024}))), std::nullopt);
  EXPECT_EQ(data_split_of(attribute(ETHTOOL_A_RINGS_TCP_DATA_SPLIT, bytes_of(uint32_t{2}))), std::nullopt);
  EXPECT_EQ(data_split_of({}), std::nullopt);
}

TEST(DoctorDataSplit, AttributesEndWhereTheyAreMalformed) {
  const Bytes good = attribute(7, bytes_of(uint32_t{1}));
  for (const uint16_t claimed : {0, 3, 9, 65535}) {
    const Bytes bad = attribute(5, bytes_of(uint32_t{1}), claimed);
    EXPECT_EQ(netlink_attribute(bad, 5), std::nullopt) << claimed;
    EXPECT_TRUE(netlink_attribute(good + bad, 7).has_value());
  }
  // The last one may lack its padding.
  Bytes last = attribute(5, Bytes(1));
  last.resize(5);
  EXPECT_EQ(netlink_attribute(last, 5)->size(), 1u);
  EXPECT_EQ(netlink_attribute(last, 6), std::nullopt);
}

TEST(DoctorDataSplit, OnlyTheWholeAnswerToTheQuestionIsOne) {
  const Bytes payload = rings(ETHTOOL_TCP_DATA_SPLIT_ENABLED);
  const Bytes good = message(9, 21, payload);
  ASSERT_TRUE(netlink_payload(good, 9).is_ok());
  EXPECT_EQ(netlink_payload(good, 9)->size(), payload.size());
  EXPECT_FALSE(netlink_payload(good, 8).is_ok());
  EXPECT_EQ(netlink_payload(message(9, NLMSG_ERROR, bytes_of(-19)), 9).status().native(), 19);
  EXPECT_FALSE(netlink_payload(message(9, NLMSG_DONE, payload), 9).is_ok());
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(netlink_payload(std::span(good).first(size), 9).is_ok()) << size;
  for (const uint32_t claimed : {0u, 15u, 0xffffffffu})
    EXPECT_FALSE(netlink_payload(message(9, 21, payload, claimed), 9).is_ok());
  EXPECT_TRUE(netlink_payload(message(9, 21, payload, 16), 9)->empty());
}

TEST(DoctorDataSplit, LoopbackDoesNotTell) {
  EXPECT_EQ(ask_data_split("lo"), std::nullopt);
}

}  // namespace
}  // namespace tcpx::doctor
