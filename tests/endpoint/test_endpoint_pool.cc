// Connections that add_remote_endpoint makes: shared, kept for a while when they are removed, and bounded.
#include <gtest/gtest.h>

#include <vector>

#include "endpoint/endpoint_parts.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/faulty_net_plugin.h"
#include "tests/support/locked_net_plugin.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;

class EndpointPool : public ::testing::Test {
 protected:
  EndpointPool() { EXPECT_TRUE(server_->start_accepting().is_ok()); }
  void make_client(milliseconds idle_time, uint32_t max_idle) {
    EndpointConfig config = loopback_config();
    config.idle_time = idle_time;
    config.max_idle_connections = max_idle;
    client_ = make_endpoint(config);
  }
  ConnId add(Endpoint& server) {
    const auto added = client_->add_remote_endpoint(server.get_metadata(), kCallTime);
    EXPECT_TRUE(added.is_ok()) << added.status().to_string();
    return added.is_ok() ? *added : ConnId{};
  }
  /// The server's connections, by its ids: a new connection has a new one.
  std::vector<ConnId> accepted(const Endpoint& server) {
    std::vector<ConnId> ids;
    for (const ConnectionStats& stats : server.stats().connections) ids.push_back(stats.conn);
    return ids;
  }
  ConnId only_accepted(const Endpoint& server) {
    EXPECT_TRUE(wait_until([&] { return accepted(server).size() == 1; }));
    return accepted(server).front();
  }
  std::unique_ptr<Endpoint> server_ = make_endpoint();
  std::unique_ptr<Endpoint> client_;
};

TEST_F(EndpointPool, AnIdleOneGoesAfterAWhile) {
  make_client(milliseconds(100), 4);
  const ConnId conn = add(*server_);
  const auto second = make_endpoint();
  ASSERT_TRUE(second->start_accepting().is_ok());
  const ConnId used = add(*second);
  ASSERT_TRUE(client_->remove_connection(conn).is_ok());
  EXPECT_TRUE(wait_until([&] { return accepted(*server_).empty() && client_->stats().connections.size() == 1; }));
  EXPECT_TRUE(moves(*client_, used, *second, only_accepted(*second), 100));
  const ConnId again = add(*server_);
  EXPECT_NE(again, conn);
  EXPECT_TRUE(moves(*client_, again, *server_, only_accepted(*server_), 100));
}

TEST_F(EndpointPool, NoMoreIdleOnesThanConfigured) {
  make_client(std::chrono::minutes(1), 2);
  std::vector<std::unique_ptr<Endpoint>> servers;
  std::vector<ConnId> conns;
  for (int i = 0; i < 4; ++i) {
    servers.push_back(make_endpoint());
    ASSERT_TRUE(servers.back()->start_accepting().is_ok());
    conns.push_back(add(*servers.back()));
  }
  EXPECT_EQ(client_->stats().connections.size(), 4u);
  for (const ConnId conn : conns) ASSERT_TRUE(client_->remove_connection(conn).is_ok());
  EXPECT_TRUE(wait_until([&] { return client_->stats().connections.size() == 2; }));
  // The oldest have gone.
  EXPECT_EQ(add(*servers[3]), conns[3]);
  EXPECT_NE(add(*servers[0]), conns[0]);
}

TEST_F(EndpointPool, WithoutRoomNoneIsKept) {
  make_client(std::chrono::minutes(1), 0);
  const ConnId conn = add(*server_);
  ASSERT_TRUE(client_->remove_connection(conn).is_ok());
  EXPECT_TRUE(wait_until([&] { return client_->stats().connections.empty() && accepted(*server_).empty(); }));
  EXPECT_NE(add(*server_), conn);
}

