// Endpoints of one host, as their applications see it: all that moves moves whole, and the line of the connection says how.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/environment.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/expect_log.h"
#include "tests/support/same_bytes.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

class EndpointSameHost : public EndpointPairTest {
 protected:
  static std::string path_of(const Side& side) {
    for (const ConnectionStats& stats : side->stats().connections) {
      if (stats.conn == side.conn) return stats.path;
    }
    return {};
  }
};

TEST_P(EndpointSameHost, BytesOfAnyNumberMoveBothWays) {
  const char* const path =
      GetParam().hidden ? "; same host, host memory through shared memory: this end does not read the other's" : "; same process";
  EXPECT_TRUE(path_of(a_).ends_with(path)) << path_of(a_);
  EXPECT_TRUE(path_of(b_).ends_with(path)) << path_of(b_);
  for (const auto& [from, to] : {std::pair(&a_, &b_), std::pair(&b_, &a_)}) {
    for (const size_t bytes : {1, 8, 4096, 4097, 65536, 1 << 20}) {
      GuardedBuffer source(bytes), target(bytes);
      for (size_t i = 0; i < bytes; ++i) source.data()[i] = static_cast<std::byte>(i * 7 + bytes);
      const LocalRange out = range(*from, source.span()), in = range(*to, target.span());
      const auto receive = (*to)->recv_async(to->conn, {&in, 1});
      EXPECT_TRUE(done(*from, (*from)->send_async(from->conn, {&out, 1})));
      EXPECT_TRUE(done(*to, receive));
      EXPECT_TRUE(testing::same(source.span(), target.span())) << bytes;
      EXPECT_TRUE(target.guards_intact());
      ASSERT_TRUE((*from)->deregister(out.memory).is_ok());
      ASSERT_TRUE((*to)->deregister(in.memory).is_ok());
    }
  }
}

TEST_P(EndpointSameHost, ManyWritesOfEightBytesAndTheirNotifications) {
  constexpr size_t kCount = 2000;
  std::vector<uint64_t> source(kCount), target(kCount);
  for (size_t i = 0; i < kCount; ++i) source[i] = i * 0x9e3779b97f4a7c15u;
  const auto bytes = [](std::vector<uint64_t>& words) { return std::as_writable_bytes(std::span(words)); };
  const LocalRange out = range(a_, bytes(source)), in = range(b_, bytes(target));
  const RemoteSlot slot = b_->advertise(b_.conn, in).value();
  std::vector<Result<OperationId>> writes;
  for (size_t i = 0; i < kCount; ++i) {
    const LocalRange word{out.memory, &source[i], 8};
    const RemoteRange there{slot, i * 8};
    const NotifyMsg notify{.name = "word", .msg = std::to_string(i)};
    writes.push_back(a_->write_async(a_.conn, {&word, 1}, {&there, 1}, {.notify = &notify}));
  }
  for (const auto& write : writes) ASSERT_TRUE(done(a_, write));
  EXPECT_EQ(source, target);
  size_t notified = 0;
  EXPECT_TRUE(wait_until([&] {
    notified += b_->get_notifs().size();
    return notified == kCount;
  })) << notified;
}

// Longer than the thread polls, so that each message has to wake it.
TEST_P(EndpointSameHost, ASleeperIsWoken) {
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3 + i));
    const Side& from = i % 2 == 0 ? a_ : b_;
    const Side& to = i % 2 == 0 ? b_ : a_;
    ASSERT_TRUE(from->notify(from.conn, {.name = "n", .msg = "m"}).is_ok());
    std::vector<NotifyMsg> come;
    ASSERT_TRUE(wait_until([&] {
      come = to->get_notifs();
      return !come.empty();
    })) << i;
  }
}

TEST_P(EndpointSameHost, AnEndpointThatGoesIsGone) {
  allow_log("has ended: ");
  GuardedBuffer target(100);
  const LocalRange in = range(a_, target.span());
  const auto receive = a_->recv_async(a_.conn, {&in, 1});
  b_.reset();
  EXPECT_TRUE(fails(a_, receive, Code::kPeerGone));
}

TCPX_OVER_SETUPS(EndpointSameHost, on_one_host(few_setups()));

class EndpointOverTcp : public EndpointSameHost {
  void prepare() override {}
};

TEST_P(EndpointOverTcp, OneEndThatSwitchesItOffIsEnough) {
  make_pair({.same_host = false}, {});
  EXPECT_NE(path_of(a_).find("; TCP on one host: this end does not share memory"), std::string::npos) << path_of(a_);
  EXPECT_NE(path_of(b_).find("; TCP on one host: the peer does not share memory"), std::string::npos) << path_of(b_);
}

TEST_P(EndpointOverTcp, TheVariableSwitchesItOff) {
  ASSERT_TRUE(environment_set(Variable::kLocal, "off").is_ok());
  make_pair();
  ASSERT_TRUE(environment_set(Variable::kLocal, "").is_ok());
  EXPECT_NE(path_of(a_).find("; TCP on one host: this end"), std::string::npos) << path_of(a_);
}

TEST_P(EndpointOverTcp, BytesMoveThereToo) {
  make_pair({}, {.same_host = false});
  GuardedBuffer source(100'000), target(100'000);
  const LocalRange out = range(a_, source.span()), in = range(b_, target.span());
  const auto receive = b_->recv_async(b_.conn, {&in, 1});
  EXPECT_TRUE(done(a_, a_->send_async(a_.conn, {&out, 1})));
  EXPECT_TRUE(done(b_, receive));
}

TCPX_OVER_SETUPS(EndpointOverTcp, on_one_host(few_setups()));

}  // namespace
}  // namespace tcpx::testing
