#include "net/vendor_sockets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tcpx {
namespace {

VendorSocket socket_at(int fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd, &info), 0);
  return {.fd = fd, .inode = info.st_ino};
}

TEST(VendorSockets, AForgottenSocketIsClosedUnlessItsNumberIsAnothers) {
  int forgotten[2], other[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, forgotten), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other), 0);
  const VendorSocket still_there = socket_at(forgotten[0]), reused = socket_at(forgotten[1]);
  ASSERT_EQ(::dup3(other[0], forgotten[1], O_CLOEXEC), forgotten[1]);

  close_forgotten({still_there, reused});
  EXPECT_EQ(::fcntl(forgotten[0], F_GETFD), -1);
  EXPECT_NE(::fcntl(forgotten[1], F_GETFD), -1) << "this number is another socket's by now";
  shut_down({reused});
  EXPECT_EQ(::send(forgotten[1], "x", 1, MSG_NOSIGNAL), 1) << "and is not shut down either";
  for (const int fd : {forgotten[1], other[0], other[1]}) ::close(fd);
}

}  // namespace
}  // namespace tcpx
