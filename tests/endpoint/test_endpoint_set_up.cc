// Set-up of connections when not everybody means well: strangers that say nothing, too little, or what they like; many
// clients at once; peers that keep this end waiting. Nevertheless good clients get in, and every call ends at its deadline
// or with the endpoint.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/resource.h>

#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/socket_io.h"
#include "endpoint/metadata.h"
#include "net/soft/wire.h"
#include "tests/support/expect_log.h"
#include "tests/support/hostile_peer.h"
#include "tests/support/process_state.h"
#include "tests/support/resource_counts.h"
#include "wire/set_up_messages.h"

namespace {
constexpr std::string_view kSlowName = "slow.invalid";
}

// A resolver that does not answer, as one does whose name server is gone.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** list) {
  static const auto real = reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  if (node != nullptr && node == kSlowName && (hints == nullptr || (hints->ai_flags & AI_NUMERICHOST) == 0))
    std::this_thread::sleep_for(std::chrono::seconds(6));
  return real(node, service, hints, list);
}

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Time a call may take beyond its deadline, on a machine that is busy with other things. Each of these took seconds more once.
constexpr milliseconds kSlack{1500};

Deadline soon() {
  return Deadline::after(kTestDeadline);
}

/// It ends within that time, and a little. @return what it returns
template <class Call>
Status in_time(milliseconds within, const char* what, Call call) {
  const TimePoint begin = Clock::steady().now();
  const Status status = call();
  const Duration took = Clock::steady().now() - begin;
  EXPECT_LT(took, within + kSlack) << what << " took " << took.count() / 1'000'000 << " ms";
  return status;
}
/// The same, at its deadline. @param call takes its timeout
template <class Call>
void expect_timeout(milliseconds timeout, const char* what, Call call) {
  const Status status = in_time(timeout, what, [&] { return call(timeout); });
  EXPECT_EQ(status.code(), Code::kTimeout) << what << ": " << status.to_string();
}

/// A connection to the port that has said hello, and says nothing more. It does not wait for the answer.
UniqueFd say_hello(uint16_t port) {
  auto fd = connect_tcp(SocketAddress::loopback(port), soon());
  EXPECT_TRUE(fd.is_ok()) << fd.status().to_string();
  EXPECT_TRUE(send_all(fd->get(), encode_frame(encode_hello("silent")), soon()).is_ok());
  return std::move(*fd);
}

/// Listens, and leaves whoever comes in the kernel's hands.
struct SilentPort {
  UniqueFd fd = listen_tcp(SocketAddress::loopback(0), 64).value();
  uint16_t port = local_address(fd.get()).value().port();
};

Parameters identity(const char* role) {
  const auto parts = make_default_parts(loopback_config());
  return {{"role", role},
          {"instance", "77"},        {"gpu", "0"},
          {"wanted gpu", "-1"},      {"wanted instance", "0"},
          {"inline bytes", "64"},    {"channels", std::to_string(parts->devices.size())}};
}

/// An accepting end that goes along until the connector is to open the sockets of its comms, and sends it to a port where nobody
/// answers.
class StallingAcceptor {
 public:
  StallingAcceptor() : parts_(make_default_parts(loopback_config()).value()) {
    server_ = BootstrapServer::create({.host = "127.0.0.1", .stop = &stop_}).value();
    thread_ = std::thread([this] {
      while (!stop_) {
        auto channel = server_->accept(soon());
        if (channel.is_ok()) channels_.push_back(std::move(*channel)), stall(channels_.back());
      }
    });
  }
  ~StallingAcceptor() {
    stop_ = true;
    thread_.join();
  }
  uint16_t port() const { return server_->port(); }
  /// Clients that have been sent there.
  int sent() const { return sent_; }

