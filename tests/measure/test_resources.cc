// Free memory as programs see it.
#include "measure/resources.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>

#include "base/socket_io.h"

namespace tcpx {
namespace {

TEST(FreeMemory, IsTheKernelsEstimate) {
  const std::string text = "MemTotal:       24684084 kB\nMemFree:        1000 kB\nMemAvailable:   23085852 kB\nBuffers: 5 kB\n";
  EXPECT_EQ(available_in_meminfo(text), uint64_t{23085852} * 1024);
  EXPECT_EQ(available_in_meminfo("MemAvailable: 0 kB"), 0u);
}

TEST(FreeMemory, IsNotGuessed) {
  for (const char* text : {"", "MemFree: 5 kB\n", "XMemAvailable: 1 kB\n", "MemAvailable:\n", "MemAvailable: x kB\n",
                           "MemAvailable: 5\n5 kB\n", "MemAvailable: -1 kB\n", "MemAvailable: 18446744073709551615 kB\n"}) {
    EXPECT_EQ(available_in_meminfo(text), std::nullopt) << text;
  }
}

TEST(FreeMemory, OfThisMachineIsThere) {
  const Result<uint64_t> bytes = free_host_bytes();
  ASSERT_TRUE(bytes.is_ok()) << bytes.status().to_string();
  EXPECT_GT(*bytes, 1u << 20);
}

TEST(FreeMemory, AControlGroupLimitsIt) {
  EXPECT_EQ(available_in_group("1000\n", "anon 300\nfile 900\nshmem 100\n"), 600u);
  EXPECT_EQ(available_in_group("1000\n", "anon 3000\nfile 900\nshmem 100\n"), 0u);
  EXPECT_EQ(available_in_group("max\n", "anon 300\nshmem 100\n"), std::nullopt);
  EXPECT_EQ(available_in_group("1000\n", "inactive_anon 5\n"), std::nullopt);
}

TEST(Resources, SocketsThatReceivedAreCounted) {
  const auto listener = listen_tcp(SocketAddress::loopback(0), 1);
  ASSERT_TRUE(listener.is_ok());
  const SocketAddress address = local_address(listener->get()).value();
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  const auto out = connect_tcp(address, deadline);
  ASSERT_TRUE(out.is_ok());
  const UniqueFd in(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  std::vector<std::byte> data(5000);
  EXPECT_EQ(sockets_that_received(1000), 0u);
  ASSERT_TRUE(send_all(out->get(), data, deadline).is_ok());
  ASSERT_TRUE(recv_all(in.get(), data, deadline).is_ok());
  EXPECT_EQ(sockets_that_received(1000), 1u);
  EXPECT_EQ(sockets_that_received(6000), 0u);
}

}  // namespace
}  // namespace tcpx
