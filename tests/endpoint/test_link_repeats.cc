// A link that starts its writes and reads once more when checksums differ (UCCL_TCPX_CHECKSUM=retry). The peer is the test, which changes
// a bit between the ends, tells its sum, and answers in either order.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lanes/job_sums.h"
#include "tests/support/near_link_fixture.h"
#include "tests/support/plain_sum.h"

namespace tcpx::testing {
namespace {

struct RepeatedWay {
  const char* name;
  Way way = Way::kNetwork;
  bool eager = false;
};
constexpr RepeatedWay kRepeatedWays[] = {{.name = "Network"},
                                         {.name = "Eager", .eager = true},
                                         {.name = "Pull", .way = Way::kPull},
                                         {.name = "Ring", .way = Way::kRing}};

class LinkRepeats : public NearLinkTest, public ::testing::WithParamInterface<RepeatedWay> {
 protected:
  static constexpr size_t kFlipped = 77'777;

  LinkRepeats() {
    allow_log("TCPX_E_CORRUPT");
    eager_ = GetParam().eager;
    sum_key_ = std::make_shared<ByteSumKey>(11);
    make(true);
  }
  void make(bool repeats) {
    repeats_ = repeats;
    places_[0] = places_[1] = 0;
    renew(way() == Way::kNetwork ? nullptr : make_host(way() == Way::kPull));
  }
  static Way way() { return GetParam().way; }

  void say_sum(const Bytes& bytes, bool to_sender) {
    const CopySegment segment{.to = nullptr, .from = bytes.data(), .bytes = kLong};
    const uint64_t sum = plain_sum(*sum_key_, {&segment, 1});
    const FrameHeader header =
        make_header(FrameType::kLane, places_[to_sender ? 0 : 1]++, JobSums::kSum, to_sender ? 1 : 0, Packing::kWhole, way());
    say_raw(header, std::as_bytes(std::span(&sum, 1)));
  }
  /// The peer takes in the bytes of a write or send that it has been told of. @param flips one bit of them is another one
  void take_in(OperationId id, FrameType type, bool flips) {
    const auto told = await(type);
    ASSERT_TRUE(told) << link_->flight_record();
    EXPECT_EQ(told->operation, static_cast<uint64_t>(id));
    std::fill_n(peers_.begin(), kLong, std::byte{0});
    if (way() == Way::kNetwork) {
      (void)receive_at_peer();
      if ((told->flags & kBegunFlag) == 0) say_go(id, Way::kNetwork);
      ASSERT_TRUE(drive([&] { return peer_recv_->pending() == 0; }));
    } else {
      say_go(id, way());
    }
    if (way() == Way::kPull) std::copy_n(host_.begin(), kLong, peers_.begin());
    if (way() == Way::kRing) {
      BulkRing& ring = peer_area_.bulk_ring(true);
      for (size_t i = 0; i < kLong; ++i, ring.read = ring.read + 1) {
        ASSERT_TRUE(drive([&] { return ring.read < ring.written; }));
        peers_[i] = ring.bytes[ring.read % BulkRing::kBytes];
      }
    }
    EXPECT_TRUE(has_peers(host_, kLong));
    if (flips) peers_[kFlipped] ^= std::byte{4};
  }
  /// The peer sends the bytes of a read. @param flips one bit of them is another one on the way
  void give(OperationId id, bool flips) {
    ASSERT_TRUE(await(FrameType::kRead)) << link_->flight_record();
    const Bytes true_ones = peers_;
    if (flips) peers_[kFlipped] ^= std::byte{4};
    const bool begins = GetParam().eager;
    if (begins) {
      say_begun(FrameType::kReady, static_cast<uint64_t>(id), 0);
    } else if (way() == Way::kNetwork) {
      say_raw(make_header(FrameType::kReady, static_cast<uint64_t>(id), 0, kLong), offers_of({}, false));
    } else {
      offer_read(id, way() == Way::kPull ? std::vector{source(0, kLong)} : std::vector<WireSource>());
    }
    if (!begins) {
      ASSERT_TRUE(went(way(), true));
    }
    if (way() == Way::kNetwork) {
      if (!memory_) memory_ = peer_send_->register_memory(peers_.data(), peers_.size(), MemoryType::kHost).value();
      ASSERT_TRUE(peer_send_->submit({.memory = *memory_, .bytes = kLong}).is_ok());
      ASSERT_TRUE(drive([&] { return peer_send_->pending() == 0 && peer_send_->in_flight() == 0; }));
    } else if (way() == Way::kRing) {
      std::span<const std::byte> left = std::span(peers_).first(kLong);
      ASSERT_TRUE(drive([&] { return (left = left.subspan(put(left))).empty(); }));
    }
    ASSERT_TRUE(drive([&] { return has_peers(host_, kLong); }));
    peers_ = true_ones;
    say_sum(peers_, false);
  }
  void expect_stats(uint64_t repeated, uint64_t done, uint64_t failed) {
    const ConnectionStats stats = link_->stats();
    EXPECT_EQ(stats.operations_repeated, repeated);
    EXPECT_EQ(stats.operations_done, done);
    EXPECT_EQ(stats.operations_failed, failed);
    EXPECT_TRUE(alive()) << link_->status().to_string();
  }
  void expect_end(OperationId id, Code code) {
    ASSERT_TRUE(drive([&] { return !pending(id); })) << link_->flight_record();
    const Status status = end_of(id);
    EXPECT_EQ(status.code(), code) << status.to_string();
  }
  /// A write of which the first start is found corrupt here; the peer has not answered.
  OperationId write_corruptly() {
    const OperationId id = write(host(0, kLong));
    take_in(id, FrameType::kWrite, true);
    say_sum(peers_, true);
    steps(3);
    EXPECT_TRUE(pending(id));
    EXPECT_FALSE(hear(FrameType::kWrite)) << "the peer's answer would count for the second start";
    return id;
  }
  /// A read of which the first start is found corrupt.
  OperationId read_corruptly() {
    const OperationId id = read(host(0, kLong));
    give(id, true);
    return id;
  }

