// Two sockets that are connected with each other.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/socket_io.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

struct Sockets {
  UniqueFd a, b;
};

inline Sockets unix_pair() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

inline Sockets tcp_pair() {
  const UniqueFd listener = listen_tcp(SocketAddress::loopback(0), 1).value();
  Sockets sockets;
  sockets.a = connect_tcp(*local_address(listener.get()), Deadline::after(kTestDeadline)).value();
  EXPECT_TRUE(wait_until([&] {
    sockets.b = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    return static_cast<bool>(sockets.b);
  }));
  return sockets;
}

inline int option_of(const UniqueFd& fd, int level, int option) {
  int value = -1;
  socklen_t length = sizeof value;
  EXPECT_EQ(::getsockopt(fd.get(), level, option, &value, &length), 0);
  return value;
}

}  // namespace tcpx::testing
