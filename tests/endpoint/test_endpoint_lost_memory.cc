// Memory of the application that goes away under an operation is an error of that operation, whichever way the bytes go.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/support/endpoint_fixture.h"
#include "tests/support/expect_log.h"
#include "tests/support/passing_memory.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

constexpr size_t kFewBytes = 100, kManyBytes = size_t{1} << 20;

class EndpointLostMemory : public EndpointPairTest {
 protected:
  /// Ends with an error of the system, or with that of the other end's memory.
  static ::testing::AssertionResult fails(const Side& side, const Result<OperationId>& id) {
    if (!id.is_ok()) return ::testing::AssertionFailure() << id.status().to_string();
    const Status status = side->wait(*id, std::chrono::seconds(20));
    if (status.is_ok() || status.code() == Code::kTimeout) return ::testing::AssertionFailure() << status.to_string();
    return ::testing::AssertionSuccess() << status.to_string();
  }
  /// Another connection of the same endpoints carries bytes.
  void expect_goes_on() {
    const ConnId before_a = a_.conn, before_b = b_.conn;
    connect(a_, b_);
    GuardedBuffer from(kManyBytes), to(kManyBytes);
    const LocalRange out = range(a_, from.span()), in = range(b_, to.span());
    const auto receive = b_->recv_async(b_.conn, {&in, 1});
    EXPECT_TRUE(done(a_, a_->send_async(a_.conn, {&out, 1})));
    EXPECT_TRUE(done(b_, receive));
    std::tie(a_.conn, b_.conn) = std::pair(before_a, before_b);
  }
};
std::vector<EndpointSetup> of_host_memory() {
  std::vector<EndpointSetup> setups = few_setups();
  std::erase_if(setups, [](const EndpointSetup& setup) { return setup.memory != MemoryType::kHost; });
  return setups;
}
TCPX_OVER_SETUPS(EndpointLostMemory, of_host_memory());

TEST_P(EndpointLostMemory, OfASender) {
  allow_log("");
  for (const size_t bytes : {kFewBytes, kManyBytes}) {
    for (const MemoryEnd end : kMemoryEnds) {
      SCOPED_TRACE(name_of(end));
      connect(a_, b_);
      PassingMemory from(bytes);
      GuardedBuffer to(bytes);
      const LocalRange out = range(a_, {from.data(), bytes}), in = range(b_, to.span());
      from.go(end);
      const auto receive = b_->recv_async(b_.conn, {&in, 1});
      EXPECT_TRUE(fails(a_, a_->send_async(a_.conn, {&out, 1})));
      EXPECT_TRUE(fails(b_, receive));
      expect_goes_on();
    }
  }
}

TEST_P(EndpointLostMemory, OfAReceiver) {
  allow_log("");
  for (const size_t bytes : {kFewBytes, kManyBytes}) {
    for (const MemoryEnd end : kMemoryEnds) {
      SCOPED_TRACE(name_of(end));
      connect(a_, b_);
      GuardedBuffer from(bytes);
      PassingMemory to(bytes);
      const LocalRange out = range(a_, from.span()), in = range(b_, {to.data(), bytes});
      to.go(end);
      const auto receive = b_->recv_async(b_.conn, {&in, 1});
      const auto send = a_->send_async(a_.conn, {&out, 1});  // by attach alone does the sender hear of it
      EXPECT_TRUE(fails(b_, receive));
      if (bytes == kManyBytes && GetParam().same_host && !GetParam().hidden) {
        EXPECT_TRUE(fails(a_, send));
      }
      expect_goes_on();
    }
  }
}

TEST_P(EndpointLostMemory, ThatThePeerReadsOrWrites) {
  allow_log("");
  for (const size_t bytes : {kFewBytes, kManyBytes}) {
    for (const MemoryEnd end : kMemoryEnds) {
      for (const bool reads : {true, false}) {
        SCOPED_TRACE(std::string(name_of(end)) + (reads ? " read" : " written"));
        connect(a_, b_);
        GuardedBuffer here(bytes);
        PassingMemory there(bytes);
        const LocalRange local = range(a_, here.span()), remote = range(b_, {there.data(), bytes});
        const RemoteRange slot{b_->advertise(b_.conn, remote).value(), 0};
        there.go(end);
        const auto id =
            reads ? a_->read_async(a_.conn, {&local, 1}, {&slot, 1}) : a_->write_async(a_.conn, {&local, 1}, {&slot, 1});
        EXPECT_TRUE(fails(a_, id));
        expect_goes_on();
      }
    }
  }
}

// Host memory that stands in for a GPU's. The copy into it cannot even begin.
class EndpointLostStandIn : public EndpointPairTest {};
TCPX_OVER_SETUPS(EndpointLostStandIn, std::vector<EndpointSetup>{{.memory = MemoryType::kCuda}});

TEST_P(EndpointLostStandIn, AShortReceiveEnds) {
  allow_log("");
  PassingMemory to(kFewBytes);
  GuardedBuffer from(kFewBytes);
  const LocalRange out = range(a_, from.span()), in = range(b_, {to.data(), kFewBytes});
  to.go(MemoryEnd::kUnmapped);
  const auto receive = b_->recv_async(b_.conn, {&in, 1});
  EXPECT_TRUE(done(a_, a_->send_async(a_.conn, {&out, 1})));
  EXPECT_TRUE(fails(b_, receive, Code::kSystem));
}

}  // namespace
}  // namespace tcpx::testing
