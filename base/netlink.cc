#include "base/netlink.h"

#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/socket_io.h"

namespace tcpx {
namespace {

constexpr std::chrono::seconds kNetlinkLimit{1};
constexpr size_t kMostAnswerBytes = 32 * 1024;
constexpr char kAsk[] = "ask over netlink";

}  // namespace

void append_attribute(Bytes& out, uint16_t type, std::span<const std::byte> payload) {
  const Bytes head = bytes_of(nlattr{.nla_len = static_cast<uint16_t>(sizeof(nlattr) + payload.size()), .nla_type = type});
  out.insert(out.end(), head.begin(), head.end());
  out.insert(out.end(), payload.begin(), payload.end());
  out.resize(NLA_ALIGN(out.size()));
}

std::optional<std::span<const std::byte>> netlink_attribute(std::span<const std::byte> attributes, uint16_t type) {
  while (attributes.size() >= sizeof(nlattr)) {
    const nlattr head = *value_of<nlattr>(attributes.first(sizeof(nlattr)));
    if (head.nla_len < sizeof head || head.nla_len > attributes.size()) return std::nullopt;
    if ((head.nla_type & NLA_TYPE_MASK) == type) return attributes.subspan(sizeof head, head.nla_len - sizeof head);
    attributes = attributes.subspan(std::min<size_t>(NLA_ALIGN(head.nla_len), attributes.size()));
  }
  return std::nullopt;
}

Result<std::span<const std::byte>> netlink_payload(std::span<const std::byte> datagram, uint32_t sequence) {
  const Status other(Code::kProtocol, kAsk, "the message does not answer the request");
  if (datagram.size() < sizeof(nlmsghdr)) return other;
  const nlmsghdr head = *value_of<nlmsghdr>(datagram.first(sizeof(nlmsghdr)));
  if (head.nlmsg_seq != sequence || head.nlmsg_len < sizeof head || head.nlmsg_len > datagram.size()) return other;
  const auto payload = datagram.first(head.nlmsg_len).subspan(sizeof head);
  if (head.nlmsg_type >= NLMSG_MIN_TYPE) return payload;
  if (head.nlmsg_type != NLMSG_ERROR || payload.size() < sizeof(int)) return other;
  return system_error(kAsk, -*value_of<int>(payload.first(sizeof(int))));
}

Result<Bytes> ask_netlink(int protocol, uint16_t type, std::span<const std::byte> payload) {
  constexpr uint32_t kSequence = 1;
  Bytes question = bytes_of(nlmsghdr{.nlmsg_len = static_cast<uint32_t>(sizeof(nlmsghdr) + payload.size()),
                                     .nlmsg_type = type,
                                     .nlmsg_flags = NLM_F_REQUEST,
                                     .nlmsg_seq = kSequence,
                                     .nlmsg_pid = 0});
  question.insert(question.end(), payload.begin(), payload.end());
  const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
  if (!fd || ::send(fd.get(), question.data(), question.size(), 0) != static_cast<ssize_t>(question.size()))
    return system_error(kAsk, errno);
  TCPX_RETURN_IF_ERROR(wait_for(fd.get(), POLLIN, Deadline::after(kNetlinkLimit)));
  Bytes answer(kMostAnswerBytes);
  const ssize_t got = ::recv(fd.get(), answer.data(), answer.size(), MSG_TRUNC);
  if (got < 0) return system_error(kAsk, errno);
  TCPX_ASSIGN_OR_RETURN(const auto body,
                        netlink_payload(std::span(answer).first(std::min(answer.size(), static_cast<size_t>(got))), kSequence));
  return Bytes(body.begin(), body.end());
}

}  // namespace tcpx
