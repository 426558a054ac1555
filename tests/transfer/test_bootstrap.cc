// The bootstrap port in the wild: good clients, late servers, and everything else that connects to an open port.
#include "transfer/bootstrap.h"

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/socket_io.h"
#include "base/text.h"
#include "tests/support/bootstrap_ends.h"
#include "tests/support/dead_address.h"
#include "tests/support/expect_log.h"
#include "tests/support/own_network.h"
#include "tests/support/process_state.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::unique_ptr<BootstrapServer> make_server(BootstrapServerOptions options = {}) {
  if (options.host.empty()) options.host = "127.0.0.1";
  return must(BootstrapServer::create(options));
}

// An address of this machine without a listener, which no other process uses while the test runs: a loopback address of our own.
struct Place {
  std::string host = concat("127.1.", (::getpid() >> 8) & 0xff, '.', (::getpid() & 0xff) | 1);
  uint16_t port = make_server({.host = host})->port();
};

UniqueFd raw_client(const BootstrapServer& server) {
  return must(connect_tcp(SocketAddress::loopback(server.port()), soon()));
}

// True when the other end closes the connection; the bytes it sends before that go to `said`.
bool is_dropped(int fd, std::vector<std::byte>* said = nullptr) {
  std::byte byte;
  for (;;) {
    const Status status = recv_all(fd, {&byte, 1}, Deadline::after(seconds(5)));
    if (!status.is_ok()) return status.code() == Code::kPeerGone;
    if (said != nullptr) said->push_back(byte);
  }
}

// A good client in its own thread: connects, then ends the channel cleanly.
std::future<Status> good_client(uint16_t port, const std::string& host = "127.0.0.1",
                                Deadline deadline = Deadline::after(seconds(60))) {
  return in_thread([=]() -> Status {
    TCPX_ASSIGN_OR_RETURN(auto channel, bootstrap_connect(host, port, deadline));
    return channel.finish(Status::ok(), deadline);
  });
}

// Serves one good client to its end. @return the time that took
Duration serve_one(BootstrapServer& server, std::future<Status> client) {
  const TimePoint begin = Clock::steady().now();
  auto channel = must(server.accept(soon()));
  EXPECT_EQ(channel.peer_build(), TCPX_VERSION);
  EXPECT_OK(channel.finish(Status::ok(), soon()));
  EXPECT_OK(client.get());
  return Clock::steady().now() - begin;
}

// This process's end of the connection of `client`, which has another end here.
int other_end_of(int client) {
  const std::string wanted = must(local_address(client)).to_string();
  for (int fd = 0; fd < 1024; ++fd) {
    const auto peer = peer_address(fd);
    if (peer.is_ok() && peer->to_string() == wanted) return fd;
  }
  return -1;
}

// A flight of certificates of more than 4 KiB goes to the kernel in parts, and the last part waited for a round trip.
TEST(Bootstrap, NothingOfAHandshakeIsDelayed) {
  const auto server = make_server();
  const UniqueFd client = raw_client(*server);
  const auto hello = encode_frame(encode_hello(TCPX_VERSION));
  ASSERT_OK(send_all(client.get(), std::span(hello).first(1), soon()));
  EXPECT_EQ(server->accept(Deadline::after(milliseconds(50))).status().code(), Code::kTimeout);
  const int fd = other_end_of(client.get());
  int set = 0;
  socklen_t size = sizeof set;
  ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &set, &size), 0) << fd;
  EXPECT_NE(set, 0);
}

std::vector<std::byte> vector_of(std::string_view text) {
  return {bytes_of(text).begin(), bytes_of(text).end()};
}

std::vector<std::byte> hello_with(size_t offset, std::vector<std::byte> field) {
  auto bytes = encode_frame(encode_hello("test"));
  std::copy(field.begin(), field.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset));
  return bytes;
}

struct BadInput {
  const char* name;
  std::vector<std::byte> bytes;
  bool closes;           // the bad client closes after its bytes
  const char* log_part;  // of the line that reports the drop; nullptr: not dropped while the good client is served
};

class BootstrapBadInput : public ::testing::TestWithParam<BadInput> {};

