// Notifications: alone and with a transfer, never before its data, never lost, in order.
#include <gtest/gtest.h>

#include <array>
#include <future>
#include <map>

#include "base/text.h"
#include "endpoint/operation.h"
#include "measure/pattern.h"
#include "tests/support/endpoint_fixture.h"
#include "tests/support/wait_until.h"

namespace tcpx {
namespace {

using testing::GuardedBuffer;
using Ids = std::vector<Result<OperationId>>;

class EndpointNotifications : public testing::EndpointSetupTest {
 protected:
  /// Takes `count` notifications of `b_`.
  std::vector<NotifyMsg> take(size_t count) {
    std::vector<NotifyMsg> taken;
    EXPECT_TRUE(testing::wait_until([&] {
      for (NotifyMsg& message : b_->get_notifs()) taken.push_back(std::move(message));
      return taken.size() >= count;
    })) << taken.size()
        << " have come; " << a_->flight_record();
    EXPECT_EQ(taken.size(), count);
    return taken;
  }
};
TCPX_OVER_SETUPS(EndpointNotifications, testing::few_setups());

TEST_P(EndpointNotifications, ArriveAloneAndInOrder) {
  make_pair();
  const std::string longest_name(256, 'n'), longest_text(1 << 20, 't');
  ASSERT_TRUE(a_->notify(a_.conn, {.name = "", .msg = ""}).is_ok());
  ASSERT_TRUE(a_->notify(a_.conn, {.name = longest_name, .msg = longest_text}).is_ok());
  ASSERT_TRUE(a_->notify(a_.conn, {.name = std::string("\0x", 2), .msg = "text"}).is_ok());
  const auto taken = take(3);
  ASSERT_EQ(taken.size(), 3u);
  EXPECT_EQ(taken[0].name + taken[0].msg, "");
  EXPECT_EQ(taken[1].name, longest_name);
  EXPECT_EQ(taken[1].msg, longest_text);
  EXPECT_EQ(taken[2].name, std::string("\0x", 2));
  EXPECT_EQ(taken[2].msg, "text");
  for (const NotifyMsg& message : taken) EXPECT_EQ(message.conn, b_.conn);
  EXPECT_TRUE(b_->get_notifs().empty());
}

TEST_P(EndpointNotifications, AreWaitedFor) {
  make_pair();
  const TimePoint begin = Clock::steady().now();
  EXPECT_TRUE(b_->wait_notifs(std::chrono::milliseconds(50)).empty());
  EXPECT_GE(Clock::steady().now() - begin, std::chrono::milliseconds(50));
  auto waiting = std::async(std::launch::async, [&] { return b_->wait_notifs(testing::kTestDeadline); });
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  ASSERT_TRUE(a_->notify(a_.conn, {.name = "late"}).is_ok());
  while (waiting.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) (void)a_->progress();
  const auto taken = waiting.get();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].name, "late");
}

TEST_P(EndpointNotifications, OfAReadComeToTheOwnerWhenTheReaderHasTheBytes) {
  make_pair();
  constexpr size_t kLarge = 1500000;
  GuardedBuffer source(kLarge), target(kLarge);
  const MemoryId from = reg(b_, source.span()), to = reg(a_, target.span());
  const RemoteSlot slot = b_->advertise({from, source.data(), kLarge}).value();  // for any connection
  uint64_t seed = 1;
  for (const size_t bytes : {size_t{0}, size_t{3000}, kLarge}) {
    fill_pattern(source.span(), ++seed);
    const NotifyMsg message{.name = "read", .msg = concat(bytes)};
    const auto id = a_->read_async(a_.conn, LocalRange{to, target.data(), bytes}, {slot}, {.notify = &message});
    ASSERT_TRUE(id.is_ok()) << id.status().to_string();
    const auto taken = take(1);
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_EQ(taken[0].msg, message.msg);
    if (bytes > 0) {
      EXPECT_TRUE(verify_pattern(target.span().first(bytes), seed).is_ok()) << "the bytes had not come";
    }
    EXPECT_TRUE(a_->wait(*id).is_ok());
  }
}

