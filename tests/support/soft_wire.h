// Both ends of a connection of the software plugin, made of bare sockets: one end for a comm, the other driven by the test.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdint>

#include "base/socket_io.h"
#include "net/soft/comm.h"

namespace tcpx::testing {

inline Deadline soon() {
  return Deadline::after(std::chrono::seconds(10));
}

/// A connection of two data sockets.
/// @param buffer_bytes kernel buffer requested for a data socket at either end; 0 leaves it to the kernel.
struct Wire {
  explicit Wire(uint32_t chunk_bytes, int buffer_bytes = 0) : chunk_bytes_(chunk_bytes) {
    for (soft::ConnectedSockets* end : {&ours, &theirs}) {
      end->data.resize(2);
      end->chunk_bytes = chunk_bytes;
      end->peer = "the test";
    }
    connect(ours.data[0], theirs.data[0]);
    connect(ours.data[1], theirs.data[1]);
    connect(ours.control, theirs.control);
    for (size_t i = 0; i < 2 && buffer_bytes > 0; ++i) {
      EXPECT_EQ(::setsockopt(ours.data[i].get(), SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes), 0);
      EXPECT_EQ(::setsockopt(theirs.data[i].get(), SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes), 0);
    }
  }
  static void connect(UniqueFd& one, UniqueFd& other) {
    const auto listening = listen_tcp(SocketAddress::loopback(0), 1);
    ASSERT_TRUE(listening.is_ok());
    auto connected = connect_tcp(*local_address(listening->get()), soon());
    ASSERT_TRUE(connected.is_ok());
    one = std::move(*connected);
    other = UniqueFd(::accept4(listening->get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    ASSERT_TRUE(other);
  }
  uint32_t chunk_bytes() const { return chunk_bytes_; }
  soft::ConnectedSockets ours, theirs;

 private:
  const uint32_t chunk_bytes_;
};

}  // namespace tcpx::testing
