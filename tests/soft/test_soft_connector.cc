// The software plugin's set-up of connections, where the network, a port or the other end is not there at once.
#include "net/soft/connector.h"

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <future>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "net/abi/nccl_net_common.h"
#include "tests/support/own_network.h"
#include "tests/support/soft_wire.h"
#include "tests/support/table_harness.h"

namespace tcpx::testing {
namespace {

using namespace soft;
using std::chrono::milliseconds;

/// A listener's handle that leads to a port where nobody listens.
struct Absent {
  Absent() {
    const SocketAddress any = SocketAddress::loopback(0);
    EXPECT_EQ(::bind(fd.get(), any.get(), any.length()), 0);
    info.addresses = {must(local_address(fd.get()))};
  }
  const UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  HandleInfo info{.addresses = {}, .data_sockets = 1, .chunk_bytes = 4096};
};

std::unique_ptr<Connector> start(const HandleInfo& info, Deadline deadline = soon()) {
  return must(Connector::start(info, {SocketAddress::loopback(0)}, deadline));
}

TEST(SoftConnector, ARefusedConnectIsTriedAgain) {
  const Absent absent;
  const auto connector = start(absent.info);
  EXPECT_FALSE(must(connector->advance(milliseconds(20))).has_value());
  EXPECT_EQ(connector->trouble().native(), ECONNREFUSED);
  ASSERT_EQ(::listen(absent.fd.get(), 8), 0);
  EXPECT_TRUE(wait_until([&] { return must(connector->advance(milliseconds(1))), connector->trouble().is_ok(); }));
}

TEST(SoftConnector, AListenerThatStaysAwayIsToldBeforeTheDeadline) {
  const Absent absent;
  const auto begin = Clock::steady().now();
  const auto connected = connect_to_listener(absent.info, {SocketAddress::loopback(0)}, Deadline::after(std::chrono::minutes(2)));
  EXPECT_EQ(connected.status().code(), Code::kPeerGone);
  EXPECT_EQ(connected.status().native(), ECONNREFUSED);
  EXPECT_GE(Clock::steady().now() - begin, kRefusalPatience);
  EXPECT_LT(Clock::steady().now() - begin, std::chrono::minutes(1));
}

TEST(SoftConnector, TheDeadlineTellsTheLastRefusal) {
  const Absent absent;
  const auto connected = connect_to_listener(absent.info, {SocketAddress::loopback(0)}, Deadline::after(milliseconds(50)));
  EXPECT_EQ(connected.status().code(), Code::kPeerGone);
  EXPECT_EQ(connected.status().native(), ECONNREFUSED);
}

TEST(SoftConnector, ADataSocketTakesLittleThatItCannotSend) {
  const auto io = must(IoPool::create(1));
  const auto listener = listen_softly(io, 4096);
  const ConnectedSockets sockets = connect_softly(listener->handle());
  ASSERT_FALSE(sockets.data.empty());
  for (const UniqueFd& fd : sockets.data) {
    int bytes = 0;
    socklen_t length = sizeof bytes;
    ASSERT_EQ(::getsockopt(fd.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, &length), 0);
    EXPECT_EQ(bytes, 512 * 1024);
  }
}

/// A listener by hand, on a thread: it closes the first connection without an answer, `pause` after its hello, and answers `answers`
/// others. @return the numbers of their sockets
std::future<std::set<uint32_t>> listen_by_hand(int listener, milliseconds pause, size_t answers) {
  return std::async(std::launch::async, [=] {
    std::set<uint32_t> answered;
    uint64_t connection = 0;
    std::vector<UniqueFd> kept;
    for (size_t i = 0; i <= answers; ++i) {
      pollfd entry{listener, POLLIN, 0};
      if (::poll(&entry, 1, 5000) != 1) break;
      UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      std::array<std::byte, kHelloBytes> record;
      EXPECT_OK(recv_all(fd.get(), record, soon()));
      const Hello hello = must(decode_hello(record));
      if (i == 0) {
        connection = hello.connection;
        std::this_thread::sleep_for(pause);
        continue;
      }
      EXPECT_EQ(hello.connection, connection) << "it is the same attempt";
      std::array<std::byte, kHelloAnswerBytes> answer;
      encode_hello_answer({.connection = connection, .accepted = true, .proof = hello.proof}, answer);
      EXPECT_OK(send_all(fd.get(), answer, soon()));
      answered.insert(hello.socket_index);
      kept.push_back(std::move(fd));
    }
    return answered;
  });
}

// Its hello, or the answer, was lost for so long that the listener has taken it for a stranger.
TEST(SoftConnector, ASocketThatIsClosedAfterALongSilenceConnectsAgain) {
  const Absent listener;
  ASSERT_EQ(::listen(listener.fd.get(), 8), 0);
  auto answered = listen_by_hand(listener.fd.get(), milliseconds(1100), 2);
  const auto connected = connect_to_listener(listener.info, {SocketAddress::loopback(0)}, soon());
  EXPECT_TRUE(connected.is_ok()) << connected.status().to_string();
  EXPECT_EQ(answered.get(), (std::set<uint32_t>{0, 1}));
}

TEST(SoftConnector, ASocketThatIsClosedAtOnceIsNot) {
  const Absent listener;
  ASSERT_EQ(::listen(listener.fd.get(), 8), 0);
  auto answered = listen_by_hand(listener.fd.get(), milliseconds(0), 0);
  const auto connected = connect_to_listener(listener.info, {SocketAddress::loopback(0)}, soon());
  EXPECT_EQ(connected.status().code(), Code::kPeerGone) << connected.status().to_string();
}

TEST(SoftConnector, APortIsWaitedFor) {
  const std::string missing = in_own_network([] {
    leave_ports(4);  // three are free for one address: that of the listener itself is taken
    const auto io = must(IoPool::create(1));
    const auto listener = listen_softly(io, 4096);  // of connections that have five sockets
    const HandleInfo info = must(decode_handle(listener->handle()));
    const auto connector = start(info);
    EXPECT_FALSE(must(connector->advance(milliseconds(20))).has_value());
    EXPECT_EQ(connector->trouble().code(), Code::kExhausted) << connector->trouble().to_string();
    const auto late = connect_to_listener(info, {SocketAddress::loopback(0)}, Deadline::after(milliseconds(50)));
    EXPECT_EQ(late.status().code(), Code::kExhausted) << "at the deadline: " << late.status().to_string();
    leave_ports(16);
    EXPECT_TRUE(wait_until([&] { return must(connector->advance(milliseconds(1))).has_value(); }));
  });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(SoftConnector, AListenerWaitsForAPort) {
  const std::string missing = in_own_network([] {
    leave_ports(1);
    const auto io = must(IoPool::create(1));
    const auto first = listen_softly(io, 4096);
    const HandleInfo info = must(decode_handle(first->handle()));
    const auto none = SoftListener::create(info, io, {.shortage = milliseconds(20)});
    ASSERT_FALSE(none.is_ok());
    EXPECT_TRUE(is_shortage(none.status())) << none.status().to_string();
    auto second = std::async(std::launch::async, [&] { return SoftListener::create(info, io, {.shortage = kTestDeadline}); });
    EXPECT_EQ(second.wait_for(milliseconds(50)), std::future_status::timeout);
    leave_ports(16);
    EXPECT_TRUE(second.get().is_ok());
  });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(SoftConnector, WhoGivesUpIsToldWhatWasWrong) {
  const abi::NetTable_v7& table = *linked_table();
  ASSERT_EQ(table.init(nullptr), abi::kNcclSuccess);
  const Absent absent;
  Handle handle = encode_handle(absent.info);
  answer_in_steps(handle);
  void* comm = nullptr;
  ASSERT_EQ(table.connect(0, handle.bytes.data(), &comm, nullptr), abi::kNcclSuccess);
  EXPECT_EQ(comm, nullptr);
  EXPECT_EQ(table.connect(0, handle.bytes.data(), nullptr, nullptr), abi::kNcclSystemError);
}

}  // namespace
}  // namespace tcpx::testing
