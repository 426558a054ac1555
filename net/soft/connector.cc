#include "net/soft/connector.h"

#include <array>

#include "base/random.h"
#include "base/socket_io.h"
#include "base/text.h"

namespace tcpx::soft {
namespace {

/// Binds to `source` when that is possible.
Result<UniqueFd> connect_from(const std::optional<SocketAddress>& source, const SocketAddress& target, Deadline deadline) {
  return connect_tcp(target, deadline, source && source->family() == target.family() ? &*source : nullptr);
}

}  // namespace

Result<ConnectedSockets> connect_to_listener(const HandleInfo& listener, const SocketAddress& source, Deadline deadline,
                                             const std::optional<SocketAddress>& control_source) {
  Hello hello{.cookie = listener.cookie, .connection = 0, .socket_index = 0, .data_sockets = listener.data_sockets};
  TCPX_RETURN_IF_ERROR(fill_random(std::as_writable_bytes(std::span(&hello.connection, 1))));
  std::vector<UniqueFd> sockets;
  for (uint32_t i = 0; i <= listener.data_sockets; ++i) {
    // The data interface may not reach the network of a control interface: control sockets then leave from ours, or as the kernel
    // likes.
    const bool apart = i == listener.data_sockets && listener.control_address;
    auto fd = apart ? connect_from(control_source, *listener.control_address, deadline)
                    : connect_from(source, listener.address, deadline);
    if (!fd.is_ok()) return fd.status();
    TCPX_RETURN_IF_ERROR(set_no_delay(fd->get()));
    TCPX_RETURN_IF_ERROR(set_keep_alive(fd->get()));
    std::array<std::byte, kHelloBytes> record;
    hello.socket_index = i;
    encode_hello(hello, record);
    TCPX_RETURN_IF_ERROR(send_all(fd->get(), record, deadline));
    sockets.push_back(std::move(*fd));
  }
  for (const UniqueFd& fd : sockets) {
    std::array<std::byte, kHelloAnswerBytes> record;
    TCPX_RETURN_IF_ERROR(recv_all(fd.get(), record, deadline));
    const auto answer = decode_hello_answer(record);
    if (!answer.is_ok()) return answer.status();
    if (!answer->accepted || answer->connection != hello.connection) {
      return Status(Code::kPeerGone, "connect", concat("refused by the listener at ", listener.address.to_string()));
    }
  }
  ConnectedSockets connected;
  connected.control = std::move(sockets.back());
  sockets.pop_back();
  connected.data = std::move(sockets);
  connected.chunk_bytes = listener.chunk_bytes;
  connected.peer = listener.address.to_string();
  return connected;
}

}  // namespace tcpx::soft