 private:
  void stall(BootstrapChannel& channel) {
    if (!channel.exchange_parameters(identity("accept"), {}, soon()).is_ok()) return;
    std::string names = "a";
    for (size_t i = 1; i < parts_.devices.size(); ++i) names += ",a";
    const Parameters settings = {{"half", "both"},
                                 {"chunk bytes", std::to_string(parts_.settings.chunk_bytes)},
                                 {"longest chunk bytes", std::to_string(parts_.settings.longest_chunk_bytes)},
                                 {"nics", names},
                                 {"failover", "off"}};
    if (!channel.exchange_parameters(settings, {}, soon()).is_ok()) return;
    soft::HandleInfo info{.addresses = {SocketAddress::loopback(silent_.port)}, .chunk_bytes = 1 << 20};
    const std::vector<Handle> handles(parts_.devices.size(), soft::encode_handle(info));
    (void)channel.send_handles(handles, soon());
    ++sent_;
  }
  EndpointParts parts_;
  SilentPort silent_;
  std::atomic<bool> stop_{false};
  std::atomic<int> sent_{0};
  std::unique_ptr<BootstrapServer> server_;
  std::deque<BootstrapChannel> channels_;
  std::thread thread_;
};

/// The number of descriptors that this process may have, for a scope.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t most) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit limit{most, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~DescriptorLimit() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

class EndpointSetUp : public ::testing::Test {
 protected:
  EndpointSetUp() {
    allow_log("a connection was not made");
    allow_log("bootstrap: dropped");
    allow_broken_connections();
    allow_log("dropped during the handshake");
  }
  /// Somebody who behaves gets in and out.
  static void expect_gets_in(Endpoint& server, milliseconds within) {
    const auto client = make_endpoint();
    const auto conn = client->connect("127.0.0.1", 0, port_of(server), within);
    EXPECT_TRUE(conn.is_ok()) << conn.status().to_string();
  }
};

TEST_F(EndpointSetUp, B1_ClientsThatLeaveAMessageAndGoCostNoDescriptors) {
  const auto server = make_endpoint();
  ASSERT_TRUE(server->start_accepting().is_ok());
  const auto come_and_go = [&] {
    Peer peer(port_of(*server));
    const std::vector<std::byte> bytes(8);
    OperationPayload payload;
    payload.data = bytes;
    peer.say(FrameType::kSendData, 1, 0, 8, Packing::kWhole, &payload);
  };
  come_and_go();
  ASSERT_TRUE(wait_until([&] { return server->stats().connections.size() == 1 && !server->stats().connections[0].alive; }));
  const DescriptorLimit limit(256);
  const size_t before = descriptor_count();
  int come = 0;
  // Each has some while it is there and until it has been seen to leave.
  const auto few = [&] { return descriptor_count() < before + 100; };
  for (; come < 100 && wait_until(few); ++come) come_and_go();
  EXPECT_EQ(come, 100) << "cost " << descriptor_count() - before << " descriptors";
  EXPECT_TRUE(wait_until([&] { return descriptor_count() <= before; })) << descriptor_count() << ", were " << before;
  // Connections they left behind are there, but not of all the clients that ever came.
  EXPECT_TRUE(wait_until([&] { return server->stats().connections.size() <= 64; }));
  expect_gets_in(*server, kCallTime);
}

// As many as may stay, each with nearly all that the window takes, would be four times as much.
TEST_F(EndpointSetUp, B3_WhatClientsLeaveBehindIsBoundedInBytes) {
  allow_broken_connections();
  const auto server = make_endpoint();
  ASSERT_TRUE(server->start_accepting().is_ok());
  OperationPayload payload;
  payload.has_notify = true;
  payload.notify_text = std::string(kMaxNotifyTextBytes, 't');
  ConnId last{};
  for (int i = 0; i < 30; ++i) {
    Peer peer(port_of(*server));
    for (uint64_t sequence = 0; sequence < 3; ++sequence)
      peer.say(FrameType::kSendData, sequence, sequence, 0, Packing::kWhole, &payload);
    ASSERT_TRUE(wait_until([&] {
      (void)peer.goes_on();
      const std::vector<ConnectionStats> all = server->stats().connections;
      const std::string record = server->flight_record();
      return !all.empty() && all.back().conn > last &&
             record.find(" 3 sends without a receive", record.rfind("\nconnection ")) != std::string::npos;
    })) << server->flight_record();
    last = server->stats().connections.back().conn;
  }
  EXPECT_TRUE(wait_until([&] { return server->stats().connections.size() == 64 / 3; })) << server->flight_record();
  expect_gets_in(*server, kCallTime);
}

