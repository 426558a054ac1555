// A descriptor whose last close does not return: a TCP socket with data that nobody reads, which is to linger for an hour.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>

#include "base/unix_socket.h"
#include "tests/support/socket_pair.h"

namespace tcpx::testing {

class LingeringSocket {
 public:
  LingeringSocket() : sockets_(tcp_pair()) {
    const std::array<std::byte, 65536> data{};
    while (::send(sockets_.a.get(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    const linger hour{.l_onoff = 1, .l_linger = 3600};
    EXPECT_EQ(::setsockopt(sockets_.a.get(), SOL_SOCKET, SO_LINGER, &hour, sizeof hour), 0);
  }
  /// Sends it with some bytes, and with this the last copy that would not hold anybody up here.
  void pass(int socket, std::span<const std::byte> data) {
    EXPECT_TRUE(send_descriptor(socket, data, sockets_.a.get()).is_ok());
    sockets_.a.reset();  // not the last one: another is under way
  }
  /// Ends the wait of whoever closes it: unread data makes this a reset. The end of the test's scope does the same.
  void let_go() { sockets_.b.reset(); }

 private:
  Sockets sockets_;
};

}  // namespace tcpx::testing
