// What the broker of tcpx_devmemd refuses, and what its clients do not believe.
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "base/text.h"
#include "tests/devmem/broker_test.h"
#include "tests/support/expect_log.h"
#include "tests/support/in_child.h"
#include "tests/support/own_network.h"

namespace tcpx::testing {
namespace {

using devmem::BrokerAnswer;
using devmem::BrokerQuestion;
using devmem::BrokerQuestionKind;

void expect_refusal(const BrokerAnswer& answer, Code code, const std::string& words) {
  EXPECT_EQ(code_of(answer), code) << text_of(answer);
  EXPECT_NE(text_of(answer).find(words), std::string::npos) << text_of(answer);
}

class DevmemBrokerRefusals : public BrokerTest {
 protected:
  BrokerAnswer bind_with(const BrokerQuestion& question) { return RawClient(socket()).ask(question, make_dmabuf().get()); }
};

BrokerQuestion bind_question(const char* interface, uint64_t bytes = kTestDmabufBytes) {
  BrokerQuestion question{.kind = BrokerQuestionKind::kBind, .bytes = bytes};
  std::memcpy(question.interface, interface, ::strnlen(interface, sizeof question.interface));
  return question;
}

TEST_F(DevmemBrokerRefusals, AMessageOfAnotherKindEndsTheConnection) {
  run_broker();
  struct {
    BrokerQuestion question = bind_question("lo");
    std::byte more{};
  } message;
  const auto expect_end = [&](size_t bytes) {
    RawClient client(socket());
    client.send(&message, bytes, make_dmabuf().get());
    expect_refusal(client.answer(), Code::kProtocol, "no question of version 1");
    EXPECT_TRUE(wait_until([&] { return client.has_ended(); }));
  };
  expect_end(sizeof(BrokerQuestion) - 1);
  expect_end(sizeof(BrokerQuestion) + 1);
  message.question.magic++;
  expect_end(sizeof(BrokerQuestion));
  message.question = bind_question("lo");
  message.question.version++;
  expect_end(sizeof(BrokerQuestion));
  EXPECT_TRUE(is_undone());
  RawClient client(socket());
  expect_refusal(client.ask({.kind = static_cast<BrokerQuestionKind>(9)}), Code::kUnsupported, "another kind");
  EXPECT_EQ(code_of(client.bind()), Code::kOk);
}

TEST_F(DevmemBrokerRefusals, Binds) {
  run_broker();
  expect_refusal(bind_with(bind_question("eth1")), Code::kUnsupported, "--interface leaves out eth1");
  expect_refusal(bind_with(bind_question("l9")), Code::kNotFound, "no interface l9");
  for (const char* name : {"", "lo\n", "lo lo", "0123456789abcdef"})
    expect_refusal(bind_with(bind_question(name)), Code::kInvalidArgument, "no interface's name");
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{4097}, devmem::kMostBoundBytes + 4096})
    expect_refusal(bind_with(bind_question("lo", bytes)), Code::kInvalidArgument, "whole pages");
  expect_refusal(RawClient(socket()).ask(bind_question("lo")), Code::kInvalidArgument, "without a dma-buf");
  // The size turns out when it is bound.
  expect_refusal(bind_with(bind_question("lo", 2 * kTestDmabufBytes)), Code::kInvalidArgument, "has 65536 bytes, not 131072");
  EXPECT_TRUE(is_undone());
  RawClient client(socket());
  ASSERT_EQ(code_of(client.bind()), Code::kOk);
  expect_refusal(client.bind(), Code::kInvalidArgument, "one binding");
  EXPECT_EQ(bindings(), 1u);
}

TEST_F(DevmemBrokerRefusals, TheFirstQueueIsNeverBound) {
  queues = 1;
  run_broker();
  expect_refusal(RawClient(socket()).bind(), Code::kUnsupported, "no receive queue to spare");
}

