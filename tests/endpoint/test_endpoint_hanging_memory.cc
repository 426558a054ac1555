// Memory that never answers holds up nothing but the operation that wants it.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <future>
#include <thread>
#include <tuple>
#include <vector>

#include "endpoint/operation_phase.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/expect_log.h"
#include "tests/support/hanging_memory.h"
#include "tests/support/same_bytes.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTimeout(300);
// One that would be copied by the thread that makes progress, and one of several slices.
constexpr size_t kSizes[] = {size_t{64} << 10, size_t{3} << 20};

class EndpointHangingMemory : public EndpointPairTest {
 protected:
  EndpointHangingMemory() {
    for (const char* line : {"has ended", "did not end within"}) allow_log(line);
  }

  /// Another connection of the same endpoints carries bytes, short and long, at once and by threads.
  void expect_goes_on() {
    const ConnId before_a = a_.conn, before_b = b_.conn;
    connect(a_, b_);
    for (const size_t bytes : {size_t{100}, size_t{100} << 10, size_t{4} << 20}) {
      GuardedBuffer from(bytes), to(bytes);
      std::fill(from.span().begin(), from.span().end(), std::byte{7});
      for (const bool back : {false, true}) {
        const Side &out = back ? b_ : a_, &in = back ? a_ : b_;
        std::fill(to.span().begin(), to.span().end(), std::byte{0});
        const LocalRange source = range(out, from.span()), target = range(in, to.span());
        const auto receive = in->recv_async(in.conn, {&target, 1});
        EXPECT_TRUE(done(out, out->send_async(out.conn, {&source, 1})));
        EXPECT_TRUE(done(in, receive));
        EXPECT_TRUE(same(to.span(), from.span()));
      }
    }
    std::tie(a_.conn, b_.conn) = std::pair(before_a, before_b);
  }
  /// As `fails`, and not long after what docs/completion.md allows; a loaded machine has some time more.
  static ::testing::AssertionResult ends_late(const Side& side, const Result<OperationId>& id) {
    const TimePoint until = std::chrono::steady_clock::now() + kTimeout + kGrace + seconds(10);
    const auto failed = fails(side, id, Code::kTimeout);
    return failed && std::chrono::steady_clock::now() > until ? ::testing::AssertionFailure() << "too late" : failed;
  }
};

/// The receiver reads the sender's memory.
class EndpointHangingPeer : public EndpointHangingMemory {};
TCPX_OVER_SETUPS(EndpointHangingPeer, (std::vector<EndpointSetup>{{.same_host = true}, {.same_host = true, .checksums = true}}));

// All of them at once, each on a connection of its own: they wait for the same time.
TEST_P(EndpointHangingPeer, IsGivenUpAtTheDeadlineAndHoldsUpNobodyElse) {
  struct Move {
    Move(OperationKind its_kind, size_t bytes) : kind(its_kind), there(bytes), here(bytes) {}
    const OperationKind kind;
    HangingMemory there;
    GuardedBuffer here;
    LocalRange to{};
    Result<OperationId> id = Status(Code::kInternal, "submit", "not yet");
  };
  std::deque<Move> moves;
  for (const OperationKind kind : {OperationKind::kRecv, OperationKind::kRead, OperationKind::kWrite}) {
    for (const size_t bytes : kSizes) {
      connect(a_, b_);
      Move& move = moves.emplace_back(kind, bytes);
      TCPX_NEEDS_HANGING(move.there);
      const LocalRange from = range(b_, move.there.span()), to = move.to = range(a_, move.here.span());
      const SubmitOptions late{.timeout = kTimeout};
      if (kind == OperationKind::kRecv) {
        move.id = a_->recv_async(a_.conn, {&to, 1}, late);
        ASSERT_TRUE(b_->send_async(b_.conn, {&from, 1}).is_ok());
      } else if (kind == OperationKind::kRead) {
        const RemoteRange slot{b_->advertise(b_.conn, from).value(), 0};
        move.id = a_->read_async(a_.conn, {&to, 1}, {&slot, 1}, late);
      } else {
        const RemoteRange slot{a_->advertise(a_.conn, to).value(), 0};
        move.id = b_->write_async(b_.conn, {&from, 1}, {&slot, 1}, late);
      }
    }
  }
  expect_goes_on();
  for (Move& move : moves) {
    const std::span<std::byte> here = move.here.span();
    SCOPED_TRACE(concat("kind ", static_cast<int>(move.kind), ", ", here.size(), " bytes"));
    EXPECT_TRUE(ends_late(move.kind == OperationKind::kWrite ? b_ : a_, move.id));
    EXPECT_TRUE(wait_until([&] { return a_->deregister(move.to.memory).is_ok(); })) << "nothing uses it any more";
    std::fill(here.begin(), here.end(), std::byte{9});
    move.there.release();
  }
  expect_goes_on();
  std::this_thread::sleep_for(milliseconds(50));
  for (Move& move : moves) {
    EXPECT_TRUE(all_are(move.here.span(), std::byte{9})) << "nothing is written after the end";
  }
}

