// The software plugin's sockets leave by the NIC that is asked for, and it tells which NIC they really have.
#include "net/soft/socket_nic.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>

#include "base/text.h"
#include "net/soft/connector.h"
#include "tests/support/expect_log.h"
#include "tests/support/own_network.h"
#include "tests/support/soft_wire.h"
#include "tests/support/table_harness.h"

namespace tcpx::testing {
namespace {

using namespace soft;

TEST(SoftNics, ASocketIsBoundOnlyWhereItsNicLeadsToTheTargetAndTheKernelTakesAnother) {
  const Result<Route> none = Status(Code::kPeerGone, "ask for a route", "none");
  const Result<Route> eth0 = Route{.interface = "eth0", .source = ""}, eth1 = Route{.interface = "eth1", .source = ""};
  const Result<Route> here = Route{.interface = "lo", .source = "", .local = true};
  const Result<Route> own = Route{.interface = "eth1", .source = "", .local = true};
  EXPECT_TRUE(must_bind("eth1", eth0, eth1));
  EXPECT_FALSE(must_bind("eth1", eth1, eth1)) << "it leaves by that one as it is";
  EXPECT_FALSE(must_bind("eth1", eth0, none)) << "its NIC does not lead there";
  EXPECT_FALSE(must_bind("eth1", none, eth1)) << "the kernel does not tell";
  EXPECT_FALSE(must_bind("eth1", here, eth1)) << "a bound socket would look for another own address out there";
  EXPECT_FALSE(must_bind("eth1", eth0, own));
}

SocketAddress at(const char* host) {
  return resolve(host, 0)->front();
}

/// Two hosts: this thread's, with nic0 (10.1.1.1) and nic1 (10.1.1.2), and one at the other ends of both, far0 and far1, with 10.1.1.9.
struct TwoHosts {
  TwoHosts() : near_(::open(kOwn, O_RDONLY | O_CLOEXEC)) {
    std::thread([&] {
      EXPECT_EQ(::unshare(CLONE_NEWNET), 0);
      far_ = UniqueFd(::open(kOwn, O_RDONLY | O_CLOEXEC));
    }).join();
    const std::string self = concat("/proc/", ::getpid(), "/fd/", far_.get());
    made = run("ip link add nic0 type veth peer name far0 2>/dev/null && ip link add nic1 type veth peer name far1") &&
           run(concat("for i in 0 1; do ip address add 10.1.1.$((i + 1))/24 dev nic$i && ip link set nic$i up && "
                      "ip link set far$i netns ",
                      self, " || exit 1; done"));
    if (made) far("ip link set far0 up && ip link set far1 up && ip address add 10.1.1.9/24 dev far0");
  }
  /// In the other host.
  template <class Body>
  void in_far(Body body) {
    ASSERT_EQ(::setns(far_.get(), CLONE_NEWNET), 0);
    body();
    ASSERT_EQ(::setns(near_.get(), CLONE_NEWNET), 0);
  }
  void far(const std::string& command) {
    in_far([&] { EXPECT_TRUE(run(command)) << command; });
  }

  static constexpr char kOwn[] = "/proc/thread-self/ns/net";
  bool made = false;