TEST_F(EndpointSetUp, B3_TwoHundredClientsAtOnceAllGetIn) {
  EndpointConfig config = loopback_config();
  config.max_peer_bytes = uint64_t{4} << 30;  // for all of one address, however little memory there is
  const auto server = make_endpoint(config), client = make_endpoint(config);
  ASSERT_TRUE(server->start_accepting().is_ok());
  std::vector<std::future<Status>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(
        std::async(std::launch::async, [&] { return client->connect("127.0.0.1", 0, port_of(*server), seconds(60)).status(); }));
  }
  int refused = 0;
  for (auto& one : clients) {
    const Status status = one.get();
    if (!status.is_ok() && ++refused == 1) ADD_FAILURE() << status.to_string();
  }
  EXPECT_EQ(refused, 0);
}

TEST_F(EndpointSetUp, B4_AStrangerDoesNotEndAccept) {
  const auto server = make_endpoint();
  auto accepted = std::async(std::launch::async, [&] { return server->accept(kCallTime); });
  for (const Code code : {Code::kCancelled, Code::kInternal, Code::kSystem, Code::kMismatch, Code::kCuda}) {
    auto stranger = bootstrap_connect("127.0.0.1", port_of(*server), soon());
    ASSERT_TRUE(stranger.is_ok()) << stranger.status().to_string();
    (void)stranger->finish(Status(code, "the stranger", "says so"), Deadline::after(milliseconds(100)));
  }
  const auto good = make_endpoint();
  const auto conn = good->connect("127.0.0.1", 0, port_of(*server), kCallTime);
  EXPECT_TRUE(conn.is_ok()) << conn.status().to_string();
  const auto there = accepted.get();
  ASSERT_TRUE(there.is_ok()) << there.status().to_string();
  EXPECT_TRUE(logged("says so"));
  EXPECT_TRUE(moves(*good, *conn, *server, there->conn, 100));
}

// A connection that comes in after a call has given up is not lost, and one that has gone again is never handed out.
TEST_F(EndpointSetUp, B6_WhoComesTooLateForOneCallIsThereForTheNext) {
  const auto server = make_endpoint(), client = make_endpoint();
  EXPECT_EQ(server->accept(milliseconds(0)).status().code(), Code::kTimeout);
  const auto conn = client->connect("127.0.0.1", 0, port_of(*server), kCallTime);
  ASSERT_TRUE(conn.is_ok()) << conn.status().to_string();
  const auto there = server->accept(kCallTime);
  ASSERT_TRUE(there.is_ok()) << there.status().to_string();
  EXPECT_TRUE(moves(*client, *conn, *server, there->conn, 1000));

  EXPECT_EQ(server->accept(milliseconds(0)).status().code(), Code::kTimeout);
  const auto gone = client->connect("127.0.0.1", 0, port_of(*server), kCallTime);
  ASSERT_TRUE(gone.is_ok()) << gone.status().to_string();
  ASSERT_TRUE(client->remove_connection(*gone).is_ok());
  ASSERT_TRUE(wait_until([&] { return client->stats().connections.size() == 1; }));
  const auto [again, other] = connect_pair(*client, *server);
  EXPECT_TRUE(moves(*client, again, *server, other, 1000));
}

TEST_F(EndpointSetUp, B6_ConnectKeepsItsDeadlineWhateverItWaitsFor) {
  allow_log("connect");
  allow_left("(tcpx-resolve)");  // a look-up that the system does not end has a thread of its own
  const auto client = make_endpoint();
  const auto expect_in_time = [&](const std::string& host, uint16_t port, const char* what) {
    expect_timeout(milliseconds(500), what,
                   [&](milliseconds timeout) { return client->connect(host, 0, port, timeout).status(); });
  };
  StallingAcceptor stalls;
  expect_in_time("127.0.0.1", stalls.port(), "the sockets of a comm");
  EXPECT_GT(stalls.sent(), 0);
  const SilentPort silent;
  expect_in_time("127.0.0.1", silent.port, "a hello");
  const auto server = BootstrapServer::create({.host = "127.0.0.1"}).value();
  auto channel = std::async(std::launch::async, [&] { return server->accept(soon()); });
  expect_in_time("127.0.0.1", server->port(), "who the other end is");
  EXPECT_TRUE(channel.get().is_ok());
  expect_in_time(std::string(kSlowName), 80, "the resolver");
}

