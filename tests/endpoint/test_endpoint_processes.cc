// The process at the other end dies, stops, or comes back while this one is in every call it has.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <future>
#include <string>
#include <vector>

#include "tests/support/endpoint_processes.h"

namespace tcpx::testing {
namespace {

TEST_F(EndpointProcesses, TwoOfOneHostShareMemory) {
  const std::string path = stats_of(*endpoint_, conn_).path;
  EXPECT_NE(path.find("; same host, "), std::string::npos) << path;
  expect_data_flows(peer_);
}

// One of the two may read the other: each direction has a way of its own.
TEST_F(EndpointProcesses, OneThatReadsAndOneThatDoesNot) {
  PeerProcess hidden(0, true);
  meet(hidden);
  const std::string path = stats_of(*endpoint_, conn_).path;
  EXPECT_NE(path.find("; same host, host memory that is sent through shared memory: "), std::string::npos) << path;
  expect_data_flows(hidden);
}

class EndpointProcessesHidden : public EndpointProcesses {
 protected:
  EndpointProcessesHidden() : EndpointProcesses(true) {}
};

TEST_F(EndpointProcessesHidden, TwoOfOneHostShareARing) {
  const std::string path = stats_of(*endpoint_, conn_).path;
  EXPECT_NE(path.find("; same host, host memory through shared memory: "), std::string::npos) << path;
  expect_data_flows(peer_);
}

struct Call {
  OperationKind kind;
  size_t bytes;
  size_t ranges;
  bool hidden = false;
};

class EndpointKilled : public EndpointProcesses, public ::testing::WithParamInterface<Call> {
 protected:
  EndpointKilled() : EndpointProcesses(GetParam().hidden) {}
};

// The peer does not answer any more when the operations start, so all of them are under way when it dies. Short sends are done by
// then.
TEST_P(EndpointKilled, WhileEverythingIsUnderWay) {
  const auto& [kind, bytes, ranges, hidden] = GetParam();
  const auto other = make_endpoint();
  const auto [there, here] = connect_pair(*other, *endpoint_);
  peer_.stop();
  const auto ids = start_many(kind, bytes, ranges, kCallTime);
  const bool is_done = kind == OperationKind::kSend && bytes == kShort;
  for (const OperationId id : ids) {
    if (is_done) {
      EXPECT_TRUE(endpoint_->wait(id, kCallTime).is_ok());
    } else {
      EXPECT_EQ(endpoint_->poll(id).state, OperationState::kPending);
    }
  }
  peer_.kill();
  if (!is_done) {
    EXPECT_EQ(count_ended(ids, Code::kPeerGone), kCount);
  }
  ASSERT_TRUE(wait_until([&] { return !is_alive(*endpoint_, conn_); }));
  EXPECT_EQ(count_ended(start_many(kind, bytes, ranges, kCallTime), Code::kPeerGone), kCount);  // so do later ones, at once
  EXPECT_TRUE(moves(*other, there, *endpoint_, here, kBulk));
  EXPECT_TRUE(moves(*endpoint_, here, *other, there, kShort));

  const ConnId before = conn_;
  const RemoteSlot old = slot_;
  PeerProcess again(peer_.port(), hidden);
  meet(again);
  EXPECT_EQ(conn_, before);
  expect_data_flows(again);
  const LocalRange range = memory_.range(0, kShort);
  const RemoteRange forgotten{old, 0}, known{slot_, 0};
  EXPECT_EQ(endpoint_->write(conn_, {&range, 1}, {&forgotten, 1}).code(), Code::kNotFound);
  EXPECT_TRUE(endpoint_->write(conn_, {&range, 1}, {&known, 1}).is_ok());
}

// In the middle of it: some are done, the others end with kPeerGone.
TEST_P(EndpointKilled, WhileDataFlows) {
  const auto& [kind, bytes, ranges, hidden] = GetParam();
  if (kind == OperationKind::kSend) peer_.tell(concat("recv ", bytes));
  if (kind == OperationKind::kRecv) peer_.tell(concat("stream ", bytes));
  auto ids = start_many(kind, bytes, ranges, kCallTime);
  ASSERT_TRUE(wait_until([&] {
    const OperationAnswer answer = endpoint_->poll(ids.front());
    return answer.state == OperationState::kDone;
  }));
  ids.erase(ids.begin());
  const auto more = start_many(kind, bytes, ranges, kCallTime);
  ids.insert(ids.end(), more.begin(), more.end());
  const TimePoint killed = Clock::steady().now();
  peer_.kill();
  const size_t failed = count_ended(ids, Code::kPeerGone);
  RecordProperty("failed", static_cast<int>(failed));
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::steady().now() - killed);
  RecordProperty("us_until_all_had_ended", static_cast<int>(took.count()));
  EXPECT_EQ(endpoint_->stats().operations_outstanding, 0u);
}

std::vector<Call> all_calls() {
  std::vector<Call> calls;
  for (const OperationKind kind : {OperationKind::kSend, OperationKind::kRecv, OperationKind::kWrite, OperationKind::kRead})
    calls.insert(calls.end(), {{kind, kShort, 1}, {kind, kBulk, 1}, {kind, kBulk, 64}, {kind, kBulk, 64, true}});
  return calls;
}
INSTANTIATE_TEST_SUITE_P(, EndpointKilled, ::testing::ValuesIn(all_calls()), [](const auto& instance) {
  const Call& call = instance.param;
  return concat(name_of(call.kind),
                call.bytes == kShort ? "Short"
                : call.ranges == 1   ? "Long"
                                     : "Vector",
                call.hidden ? "Hidden" : "");
});

TEST_F(EndpointProcesses, NotificationsToAProcessThatIsGoneAreRefused) {
  const NotifyMsg message{.name = "a", .msg = "b"};
  EXPECT_TRUE(endpoint_->notify(conn_, message).is_ok());
  peer_.kill();
  EXPECT_TRUE(wait_until([&] { return !endpoint_->notify(conn_, message).is_ok(); }));
  EXPECT_EQ(endpoint_->notify(conn_, message).code(), Code::kPeerGone);
}

TEST_F(EndpointProcesses, AStoppedProcessIsGivenUpAtTheDeadline) {
  allow_log("did not end within");
  for (const OperationKind kind : {OperationKind::kRecv, OperationKind::kWrite}) {
    peer_.stop();
    EXPECT_EQ(count_ended(start_many(kind, kBulk, 1, std::chrono::milliseconds(200)), Code::kTimeout), kCount);
    peer_.go_on();
  }
  // The writes could not be taken back, so their connection was closed; the process itself goes on.
  EXPECT_EQ(peer_.ask("recv 100").substr(0, 6), "failed");
  const ConnId before = conn_;
  meet(peer_);
  EXPECT_EQ(conn_, before);
  expect_data_flows(peer_);
}

TEST_F(EndpointProcesses, AConnectIsGivenUpWhenTheProcessDies) {
  PeerProcess second;
  const uint16_t port = second.port();
  second.stop();
  auto connecting =
      std::async(std::launch::async, [&] { return endpoint_->connect("127.0.0.1", 0, port, std::chrono::seconds(2)); });
  second.kill();
  const auto connected = connecting.get();
  EXPECT_TRUE(connected.status().code() == Code::kPeerGone || connected.status().code() == Code::kTimeout)
      << connected.status().to_string();
  expect_data_flows(peer_);
}

// A client that dies while it connects is none of the acceptor's business, which waits for the next.
TEST_F(EndpointProcesses, AnAcceptOutlivesAClient) {
  allow_log("dropped during the handshake");  // by the plugin, whose hello was cut
  allow_log("a connection was not made");
  for (const int delay_us : {0, 300, 1000, 3000}) {
    PeerProcess client;
    client.tell(concat("connect ", port_of(*endpoint_)));
    auto first = std::async(std::launch::async, [&] { return endpoint_->accept(std::chrono::seconds(1)); });
    const TimePoint end = Clock::steady().now() + std::chrono::microseconds(delay_us);
    wait_until([&] { return Clock::steady().now() >= end; });
    client.kill();
    const auto other = make_endpoint();
    auto connecting =
        std::async(std::launch::async, [&] { return other->connect("127.0.0.1", 0, port_of(*endpoint_), kCallTime); });
    auto accepted = first.get();  // of either
    while (connecting.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready)
      accepted = endpoint_->accept(std::chrono::seconds(1));
    const auto connected = connecting.get();
    ASSERT_TRUE(connected.is_ok()) << connected.status().to_string();
    // The one that died may have been let in before; the other one then is there for the next call.
    if (auto next = endpoint_->accept(std::chrono::milliseconds(200)); next.is_ok()) accepted = std::move(next);
    ASSERT_TRUE(accepted.is_ok()) << accepted.status().to_string();
    EXPECT_TRUE(moves(*other, *connected, *endpoint_, accepted->conn, kShort));
  }
  expect_data_flows(peer_);
}

// A forked child has no use for the sockets. While it held them, no peer would hear that its parent is dead.
TEST_F(EndpointProcesses, B12_AChildThatLivesOnDoesNotHideItsParentsDeath) {
  const std::string child = peer_.ask("fork");
  ASSERT_EQ(child.substr(0, 6), "child ");
  const auto pid = static_cast<pid_t>(std::stol(child.substr(6)));
  expect_data_flows(peer_);  // the parent's connections go on
  const auto ids = start_many(OperationKind::kRecv, kBulk, 1, std::chrono::seconds(8));
  const TimePoint begin = Clock::steady().now();
  peer_.kill();
  EXPECT_EQ(count_ended(ids, Code::kPeerGone), kCount);
  EXPECT_LT(Clock::steady().now() - begin, std::chrono::seconds(3));
  ASSERT_EQ(::kill(pid, 0), 0) << "the child was to outlive its parent";
  PeerProcess again(peer_.port());
  meet(again);
  expect_data_flows(again);
  ::kill(pid, SIGKILL);
}

struct ShortPatience {
  ShortPatience() {
    ::setenv("UCCL_TCPX_TIMEOUT_MS", "500", 1);
    ::setenv("UCCL_TCPX_LOCAL", "off", 1);  // the timeout is the pipeline's
  }
  ~ShortPatience() {
    ::unsetenv("UCCL_TCPX_TIMEOUT_MS");
    ::unsetenv("UCCL_TCPX_LOCAL");
  }
};
class EndpointOfShortPatience : ShortPatience, public EndpointProcesses {};

// The pipeline gives up what does not advance long before the operation's own deadline.
TEST_F(EndpointOfShortPatience, B10_TheTimeoutOfTransfersThatStandStillHoldsForAnEndpoint) {
  allow_log("nothing advanced for");
  const LocalRange range = memory_.range(0, 8 * kBulk);
  const RemoteRange remote{slot_, 0};
  const SubmitOptions options{.timeout = std::chrono::seconds(30)};
  std::vector<OperationId> ids;
  // Reads: what a write was granted may all be in the kernel's buffers when the peer stops, and no transfer waits then.
  const auto start = [&] { ids.push_back(endpoint_->read_async(conn_, {&range, 1}, {&remote, 1}, options).value()); };
  for (size_t i = 0; i < kCount; ++i) start();
  ASSERT_TRUE(wait_until([&] { return endpoint_->poll(ids.front()).state == OperationState::kDone; }));
  ids.erase(ids.begin());
  // In the middle of another one. It may have served the first before it had begun any other, and all between two looks.
  ASSERT_TRUE(wait_until([&] {
    start();
    peer_.stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (endpoint_->flight_record().find(": moves") != std::string::npos) return true;
    peer_.go_on();
    return false;
  }));
  const TimePoint begin = Clock::steady().now();
  EXPECT_GT(count_ended(ids, Code::kTimeout), 0u);
  EXPECT_LT(Clock::steady().now() - begin, std::chrono::seconds(15));
}

// Metadata of an endpoint that is no more leads to another one at the same address: refused, and nobody else loses a connection.
TEST_F(EndpointProcesses, B10_StaleMetadataIsRefusedAndDisplacesNothing) {
  const std::vector<uint8_t> stale = peer_.metadata();
  peer_.kill();
  PeerProcess again(peer_.port());
  allow_log("another endpoint listens there");
  meet(again);
  const ConnId good = conn_;
  again.tell("passive");
  ASSERT_EQ(again.answer(), "ok");
  const auto added = endpoint_->add_remote_endpoint(stale, kCallTime);
  ASSERT_FALSE(added.is_ok());
  EXPECT_EQ(added.status().code(), Code::kPeerGone) << added.status().to_string();
  EXPECT_NE(added.status().detail().find("another endpoint"), std::string::npos) << added.status().to_string();
  EXPECT_TRUE(is_alive(*endpoint_, conn_));
  EXPECT_EQ(conn_, good);
  expect_data_flows(again);
}

}  // namespace
}  // namespace tcpx::testing
