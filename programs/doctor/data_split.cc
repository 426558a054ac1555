// Header split, which the kernel calls TCP data split: told by the ethtool family of generic netlink only.
#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>

#include "programs/doctor/netlink.h"
#include "programs/doctor/nic.h"

namespace tcpx::doctor {
namespace {

/// Attributes of the answer. None when there is none.
Bytes ask_generic(uint16_t family, uint8_t command, const Bytes& attributes) {
  Bytes question = bytes_of(genlmsghdr{.cmd = command, .version = 1, .reserved = 0});
  question.insert(question.end(), attributes.begin(), attributes.end());
  const Result<Bytes> answer = ask_netlink(NETLINK_GENERIC, family, question);
  if (!answer.is_ok() || answer->size() < sizeof(genlmsghdr)) return {};
  return Bytes(answer->begin() + sizeof(genlmsghdr), answer->end());
}

/// With the zero at its end that the kernel wants.
Bytes name_attribute(uint16_t type, const std::string& name) {
  Bytes out;
  append_attribute(out, type, std::as_bytes(std::span(name.c_str(), name.size() + 1)));
  return out;
}

}  // namespace

std::optional<bool> data_split_of(std::span<const std::byte> attributes) {
  const auto attribute = netlink_attribute(attributes, ETHTOOL_A_RINGS_TCP_DATA_SPLIT);
  const auto split = attribute ? value_of<uint8_t>(*attribute) : std::nullopt;
  if (split == ETHTOOL_TCP_DATA_SPLIT_ENABLED) return true;
  if (split == ETHTOOL_TCP_DATA_SPLIT_DISABLED) return false;
  return std::nullopt;
}

std::optional<bool> ask_data_split(const std::string& interface) {
  const Bytes control = ask_generic(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, name_attribute(CTRL_ATTR_FAMILY_NAME, ETHTOOL_GENL_NAME));
  const auto id = netlink_attribute(control, CTRL_ATTR_FAMILY_ID);
  const auto family = id ? value_of<uint16_t>(*id) : std::nullopt;
  if (!family) return std::nullopt;
  Bytes question;
  append_attribute(question, ETHTOOL_A_RINGS_HEADER | NLA_F_NESTED, name_attribute(ETHTOOL_A_HEADER_DEV_NAME, interface));
  return data_split_of(ask_generic(*family, ETHTOOL_MSG_RINGS_GET, question));
}

}  // namespace tcpx::doctor
