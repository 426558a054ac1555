// Flows to bound queues, at a played NIC. tests/devmem/run_vm.sh has one that steers, and processes that are killed.
#include "net/devmem/steering.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "base/socket_io.h"
#include "tests/devmem/steering_test.h"
#include "tests/support/expect_log.h"

namespace tcpx::testing {
namespace {

using devmem::Steering;
using devmem::SteeringChange;
using devmem::SteeringRecord;
using devmem::SteeringRecords;

SocketAddress address(const char* host, uint16_t port = 5201) {
  return resolve(host, port)->front();
}

class DevmemSteering : public SteeringTest {};

TEST_F(DevmemSteering, ARuleLeadsIPv4AndIsRemovedAgain) {
  Steering steering = open();
  for (const char* host : {"127.0.0.1", "::ffff:127.0.0.1"}) {
    const auto change = steering.lead(address(host), 2);
    ASSERT_TRUE(change.is_ok()) << change.status().to_string();
    EXPECT_TRUE(change->is_ours());
    ASSERT_EQ(nic.rules.size(), 1u);
    const ethtool_rx_flow_spec& rule = nic.rules[0].fs;
    EXPECT_EQ(rule.flow_type, uint32_t{TCP_V4_FLOW});
    EXPECT_EQ(rule.ring_cookie, 2u);
    EXPECT_EQ(rule.h_u.tcp_ip4_spec.ip4dst, htonl(INADDR_LOOPBACK));
    EXPECT_EQ(rule.m_u.tcp_ip4_spec.ip4dst, 0xffffffffu);
    EXPECT_EQ(rule.h_u.tcp_ip4_spec.pdst, htons(5201));
    EXPECT_EQ(rule.m_u.tcp_ip4_spec.pdst, 0xffff);
    EXPECT_EQ(rule.m_u.tcp_ip4_spec.ip4src | rule.m_u.tcp_ip4_spec.psrc | rule.m_u.tcp_ip4_spec.tos, 0u);
    EXPECT_EQ(records(), 1u);
  }
  EXPECT_TRUE(nic.rules.empty());
  EXPECT_EQ(records(), 0u);
}

TEST_F(DevmemSteering, ARuleLeadsIPv6) {
  Steering steering = open();
  const auto change = steering.lead(address("fd09::1"), 3);
  ASSERT_TRUE(change.is_ok()) << change.status().to_string();
  const ethtool_rx_flow_spec& rule = nic.rules[0].fs;
  EXPECT_EQ(rule.flow_type, uint32_t{TCP_V6_FLOW});
  EXPECT_EQ(rule.ring_cookie, 3u);
  EXPECT_EQ(rule.h_u.tcp_ip6_spec.ip6dst[0], htonl(0xfd090000));
  EXPECT_EQ(rule.h_u.tcp_ip6_spec.ip6dst[3], htonl(1));
  for (const uint32_t word : rule.m_u.tcp_ip6_spec.ip6dst) EXPECT_EQ(word, 0xffffffffu);
  EXPECT_EQ(rule.h_u.tcp_ip6_spec.pdst, htons(5201));
  EXPECT_EQ(rule.m_u.tcp_ip6_spec.pdst, 0xffff);
}

TEST_F(DevmemSteering, AWildcardIsLedByPort) {
  Steering steering = open();
  const auto v4 = steering.lead(SocketAddress::any(AF_INET, 5201), 1);
  const auto v6 = steering.lead(SocketAddress::any(AF_INET6, 5201), 1);
  ASSERT_EQ(nic.rules.size(), 2u);
  EXPECT_EQ(nic.rules[0].fs.m_u.tcp_ip4_spec.ip4dst, 0u);
  EXPECT_EQ(nic.rules[0].fs.m_u.tcp_ip4_spec.pdst, 0xffff);
  for (const uint32_t word : nic.rules[1].fs.m_u.tcp_ip6_spec.ip6dst) EXPECT_EQ(word, 0u);
}

TEST_F(DevmemSteering, AMovedChangeIsUndoneOnce) {
  Steering steering = open();
  {
    SteeringChange one = *steering.lead(address("127.0.0.1", 1), 1);
    SteeringChange other = *steering.lead(address("127.0.0.1", 2), 1);
    one = std::move(other);
    ASSERT_EQ(nic.rules.size(), 1u);
    EXPECT_EQ(nic.rules.begin()->second.fs.h_u.tcp_ip4_spec.pdst, htons(2));
  }
  EXPECT_TRUE(nic.rules.empty());
}

TEST_F(DevmemSteering, WhereTheNicChoosesNoLocationTheLastFreeOneIsUsed) {
  nic.chooses = false;
  Steering steering = open();
  nic.add(7, 80, 0);
  nic.add(6, 81, 0);
  nic.add(4, 82, 0);
  const auto change = steering.lead(address("127.0.0.1"), 2);
  ASSERT_TRUE(change.is_ok()) << change.status().to_string();
  ASSERT_EQ(nic.rules.size(), 4u);
  EXPECT_EQ(nic.rules.at(5).fs.ring_cookie, 2u);
  for (uint32_t i = 0; i < nic.size; ++i)
    if (nic.rules.count(i) == 0) nic.add(i, static_cast<uint16_t>(90 + i), 0);
  const Status full = steering.lead(address("127.0.0.1", 5202), 2).status();
  EXPECT_EQ(full.code(), Code::kExhausted);
  EXPECT_NE(full.detail().find("full"), std::string::npos);
  EXPECT_EQ(nic.rules.size(), nic.size);
  EXPECT_EQ(records(), 1u);
}

TEST_F(DevmemSteering, WhatAnAdministratorPreparedIsUsedAndLeftAlone) {
  Steering steering = open();
  const auto expect_prepared = [&](const char* how) {
    const auto before = nic.rules.size();
    {
      const auto change = steering.lead(address("127.0.0.1"), 2);
      ASSERT_TRUE(change.is_ok()) << how << ": " << change.status().to_string();
      EXPECT_FALSE(change->is_ours()) << how;
      EXPECT_EQ(records(), 0u) << how;
    }
    EXPECT_EQ(nic.rules.size(), before) << how;
  };
  nic.add(3, 5201, 2);
  expect_prepared("the same rule");
  nic.add(3, 0, 2).fs.m_u.tcp_ip4_spec.pdst = 0;
  expect_prepared("all ports of the address");
  nic.add(3, 0, 2).fs.m_u.tcp_ip4_spec = {};
  expect_prepared("all of TCP");
  nic.add(4, 5201, 1);
  expect_prepared("a rule for elsewhere comes later");
  nic.rules.clear();
  nic.tables[7] = {1, 1};
  ethtool_rxnfc& spread = nic.add(3, 5201, 1);
  spread.fs.flow_type |= FLOW_RSS;
  spread.rss_context = 7;
  expect_prepared("a context of RSS, to whose queues the rule adds");
  nic.rules.clear();
  nic.tables[0] = {2, 2, 2, 2};
  expect_prepared("all of RSS");
  nic.refuses[ETHTOOL_GRXCLSRLCNT] = EOPNOTSUPP;
  expect_prepared("all of RSS, and no rules");
}

TEST_F(DevmemSteering, ARuleThatLeadsElsewhereIsNamed) {
  Steering steering = open();
  const auto expect_elsewhere = [&](const char* how) {
    const Status status = steering.lead(address("127.0.0.1"), 2).status();
    EXPECT_EQ(status.code(), Code::kMismatch) << how << ": " << status.to_string();
    EXPECT_NE(status.detail().find("ethtool -N lo delete 3"), std::string::npos) << how << ": " << status.to_string();
  };
  nic.add(4, 5201, 2);
  nic.add(3, 5201, 1);
  expect_elsewhere("the lowest location decides");
  nic.rules.erase(4);
  nic.add(3, 5201, RX_CLS_FLOW_DISC);
  expect_elsewhere("packets are discarded");
  nic.tables[7] = {2, 3};
  ethtool_rxnfc& spread = nic.add(3, 5201, 0);
  spread.fs.flow_type |= FLOW_RSS;
  spread.rss_context = 7;
  expect_elsewhere("a context of RSS spreads them");
}

TEST_F(DevmemSteering, RulesForOtherOrFewerPacketsDoNotCount) {
  Steering steering = open();
  nic.add(0, 5202, 2);
  nic.add(1, 5201, 2).fs.m_u.tcp_ip4_spec.psrc = 0xffff;  // one port of the peer
  nic.add(2, 5201, 2).fs.flow_type |= FLOW_EXT;           // one VLAN
  nic.add(3, 5201, 2).fs.flow_type = UDP_V4_FLOW;
  nic.add(4, 5201, 2).fs.flow_type = TCP_V6_FLOW;
  nic.add(5, 5201, 2).fs.h_u.tcp_ip4_spec.ip4dst = htonl(INADDR_LOOPBACK + 1);
  const auto change = steering.lead(address("127.0.0.1"), 2);
  ASSERT_TRUE(change.is_ok()) << change.status().to_string();
  EXPECT_TRUE(change->is_ours());
  EXPECT_EQ(nic.rules.size(), 7u);
}

TEST_F(DevmemSteering, ASharedRuleGoesWithItsLastUser) {
  Steering steering = open(), other = open();
  auto one = std::make_unique<SteeringChange>(*steering.lead(address("127.0.0.1"), 2));
  auto two = std::make_unique<SteeringChange>(*other.lead(address("127.0.0.1"), 2));
  EXPECT_TRUE(two->is_ours());
  EXPECT_EQ(nic.rules.size(), 1u);
  one.reset();
  EXPECT_EQ(nic.rules.size(), 1u);
  two.reset();
  EXPECT_TRUE(nic.rules.empty());
  EXPECT_EQ(records(), 0u);
}

TEST_F(DevmemSteering, WhatADeadProcessLeftIsRemovedAndNothingElse) {
  Steering steering = open();
  const auto living = steering.lead(address("127.0.0.1", 1), 2);
  const uint32_t ours = nic.rules.begin()->first;
  nic.add(5, 2, 2);  // an administrator's
  for (const uint32_t recorded : {6u, RX_CLS_LOC_ANY}) {
    leave({SteeringRecord::Kind::kRule, 2, nic.add(6, 3, 2).fs, {}});
    SteeringRecord record{SteeringRecord::Kind::kRule, 2, nic.rules[6].fs, {}};
    record.rule.location = recorded;  // the process has died before the NIC has told where the rule is
    leave(record);
    (void)open();
    EXPECT_EQ(nic.rules.size(), 2u);
    EXPECT_EQ(nic.rules.count(ours) + nic.rules.count(5), 2u);
    EXPECT_EQ(records(), 1u);
  }
}

TEST_F(DevmemSteering, ALeftRecordWhosePlaceAnotherRuleTookRemovesNothing) {
  leave({SteeringRecord::Kind::kRule, 2, nic.add(6, 3, 2).fs, {}});
  nic.add(6, 3, 1);  // to another queue
  (void)open();
  EXPECT_EQ(nic.rules.count(6), 1u);
  leave({SteeringRecord::Kind::kRule, 2, nic.add(6, 3, 2).fs, {}});
  nic.rules.clear();
  nic.add(5, 3, 2);  // at another place
  (void)open();
  EXPECT_EQ(nic.rules.count(5), 1u);
  EXPECT_EQ(records(), 0u);
}

TEST_F(DevmemSteering, ALeftRuleStaysWhileItsPortIsListenedTo) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    auto listener = listen_tcp(address(host, 0), 1);
    if (!listener.is_ok() && std::string(host) == "::1") GTEST_SKIP() << "no IPv6: " << listener.status().to_string();
    ASSERT_TRUE(listener.is_ok()) << listener.status().to_string();
    const SocketAddress at = *local_address(listener->get());
    SteeringRecord record;
    {
      Steering steering = open();
      const auto change = steering.lead(at, 2);
      record = {SteeringRecord::Kind::kRule, 2, nic.rules[0].fs, {}};
    }
    nic.rules[0].fs = record.rule;
    leave(record);
    Steering steering = open();
    EXPECT_EQ(nic.rules.size(), 1u) << host;
    EXPECT_EQ(records(), 1u) << host;
    // But not from who wants the same: it becomes theirs.
    {
      const auto change = steering.lead(at, 2);
      EXPECT_TRUE(change->is_ours()) << host;
      EXPECT_EQ(nic.rules.size(), 1u) << host;
      EXPECT_EQ(records(), 1u) << host;
    }
    EXPECT_TRUE(nic.rules.empty()) << host;
    nic.rules[0].fs = record.rule;
    leave(record);
    listener->reset();
    (void)open();
    EXPECT_TRUE(nic.rules.empty()) << host;
    EXPECT_EQ(records(), 0u) << host;
  }
}

