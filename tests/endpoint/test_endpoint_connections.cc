// Connections: made by address and by metadata, shared, removed with work pending, to several endpoints and to itself.
#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <vector>

#include "measure/pattern.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using testing::GuardedBuffer;
using testing::Side;
using Ids = std::vector<Result<OperationId>>;

class EndpointConnections : public testing::EndpointSetupTest {
 protected:
  static constexpr size_t kBytes = 200000;
  /// The id of the first connection that is not `but`, once there is one.
  static ConnId other_connection(const Side& side, ConnId but = {}) {
    ConnId conn{};
    EXPECT_TRUE(testing::wait_until([&] {
      for (const ConnectionStats& connection : side->stats().connections) {
        if (connection.conn != but && connection.alive) conn = connection.conn;
      }
      return conn != ConnId{};
    }));
    return conn;
  }
  void expect_moves(const Side& from, ConnId out, const Side& to, ConnId in) {
    GuardedBuffer source(kBytes), target(kBytes);
    fill_pattern(source.span(), 4);
    const LocalRange send = range(from, source.span()), recv = range(to, target.span());
    const auto received = to->recv_async(in, {&recv, 1});
    EXPECT_TRUE(done(from, from->send_async(out, {&send, 1})));
    EXPECT_TRUE(done(to, received));
    EXPECT_TRUE(verify_pattern(target.span(), 4).is_ok());
    EXPECT_TRUE(from->deregister(send.memory).is_ok());
    EXPECT_TRUE(to->deregister(recv.memory).is_ok());
  }
};
TCPX_OVER_SETUPS(EndpointConnections, testing::few_setups());

TEST_P(EndpointConnections, RemovingOneFailsWhatIsPendingOnceEach) {
  make_pair();
  constexpr int kCount = 500, kWrites = 20;
  GuardedBuffer source(kBytes), target(kWrites * kBytes);
  const LocalRange out = range(a_, source.span()), all = range(b_, target.span());
  const LocalRange mine{out.memory, out.data, 8}, in{all.memory, all.data, kBytes};
  RemoteRange place{b_->advertise(b_.conn, all).value(), 0};
  Ids pending_a;
  for (int i = 0; i < kCount; ++i) {
    pending_a.push_back(i % 2 == 0 ? a_->recv_async(a_.conn, {&mine, 1}) : a_->send_async(a_.conn, {&out, 1}));
    if (i >= kWrites) continue;
    pending_a.push_back(a_->write_async(a_.conn, {&out, 1}, {&place, 1}));
    place.offset += kBytes;
  }
  const NotifyMsg last{.name = "all is posted", .msg = ""};
  ASSERT_TRUE(b_->notify(b_.conn, last).is_ok());
  ASSERT_TRUE(testing::wait_until([&] { return a_->stats().notifications_waiting == 1; }));
  ASSERT_TRUE(a_->remove_connection(a_.conn).is_ok());
  EXPECT_EQ(a_->remove_connection(a_.conn).code(), Code::kNotFound);
  EXPECT_EQ(a_->send(a_.conn, {&mine, 1}).code(), Code::kNotFound);
  for (const auto& id : pending_a) {
    const Status status = a_->wait(*id, milliseconds(20000));
    EXPECT_TRUE(status.is_ok() || status.code() == Code::kCancelled) << status.to_string();
    EXPECT_EQ(a_->poll(*id).state, OperationState::kUnknown);
  }
  // The other end hears of it, and its operations fail too.
  Status status = Status::ok();
  ASSERT_TRUE(testing::wait_until([&] {
    const auto received = b_->recv_async(b_.conn, {&in, 1});
    status = received.is_ok() ? b_->wait(*received, milliseconds(20000)) : received.status();
    return status.code() == Code::kPeerGone;
  })) << status.to_string();
  EXPECT_TRUE(b_->remove_connection(b_.conn).is_ok());
  // Nothing holds the memory any more.
  EXPECT_TRUE(a_->deregister(out.memory).is_ok());
  EXPECT_TRUE(b_->deregister(in.memory).is_ok());
  ASSERT_TRUE(testing::wait_until([&] { return a_->stats().connections.empty() && b_->stats().connections.empty(); }));
  connect(b_, a_);
  expect_moves(a_, a_.conn, b_, b_.conn);
}

// The thread that ends the endpoint makes progress too, and once took the event that should have woken the other.
TEST_P(EndpointConnections, AnIdleEndpointEndsWheneverItIsTold) {
  for (int round = 0; round < 300; ++round) {
    a_ = make();
    const auto when = std::chrono::steady_clock::now() + std::chrono::microseconds(round % 100);
    while (std::chrono::steady_clock::now() < when) {  // a yield may take the time slices of whoever else is running
    }
    a_.reset();
  }
}