TEST_P(EndpointHangingPeer, DoesNotHoldUpTheEndOfTheEndpoint) {
  for (const size_t bytes : kSizes) {
    HangingMemory there(bytes);
    TCPX_NEEDS_HANGING(there);
    GuardedBuffer here(bytes);
    make_pair();
    const LocalRange from = range(b_, there.span()), to = range(a_, here.span());
    ASSERT_TRUE(a_->recv_async(a_.conn, {&to, 1}).is_ok());
    ASSERT_TRUE(b_->send_async(b_.conn, {&from, 1}).is_ok());
    expect_goes_on();
    const TimePoint begin = std::chrono::steady_clock::now();
    a_.reset();
    b_.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
    std::fill(here.span().begin(), here.span().end(), std::byte{9});
    there.release();
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_TRUE(all_are(here.span(), std::byte{9}));
  }
}

/// This end's own memory, for whatever comes or goes.
class EndpointHangingOwn : public EndpointHangingMemory {
 protected:
  /// Moves bytes between memory of `b_` and memory of `a_` that hangs.
  Result<OperationId> begin(bool sends, const LocalRange& hanging, const LocalRange& other) {
    theirs_ = sends ? b_->recv_async(b_.conn, {&other, 1}) : b_->send_async(b_.conn, {&other, 1});
    EXPECT_TRUE(theirs_.is_ok());
    return sends ? a_->send_async(a_.conn, {&hanging, 1}) : a_->recv_async(a_.conn, {&hanging, 1});
  }
  Result<OperationId> theirs_ = OperationId{};  // of `b_`
};
TCPX_OVER_SETUPS(EndpointHangingOwn,
                 (std::vector<EndpointSetup>{
                     {.same_host = true}, {.same_host = true, .hidden = true}, {.same_host = true, .checksums = true}}));

TEST_P(EndpointHangingOwn, HoldsUpNobodyElseAndTheOperationGoesOnWithIt) {
  for (const bool sends : {false, true}) {
    for (const size_t bytes : kSizes) {
      SCOPED_TRACE(concat(sends ? "sends " : "receives ", bytes));
      connect(a_, b_);
      HangingMemory here(bytes);
      TCPX_NEEDS_HANGING(here);
      GuardedBuffer there(bytes);
      std::fill(there.span().begin(), there.span().end(), std::byte{5});
      const LocalRange hanging = range(a_, here.span()), other = range(b_, there.span());
      const auto id = begin(sends, hanging, other);
      ASSERT_TRUE(id.is_ok());
      EXPECT_EQ(a_->wait(*id, kTimeout).code(), Code::kTimeout);
      expect_goes_on();
      EXPECT_EQ(a_->poll(*id).state, OperationState::kPending);
      here.release();
      EXPECT_TRUE(done(a_, id));
      EXPECT_TRUE(done(b_, theirs_));
      if (!sends) {
        EXPECT_TRUE(all_are(here.span(), std::byte{5}));
      }
    }
  }
}

// A slot that the peer has used once it may use by itself, if it can: to find that out must not wait for the memory either.
TEST_P(EndpointHangingOwn, HoldsUpNobodyElseWhenAPeerWritesThere) {
  for (const size_t bytes : kSizes) {
    connect(a_, b_);
    HangingMemory here(bytes);
    TCPX_NEEDS_HANGING(here);
    const std::span<std::byte> inner = here.span().subspan(8192, bytes - 16384);  // the ends hang, too
    GuardedBuffer there(inner.size());
    std::fill(there.span().begin(), there.span().end(), std::byte{5});
    const RemoteRange slot{a_->advertise(a_.conn, range(a_, inner)).value(), 0};
    const LocalRange from = range(b_, there.span());
    const auto id = b_->write_async(b_.conn, {&from, 1}, {&slot, 1});
    ASSERT_TRUE(id.is_ok());
    expect_goes_on();
    EXPECT_EQ(b_->poll(*id).state, OperationState::kPending);
    here.release();
    EXPECT_TRUE(done(b_, id));
    EXPECT_TRUE(all_are(inner, std::byte{5}));
    EXPECT_TRUE(b_->write(b_.conn, from, slot).is_ok()) << "by lease now, or not";
  }
}

/// Both ways at once: their ends take the same time.
class EndpointHangingEnd : public EndpointHangingOwn {};
TCPX_OVER_SETUPS(EndpointHangingEnd, (std::vector<EndpointSetup>{{.same_host = true}, {.same_host = true, .checksums = true}}));

TEST_P(EndpointHangingEnd, DoesNotHoldUpTheEndOfTheEndpoint) {
  std::deque<HangingMemory> hanging;
  GuardedBuffer there(4 * kSizes[0]);
  std::vector<Side> sides;
  for (const bool hidden : {false, true}) {
    setup_.hidden = hidden;
    make_pair();
    for (const bool sends : {true, false}) {
      if (!sends) connect(a_, b_);
      const LocalRange other = range(b_, there.span().subspan(hanging.size() * kSizes[0], kSizes[0]));
      HangingMemory& here = hanging.emplace_back(kSizes[0]);
      TCPX_NEEDS_HANGING(here);
      ASSERT_TRUE(begin(sends, range(a_, here.span()), other).is_ok());
    }
    expect_goes_on();
    sides.push_back(std::move(a_));
    sides.push_back(std::move(b_));
  }
  const TimePoint begin = std::chrono::steady_clock::now();
  std::vector<std::future<void>> ends;
  for (Side& side : sides) ends.push_back(std::async(std::launch::async, [&side] { side.reset(); }));
  ends.clear();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
}

}  // namespace
}  // namespace tcpx::testing
