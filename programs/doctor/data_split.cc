#include "programs/doctor/data_split.h"

#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/socket_io.h"

namespace tcpx::doctor {
namespace {

constexpr std::chrono::seconds kAnswerTime{1};
constexpr size_t kMostAnswerBytes = 32 * 1024;

constexpr size_t aligned(size_t bytes) {
  return NLMSG_ALIGN(bytes);
}

void append_attribute(std::vector<std::byte>& out, uint16_t type, std::span<const std::byte> payload) {
  const nlattr head{.nla_len = static_cast<uint16_t>(sizeof(nlattr) + payload.size()), .nla_type = type};
  const auto bytes = std::as_bytes(std::span(&head, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
  out.insert(out.end(), payload.begin(), payload.end());
  out.resize(aligned(out.size()));
}

/// With the zero at its end that the kernel wants.
std::vector<std::byte> name_attribute(uint16_t type, const std::string& name) {
  std::vector<std::byte> out;
  append_attribute(out, type, std::as_bytes(std::span(name.c_str(), name.size() + 1)));
  return out;
}

class GenericNetlink {
 public:
  GenericNetlink() : socket_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_GENERIC)) {}

  /// Attributes of the answer; they are valid until the next question.
  std::optional<std::span<const std::byte>> ask(uint16_t family, uint8_t command, std::span<const std::byte> attributes) {
    struct {
      nlmsghdr outer;
      genlmsghdr inner;
    } head{};
    head.outer.nlmsg_len = static_cast<uint32_t>(sizeof head + attributes.size());
    head.outer.nlmsg_type = family;
    head.outer.nlmsg_flags = NLM_F_REQUEST;
    head.outer.nlmsg_seq = ++sequence_;
    head.inner.cmd = command;
    head.inner.version = 1;
    const auto bytes = std::as_bytes(std::span(&head, 1));
    std::vector<std::byte> question(bytes.begin(), bytes.end());
    question.insert(question.end(), attributes.begin(), attributes.end());
    if (!socket_ || ::send(socket_.get(), question.data(), question.size(), 0) != static_cast<ssize_t>(question.size()))
      return std::nullopt;
    if (!wait_for(socket_.get(), POLLIN, Deadline::after(kAnswerTime)).is_ok()) return std::nullopt;
    answer_.resize(kMostAnswerBytes);
    const ssize_t got = ::recv(socket_.get(), answer_.data(), answer_.size(), MSG_TRUNC);
    if (got < 0 || static_cast<size_t>(got) > answer_.size()) return std::nullopt;
    answer_.resize(static_cast<size_t>(got));
    return netlink_attributes(answer_, sequence_);
  }

  std::optional<uint16_t> find_family(const std::string& name) {
    const auto attributes = ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, name_attribute(CTRL_ATTR_FAMILY_NAME, name));
    const auto id = attributes ? netlink_attribute(*attributes, CTRL_ATTR_FAMILY_ID) : std::nullopt;
    uint16_t value = 0;
    if (!id || id->size() != sizeof value) return std::nullopt;
    std::memcpy(&value, id->data(), sizeof value);
    return value;
  }

 private:
  UniqueFd socket_;
  uint32_t sequence_ = 0;
  std::vector<std::byte> answer_;
};

}  // namespace

std::optional<std::span<const std::byte>> netlink_attributes(std::span<const std::byte> datagram, uint32_t sequence) {
  nlmsghdr head{};
  constexpr size_t kHeads = sizeof(nlmsghdr) + sizeof(genlmsghdr);
  if (datagram.size() < kHeads) return std::nullopt;
  std::memcpy(&head, datagram.data(), sizeof head);
  if (head.nlmsg_seq != sequence || head.nlmsg_type < NLMSG_MIN_TYPE) return std::nullopt;
  if (head.nlmsg_len < kHeads || head.nlmsg_len > datagram.size()) return std::nullopt;
  return datagram.subspan(kHeads, head.nlmsg_len - kHeads);
}

std::optional<std::span<const std::byte>> netlink_attribute(std::span<const std::byte> attributes, uint16_t type) {
  while (attributes.size() >= sizeof(nlattr)) {
    nlattr head{};
    std::memcpy(&head, attributes.data(), sizeof head);
    if (head.nla_len < sizeof head || head.nla_len > attributes.size()) return std::nullopt;
    if ((head.nla_type & NLA_TYPE_MASK) == type) return attributes.subspan(sizeof head, head.nla_len - sizeof head);
    attributes = attributes.subspan(std::min(aligned(head.nla_len), attributes.size()));
  }
  return std::nullopt;
}

std::optional<bool> data_split_of(std::span<const std::byte> attributes) {
  const auto split = netlink_attribute(attributes, ETHTOOL_A_RINGS_TCP_DATA_SPLIT);
  if (!split || split->size() != 1) return std::nullopt;
  switch (std::to_integer<unsigned>(split->front())) {
    case ETHTOOL_TCP_DATA_SPLIT_ENABLED:
      return true;
    case ETHTOOL_TCP_DATA_SPLIT_DISABLED:
      return false;
  }
  return std::nullopt;
}

std::optional<bool> ask_data_split(const std::string& interface) {
  GenericNetlink netlink;
  const auto family = netlink.find_family(ETHTOOL_GENL_NAME);
  if (!family) return std::nullopt;
  std::vector<std::byte> question;
  append_attribute(question, ETHTOOL_A_RINGS_HEADER | NLA_F_NESTED, name_attribute(ETHTOOL_A_HEADER_DEV_NAME, interface));
  const auto attributes = netlink.ask(*family, ETHTOOL_MSG_RINGS_GET, question);
  return attributes ? data_split_of(*attributes) : std::nullopt;
}

}  // namespace tcpx::doctor