// With as much beside them as a frame can have: short and long, and cut into as many ranges as there may be.
TEST_P(EndpointNotifications, OfAMebibyteComeWholeWithEveryCall) {
  make_pair({.inline_bytes = 65536}, {.inline_bytes = 65536});
  constexpr size_t kRanges = Endpoint::kMaxRanges, kMost = 80 * kRanges;
  GuardedBuffer here(kMost), there(kMost);
  const MemoryId mine = reg(a_, here.span()), theirs = reg(b_, there.span());
  const RemoteSlot slot = b_->advertise(b_.conn, {theirs, there.data(), kMost}).value();
  const LocalRange into{theirs, there.data(), kMost};
  uint64_t seed = 1;
  for (const size_t each : {size_t{4}, kMost / kRanges}) {
    for (const size_t count : {size_t{1}, kRanges}) {
      for (const OperationKind kind : {OperationKind::kSend, OperationKind::kWrite, OperationKind::kRead}) {
        SCOPED_TRACE(concat(name_of(kind), " of ", count, " ranges, ", each * kRanges, " bytes"));
        const size_t bytes = each * kRanges;
        std::vector<LocalRange> ranges;
        std::vector<RemoteRange> places;
        for (size_t i = 0; i < count; ++i) {
          ranges.push_back({mine, here.data() + bytes / count * i, bytes / count});
          places.push_back({slot, bytes / count * i});
        }
        NotifyMsg message{.name = "long", .msg = std::string(1 << 20, '\0')};
        fill_pattern(std::as_writable_bytes(std::span(message.msg)), ++seed);
        fill_pattern(kind == OperationKind::kRead ? there.span() : here.span(), ++seed);
        const SubmitOptions options{.notify = &message};
        const auto received = kind == OperationKind::kSend ? b_->recv_async(b_.conn, {into.memory, into.data, bytes})
                                                           : Result<OperationId>(Status(Code::kInternal, "test", "none"));
        const auto id = kind == OperationKind::kSend    ? a_->send_async(a_.conn, ranges, options)
                        : kind == OperationKind::kWrite ? a_->write_async(a_.conn, ranges, places, options)
                                                        : a_->read_async(a_.conn, ranges, places, options);
        ASSERT_TRUE(id.is_ok()) << id.status().to_string();
        const auto taken = take(1);
        ASSERT_EQ(taken.size(), 1u);
        EXPECT_TRUE(taken[0].msg == message.msg) << "the text differs";
        const auto moved = (kind == OperationKind::kRead ? here.span() : there.span()).first(bytes);
        EXPECT_TRUE(verify_pattern(moved, seed).is_ok());
        ASSERT_TRUE(done(a_, id));
        if (kind == OperationKind::kSend) {
          ASSERT_TRUE(done(b_, received));
        }
      }
    }
  }
}

// Neither end counts them in the window of reads: many more fit than the window has room for.
TEST_P(EndpointNotifications, OfReadsLeaveTheWindowOpen) {
  make_pair();
  std::array<std::byte, 64> source{}, target{};
  const MemoryId from = reg(b_, source), to = reg(a_, target);
  const RemoteSlot slot = b_->advertise({from, source.data(), source.size()}).value();
  const NotifyMsg message{.name = "read", .msg = std::string(16384, 'r')};
  for (int round = 0; round < 2000 && !HasFailure(); ++round) {
    const Status read =
        a_->read(a_.conn, LocalRange{to, target.data(), 8}, {slot}, {.timeout = testing::kTestDeadline, .notify = &message});
    ASSERT_TRUE(read.is_ok()) << round << ": " << read.to_string();
    if (round % 100 == 99) (void)take(100);
  }
}