TEST_F(EndpointSetUp, B6_AcceptKeepsItsDeadlineWhoeverComes) {
  const auto server = make_endpoint();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(say_hello(port_of(*server)));
  expect_timeout(seconds(1), "accept", [&](milliseconds timeout) { return server->accept(timeout).status(); });
}

TEST_F(EndpointSetUp, B6_WhoAsksForAConnectionThatAnotherIsMakingKeepsItsDeadline) {
  const SilentPort silent;
  const auto endpoint = make_endpoint();
  const auto metadata = encode_metadata({.host = "127.0.0.1", .port = silent.port, .gpu_idx = 0, .instance = 5});
  const auto add = [&](milliseconds timeout) { return endpoint->add_remote_endpoint(metadata, timeout).status(); };
  auto first = std::async(std::launch::async, add, milliseconds(5000));
  EXPECT_EQ(first.wait_for(milliseconds(200)), std::future_status::timeout);
  expect_timeout(milliseconds(100), "the second", add);
  EXPECT_EQ(first.get().code(), Code::kTimeout);
}

/// Whether `stop_waiting` comes before the destructor.
class EndpointSetUpEnds : public EndpointSetUp, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Early, EndpointSetUpEnds, ::testing::Bool());

TEST_P(EndpointSetUpEnds, B6_TheDestructorEndsWhateverIsBeingSetUp) {
  allow_log("connect");
  allow_left("(tcpx-resolve)");
  StallingAcceptor stalls;
  const SilentPort silent;
  auto owner = make_endpoint();
  Endpoint* const endpoint = owner.get();
  auto passive = make_endpoint();
  ASSERT_TRUE(passive->start_accepting().is_ok());
  const UniqueFd half = say_hello(port_of(*passive));
  std::vector<std::future<Status>> calls;
  const auto start = [&](auto call) { calls.push_back(std::async(std::launch::async, call)); };
  start([&] { return endpoint->connect("127.0.0.1", 0, stalls.port(), seconds(30)).status(); });
  start([&] { return endpoint->connect("127.0.0.1", 0, silent.port, seconds(30)).status(); });
  start([&] { return endpoint->connect(std::string(kSlowName), 0, 80, seconds(30)).status(); });
  start([&] { return endpoint->accept(seconds(30)).status(); });
  const auto metadata = encode_metadata({.host = "127.0.0.1", .port = silent.port, .gpu_idx = 0, .instance = 5});
  for (int i = 0; i < 2; ++i) start([&] { return endpoint->add_remote_endpoint(metadata, seconds(30)).status(); });
  ASSERT_TRUE(wait_until([&] { return stalls.sent() > 0; }));
  EXPECT_EQ(calls.back().wait_for(milliseconds(200)), std::future_status::timeout);
  const auto all_end = [&] {
    for (auto& call : calls) {
      const Status status = call.get();
      EXPECT_EQ(status.code(), Code::kCancelled) << status.to_string();
    }
    return Status::ok();
  };
  if (GetParam()) {
    owner->stop_waiting();
    (void)in_time(kSlack, "the calls", all_end);
    EXPECT_EQ(owner->accept(seconds(30)).status().code(), Code::kCancelled) << "and later ones";
    EXPECT_TRUE(owner->wait_notifs(seconds(30)).empty());
    calls.clear();
  }
  (void)in_time(kSlack, "the destructors", [&] {
    owner.reset();
    passive.reset();
    return Status::ok();
  });
  (void)all_end();
}

/// Number of clients, and whether they say who they are before they fall silent.
class SilentClients : public EndpointSetUp, public ::testing::WithParamInterface<std::tuple<int, bool>> {};
INSTANTIATE_TEST_SUITE_P(Many, SilentClients, ::testing::Combine(::testing::Values(24, 80), ::testing::Bool()));

