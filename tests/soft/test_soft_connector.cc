// The software plugin's set-up of connections, where the network, a port or the other end is not there at once.
#include "net/soft/connector.h"

#include <gtest/gtest.h>

#include <fstream>
#include <future>

#include "tests/support/own_network.h"
#include "tests/support/soft_wire.h"

namespace tcpx::testing {
namespace {

using namespace soft;
using std::chrono::milliseconds;

/// Leaves this thread's network namespace that many ports for connects.
void leave_ports(int count) {
  std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << 40000 << " " << 40000 + count - 1;
}

TEST(SoftConnector, AListenerWaitsForAPort) {
  const std::string missing = in_own_network([] {
    leave_ports(1);
    const auto io = must(IoPool::create(1));
    const auto first = listen_softly(io, 4096);
    const HandleInfo info = must(decode_handle(first->handle()));
    const auto none = SoftListener::create(SocketAddress::loopback(0), info, io, {.shortage = milliseconds(20)});
    ASSERT_FALSE(none.is_ok());
    EXPECT_TRUE(is_shortage(none.status())) << none.status().to_string();
    auto second = std::async(std::launch::async, [&] {
      return SoftListener::create(SocketAddress::loopback(0), info, io, {.shortage = kTestDeadline});
    });
    EXPECT_EQ(second.wait_for(milliseconds(50)), std::future_status::timeout);
    leave_ports(16);
    EXPECT_TRUE(second.get().is_ok());
  });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

}  // namespace
}  // namespace tcpx::testing
