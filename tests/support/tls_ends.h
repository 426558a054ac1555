// Ends of TLS sessions whose bytes the test carries.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "secure/tls.h"
#include "tests/support/socket_pair.h"

namespace tcpx::testing {

using Bytes = std::vector<std::byte>;
using Step = TlsSession::Step;

inline Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// Takes what has come at a socket.
inline Bytes take(int fd) {
  Bytes all(1u << 20);
  const ssize_t n = ::recv(fd, all.data(), all.size(), MSG_DONTWAIT);
  all.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return all;
}

inline void put(int fd, std::span<const std::byte> bytes) {
  ASSERT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

/// A session whose peer is a socket of the test's.
struct End {
  Sockets sockets = unix_pair();
  std::unique_ptr<TlsSession> session;
  Status status;

  End(const TlsContext& context, TlsRole role) : session(context.session(sockets.a.get(), role).value()) {}
  int wire() const { return sockets.b.get(); }
  /// @return what it sends
  Bytes go_on(std::span<const std::byte> heard = {}) {
    put(wire(), heard);
    if (status.is_ok() && !session->is_established()) status = session->handshake().status();
    return take(wire());
  }
  Status read_all(Bytes& into) {
    Bytes room(1u << 16);
    for (;;) {
      const Result<size_t> come = session->read(room);
      if (!come.is_ok()) return come.status();
      if (*come == 0) return Status::ok();
      into.insert(into.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(*come));
    }
  }
  Bytes say(std::span<const std::byte> data) {
    EXPECT_EQ(session->write(data).value(), data.size());
    return take(wire());
  }
};

/// Two ends, whose bytes the test carries.
struct Pair {
  End client, server;
  Pair(const TlsContext& a, const TlsContext& b) : client(a, TlsRole::kClient), server(b, TlsRole::kServer) {}
  void shake_hands() {
    Bytes to_server = client.go_on(), to_client;
    while (!to_server.empty() || !to_client.empty()) {
      to_client = server.go_on(to_server);
      to_server = client.go_on(to_client);
    }
  }
  bool established() const { return client.session->is_established() && server.session->is_established(); }
};

}  // namespace tcpx::testing
