// Completion means applied: a thread that sees the end of a transfer, at either end, sees all its bytes, and one that sees its
// failure may unmap the memory at once. The detectors look from another thread while generation after generation is written.
#include <gtest/gtest.h>

#include <thread>

#include "base/text.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/expect_log.h"
#include "tests/support/mapping.h"
#include "tests/support/same_bytes.h"
#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using testing::fill_words;
using testing::GuardedBuffer;
using testing::Mapping;
using testing::only_word;
using Ids = std::vector<Result<OperationId>>;

class EndpointTorn : public testing::EndpointPairTest {
 protected:
  // Every word holds the generation.
  struct Step {
    size_t bytes;
    int rounds;
  };
  static constexpr Step kSteps[] = {{64, 800}, {4096, 300}, {8192, 100}, {2u << 20, 6}};

  /// The range in `parts` parts.
  static std::vector<LocalRange> cut(const LocalRange& whole, size_t parts) {
    std::vector<LocalRange> list;
    const size_t each = whole.bytes / parts / 8 * 8;
    for (size_t i = 0; i < parts; ++i) {
      const size_t begin = i * each;
      list.push_back({whole.memory, static_cast<std::byte*>(whole.data) + begin, i + 1 == parts ? whole.bytes - begin : each});
    }
    return list;
  }
};
TCPX_OVER_SETUPS(EndpointTorn, testing::all_setups());