  uint64_t places_[2] = {0, 0};  // jobs of the link's sending and of its receiving lane
  std::optional<RegisteredMemory> memory_;
};
INSTANTIATE_TEST_SUITE_P(Ways, LinkRepeats, ::testing::ValuesIn(kRepeatedWays),
                         [](const auto& way) { return std::string(way.param.name); });

TEST_P(LinkRepeats, AWriteIsStartedOnceMoreWhenThePeerHasAnswered) {
  for (const bool answer_first : {false, true}) {
    SCOPED_TRACE(answer_first ? "the answer comes first" : "the sum comes first");
    make(true);
    const OperationId id = write(host(0, kLong));
    take_in(id, FrameType::kWrite, true);
    if (answer_first) say_done(id, Code::kCorrupt);
    say_sum(peers_, true);
    if (!answer_first) {
      steps(3);
      EXPECT_FALSE(hear(FrameType::kWrite)) << "the peer's answer would count for the second start";
      say_done(id, Code::kCorrupt);
    }
    take_in(id, FrameType::kWrite, false);
    say_sum(peers_, true);
    steps(3);
    EXPECT_TRUE(pending(id)) << "it has been answered once";
    say_done(id);
    expect_end(id, Code::kOk);
    expect_stats(1, 1, 0);
  }
  EXPECT_TRUE(logged("started once more: ")) << "a warning";
}

TEST_P(LinkRepeats, ANotificationTravelsWithEachStartOfAWrite) {
  const OperationId id =
      start(OperationKind::kWrite,
            {.ranges = one(host(0, kLong)), .remote = {{{0, 1}, 0, kLong}}, .notify = NotifyMsg{"name", "text"}});
  for (const bool flips : {true, false}) {
    const auto told = offer(FrameType::kWrite);
    ASSERT_TRUE(told);
    EXPECT_EQ(told->notify_text, "text");
    take_in(id, FrameType::kWrite, flips);
    say_sum(peers_, true);
    say_done(id, flips ? Code::kCorrupt : Code::kOk);
  }
  expect_end(id, Code::kOk);
}

TEST_P(LinkRepeats, AReadIsStartedOnceMoreAndNotifiesOnce) {
  const OperationId id = start(
      OperationKind::kRead, {.ranges = one(host(0, kLong)), .remote = {{{0, 1}, 0, kLong}}, .notify = NotifyMsg{"name", "text"}});
  give(id, true);
  steps(3);
  EXPECT_FALSE(hear(FrameType::kNotify)) << "of bytes that are wrong";
  give(id, false);
  expect_end(id, Code::kOk);
  EXPECT_TRUE(await(FrameType::kNotify));
  EXPECT_FALSE(hear(FrameType::kNotify));
  expect_stats(1, 1, 0);
}

TEST_P(LinkRepeats, ASecondMismatchFails) {
  const OperationId written = write_corruptly();
  say_done(written, Code::kCorrupt);
  take_in(written, FrameType::kWrite, true);
  say_sum(peers_, true);
  expect_end(written, Code::kCorrupt);
  say_done(written, Code::kCorrupt);
  expect_stats(1, 0, 1);
  const OperationId wanted = read_corruptly();
  give(wanted, true);
  expect_end(wanted, Code::kCorrupt);
  steps(3);
  EXPECT_FALSE(hear(FrameType::kRead));
  expect_stats(2, 0, 2);
}

TEST_P(LinkRepeats, NothingIsStartedOnceMoreUnasked) {
  make(false);
  const OperationId written = write(host(0, kLong));
  take_in(written, FrameType::kWrite, true);
  say_sum(peers_, true);
  expect_end(written, Code::kCorrupt);
  expect_end(read_corruptly(), Code::kCorrupt);
  expect_stats(0, 0, 2);
}

TEST_P(LinkRepeats, ASendFailsAtOnce) {
  const OperationId id = send(host(0, kLong));
  take_in(id, FrameType::kSend, true);
  say_sum(peers_, true);
  expect_end(id, Code::kCorrupt);
  expect_stats(0, 0, 1);
}

TEST_P(LinkRepeats, WhatThePeerHasNotFoundCorruptFails) {
  const OperationId id = write_corruptly();
  say_done(id);
  expect_end(id, Code::kCorrupt);
  expect_stats(0, 0, 1);
}

TEST_P(LinkRepeats, CancelledInItsFirstStart) {
  const OperationId written = write(host(0, kLong));
  take_in(written, FrameType::kWrite, true);
  cancel(written);
  EXPECT_TRUE(pending(written)) << "its checksum has not come";
  say_done(written, Code::kCorrupt);
  say_sum(peers_, true);
  expect_end(written, Code::kCancelled);
  steps(3);
  EXPECT_FALSE(hear(FrameType::kWrite));
  expect_stats(0, 0, 1);
}

TEST_P(LinkRepeats, CancelledBeforeThePeersAnswer) {
  const OperationId id = write_corruptly();
  cancel(id);
  expect_end(id, Code::kCancelled);
  say_done(id, Code::kCorrupt);
  steps(3);
  EXPECT_FALSE(hear(FrameType::kWrite));
  expect_stats(0, 0, 1);
}

TEST_P(LinkRepeats, CancelledInTheSecondStart) {
  const OperationId wanted = read_corruptly();
  ASSERT_TRUE(await(FrameType::kRead));
  cancel(wanted);
  expect_end(wanted, Code::kCancelled);
  say_done(wanted, Code::kNotFound);  // the peer refuses it at the same time
  const OperationId written = write_corruptly();
  say_done(written, Code::kCorrupt);
  take_in(written, FrameType::kWrite, false);
  cancel(written);
  say_sum(peers_, true);
  say_done(written);
  expect_end(written, Code::kCancelled);
  expect_stats(2, 0, 2);
}

TEST_P(LinkRepeats, TheDeadlineCountsFromTheFirstStart) {
  const auto timeout = std::chrono::seconds(30);
  const OperationId id = read_corruptly();
  ASSERT_TRUE(await(FrameType::kRead));
  clock_.advance(timeout - std::chrono::seconds(1));
  steps(1);
  EXPECT_TRUE(pending(id));
  clock_.advance(std::chrono::seconds(1));
  expect_end(id, Code::kTimeout);
  expect_stats(1, 0, 1);
}

TEST_P(LinkRepeats, APeerThatDiesInBetweenEndsIt) {
  const Code gone = Code::kPeerGone;
  const OperationId unanswered = write_corruptly();
  const OperationId wanted = read_corruptly();
  ASSERT_TRUE(await(FrameType::kRead));
  peer_ = std::make_unique<ControlStream>();
  ASSERT_TRUE(wait_until([&] {
    (void)link_->progress(true);
    return link_->closed();
  }));
  EXPECT_EQ(end_of(unanswered).code(), gone);
  EXPECT_EQ(end_of(wanted).code(), gone);
}

}  // namespace
}  // namespace tcpx::testing