TEST_P(EndpointConnections, ShortWaitsForAClientLetItIn) {
  a_ = make();
  b_ = make();
  const uint16_t port = Endpoint::read_metadata(b_->get_metadata()).value().port;
  auto connected = std::async(std::launch::async, [&] { return a_->connect("127.0.0.1", 0, port, testing::kTestDeadline); });
  Result<Endpoint::Accepted> accepted = Status(Code::kTimeout, "accept", "not tried");
  const bool let_in = testing::wait_until([&] { return (accepted = b_->accept(milliseconds(1))).is_ok(); });
  const auto conn = connected.get();
  ASSERT_TRUE(let_in) << accepted.status().to_string();
  ASSERT_TRUE(conn.is_ok()) << conn.status().to_string();
  expect_moves(a_, *conn, b_, accepted->conn);
}

TEST_P(EndpointConnections, MetadataLeadsToOneSharedConnection) {
  a_ = make();
  b_ = make();
  ASSERT_TRUE(b_->start_accepting().is_ok());
  EXPECT_EQ(b_->accept(milliseconds(10)).status().code(), Code::kInvalidArgument);
  const auto first = a_->add_remote_endpoint(b_->get_metadata());
  ASSERT_TRUE(first.is_ok()) << first.status().to_string();
  const auto second = a_->add_remote_endpoint(b_->get_metadata());
  ASSERT_TRUE(second.is_ok());
  EXPECT_EQ(*first, *second);
  const ConnId there = other_connection(b_);
  expect_moves(a_, *first, b_, there);
  EXPECT_TRUE(a_->remove_connection(*first).is_ok());
  expect_moves(b_, there, a_, *first);
  EXPECT_TRUE(a_->remove_connection(*first).is_ok());
  EXPECT_EQ(a_->remove_connection(*first).code(), Code::kNotFound);
  EXPECT_EQ(a_->send_async(*first, std::span<const LocalRange>()).status().code(), Code::kNotFound);
  // It was kept, and is used again.
  const auto again = a_->add_remote_endpoint(b_->get_metadata());
  ASSERT_TRUE(again.is_ok());
  EXPECT_EQ(*again, *first);
  expect_moves(a_, *again, b_, there);
  EXPECT_EQ(b_->stats().connections.size(), 1u);
}

TEST_P(EndpointConnections, WhatWasPendingWhenAConnectionWasKeptDoesNotMeetWhatComesLater) {
  a_ = make();
  b_ = make();
  ASSERT_TRUE(b_->start_accepting().is_ok());
  const ConnId conn = a_->add_remote_endpoint(b_->get_metadata()).value();
  const ConnId there = other_connection(b_);
  GuardedBuffer buffer(kBytes);
  const LocalRange part = range(a_, buffer.span());
  const auto receive = a_->recv_async(conn, {&part, 1});
  const auto send = a_->send_async(conn, {&part, 1});
  ASSERT_TRUE(a_->remove_connection(conn).is_ok());
  EXPECT_TRUE(fails(a_, receive, Code::kCancelled));
  EXPECT_TRUE(fails(a_, send, Code::kCancelled));
  ASSERT_EQ(a_->add_remote_endpoint(b_->get_metadata()).value(), conn);
  // The places of both stay taken at the other end.
  GuardedBuffer theirs(kBytes);
  const LocalRange other = range(b_, theirs.span());
  ASSERT_TRUE(has_heard(b_, a_, conn));
  EXPECT_TRUE(fails(b_, b_->send_async(there, {&other, 1}), Code::kCancelled));
  EXPECT_TRUE(fails(b_, b_->recv_async(there, {&other, 1}), Code::kCancelled));
  expect_moves(a_, conn, b_, there);
  expect_moves(b_, there, a_, conn);
}

TEST_P(EndpointConnections, AnEndpointIsConnectedWithItself) {
  a_ = make();
  ASSERT_TRUE(a_->start_accepting().is_ok());
  const auto one = a_->add_remote_endpoint(a_->get_metadata());
  ASSERT_TRUE(one.is_ok()) << one.status().to_string();
  const ConnId other = other_connection(a_, *one);
  expect_moves(a_, *one, a_, other);
  expect_moves(a_, other, a_, *one);
  GuardedBuffer source(kBytes), target(kBytes);
  fill_pattern(source.span(), 8);
  const LocalRange out = range(a_, source.span());
  const RemoteRange place{a_->advertise(other, range(a_, target.span())).value(), 0};
  EXPECT_TRUE(done(a_, a_->write_async(*one, {&out, 1}, {&place, 1})));
  EXPECT_TRUE(verify_pattern(target.span(), 8).is_ok());
}

TEST_P(EndpointConnections, ConnectionsKeepTheirTrafficApart) {
  constexpr int kConns = 4;
  a_ = make();
  b_ = make();
  std::vector<std::pair<ConnId, ConnId>> conns;
  for (int i = 0; i < kConns; ++i) {
    connect(a_, b_);
    conns.emplace_back(a_.conn, b_.conn);
  }
  std::vector<std::thread> threads;
  for (const auto& [near, far] : conns) {
    threads.emplace_back([this, near = near, far = far] {
      for (int i = 0; i < 5; ++i) expect_moves(a_, near, b_, far);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tcpx