TEST_F(DevmemSteering, AnUndoThatFailedIsTriedByTheNextProcess) {
  Steering steering = open();
  allow_log("the steering of lo stays changed");
  {
    const auto change = steering.lead(address("127.0.0.1"), 2);
    nic.refuses[ETHTOOL_SRXCLSRLDEL] = EIO;
  }
  EXPECT_TRUE(logged("the steering of lo stays changed"));
  EXPECT_EQ(nic.rules.size(), 1u);
  EXPECT_EQ(records(), 1u);
  nic.refuses.clear();
  (void)open();
  EXPECT_TRUE(nic.rules.empty());
  EXPECT_EQ(records(), 0u);
}

TEST_F(DevmemSteering, ARuleThatIsGoneAlreadyIsNoError) {
  Steering steering = open();
  {
    const auto change = steering.lead(address("127.0.0.1"), 2);
    nic.rules.clear();
  }
  {
    const auto change = steering.lead(address("127.0.0.1"), 2);
    nic.forgets_rules = true;
  }
  EXPECT_EQ(records(), 0u);
}

TEST_F(DevmemSteering, AForkedChildUndoesNothing) {
  Steering steering = open();
  auto change = std::make_unique<SteeringChange>(*steering.lead(address("127.0.0.1"), 2));
  const pid_t child = ::fork();
  if (child == 0) {
    change.reset();
    ::_exit(nic.rules.size() == 1 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(records(), 1u);
}

TEST_F(DevmemSteering, RecordsThatAreNoneAreRemoved) {
  (void)open();
  const auto index = *devmem::interface_index("lo");
  leave({SteeringRecord::Kind::kRssTable, 1, {}, nic.tables[0]});
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    if (entry.path().extension() != ".lock") path = entry.path();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  std::ofstream(path + "x") << "something else";
  EXPECT_EQ(records(), 2u);
  EXPECT_TRUE(SteeringRecords::open(directory.path(), index)->read()->empty());
  EXPECT_EQ(records(), 0u);
}

TEST_F(DevmemSteering, RecordsAreKeptWhereNobodyElseWrites) {
  std::filesystem::permissions(directory.path(), std::filesystem::perms::all);
  EXPECT_EQ(Steering::open(nic, "lo", directory.path()).status().code(), Code::kSystem);
  EXPECT_EQ(Steering::open(nic, "lo", directory.file("no/such")).status().native(), ENOENT);
  EXPECT_EQ(Steering::open(nic, "no-such-nic", directory.path()).status().code(), Code::kNotFound);
}

TEST_F(DevmemSteering, ARefusalSaysWhatIsMissing) {
  struct Refusal {
    uint32_t command;
    int error;
    Code code;
    const char* words;
  };
  for (const Refusal& refusal : {
           Refusal{ETHTOOL_SRXCLSRLINS, EPERM, Code::kSystem, "CAP_NET_ADMIN"},
           Refusal{ETHTOOL_SRXCLSRLINS, EOPNOTSUPP, Code::kUnsupported, "ethtool -K lo ntuple on"},
           Refusal{ETHTOOL_GRXCLSRLCNT, EOPNOTSUPP, Code::kUnsupported, "ethtool -K lo ntuple on"},
           Refusal{ETHTOOL_SRXCLSRLINS, ENOSPC, Code::kExhausted, "full"},
           Refusal{ETHTOOL_SRXCLSRLINS, EEXIST, Code::kSystem, "for another queue"},
           Refusal{ETHTOOL_SRXCLSRLINS, ENODEV, Code::kNotFound, "network namespace"},
           Refusal{ETHTOOL_SRXCLSRLINS, EIO, Code::kSystem, "the driver refuses it"},
           Refusal{ETHTOOL_SRSSH, EPERM, Code::kSystem, "CAP_NET_ADMIN"},
           Refusal{ETHTOOL_GRSSH, EOPNOTSUPP, Code::kUnsupported, "no RSS table"},
           Refusal{ETHTOOL_SRSSH, EINVAL, Code::kUnsupported, "not one that the driver takes"},
       }) {
    Steering steering = open();
    nic.refuses = {{refusal.command, refusal.error}};
    const bool is_table = refusal.command == ETHTOOL_SRSSH || refusal.command == ETHTOOL_GRSSH;
    const Status status = is_table ? steering.take_out_of_rss(1).status() : steering.lead(address("127.0.0.1"), 2).status();
    EXPECT_EQ(status.code(), refusal.code) << status.to_string();
    EXPECT_EQ(status.native(), refusal.error) << status.to_string();
    EXPECT_NE(status.detail().find(refusal.words), std::string::npos) << status.to_string();
    EXPECT_EQ(records(), 0u);
  }
  nic.refuses.clear();
  const Status no_queue = open().lead(address("127.0.0.1"), FakeNic::kQueues).status();
  EXPECT_EQ(no_queue.code(), Code::kUnsupported);
  EXPECT_NE(no_queue.detail().find("such a receive queue"), std::string::npos);
}

}  // namespace
}  // namespace tcpx::testing