TEST_P(SilentClients, B7_GiveWayToThoseThatTalk) {
  const auto [count, introduced] = GetParam();
  const auto server = make_endpoint();
  ASSERT_TRUE(server->start_accepting().is_ok());
  std::vector<UniqueFd> silent;
  for (int i = 0; i < count; ++i) {
    silent.push_back(say_hello(port_of(*server)));
    if (!introduced) continue;
    ASSERT_TRUE(send_all(silent.back().get(), encode_frame(encode_parameters(identity("connect")).value()), soon()).is_ok());
  }
  expect_gets_in(*server, milliseconds(introduced ? 8000 : 5000));
}

TEST_F(EndpointSetUp, B8_TheLongestTimeoutIsNotOverAtOnce) {
  constexpr milliseconds kEver = milliseconds::max();
  EndpointConfig config = loopback_config();
  config.operation_timeout = kEver;
  config.idle_time = kEver;
  const auto a = make_endpoint(config), b = make_endpoint(config);
  auto accepted = std::async(std::launch::async, [&] { return b->accept(kEver); });
  const auto conn = a->connect("127.0.0.1", 0, port_of(*b), kEver);
  ASSERT_TRUE(conn.is_ok()) << conn.status().to_string();
  const auto there = accepted.get();
  ASSERT_TRUE(there.is_ok()) << there.status().to_string();
  Memory source(*a, 1 << 20), target(*b, 1 << 20);
  const LocalRange out = source.whole(), in = target.whole();
  for (const bool with_options : {false, true}) {
    const SubmitOptions options{.timeout = with_options ? std::optional(kEver) : std::nullopt};
    const auto received = b->recv_async(there->conn, {&in, 1}, options);
    ASSERT_TRUE(received.is_ok()) << received.status().to_string();
    const Status sent = a->send(*conn, {&out, 1}, options);
    EXPECT_TRUE(sent.is_ok()) << sent.to_string();
    const Status got = b->wait(*received, with_options ? std::optional(kEver) : std::nullopt);
    EXPECT_TRUE(got.is_ok()) << got.to_string();
    const RemoteRange place{b->advertise(there->conn, in).value(), 0};
    EXPECT_TRUE(a->write(*conn, {&out, 1}, {&place, 1}, options).is_ok());
    EXPECT_TRUE(a->read(*conn, {&out, 1}, {&place, 1}, options).is_ok());
  }
  ASSERT_TRUE(b->start_accepting().is_ok());
  const auto shared = a->add_remote_endpoint(b->get_metadata(), kEver);
  ASSERT_TRUE(shared.is_ok()) << shared.status().to_string();
  ASSERT_TRUE(a->remove_connection(*shared).is_ok());
  // Kept for ever, it is there at once.
  std::this_thread::sleep_for(milliseconds(600));
  EXPECT_EQ(a->stats().connections.size(), 2u);
  EXPECT_EQ(a->add_remote_endpoint(b->get_metadata(), kEver).value(), *shared);
}

TEST(Deadlines, B8_AnyDurationIsTakenForWhatItIs) {
  using std::chrono::hours;
  using std::chrono::microseconds;
  EXPECT_FALSE(Deadline::after(milliseconds::max()).expired());
  EXPECT_FALSE(Deadline::after(microseconds::max()).expired());
  EXPECT_FALSE(Deadline::after(hours::max()).expired());
  EXPECT_FALSE(Deadline::after(Duration::max()).expired());
  EXPECT_FALSE(Deadline::after(hours(24) * 365 * 250).expired());
  EXPECT_GT(Deadline::after(hours::max()).poll_ms(), 1'000'000);
  EXPECT_TRUE(Deadline::after(Duration::zero()).expired());
  EXPECT_TRUE(Deadline::after(milliseconds(-1)).expired());
  EXPECT_TRUE(Deadline::after(milliseconds::min()).expired());
  EXPECT_TRUE(Deadline::after(Duration::min()).expired());
}

}  // namespace
}  // namespace tcpx::testing