// Slots of the time before belong to the memory of somebody who is gone.
TEST_F(EndpointPool, ARemovedConnectionsSlotsAreRefused) {
  make_client(std::chrono::minutes(1), 4);
  const ConnId conn = add(*server_);
  const ConnId there = only_accepted(*server_);
  Memory target(*client_, 4096), source(*server_, 4096);
  const RemoteRange remote{client_->advertise(conn, target.whole()).value(), 0};
  const LocalRange range = source.whole();
  EXPECT_TRUE(server_->write(there, {&range, 1}, {&remote, 1}).is_ok());
  ASSERT_TRUE(client_->remove_connection(conn).is_ok());
  EXPECT_EQ(server_->write(there, {&range, 1}, {&remote, 1}).code(), Code::kNotFound);
  EXPECT_EQ(add(*server_), conn);
  EXPECT_EQ(server_->write(there, {&range, 1}, {&remote, 1}).code(), Code::kNotFound);
}

// It was meant for the connection that is gone, and would take the place of one of the new connection's own.
TEST_F(EndpointPool, WhatWasStartedBeforeAConnectionWasMadeAnewDoesNotRunOnTheNewOne) {
  allow_broken_connections();
  EndpointConfig config = loopback_config();
  config.progress_thread = false;  // nothing is taken from the queue but by this test
  client_ = make_endpoint(config);
  const ConnId conn = add(*server_);
  const ConnId first = only_accepted(*server_);
  ASSERT_TRUE(server_->remove_connection(first).is_ok());
  ASSERT_TRUE(wait_until([&] {
    (void)client_->progress();
    return !client_->stats().connections.front().alive;
  }));
  Memory memory(*client_, 4096), theirs(*server_, 4096);
  theirs.fill(3);
  const LocalRange range = memory.whole(), out = theirs.whole();
  const OperationId old = client_->recv_async(conn, {&range, 1}).value();
  ASSERT_EQ(add(*server_), conn) << "made anew under its id";
  const OperationId fresh = client_->recv_async(conn, {&range, 1}).value();
  ASSERT_TRUE(wait_until([&] { return accepted(*server_).size() == 1 && accepted(*server_).front() != first; }));
  const OperationId sent = server_->send_async(accepted(*server_).front(), {&out, 1}).value();
  OperationAnswer answer;
  const auto ends = [&](OperationId id) {
    return wait_until([&] {
      (void)client_->progress();
      answer = client_->poll(id);
      return answer.state != OperationState::kPending;
    });
  };
  ASSERT_TRUE(ends(old));
  EXPECT_EQ(answer.status.code(), Code::kPeerGone) << answer.status.to_string();
  ASSERT_TRUE(ends(fresh));
  EXPECT_TRUE(answer.status.is_ok()) << answer.status.to_string();
  EXPECT_EQ(memory.bytes(), theirs.bytes());
  EXPECT_TRUE(server_->wait(sent, kCallTime).is_ok());
}

TEST(EndpointPoolMemory, ACallWithoutMemoryHoldsUpNoOther) {
  const auto server = make_endpoint();
  ASSERT_TRUE(server->start_accepting().is_ok());
  auto parts = make_default_parts(loopback_config());
  ASSERT_TRUE(parts.is_ok()) << parts.status().to_string();
  const auto below = parts->plugin;
  auto faulty = std::make_unique<FaultyNetPlugin>(*below, FaultPolicy{.connects_without_memory = 1});
  parts->plugin = std::make_shared<LockedNetPlugin>(std::move(faulty));
  auto client = EndpointMaker::make(*std::move(parts), loopback_config());
  ASSERT_TRUE(client.is_ok()) << client.status().to_string();

  allow_broken_connections();  // of the server, whose client has gone
  allow_log("a connection was not made");
  const auto failed = (*client)->add_remote_endpoint(server->get_metadata(), kCallTime);
  ASSERT_FALSE(failed.is_ok());
  EXPECT_EQ(failed.status().code(), Code::kExhausted) << failed.status().to_string();
  const auto added = (*client)->add_remote_endpoint(server->get_metadata(), kCallTime);
  ASSERT_TRUE(added.is_ok()) << added.status().to_string();
  EXPECT_TRUE((*client)->remove_connection(*added).is_ok());
  EXPECT_EQ((*client)->remove_connection(*added).code(), Code::kNotFound) << "the call that failed is no user of it";
}

}  // namespace
}  // namespace tcpx::testing
