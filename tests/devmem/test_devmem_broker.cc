// The broker of tcpx_devmemd and its clients, over a played NIC. tests/devmem/run_vm.sh has the program, and kills it.
#include "net/devmem/broker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "tests/devmem/broker_test.h"

namespace tcpx::testing {
namespace {

using devmem::Broker;
using devmem::BrokerAnswer;
using devmem::may_ask;
using devmem::SteeringRecord;

class DevmemBroker : public BrokerTest {};

TEST_F(DevmemBroker, BindsAndLeadsUntilTheClientEndsIt) {
  run_broker();
  auto binding = bind();
  ASSERT_TRUE(binding.is_ok()) << binding.status().to_string();
  EXPECT_EQ((*binding)->dmabuf_id(), kTestDmabufId);
  EXPECT_EQ((*binding)->queue(), FakeNic::kQueues - 1);
  EXPECT_TRUE((*binding)->is_there());
  EXPECT_EQ(bindings(), 1u);
  EXPECT_EQ(shared_nic.table(), (std::vector<uint32_t>{0, 1, 2, 0, 0, 1, 2, 1}));
  UniqueFd first = listen_at("127.0.0.1");
  const UniqueFd second = listen_at("127.0.0.1");
  {
    const auto rule = (*binding)->lead(first.get());
    ASSERT_TRUE(rule.is_ok()) << rule.status().to_string();
    first.reset();
    const auto other = (*binding)->lead(second.get());
    ASSERT_TRUE(other.is_ok()) << other.status().to_string();
    EXPECT_EQ(shared_nic.rule_queues(), (std::vector<uint64_t>{3, 3}));
  }
  EXPECT_TRUE(shared_nic.rule_queues().empty());
  binding->reset();
  EXPECT_TRUE(is_undone());  // at once: the next bind may have the queue
}

TEST_F(DevmemBroker, AnEndedConnectionLeavesNothing) {
  run_broker();
  const UniqueFd listener = listen_at("127.0.0.1");
  {
    RawClient client(socket());
    ASSERT_EQ(code_of(client.bind()), Code::kOk);
    const BrokerAnswer led = client.lead(listener.get());
    ASSERT_EQ(code_of(led), Code::kOk) << text_of(led);
    EXPECT_EQ(shared_nic.rule_queues().size(), 1u);
    EXPECT_EQ(led.queue, 3u);
  }
  EXPECT_TRUE(wait_until([&] { return is_undone(); }));
}

TEST_F(DevmemBroker, ItsEndUndoesAllAndClientsNotice) {
  run_broker();
  const auto binding = bind();
  ASSERT_TRUE(binding.is_ok()) << binding.status().to_string();
  const UniqueFd listener = listen_at("127.0.0.1");
  const auto rule = (*binding)->lead(listener.get());
  ASSERT_TRUE(rule.is_ok()) << rule.status().to_string();
  broker.reset();
  EXPECT_TRUE(is_undone());
  EXPECT_TRUE(wait_until([&] { return !(*binding)->is_there(); }));
  EXPECT_EQ((*binding)->lead(listener.get()).status().code(), Code::kPeerGone);
  EXPECT_EQ((*binding)->lead(listener.get()).status().code(), Code::kPeerGone);
  EXPECT_EQ(bind().status().code(), Code::kPeerGone);
}

TEST_F(DevmemBroker, WhatAKilledOneLeftIsUndoneAtTheStartAlsoWhereSomebodyListens) {
  const UniqueFd listener = listen_at("127.0.0.1");
  SteeringRecord record;
  {
    devmem::Steering steering = open();
    const auto change = steering.lead(*local_address(listener.get()), 3);
    ASSERT_TRUE(change.is_ok());
    record = {SteeringRecord::Kind::kRule, 3, nic.rules[0].fs, {}};
  }
  nic.rules[0].fs = record.rule;
  leave(record);
  leave({SteeringRecord::Kind::kRssTable, 3, {}, nic.tables[0]});
  nic.tables[0] = {0, 1, 2, 0, 0, 1, 2, 1};
  run_broker();
  EXPECT_TRUE(is_undone());
  EXPECT_EQ(records(), 0u);
}

TEST_F(DevmemBroker, TakesOverTheSocketOfADeadOneOnly) {
  run_broker();
  EXPECT_EQ(start(config()).status().code(), Code::kExhausted);
  EXPECT_TRUE(bind().is_ok());  // the first one still listens
  broker.reset();
  EXPECT_EQ(place.entry_count(), 0u);
  { const ForeignFd dead = listen_unix(socket(), 1, SOCK_SEQPACKET).value(); }
  ASSERT_TRUE(wait_until([&] { return connect_unix(socket(), SOCK_SEQPACKET).status().code() == Code::kPeerGone; }));
  run_broker();
  EXPECT_TRUE(bind().is_ok());
}

TEST_F(DevmemBroker, AClientThatBindsNothingIsLeftOut) {
  devmem::BrokerConfig hasty = config();
  hasty.patience = std::chrono::milliseconds(20);
  run_broker(hasty);
  const RawClient client(socket());
  EXPECT_TRUE(wait_until([&] { return client.has_ended(); }));
}

TEST_F(DevmemBroker, AClientWithABindingMayBeSilent) {
  devmem::BrokerConfig hasty = config();
  hasty.patience = std::chrono::milliseconds(20);
  run_broker(hasty);
  RawClient bound(socket());
  // A busy machine may take longer than that to ask.
  if (code_of(bound.bind()) != Code::kOk) GTEST_SKIP() << "the question came too late";
  const RawClient silent(socket());
  EXPECT_TRUE(wait_until([&] { return silent.has_ended(); }));
  EXPECT_FALSE(bound.has_ended());
}

TEST_F(DevmemBroker, ASlowBindKeepsNoOtherClientWaiting) {
  std::promise<void> is_asked, goes_on;
  std::atomic<bool> is_first = true;
  auto started = Broker::start(config(), {shared_nic, [&] {
                                            if (is_first.exchange(false)) {
                                              is_asked.set_value();
                                              goes_on.get_future().wait_for(2 * kTestDeadline);
                                            }
                                            return netdev();
                                          }});
  ASSERT_TRUE(started.is_ok()) << started.status().to_string();
  broker = *std::move(started);
  BrokerAnswer slow;
  {
    std::thread asks([&] { slow = RawClient(socket()).bind(); });
    EXPECT_EQ(is_asked.get_future().wait_for(kTestDeadline), std::future_status::ready);
    RawClient other(socket());
    EXPECT_EQ(code_of(other.bind()), Code::kOk);
    const UniqueFd listener = listen_at("127.0.0.1");
    EXPECT_EQ(code_of(other.lead(listener.get())), Code::kOk);
    goes_on.set_value();
    asks.join();
  }
  EXPECT_EQ(code_of(slow), Code::kOk) << text_of(slow);
  EXPECT_TRUE(wait_until([&] { return is_undone(); }));
}

TEST(DevmemBrokerPeers, AreRootTheSameUserAndTheGroup) {
  constexpr uid_t kOwn = 100, kOther = 101;
  constexpr gid_t kGroup = 50;
  EXPECT_TRUE(may_ask({.uid = 0}, kOwn, {}));
  EXPECT_TRUE(may_ask({.uid = kOwn}, kOwn, {}));
  EXPECT_FALSE(may_ask({.uid = kOther, .groups = {kGroup}}, kOwn, {}));
  EXPECT_TRUE(may_ask({.uid = kOther, .groups = {kGroup}}, kOwn, kGroup));
  EXPECT_TRUE(may_ask({.uid = kOther, .groups = {1, 2, kGroup}}, kOwn, kGroup));
  EXPECT_FALSE(may_ask({.uid = kOther, .groups = {1, 2}}, kOwn, kGroup));
  EXPECT_FALSE(may_ask({.uid = kOther}, kOwn, 0));
}

}  // namespace
}  // namespace tcpx::testing