TEST_P(EndpointNotifications, ComeOnlyAfterTheDataOfTheirTransfer) {
  make_pair();
  constexpr size_t kLarge = 1500000, kSmall = 3000;
  uint64_t seed = 1;
  for (const bool writes : {true, false}) {
    for (const size_t bytes : {size_t{0}, kSmall, kLarge}) {
      for (const size_t parts : {1, 5}) {
        for (int round = 0; round < 5; ++round) {
          GuardedBuffer source(kLarge), target(kLarge);
          fill_pattern(source.span(), ++seed);
          const MemoryId from = reg(a_, source.span()), to = reg(b_, target.span());
          const RemoteSlot slot = b_->advertise(b_.conn, {to, target.data(), kLarge}).value();
          std::vector<LocalRange> out;
          std::vector<RemoteRange> places;
          for (size_t i = 0; i < parts; ++i) {
            const size_t begin = bytes * i / parts;
            out.push_back({from, source.data() + begin, bytes * (i + 1) / parts - begin});
            places.push_back({slot, begin});
          }
          const NotifyMsg message{.name = "done", .msg = concat(seed)};
          const LocalRange into{to, target.data(), bytes};
          const auto id = writes ? a_->write_async(a_.conn, out, places, {.notify = &message})
                                 : a_->send_async(a_.conn, out, {.notify = &message});
          Result<OperationId> received = Status(Code::kInternal, "test", "none");
          if (!writes) received = b_->recv_async(b_.conn, {&into, 1});
          const auto taken = take(1);
          ASSERT_TRUE(verify_pattern(target.span().first(bytes), seed).is_ok()) << "told before all was there";
          ASSERT_EQ(taken[0].msg, concat(seed));
          ASSERT_TRUE(done(a_, id));
          if (!writes) {
            ASSERT_TRUE(done(b_, received));
          }
          ASSERT_TRUE(a_->deregister(from).is_ok());
          ASSERT_TRUE(b_->deregister(to).is_ok());
        }
      }
    }
  }
}

TEST_P(EndpointNotifications, NoneIsDeliveredForATransferThatFailed) {
  make_pair();
  GuardedBuffer source(100000), target(100000);
  const LocalRange out = range(a_, source.span()), in = range(b_, target.span());
  const LocalRange shorter{in.memory, in.data, in.bytes - 1};
  const NotifyMsg message{.name = "never", .msg = ""};
  const auto received = b_->recv_async(b_.conn, {&shorter, 1});
  EXPECT_TRUE(fails(a_, a_->send_async(a_.conn, {&out, 1}, {.notify = &message}), Code::kMismatch));
  EXPECT_TRUE(fails(b_, received, Code::kMismatch));
  RemoteSlot forged = b_->advertise(b_.conn, in).value();
  ++forged.id.low;
  const RemoteRange place{forged, 0};
  EXPECT_TRUE(fails(a_, a_->write_async(a_.conn, {&out, 1}, {&place, 1}, {.notify = &message}), Code::kNotFound));
  ASSERT_TRUE(a_->notify(a_.conn, {.name = "last", .msg = ""}).is_ok());
  EXPECT_EQ(take(1)[0].name, "last");
}

TEST_P(EndpointNotifications, AFullInboxLosesNothing) {
  make_pair({}, {.max_notifications = 3});
  constexpr size_t kAlone = 400, kWritten = 60;
  GuardedBuffer source(20000), target(kWritten * source.span().size());
  const LocalRange out = range(a_, source.span());
  const RemoteSlot slot = b_->advertise(b_.conn, range(b_, target.span())).value();
  Ids writes;
  for (size_t i = 0; i < kWritten; ++i) {
    const NotifyMsg message{.name = "written", .msg = concat(i)};
    const LocalRange part{out.memory, out.data, i % 2 == 0 ? size_t{100} : out.bytes};
    const RemoteRange place{slot, i * out.bytes};
    writes.push_back(a_->write_async(a_.conn, {&part, 1}, {&place, 1}, {.notify = &message}));
  }
  for (size_t i = 0; i < kAlone; ++i)
    ASSERT_TRUE(a_->notify(a_.conn, {.name = "alone", .msg = concat(i, std::string(16000, '.'))}).is_ok());
  ASSERT_TRUE(testing::wait_until([&] { return b_->stats().notifications_waiting == 3; }));
  std::map<std::string, size_t> counts;
  for (const NotifyMsg& message : take(kAlone + kWritten)) {
    if (message.name == "alone") {
      EXPECT_EQ(message.msg, concat(counts["alone"], std::string(16000, '.'))) << "in order";
    }
    ++counts[message.name];
  }
  EXPECT_EQ(counts["alone"], kAlone);
  EXPECT_EQ(counts["written"], kWritten);
  for (const auto& id : writes) EXPECT_TRUE(done(a_, id));
}

}  // namespace
}  // namespace tcpx