TEST_P(EndpointTorn, AReceiverSeesAllOfAMessageOrItsEndNotYet) {
  for (const auto& [bytes, rounds] : kSteps) {
    SCOPED_TRACE(bytes);
    GuardedBuffer source(bytes), target(bytes);
    const LocalRange out = range(a_, source.span()), in = range(b_, target.span());
    // The sender overwrites its memory as soon as it hears that it may.
    std::thread sender([&, out, rounds = rounds] {
      for (int i = 1; i <= rounds; ++i) {
        fill_words(source.span(), static_cast<uint64_t>(i));
        ASSERT_TRUE(a_->send(a_.conn, cut(out, i % 3 == 0 ? 3 : 1)).is_ok());
        fill_words(source.span(), ~uint64_t{0});
      }
    });
    for (int i = 1; i <= rounds; ++i) {
      const auto id = b_->recv_async(b_.conn, cut(in, i % 2 == 0 ? 2 : 1));
      EXPECT_TRUE(id.is_ok());
      OperationAnswer answer;
      EXPECT_TRUE(testing::wait_until([&] { return (answer = b_->poll(*id)).state != OperationState::kPending; }));
      EXPECT_EQ(answer.state, OperationState::kDone) << answer.status.to_string();
      EXPECT_EQ(only_word(target.span()), static_cast<uint64_t>(i));
      if (HasFailure()) break;
    }
    sender.join();
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(EndpointTorn, ATargetSeesAllOfAWriteOnceEitherEndIsTold) {
  for (const auto& [bytes, rounds] : kSteps) {
    SCOPED_TRACE(bytes);
    GuardedBuffer source(bytes), target(bytes);
    const LocalRange out = range(a_, source.span()), in = range(b_, target.span());
    const RemoteSlot slot = b_->advertise(b_.conn, in).value();
    for (int i = 1; i <= rounds; ++i) {
      const auto generation = static_cast<uint64_t>(i);
      fill_words(source.span(), generation);
      const auto parts = cut(out, i % 3 == 0 ? 3 : 1);
      std::vector<RemoteRange> places;
      for (const LocalRange& part : parts)
        places.push_back({slot, static_cast<uint64_t>(static_cast<std::byte*>(part.data) - source.data())});
      const NotifyMsg message{.name = "generation", .msg = concat(i)};
      const bool told = i % 2 == 0;
      const auto id = a_->write_async(a_.conn, parts, places, {.notify = told ? &message : nullptr});
      ASSERT_TRUE(id.is_ok());
      if (told) {
        std::vector<NotifyMsg> taken;
        ASSERT_TRUE(testing::wait_until([&] { return !(taken = b_->get_notifs()).empty(); }));
        ASSERT_EQ(taken[0].msg, concat(i));
        ASSERT_EQ(only_word(target.span()), generation) << "when the target was told";
      }
      OperationAnswer answer;
      ASSERT_TRUE(testing::wait_until([&] { return (answer = a_->poll(*id)).state != OperationState::kPending; }));
      ASSERT_EQ(answer.state, OperationState::kDone) << answer.status.to_string();
      ASSERT_EQ(only_word(target.span()), generation) << "when the writer was told";
    }
  }
}

TEST_P(EndpointTorn, AReaderSeesAllOfARead) {
  for (const auto& [bytes, rounds] : kSteps) {
    SCOPED_TRACE(bytes);
    GuardedBuffer near(bytes), far(bytes);
    const LocalRange into = range(a_, near.span());
    const RemoteRange place{b_->advertise(b_.conn, range(b_, far.span())).value(), 0};
    for (int i = 1; i <= rounds; ++i) {
      fill_words(far.span(), static_cast<uint64_t>(i));
      ASSERT_TRUE(done(a_, a_->read_async(a_.conn, {&into, 1}, {&place, 1})));
      ASSERT_EQ(only_word(near.span()), static_cast<uint64_t>(i));
    }
  }
}

TEST_P(EndpointTorn, NothingTouchesMemoryAfterAnOperationWasGivenUp) {
  constexpr size_t kBytes = 4u << 20;
  for (int round = 0; round < 12; ++round) {
    Mapping source(kBytes), target(kBytes);
    const LocalRange out = range(a_, source.span()), in = range(b_, target.span());
    const auto received = b_->recv_async(b_.conn, cut(in, round % 3 == 0 ? 40 : 1));
    const auto sent = a_->send_async(a_.conn, {&out, 1});
    ASSERT_TRUE(received.is_ok() && sent.is_ok());
    for (int i = 0; i < round * 20; ++i) std::this_thread::yield();
    const bool receiver = round % 2 == 0;
    (void)(receiver ? b_->cancel(*received) : a_->cancel(*sent));
    (void)(receiver ? b_->wait(*received) : a_->wait(*sent));
    (receiver ? target : source).take_away();
    (void)(receiver ? a_->wait(*sent) : b_->wait(*received));
    (receiver ? source : target).take_away();
    EXPECT_TRUE(a_->deregister(out.memory).is_ok());
    EXPECT_TRUE(b_->deregister(in.memory).is_ok());
  }
}

TEST_P(EndpointTorn, NothingTouchesMemoryAfterAConnectionHasFailed) {
  testing::allow_log("has ended");
  constexpr size_t kBytes = 4u << 20;
  for (int round = 0; round < 8; ++round) {
    connect(a_, b_);
    Mapping source(kBytes), target(4 * kBytes);
    const LocalRange out = range(a_, source.span()), in = range(b_, target.span());
    Ids received, sent;
    for (int i = 0; i < 4; ++i) {
      const LocalRange part{in.memory, target.span().data() + static_cast<size_t>(i) * kBytes,
                            kBytes};  // several are under way at once
      received.push_back(b_->recv_async(b_.conn, {&part, 1}));
      sent.push_back(a_->send_async(a_.conn, {&out, 1}));
    }
    for (int i = 0; i < round * 20; ++i) std::this_thread::yield();
    ASSERT_TRUE(round % 2 == 0 ? a_->remove_connection(a_.conn).is_ok() : b_->remove_connection(b_.conn).is_ok());
    for (const auto& id : received) (void)b_->wait(*id);
    target.take_away();
    for (const auto& id : sent) (void)a_->wait(*id);
    source.take_away();
    EXPECT_TRUE(a_->deregister(out.memory).is_ok());
    EXPECT_TRUE(b_->deregister(in.memory).is_ok());
  }
}

}  // namespace
}  // namespace tcpx
