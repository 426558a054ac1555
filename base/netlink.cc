#include "base/netlink.h"

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx {
namespace {

constexpr std::chrono::seconds kNetlinkLimit{1};
constexpr size_t kMostAnswerBytes = 32 * 1024;
constexpr char kAsk[] = "ask over netlink";

/// The kernel's reason in an error message: behind the number and the question, of which it repeats all or only the header.
/// "" when there is none.
std::string words_behind(const nlmsghdr& head, std::span<const std::byte> error) {
  if ((head.nlmsg_flags & NLM_F_ACK_TLVS) == 0 || error.size() < sizeof(nlmsgerr)) return {};
  const nlmsgerr message = *value_of<nlmsgerr>(error.first(sizeof(nlmsgerr)));
  size_t before = sizeof message;
  if ((head.nlmsg_flags & NLM_F_CAPPED) == 0) before = sizeof(int) + std::max<size_t>(message.msg.nlmsg_len, sizeof(nlmsghdr));
  before = NLMSG_ALIGN(before);
  if (before > error.size()) return {};
  const auto words = netlink_attribute(error.subspan(before), NLMSGERR_ATTR_MSG);
  if (!words) return {};
  const char* const text = reinterpret_cast<const char*>(words->data());
  return std::string(text, ::strnlen(text, words->size()));
}

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
  const Status error = system_error(kAsk, -*value_of<int>(payload.first(sizeof(int))));
  const std::string words = words_behind(head, payload);
  if (words.empty()) return error;
  return Status(error.code(), kAsk, concat(error.detail(), ": ", words), error.domain(), error.native());
}

Result<NetlinkSocket> NetlinkSocket::open(int protocol) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
  if (!fd) return system_error(kAsk, errno);
  // Reasons in words. A kernel that has none refuses, and answers all the same.
  const int on = 1;
  ::setsockopt(fd.get(), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on);
  return NetlinkSocket(std::move(fd));
}

Result<Bytes> NetlinkSocket::ask(uint16_t type, std::span<const std::byte> payload) {
  Bytes question = bytes_of(nlmsghdr{.nlmsg_len = static_cast<uint32_t>(sizeof(nlmsghdr) + payload.size()),
                                     .nlmsg_type = type,
                                     .nlmsg_flags = NLM_F_REQUEST,
                                     .nlmsg_seq = ++sequence_,
                                     .nlmsg_pid = 0});
  question.insert(question.end(), payload.begin(), payload.end());
  if (::send(fd_.get(), question.data(), question.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(question.size()))
    return system_error(kAsk, errno);
  TCPX_RETURN_IF_ERROR(wait_for(fd_.get(), POLLIN, Deadline::after(kNetlinkLimit)));
  Bytes answer(kMostAnswerBytes);
  const ssize_t got = ::recv(fd_.get(), answer.data(), answer.size(), MSG_TRUNC);
  if (got < 0) return system_error(kAsk, errno);
  TCPX_ASSIGN_OR_RETURN(const auto body,
                        netlink_payload(std::span(answer).first(std::min(answer.size(), static_cast<size_t>(got))), sequence_));
  return Bytes(body.begin(), body.end());
}

Result<Bytes> ask_netlink(int protocol, uint16_t type, std::span<const std::byte> payload) {
  TCPX_ASSIGN_OR_RETURN(NetlinkSocket socket, NetlinkSocket::open(protocol));
  return socket.ask(type, payload);
}

Bytes text_attribute(uint16_t type, const std::string& text) {
  Bytes out;
  append_attribute(out, type, std::as_bytes(std::span(text.c_str(), text.size() + 1)));
  return out;
}

Result<GenericFamily> GenericFamily::open(const std::string& name) {
  TCPX_ASSIGN_OR_RETURN(NetlinkSocket socket, NetlinkSocket::open(NETLINK_GENERIC));
  return over(std::move(socket), name);
}

Result<GenericFamily> GenericFamily::over(NetlinkSocket socket, const std::string& name) {
  GenericFamily family(std::move(socket));
  const auto answer = family.ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, text_attribute(CTRL_ATTR_FAMILY_NAME, name));
  if (!answer.is_ok() && answer.status().native() == ENOENT)
    return Status(Code::kNotFound, kAsk, "this kernel has no netlink family " + name, Domain::kErrno, ENOENT);
  TCPX_RETURN_IF_ERROR(answer.status());
  const auto id = netlink_attribute(*answer, CTRL_ATTR_FAMILY_ID);
  const auto value = id ? value_of<uint16_t>(*id) : std::nullopt;
  if (!value) return Status(Code::kProtocol, kAsk, "the kernel tells no number of the family " + name);
  family.id_ = *value;
  return family;
}

Result<Bytes> GenericFamily::ask(uint16_t family, uint8_t command, const Bytes& attributes) {
  Bytes question = bytes_of(genlmsghdr{.cmd = command, .version = 1, .reserved = 0});
  question.insert(question.end(), attributes.begin(), attributes.end());
  TCPX_ASSIGN_OR_RETURN(const Bytes answer, socket_.ask(family, question));
  if (answer.size() < sizeof(genlmsghdr)) return Status(Code::kProtocol, kAsk, "the answer is too short");
  return Bytes(answer.begin() + sizeof(genlmsghdr), answer.end());
}

}  // namespace tcpx