TEST_F(DevmemBrokerRefusals, NobodyLeadsWhatIsNotTheirs) {
  run_broker();
  RawClient client(socket());
  const UniqueFd listener = listen_at("127.0.0.1");
  expect_refusal(client.lead(listener.get()), Code::kInvalidArgument, "no binding");
  ASSERT_EQ(code_of(client.bind()), Code::kOk);
  expect_refusal(client.ask({.kind = BrokerQuestionKind::kLead}), Code::kInvalidArgument, "without a listening socket");
  expect_refusal(client.lead(make_dmabuf().get()), Code::kInvalidArgument, "no TCP socket");
  expect_refusal(client.lead(UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)).get()), Code::kInvalidArgument,
                 "no TCP socket");
  expect_refusal(client.lead(UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)).get()), Code::kInvalidArgument,
                 "no TCP socket");
  const SocketAddress local = SocketAddress::loopback(0);
  UniqueFd silent(::socket(local.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(silent.get(), local.get(), local.length()), 0);
  expect_refusal(client.lead(silent.get()), Code::kInvalidArgument, "does not listen");
  // A wildcard, and an address that is here by name only: a rule leads packets of others with them.
  expect_refusal(client.lead(listen_at("0.0.0.0").get()), Code::kInvalidArgument, "at no address of lo");
  UniqueFd foreign(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ASSERT_EQ(::setsockopt(foreign.get(), SOL_IP, IP_FREEBIND, &on, sizeof on), 0);
  const SocketAddress elsewhere = resolve("192.0.2.1", 0)->front();
  ASSERT_EQ(::bind(foreign.get(), elsewhere.get(), elsewhere.length()), 0);
  ASSERT_EQ(::listen(foreign.get(), 1), 0);
  expect_refusal(client.lead(foreign.get()), Code::kInvalidArgument, "at no address of lo");
  EXPECT_TRUE(shared_nic.rule_queues().empty());
  const BrokerAnswer led = client.lead(listener.get());
  EXPECT_EQ(code_of(led), Code::kOk) << text_of(led);
  expect_refusal(client.ask({.kind = BrokerQuestionKind::kUnlead, .rule = led.id + 1}), Code::kNotFound, "no rule 2");
}

TEST_F(DevmemBrokerRefusals, AListenerOfAnotherNetworkOrInterfaceLeadsNothing) {
  run_broker();
  RawClient client(socket());
  ASSERT_EQ(code_of(client.bind()), Code::kOk);
  UniqueFd far;
  const std::string missing = in_own_network([&] { far = listen_at("127.0.0.1"); });
  if (!missing.empty()) GTEST_SKIP() << missing;
  expect_refusal(client.lead(far.get()), Code::kInvalidArgument, "another network namespace");
  const UniqueFd listener = listen_at("127.0.0.1");
  constexpr int kSoBindToIfindex = 62, kOtherInterface = 0x7fff;
  const int own = static_cast<int>(*devmem::interface_index("lo"));
  ASSERT_EQ(::setsockopt(listener.get(), SOL_SOCKET, kSoBindToIfindex, &kOtherInterface, sizeof kOtherInterface), 0);
  expect_refusal(client.lead(listener.get()), Code::kInvalidArgument, "bound to another interface");
  ASSERT_EQ(::setsockopt(listener.get(), SOL_SOCKET, kSoBindToIfindex, &own, sizeof own), 0);
  EXPECT_EQ(code_of(client.lead(listener.get())), Code::kOk);
}

TEST_F(DevmemBrokerRefusals, RulesAndClientsAreCounted) {
  devmem::BrokerConfig small = config();
  small.clients = small.rules_of_client = 1;
  run_broker(small);
  RawClient client(socket());
  ASSERT_EQ(code_of(client.bind()), Code::kOk);
  const UniqueFd first = listen_at("127.0.0.1"), second = listen_at("127.0.0.1");
  const BrokerAnswer led = client.lead(first.get());
  ASSERT_EQ(code_of(led), Code::kOk) << text_of(led);
  expect_refusal(client.lead(second.get()), Code::kExhausted, "at most 1 rules");
  EXPECT_EQ(code_of(client.ask({.kind = BrokerQuestionKind::kUnlead, .rule = led.id})), Code::kOk);
  EXPECT_EQ(code_of(client.lead(second.get())), Code::kOk);
  allow_log("is turned away");
  const Status status = bind().status();
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_NE(status.detail().find("1 connections"), std::string::npos) << status.to_string();
}

TEST_F(DevmemBrokerRefusals, NoUserTakesAllConnectionsAndRules) {
  devmem::BrokerConfig small = config();
  small.clients_of_user = 2;
  small.rules_of_user = 1;
  run_broker(small);
  const UniqueFd first = listen_at("127.0.0.1"), second = listen_at("127.0.0.1");
  auto one = std::make_unique<RawClient>(socket());
  RawClient other(socket());
  ASSERT_EQ(code_of(one->bind()), Code::kOk);
  ASSERT_EQ(code_of(other.bind()), Code::kOk);
  ASSERT_EQ(code_of(one->lead(first.get())), Code::kOk);
  const std::string user = concat("user ", ::geteuid());
  expect_refusal(other.lead(second.get()), Code::kExhausted, user + " has 1 rules, as many as one user may have");
  allow_log("is turned away");
  const Status status = bind().status();
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_NE(status.detail().find(user + " has 2 connections"), std::string::npos) << status.to_string();
  one.reset();
  EXPECT_TRUE(wait_until([&] { return bindings() == 1; }));
  EXPECT_TRUE(wait_until([&] { return code_of(other.lead(second.get())) == Code::kOk; }));
  EXPECT_TRUE(wait_until([&] { return bind().is_ok(); }));
}

TEST_F(DevmemBrokerRefusals, OtherUsersAreTurnedAwayUnlessTheyAreInTheGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr uid_t kNobody = 65534;
  constexpr gid_t kGroup = 12345;
  const auto asked_by_nobody = [&](std::vector<gid_t> groups) {
    return in_child([&] {
      if (::setgroups(groups.size(), groups.data()) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) return 200;
      const Status status = bind().status();
      if (status.detail().find("not in the group") != std::string::npos) return 100;
      return static_cast<int>(status.code());
    });
  };
  devmem::BrokerConfig grouped = config();
  grouped.group = kGroup;
  run_broker(grouped);
  ASSERT_EQ(::chmod(place.path().c_str(), 0755), 0);
  struct stat told {};
  ASSERT_EQ(::stat(socket().c_str(), &told), 0);
  EXPECT_EQ(told.st_mode & 0777, 0660u);
  EXPECT_EQ(told.st_gid, kGroup);
  EXPECT_EQ(asked_by_nobody({kGroup}), 0);
  EXPECT_EQ(asked_by_nobody({}), static_cast<int>(Code::kSystem));  // EACCES: the socket's mode
  // And if that were wider:
  ASSERT_EQ(::chmod(socket().c_str(), 0666), 0);
  allow_log("is turned away");
  EXPECT_EQ(asked_by_nobody({}), 100);
}

TEST_F(DevmemBrokerRefusals, ASocketIsAPath) {
  devmem::BrokerConfig nameless = config();
  nameless.socket = "devmemd";
  EXPECT_EQ(start(nameless).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(devmem::bind_by_broker("devmemd", "lo", 0, kTestDmabufBytes).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(devmem::bind_by_broker(socket(), "0123456789abcdef", 0, kTestDmabufBytes).status().code(), Code::kInvalidArgument);
  const Status nobody = bind().status();
  EXPECT_EQ(nobody.code(), Code::kPeerGone);
  EXPECT_NE(nobody.detail().find(socket()), std::string::npos) << nobody.to_string();
}

// What listens at the path need not be a broker.
TEST_F(DevmemBrokerRefusals, AnAnswerThatIsNoneEndsTheConnection) {
  const ForeignFd listener = listen_unix(socket(), 1, SOCK_SEQPACKET).value();
  const auto answered = [&](const BrokerAnswer& answer, size_t bytes) {
    Status status;
    std::thread asks([&] { status = bind().status(); });
    ForeignFd client;
    EXPECT_TRUE(wait_until([&] { return bool(client = accept_unix(listener.get())); }));
    EXPECT_EQ(::send(client.get(), &answer, bytes, 0), static_cast<ssize_t>(bytes));
    asks.join();
    return status.code();
  };
  BrokerAnswer answer{.code = static_cast<int32_t>(Code::kExhausted)};
  EXPECT_EQ(answered(answer, sizeof answer), Code::kExhausted);
  EXPECT_EQ(answered(answer, sizeof answer - 1), Code::kProtocol);
  answer.text_bytes = sizeof answer.text + 1;
  EXPECT_EQ(answered(answer, sizeof answer), Code::kProtocol);
  answer = {.code = static_cast<int32_t>(kLastCode) + 1};
  EXPECT_EQ(answered(answer, sizeof answer), Code::kProtocol);
  answer = {.version = 2};
  EXPECT_EQ(answered(answer, sizeof answer), Code::kProtocol);
  answer = {.magic = 1};
  EXPECT_EQ(answered(answer, sizeof answer), Code::kProtocol);
}

}  // namespace
}  // namespace tcpx::testing
