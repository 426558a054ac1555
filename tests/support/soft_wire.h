// Connections of the software plugin made by a test: of bare sockets, one end for a comm and the other driven by the test, or by the
// plugin's own handshake.
#pragma once

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/socket_io.h"
#include "net/soft/comm.h"
#include "net/soft/connector.h"
#include "net/soft/listener.h"
#include "net/soft/wire.h"
#include "tests/support/ok.h"
#include "tests/support/socket_pair.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

inline std::array<std::byte, soft::kChunkHeaderBytes> encoded(const soft::ChunkHeader& header) {
  std::array<std::byte, soft::kChunkHeaderBytes> bytes;
  soft::encode_chunk_header(header, bytes);
  return bytes;
}
inline void send_bytes(const UniqueFd& fd, std::span<const std::byte> bytes) {
  EXPECT_OK(send_all(fd.get(), bytes, soon()));
}
inline void send_chunk(const UniqueFd& fd, const soft::ChunkHeader& header, std::span<const std::byte> payload) {
  send_bytes(fd, encoded(header));
  send_bytes(fd, payload);
}
/// True when the other end has closed the connection; no byte may come before.
inline bool is_dropped(const UniqueFd& fd, Deadline deadline = soon()) {
  std::byte byte;
  return recv_all(fd.get(), {&byte, 1}, deadline).code() == Code::kPeerGone;
}
/// Returns when nothing has arrived on `fd` for a while.
inline void wait_until_quiet(const UniqueFd& fd) {
  int before = -1, now = 0;
  const auto grows = [&] { return ::ioctl(fd.get(), FIONREAD, &now) == 0 && now != before; };
  for (; wait_until(grows, std::chrono::milliseconds(50)); before = now) continue;
}

/// Waits until `request` is done.
inline bool is_done(soft::SoftComm& comm, const abi::TcpxRequest* request) {
  return wait_until([&] {
    const auto answer = comm.test(request);
    EXPECT_OK(answer);
    return !answer.is_ok() || answer->done;
  });
}
/// The error that `request` comes to; ok if it is done.
inline Status error_of(soft::SoftComm& comm, const abi::TcpxRequest* request) {
  Result<soft::TestAnswer> answer = soft::TestAnswer{};
  EXPECT_TRUE(wait_until([&] { return !(answer = comm.test(request)).is_ok() || answer->done; })) << "a hang";
  return answer.status();
}

/// The proof of an end without a secret.
inline Mac in_clear(const soft::Cookie& cookie) {
  return std::bit_cast<Mac>(cookie);
}
/// A listener on loopback, for connections of four data sockets.
inline std::unique_ptr<soft::SoftListener> listen_softly(const std::shared_ptr<soft::IoPool>& io, uint32_t chunk_bytes) {
  const soft::HandleInfo info = {
      .addresses = {SocketAddress::loopback(0)}, .data_sockets = 4, .chunk_bytes = chunk_bytes, .cookie = {}};
  return must(soft::SoftListener::create(info, io));
}
/// A whole attempt of a Connector.
inline Result<soft::ConnectedSockets> connect_to_listener(const soft::HandleInfo& listener,
                                                          const std::vector<SocketAddress>& sources, Deadline deadline,
                                                          const std::vector<SocketAddress>& control_sources = {},
                                                          const std::string& nic = {}, const Prover* secret = nullptr,
                                                          bool encrypts = false) {
  const auto connector = soft::Connector::start(listener, sources, deadline, control_sources, nic, secret, encrypts);
  TCPX_RETURN_IF_ERROR(connector.status());
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(auto connected, (*connector)->advance(std::chrono::seconds(1)));
    if (connected.has_value()) return std::move(*connected);
  }
}
inline soft::ConnectedSockets connect_softly(const Handle& handle) {
  return must(connect_to_listener(must(soft::decode_handle(handle)), {SocketAddress::loopback(0)}, soon()));
}
inline soft::ConnectedSockets accept_softly(soft::SoftListener& listener) {
  std::optional<soft::ConnectedSockets> sockets;
  EXPECT_TRUE(wait_until([&] { return (sockets = listener.try_accept()).has_value(); }));
  return std::move(sockets.value());
}

/// A connection, of two data sockets unless the test wants another number.
/// @param buffer_bytes kernel buffer requested for a data socket at either end; 0 leaves it to the kernel.
struct Wire {
  explicit Wire(uint32_t chunk_bytes, int buffer_bytes = 0, size_t data_sockets = 2) : chunk_bytes_(chunk_bytes) {
    const auto connect = [](UniqueFd& our, UniqueFd& their) {
      Sockets sockets = tcp_pair();
      our = std::move(sockets.a);
      their = std::move(sockets.b);
    };
    for (soft::ConnectedSockets* end : {&ours, &theirs}) {
      end->data.resize(data_sockets);
      end->chunk_bytes = chunk_bytes;
      end->peer = "the test";
    }
    connect(ours.control, theirs.control);
    for (size_t i = 0; i < data_sockets; ++i) connect(ours.data[i], theirs.data[i]);
    for (size_t i = 0; i < data_sockets && buffer_bytes > 0; ++i) {
      EXPECT_EQ(::setsockopt(ours.data[i].get(), SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes), 0);
      EXPECT_EQ(::setsockopt(theirs.data[i].get(), SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes), 0);
    }
  }
  uint32_t chunk_bytes() const { return chunk_bytes_; }
  soft::ConnectedSockets ours, theirs;

 private:
  const uint32_t chunk_bytes_;
};

}  // namespace tcpx::testing