TEST_P(BootstrapBadInput, IsLoggedAndDroppedAndTheNextClientServed) {
  allow_log("bootstrap: dropped");
  const auto server = make_server();
  UniqueFd bad = raw_client(*server);
  ASSERT_TRUE(send_all(bad.get(), GetParam().bytes, soon()).is_ok());
  if (GetParam().closes) bad.reset();
  // The hello time is 5 s: a good client that is served sooner did not wait for the bad one.
  EXPECT_LT(serve_one(*server, good_client(server->port())), seconds(2));
  if (GetParam().log_part == nullptr) return;
  EXPECT_TRUE(logged("bootstrap: dropped 127.0.0.1:"));
  EXPECT_TRUE(logged(GetParam().log_part)) << GetParam().log_part;
  if (bad) {
    EXPECT_TRUE(is_dropped(bad.get()));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, BootstrapBadInput,
    ::testing::Values(
        BadInput{"HttpRequest", vector_of("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), false, "begins with \"GET /metrics HTTP"},
        BadInput{"AFrameOfAnotherTime", hello_with(5, vector_of("\x15")), false, "the client begins with a bye"},
        BadInput{"AnotherFrameFirst", encode_frame(encode_barrier(1)), false, "expected a hello frame, got barrier"},
        BadInput{"MalformedHello", encode_frame({FrameType::kHello, vector_of("\xff\xff")}), false, "malformed hello"},
        BadInput{"HalfAFrameThenClose", vector_of("TCPX\x0a\x01"), true, "closed by the peer after 6 bytes"},
        BadInput{"PortScan", {}, true, "connection closed by the peer"}, BadInput{"SilentConnection", {}, false, nullptr},
        BadInput{"HalfAFrameThenSilence", vector_of("TCPX\x0a\x01"), false, nullptr}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Bootstrap, ACrowdThatSaysSomethingWrongLeavesFewLines) {
  allow_log("bootstrap: dropped");
  const auto server = make_server();
  const TimePoint began = Clock::steady().now();
  int64_t lines = 0;
  for (int64_t i = 0; i < 2 * CrowdLog::kBurst; ++i) {
    const UniqueFd bad = raw_client(*server);
    ASSERT_TRUE(send_all(bad.get(), vector_of("GET / HTTP/1.1\r\n\r\n"), soon()).is_ok());
    (void)server->accept(Deadline::after(milliseconds(5)));
    lines += logged(concat("bootstrap: dropped ", must(local_address(bad.get())).to_string(), ":"));
  }
  EXPECT_GT(lines, 0);
  EXPECT_LE(lines, CrowdLog::kBurst + 1 + (Clock::steady().now() - began) / seconds(1));
}

TEST(Bootstrap, SilentConnectionsAreDroppedAtTheirDeadline) {
  const auto server = make_server({.hello_time = milliseconds(30)});
  const UniqueFd silent = raw_client(*server);
  const auto result = server->accept(Deadline::after(milliseconds(200)));
  ASSERT_FALSE(result.is_ok());
  EXPECT_EQ(result.status().code(), Code::kTimeout) << result.status().to_string();
  EXPECT_TRUE(logged("TCPX_E_TIMEOUT: bootstrap hello"));
  EXPECT_TRUE(is_dropped(silent.get()));
}

TEST(Bootstrap, CrowdOfSilentConnectionsDoesNotShutOutAGoodClient) {
  const auto server = make_server({.max_waiting = 4});
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 20; ++i) crowd.push_back(raw_client(*server));
  EXPECT_LT(serve_one(*server, good_client(server->port())), seconds(2));
  EXPECT_TRUE(logged("more than 4 connections wait"));
  EXPECT_TRUE(is_dropped(crowd.front().get())) << "the oldest went first";
}

TEST(Bootstrap, StopFlagEndsEveryWait) {
  std::atomic<bool> stop = false;
  const auto server = make_server({.stop = &stop});
  const Place nobody;
  auto accepting = in_thread([&] { return server->accept(soon()).status(); });
  auto connecting = in_thread([&] { return bootstrap_connect(nobody.host, nobody.port, soon(), &stop).status(); });
  EXPECT_EQ(accepting.wait_for(milliseconds(20)), std::future_status::timeout);
  const TimePoint begin = Clock::steady().now();
  stop = true;
  EXPECT_EQ(accepting.get().detail(), "interrupted");
  EXPECT_EQ(connecting.get().detail(), "interrupted");
  EXPECT_LT(Clock::steady().now() - begin, seconds(1));
}

TEST(Bootstrap, ClientOfANewerVersionIsToldWhy) {
  allow_log("bootstrap: dropped");
  const auto server = make_server();
  const UniqueFd newer = raw_client(*server);
  ASSERT_TRUE(send_all(newer.get(), hello_with(4, {std::byte{kProtocolVersion + 1}}), soon()).is_ok());
  EXPECT_FALSE(server->accept(Deadline::after(milliseconds(50))).is_ok());
  std::vector<std::byte> said;
  ASSERT_TRUE(is_dropped(newer.get(), &said));
  FrameAssembler assembler;
  ASSERT_GT(said.size(), sizeof(FrameHeader));
  std::copy_n(said.begin(), sizeof(FrameHeader), assembler.wanted().begin());
  ASSERT_TRUE(assembler.filled(sizeof(FrameHeader)).is_ok());
  ASSERT_EQ(assembler.wanted().size(), said.size() - sizeof(FrameHeader));
  std::copy(said.begin() + sizeof(FrameHeader), said.end(), assembler.wanted().begin());
  ASSERT_TRUE(assembler.filled(assembler.wanted().size()).is_ok());
  Status reported;
  ASSERT_TRUE(decode_finish(assembler.take(), reported).is_ok());
  EXPECT_EQ(reported.code(), Code::kUnsupported);
  EXPECT_NE(reported.detail().find(concat("version ", kProtocolVersion + 1)), std::string::npos) << reported.to_string();
}

// All connect before this end looks at any. Many more than are watched at a time.
TEST(Bootstrap, B3_AThousandClientsAtOnceAllGetIn) {
  constexpr size_t kClients = 1000;
  const auto server = make_server();
  std::vector<std::future<Status>> clients;
  for (size_t i = 0; i < kClients; ++i) clients.push_back(good_client(server->port()));
  std::vector<BootstrapChannel> channels;
  while (channels.size() < kClients) channels.push_back(must(server->accept(Deadline::after(seconds(60)))));
  for (BootstrapChannel& channel : channels) EXPECT_OK(channel.finish(Status::ok(), Deadline::after(seconds(60))));
  for (auto& client : clients) EXPECT_OK(client.get());
}

TEST(Bootstrap, B3_WithoutDescriptorsClientsWaitTheirTurn) {
  const auto server = make_server();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(raw_client(*server));
  auto good = good_client(server->port());
  ASSERT_EQ(good.wait_for(milliseconds(50)), std::future_status::timeout);
  // Room for a few of them; the good one came last.
  const rlimit little{static_cast<rlim_t>(descriptor_count()) + 4, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &little), 0);
  auto channel = server->accept(soon());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(channel.is_ok()) << channel.status().to_string();
  EXPECT_TRUE(channel->finish(Status::ok(), soon()).is_ok());
  EXPECT_TRUE(good.get().is_ok());
}

TEST(Bootstrap, ClientsComeOverIpv4AndIpv6) {
  // An empty host listens on every address, IPv6 and IPv4 alike.
  auto every = must(BootstrapServer::create({}));
  serve_one(*every, good_client(every->port(), "127.0.0.1"));
  auto v6 = BootstrapServer::create({.host = "::1"});
  if (!v6.is_ok()) GTEST_SKIP() << "no IPv6 loopback here: " << v6.status().to_string();
  serve_one(**v6, good_client((*v6)->port(), "::1"));
  serve_one(**v6, good_client((*v6)->port(), "[::1]"));
  serve_one(*every, good_client(every->port(), "::1"));
}

// A word that it should not read is not even waited for.
TEST(Bootstrap, OnlyClientsOfTheGivenAddressesAndOfLoopbackAreServed) {
  const std::string missing = in_own_network([] {
    for (const char* address : {"10.9.9.1/32", "10.9.9.2/32", "fd09::1/128", "fd09::2/128"})
      ASSERT_TRUE(run(concat("ip address add ", address, " dev lo"))) << address;
    auto server = must(BootstrapServer::create({.only_at = {{"10.9.9.1", "fd09::1"}}}));
    for (const char* host : {"10.9.9.1", "fd09::1", "127.0.0.1", "::1"}) serve_one(*server, good_client(server->port(), host));
    for (const char* host : {"10.9.9.2", "fd09::2"}) {
      auto refused = good_client(server->port(), host);
      const UniqueFd silent = must(connect_tcp(must(resolve(host, server->port())).front(), soon()));
      EXPECT_EQ(server->accept(Deadline::after(milliseconds(200))).status().code(), Code::kTimeout);
      EXPECT_TRUE(is_dropped(silent.get()));
      const Status told = refused.get();
      EXPECT_EQ(told.code(), Code::kUnsupported);
      EXPECT_NE(told.detail().find(concat("no clients are taken at ", host)), std::string::npos) << told.to_string();
    }
  });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(Bootstrap, HostNamesAreResolved) {
  if (!resolve("localhost", 1).is_ok()) GTEST_SKIP() << "this machine does not know the name localhost";
  auto every = must(BootstrapServer::create({}));
  serve_one(*every, good_client(every->port(), "localhost"));
}

TEST(Bootstrap, TakenPortIsAnErrorWithItsAddress) {
  const auto server = make_server();
  const auto second = BootstrapServer::create({.port = server->port(), .host = "127.0.0.1"});
  ASSERT_FALSE(second.is_ok());
  EXPECT_EQ(second.status().code(), Code::kSystem);
  EXPECT_EQ(second.status().native(), EADDRINUSE) << second.status().to_string();
  EXPECT_EQ(BootstrapServer::create({.host = "no-such-host.invalid"}).status().code(), Code::kNotFound);
}

TEST(BootstrapConnect, RefusedIsRetriedUntilTheDeadline) {
  const Place place;
  const TimePoint begin = Clock::steady().now();
  const auto channel = bootstrap_connect(place.host, place.port, Deadline::after(milliseconds(150)));
  ASSERT_FALSE(channel.is_ok());
  EXPECT_EQ(channel.status().code(), Code::kTimeout) << channel.status().to_string();
  EXPECT_NE(channel.status().detail().find("refused"), std::string::npos) << channel.status().to_string();
  EXPECT_GE(Clock::steady().now() - begin, milliseconds(150));
  EXPECT_LT(Clock::steady().now() - begin, seconds(1));
}

// A timeout of one attempt is 3 s.
TEST(BootstrapConnect, ADeadAddressOfSeveralCostsNoTimeout) {
  const DeadAddress dead(own_host(2));
  const auto server = make_server({.port = dead.address().port(), .host = own_host(3)});
  auto client = good_client(server->port(), concat(own_host(2), ',', own_host(3)));
  EXPECT_LT(serve_one(*server, std::move(client)), milliseconds(2900));
}

TEST(BootstrapConnect, ServerMayStartLater) {
  const Place place;
  auto client = good_client(place.port, place.host);
  EXPECT_EQ(client.wait_for(milliseconds(50)), std::future_status::timeout) << "nobody listens yet";
  const auto server = make_server({.port = place.port, .host = place.host});
  serve_one(*server, std::move(client));
}

// One client is told so, the other has its connection reset, as the kernel does when a listener closes.
TEST(BootstrapConnect, B3_WhoIsTurnedAwayTriesAgain) {
  for (const bool told : {true, false}) {
    auto listener = listen_tcp(SocketAddress::loopback(0), 8).value();
    const uint16_t port = local_address(listener.get())->port();
    auto client = good_client(port);
    ASSERT_TRUE(wait_for(listener.get(), POLLIN, soon()).is_ok());
    UniqueFd first(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (told) {
      const auto answer = encode_frame(encode_finish(Status(Code::kExhausted, "server", "full")));
      ASSERT_TRUE(send_all(first.get(), answer, soon()).is_ok());
    } else {
      const linger at_once{.l_onoff = 1, .l_linger = 0};
      ASSERT_EQ(::setsockopt(first.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    }
    first.reset();
    listener.reset();
    const auto server = make_server({.port = port});
    serve_one(*server, std::move(client));
  }
}

// A listener that goes away resets the connections it had not taken yet, at whatever step of the hello the client is.
TEST(BootstrapConnect, ResetAtAnyMomentIsBeingTurnedAway) {
  const auto listener = must(listen_tcp(SocketAddress::loopback(0), 8));
  std::atomic<bool> enough = false;
  auto resetting = in_thread([&] {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    while (!enough) {
      const UniqueFd client(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (client) {
        EXPECT_EQ(::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
      }
    }
  });
  for (int i = 0; i < 300; ++i) {
    const auto channel = bootstrap_connect("127.0.0.1", local_address(listener.get())->port(), Deadline::after(milliseconds(1)));
    EXPECT_EQ(channel.status().code(), Code::kTimeout) << "client " << i << ": " << channel.status().to_string();
  }
  enough = true;
  resetting.get();
}

TEST(BootstrapConnect, UnknownHostFailsAtOnce) {
  EXPECT_EQ(bootstrap_connect("no-such-host.invalid", 1, soon()).status().code(), Code::kNotFound);
}

// Status of a client that gets `answer` from the port instead of a hello.
Status answer_to_client(std::span<const std::byte> answer, bool closes) {
  auto listener = must(listen_tcp(SocketAddress::loopback(0), 1));
  auto client = in_thread([port = local_address(listener.get())->port()] {
    return bootstrap_connect("127.0.0.1", port, Deadline::after(seconds(2))).status();
  });
  EXPECT_TRUE(wait_for(listener.get(), POLLIN, soon()).is_ok());
  UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  EXPECT_TRUE(send_all(fd.get(), answer, soon()).is_ok());
  if (closes) {
    std::vector<std::byte> hello(encode_frame(encode_hello(TCPX_VERSION)).size());
    EXPECT_TRUE(recv_all(fd.get(), hello, soon()).is_ok());
    fd.reset();
  }
  return client.get();
}

TEST(BootstrapConnect, AnswersOfAnotherServiceOrVersionAreNamed) {
  const auto told = encode_frame(encode_finish(Status(Code::kUnsupported, "hello", "too new")));
  const std::tuple<std::vector<std::byte>, Code, const char*> answers[] = {
      {vector_of("SSH-2.0-OpenSSH_9.2p1\r\n"), Code::kProtocol, "SSH-2.0-OpenSSH"},
      {hello_with(4, {std::byte{kProtocolVersion + 1}}), Code::kUnsupported, "version 15"},
      {told, Code::kUnsupported, "peer reported: hello: too new"}};
  for (const auto& [answer, code, text] : answers) {
    const Status status = answer_to_client(answer, false);
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.to_string().find(text), std::string::npos) << status.to_string();
  }
}

TEST(BootstrapConnect, ServerThatClosesWithoutAWordIsPeerGone) {
  const TimePoint begin = Clock::steady().now();
  EXPECT_EQ(answer_to_client({}, true).code(), Code::kPeerGone);
  EXPECT_LT(Clock::steady().now() - begin, seconds(1));
}

TEST(BootstrapConnect, SilentServerEndsAtTheDeadline) {
  auto listener = listen_tcp(SocketAddress::loopback(0), 1);
  const auto channel = bootstrap_connect("127.0.0.1", local_address(listener->get())->port(), Deadline::after(milliseconds(50)));
  ASSERT_FALSE(channel.is_ok());
  EXPECT_EQ(channel.status().code(), Code::kTimeout) << channel.status().to_string();
}

// Makes this process a host of its own with one port to connect from. False where that is not permitted.
bool become_a_host_of_one_port(uint16_t port) {
  if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  if (set_loopback(true) != 0) return false;
  std::ofstream range("/proc/sys/net/ipv4/ip_local_port_range");
  range << port << ' ' << port << std::flush;
  return range.good();
}

TEST(BootstrapConnect, MeetingItselfIsMeetingNobody) {
  constexpr uint16_t kPort = 45000;
  constexpr int kNobody = 0, kItself = 1, kOther = 2, kMayNot = 77;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!become_a_host_of_one_port(kPort)) ::_exit(kMayNot);
    // On a busy machine the deadline may pass amid an attempt, which then says so.
    for (const Deadline until = soon(); !until.expired();) {
      const auto channel = bootstrap_connect("127.0.0.1", kPort, Deadline::after(milliseconds(5)));  // one attempt
      if (channel.is_ok()) ::_exit(kItself);
      if (channel.status().detail().ends_with("nobody listens")) ::_exit(kNobody);
    }
    ::_exit(kOther);
  }
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  ASSERT_TRUE(WIFEXITED(how)) << how;
  if (WEXITSTATUS(how) == kMayNot) GTEST_SKIP() << "needs a network namespace whose ports can be set";
  EXPECT_EQ(WEXITSTATUS(how), kNobody);
}

}  // namespace
}  // namespace tcpx::testing
