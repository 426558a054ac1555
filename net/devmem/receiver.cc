#include "net/devmem/receiver.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/socket_io.h"
#include "rx/rx_cmsg_parser.h"

namespace tcpx::devmem {
namespace {

constexpr char kReceive[] = "receive into device memory";

Status receive_error(int error) {
  const auto told = [&](Code code, const char* words) { return Status(code, kReceive, words, Domain::kErrno, error); };
  switch (error) {
    case EFAULT:
      return told(Code::kSystem,
                  "a packet is neither wholly in device memory nor wholly in host memory: the NIC's driver mixes them");
    case ENODEV:
      return told(Code::kUnsupported, "the queue's memory is another program's");
    case kTooSmall:
      return told(Code::kInternal, "no room for one record");
    default:
      return stream_error(kReceive, error);
  }
}

/// "" when all of it is in the pool that was bound.
std::string what_is_wrong(const ParsedCmsg& parsed, const BoundDmabuf& pool) {
  if (parsed.error != CmsgError::kNone) return concat(name_of(parsed.error), " at byte ", parsed.error_at);
  if (!parsed.tokens.empty() && parsed.dmabuf_id != pool.id)
    return concat("fragments in dma-buf ", parsed.dmabuf_id, ", and bound is ", pool.id);
  const auto beyond = std::find_if(parsed.fragments.begin(), parsed.fragments.end(), [&](const Fragment& fragment) {
    return fragment.src_off > pool.bytes || fragment.len > pool.bytes - fragment.src_off;
  });
  if (beyond == parsed.fragments.end()) return {};
  return concat("a fragment of ", beyond->len, " bytes at ", beyond->src_off, " of a pool of ", pool.bytes);
}

}  // namespace

Result<std::optional<DevmemRead>> DevmemReceiver::receive(std::span<std::byte> room, uint64_t dst_off) {
  TCPX_RETURN_IF_ERROR(failure_);
  Result<std::optional<DevmemRead>> arrival = read(room, dst_off);
  // Nothing to read: the NIC may be short of just these pages.
  if (arrival.is_ok() && !arrival->has_value()) {
    if (const Status status = tokens_.flush(); !status.is_ok()) arrival = status;
  }
  if (!arrival.is_ok()) {
    failure_ = arrival.status();
    log(LogLevel::kWarning, failure_.to_string());
  }
  return arrival;
}

Result<std::optional<DevmemRead>> DevmemReceiver::read(std::span<std::byte> room, uint64_t dst_off) {
  iovec place{room.data(), room.size()};
  msghdr message{};
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  ssize_t got;
  do {
    message.msg_control = control_.data();
    message.msg_controllen = control_.size();
    got = calls_.recvmsg(fd_, message, kMsgSockDevmem | MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::optional<DevmemRead>();
  if (got < 0) return receive_error(errno);

  ParsedCmsg parsed = parse_rx_cmsg({.control = std::span(control_).first(std::min(message.msg_controllen, control_.size())),
                                     .control_truncated = (message.msg_flags & MSG_CTRUNC) != 0,
                                     .received_bytes = static_cast<uint64_t>(got),
                                     .dst_off = dst_off,
                                     .dialect = CmsgDialect::kLinux,
                                     .takes_linear = true});
  std::string wrong = what_is_wrong(parsed, pool_);
  if (static_cast<size_t>(got) > room.size()) wrong = concat(got, " bytes, asked for were ", room.size());
  if (!wrong.empty()) {
    TokenLedger(calls_, fd_).hold(parsed.tokens);  // which gives them back
    return Status(Code::kProtocol, kReceive, std::move(wrong));
  }
  tokens_.hold(parsed.tokens);
  if (parsed.linear_bytes > 0 && counts_.linear_bytes == 0)
    log(LogLevel::kInfo, "net/devmem: ", parsed.linear_bytes,
        " bytes came in host memory and are copied; if many do, header split or ", "flow steering is wrong");
  ++counts_.reads;
  counts_.fragments += parsed.fragments.size();
  counts_.pool_bytes += static_cast<uint64_t>(got) - parsed.linear_bytes;
  counts_.linear_bytes += parsed.linear_bytes;
  return std::optional(DevmemRead{static_cast<uint64_t>(got), std::move(parsed.fragments), std::move(parsed.linear)});
}

}  // namespace tcpx::devmem