 private:
  UniqueFd near_, far_;
};

/// @return why `body` has not run
template <class Body>
std::string between_two_hosts(Body body) {
  std::string no_veth;
  const std::string no_network = in_own_network([&] {
    TwoHosts hosts;
    if (hosts.made) return body(hosts);
    no_veth = "no veth interfaces here (needs iproute2)";
  });
  return no_network.empty() ? no_veth : no_network;
}

TEST(SoftNics, TheSecondNicOfASubnetIsBound) {
  const std::string missing = between_two_hosts([](TwoHosts&) {
    EXPECT_EQ(nic_to_bind("nic1", at("10.1.1.9"), at("10.1.1.2")), "nic1");
    EXPECT_EQ(nic_to_bind("nic0", at("10.1.1.9"), at("10.1.1.1")), "") << "the kernel takes it anyway";
    EXPECT_EQ(nic_to_bind("nic1", at("10.1.1.1"), at("10.1.1.2")), "") << "another address of this host";
    EXPECT_EQ(nic_to_bind("nic1", at("10.9.9.9"), at("10.1.1.2")), "") << "no route";
    EXPECT_EQ(nic_to_bind("lo", at("10.1.1.9"), at("10.1.1.2")), "") << "it leads nowhere";
  });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

struct Connected {
  Connected(SoftListener& listener)
      : near(must(connect_to_listener(must(decode_handle(listener.handle())), {at("10.1.1.2")}, soon(), {}, "nic1"))) {
    EXPECT_TRUE(wait_until([&] { return listener.has_peer(); }));
    far = std::move(*listener.try_accept());
  }
  ConnectedSockets near, far;
};

/// The NICs of a connection from 10.1.1.2 that is meant to leave by nic1.
std::string nics_between(TwoHosts& hosts, SoftListener& listener) {
  const Connected connected(listener);
  std::string in;
  hosts.in_far([&] { in = nic_of_receiver(connected.far.data.front().get()); });
  return concat(nic_of_sender(connected.near.data.front().get()), " to ", in);
}

std::unique_ptr<SoftListener> listen_there(TwoHosts& hosts, const std::shared_ptr<IoPool>& io) {
  std::unique_ptr<SoftListener> listener;
  hosts.in_far([&] {
    const HandleInfo info{.addresses = {at("10.1.1.9")}, .data_sockets = 2, .chunk_bytes = 4096};
    listener = must(SoftListener::create(info, io));
  });
  return listener;
}

TEST(SoftNics, BothEndsTellTheNicThatIsUsed) {
  const std::string missing = between_two_hosts([](TwoHosts& hosts) {
    hosts.far("ip route add 10.1.1.2/32 dev far1");
    const auto io = must(IoPool::create(1));
    EXPECT_EQ(nics_between(hosts, *listen_there(hosts, io)), "nic1 to far1");
  });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(SoftNics, WhereNothingComesBackByTheNicTheKernelsWayIsTaken) {
  const std::string missing = between_two_hosts([](TwoHosts& hosts) {
    allow_log("cannot be made to leave by nic1");
    const auto io = must(IoPool::create(1));
    EXPECT_EQ(nics_between(hosts, *listen_there(hosts, io)), "nic0 to far0") << "the answers come back by nic0";
    EXPECT_TRUE(logged("cannot be made to leave by nic1"));
  });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(SoftNics, AnotherAddressOfThisHostIsReachedFromAnyNic) {
  const std::string missing = between_two_hosts([](TwoHosts&) {
    const auto io = must(IoPool::create(1));
    const HandleInfo info{.addresses = {at("10.1.1.1")}, .data_sockets = 1, .chunk_bytes = 4096};
    const Connected connected(*must(SoftListener::create(info, io)));
    EXPECT_EQ(nic_of_sender(connected.near.data.front().get()), "lo");
    EXPECT_EQ(nic_of_receiver(connected.far.data.front().get()), "lo");
  });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(SoftNics, TheTableTellsTheNicOfAComm) {
  const abi::NetTable_v7& table = *linked_table();
  ASSERT_EQ(table.init(nullptr), abi::kNcclSuccess);
  Handle handle;
  void *listener = nullptr, *sender = nullptr, *receiver = nullptr, *name = nullptr;
  ASSERT_EQ(table.listen(0, handle.bytes.data(), &listener), abi::kNcclSuccess);
  ASSERT_EQ(table.connect(0, handle.bytes.data(), &sender, nullptr), abi::kNcclSuccess);
  ASSERT_TRUE(wait_until([&] { return table.accept(listener, &receiver, nullptr) != abi::kNcclSuccess || receiver != nullptr; }));
  for (void* const comm : {sender, receiver}) {
    name = nullptr;
    EXPECT_EQ(table.get_device_mr(comm, comm, &name), abi::kNcclSuccess);
    EXPECT_STREQ(static_cast<const char*>(name), "lo") << "bytes to this host itself, whatever the device is";
    name = nullptr;
    EXPECT_EQ(table.get_device_mr(comm, listener, &name), abi::kNcclSuccess);
    EXPECT_EQ(name, nullptr) << "as NCCL asks";
  }
  EXPECT_EQ(table.get_device_mr(listener, listener, &name), abi::kNcclSuccess);
  EXPECT_EQ(name, nullptr) << "no comm";
  EXPECT_EQ(table.close_send(sender), abi::kNcclSuccess);
  EXPECT_EQ(table.close_recv(receiver), abi::kNcclSuccess);
  EXPECT_EQ(table.close_listen(listener), abi::kNcclSuccess);
}

}  // namespace
}  // namespace tcpx::testing
