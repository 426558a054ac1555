// What every way for bytes keeps, whichever it is. A new one is a row of kSettings.
#include <algorithm>
#include <cstring>
#include <optional>

#include "tests/lanes/lane_test.h"
#include "tests/support/count_allocations.h"
#include "tests/support/expect_log.h"

namespace tcpx::testing {
namespace {

const Setting kSettings[] = {
    {.name = "Network"},
    {.name = "EagerNetwork", .eager = true},
    {.name = "NetworkOfLists", .lists = true},
    {.name = "Ring", .on_host = true, .way = Way::kRing},
    {.name = "Pull", .on_host = true, .reads = true, .way = Way::kPull},
    {.name = "PullOfAGpu", .on_host = true, .reads = true, .way = Way::kPull, .gpu = true},
    {.name = "PullOfAGpuInOneProcess", .on_host = true, .reads = true, .way = Way::kPull, .gpu = true, .one_process = true},
    {.name = "File", .on_host = true, .way = kFile},
};
const Setting kSettingsWithSums[] = {
    {.name = "NetworkWithSums", .sums = true},
    {.name = "EagerNetworkWithSums", .eager = true, .sums = true},
    {.name = "RingWithSums", .on_host = true, .way = Way::kRing, .sums = true},
    {.name = "PullWithSums", .on_host = true, .reads = true, .way = Way::kPull, .sums = true},
    {.name = "FileWithSums", .on_host = true, .way = kFile, .sums = true},
    {.name = "PullWithSumsOfAGpu", .on_host = true, .reads = true, .way = Way::kPull, .sums = true, .gpu = true},
    {.name = "RingWithSumsOfAGpu", .on_host = true, .way = Way::kRing, .sums = true, .gpu = true},
    {.name = "NetworkWithSumsOfAGpu", .sums = true, .gpu = true},
    {.name = "EagerNetworkWithSumsOfAGpu", .eager = true, .sums = true, .gpu = true},
};

class LaneConformance : public LaneTest, public ::testing::WithParamInterface<Setting> {};
class LaneSums : public LaneConformance {};
const auto name_of_setting = [](const auto& setting) { return std::string(setting.param.name); };
INSTANTIATE_TEST_SUITE_P(Ways, LaneConformance, ::testing::ValuesIn(kSettings), name_of_setting);
INSTANTIATE_TEST_SUITE_P(WaysWithSums, LaneConformance, ::testing::ValuesIn(kSettingsWithSums), name_of_setting);
INSTANTIATE_TEST_SUITE_P(Ways, LaneSums, ::testing::ValuesIn(kSettingsWithSums), name_of_setting);

TEST_P(LaneConformance, AllOfAnyRangesArrives) {
  TwoEnds ends(GetParam());
  for (uint64_t number = 1; number <= 12; ++number) {
    const size_t bytes = 1 + random_() % kMemory;
    const Parts from = random_parts(bytes, number % 2 == 0 ? kMemory : 4'000, random_),
                to = random_parts(bytes, number % 3 == 0 ? kMemory : 7'000, random_);
    fill(ends.sender);
    fill(ends.receiver);
    ASSERT_TRUE(ends.begin(from, to, number).is_ok());
    ASSERT_TRUE(over(ends, 1));
    for (TwoEnds::End* end : {&ends.sender, &ends.receiver}) {
      ASSERT_EQ(end->ended.size(), 1u);
      EXPECT_EQ(end->ended[0].number, number);
      EXPECT_EQ(end->ended[0].received, end == &ends.receiver);
      EXPECT_TRUE(end->ended[0].status.is_ok()) << end->ended[0].status.to_string();
      EXPECT_TRUE(end->lanes->idle());
      end->ended.clear();
    }
    ASSERT_TRUE(contents(ends.sender, from) == contents(ends.receiver, to)) << number << ": " << bytes << " bytes";
  }
  for (const Way way : ends.sender.gone) EXPECT_EQ(way, GetParam().way) << name_of(way);
  EXPECT_EQ(ends.network().lists() > 0, GetParam().lists);
}

// Long ranges need no staging buffers, and their registrations end with their jobs.
TEST(NetLaneLists, RangesMoveFromPlaceToPlace) {
  TwoEnds ends({.name = "NetworkOfLists", .lists = true});
  Parts from, to;
  for (size_t i = 0; i < 20; ++i) {
    from.emplace_back(i * 15'000, kListedRangeBytes);
    to.emplace_back((19 - i) * 15'000, kListedRangeBytes);
  }
  const auto move = [&](uint64_t number) {
    ASSERT_TRUE(ends.begin(from, to, number).is_ok());
    ASSERT_TRUE(wait_until([&] {
      ends.step();
      return ends.sender.ended.size() == number && ends.receiver.ended.size() == number;
    }));
    EXPECT_TRUE(ends.receiver.ended.back().status.is_ok());
  };
  move(1);
  EXPECT_EQ(ends.network().lists(), 2u);
  EXPECT_EQ(ends.network().registrations(), 0u);
  from.back().second = to.back().second = 1;  // less on average
  move(2);
  EXPECT_EQ(ends.network().lists(), 2u);
  EXPECT_EQ(ends.network().registrations(), 2u) << "of staging buffers";
}

TEST_P(LaneSums, ABitThatIsWrongInItsPlaceFailsTheJobAtBothEnds) {
  TwoEnds ends(GetParam());
  fill(ends.sender);
  const Parts from{{7, kMemory - 7}}, to{{0, 1001}, {1001, kMemory - 1008}};
  std::optional<size_t> wrong;
  const auto flip = [&] {
    if (!wrong) return;
    ends.receiver.memory[*wrong / 8] ^= static_cast<std::byte>(1 << (*wrong % 8));
    wrong.reset();
  };
  ends.before_sums = [&](TwoEnds::End& end, const Lane& lane) {
    if (&end == &ends.receiver && lane.receives() && !lane.all_ended().empty()) flip();
  };
  ends.gpu_copier().before_sum = flip;
  for (uint64_t number = 1; number <= 40; ++number) {
    const bool flips = number % 4 != 0;
    if (flips) wrong = random_() % (8 * (kMemory - 7));
    ASSERT_TRUE(ends.begin(from, to, number).is_ok());
    ASSERT_TRUE(over(ends, 1));
    ASSERT_FALSE(wrong) << "nothing was flipped";
    for (TwoEnds::End* end : {&ends.sender, &ends.receiver}) {
      const Status& status = end->ended.at(0).status;
      ASSERT_EQ(status.code(), flips ? Code::kCorrupt : Code::kOk) << number << ": " << status.to_string();
      end->ended.clear();
    }
  }
}

// By the GPU, and by nobody else: the host may not be able to read its memory.
TEST_P(LaneSums, MemoryOfAGpuIsSummedByItAtBothEnds) {
  TwoEnds ends(GetParam());
  fill(ends.sender);
  for (uint64_t number = 1; number <= 3; ++number) {
    ASSERT_TRUE(ends.begin({{0, 1000}, {2000, 3}}, {{0, 1003}}, number).is_ok());
    ASSERT_TRUE(over(ends, number));
    EXPECT_EQ(ends.gpu_copier().sums(), GetParam().gpu ? 2 * number : 0);
  }
}

class LaneGpuSums : public LaneConformance {};
INSTANTIATE_TEST_SUITE_P(Ways, LaneGpuSums, ::testing::ValuesIn(std::end(kSettingsWithSums) - 2, std::end(kSettingsWithSums)),
                         name_of_setting);

TEST_P(LaneGpuSums, AreTriedAgainWhereTheGpuHasNoRoom) {
  TwoEnds ends(GetParam());
  ends.gpu_copier().fail_sum = Status(Code::kExhausted, "sum", "enough are in flight");
  fill(ends.sender);
  ASSERT_TRUE(ends.begin({{0, 1000}}, {{0, 1000}}, 1).is_ok());
  for (int i = 0; i < 200; ++i) ends.step();
  EXPECT_TRUE(ends.sender.ended.empty() && ends.receiver.ended.empty());
  ends.gpu_copier().fail_sum = Status::ok();
  ASSERT_TRUE(over(ends, 1));
  EXPECT_TRUE(ends.sender.ended[0].status.is_ok() && ends.receiver.ended[0].status.is_ok());
}

TEST_P(LaneGpuSums, ThatFailFailTheJobAndTheLaneGoesOn) {
  TwoEnds ends(GetParam());
  ends.gpu_copier().fail_sum = copy_failure();
  fill(ends.sender);
  ASSERT_TRUE(ends.begin({{0, 1000}}, {{0, 1000}}, 1).is_ok());
  ASSERT_TRUE(over(ends, 1));
  EXPECT_EQ(ends.sender.ended[0].status.code(), Code::kCuda);
  EXPECT_EQ(ends.receiver.ended[0].status.code(), Code::kCuda);
  ends.gpu_copier().fail_sum = Status::ok();
  ASSERT_TRUE(ends.begin({{0, 1000}}, {{0, 1000}}, 2).is_ok());
  ASSERT_TRUE(over(ends, 2));
  EXPECT_TRUE(ends.sender.ended[1].status.is_ok() && ends.receiver.ended[1].status.is_ok());
}

// The GPU reads it.
TEST_P(LaneGpuSums, KeepTheJobOfAFailedLaneUntilTheGpuHasDoneWithItsMemory) {
  TwoEnds ends(GetParam());
  ends.gpu_copier().hold_sums();
  fill(ends.sender);
  ASSERT_TRUE(ends.begin({{0, 1000}}, {{0, 1000}}, 1).is_ok());
  ASSERT_TRUE(wait_until([&] {
    ends.step();
    return ends.gpu_copier().sums() == 2;
  }));
  for (TwoEnds::End* end : {&ends.sender, &ends.receiver}) {
    end->lanes->fail(Status(Code::kTimeout, "test", "given up"));
    end->lanes->abandon();
  }
  for (int i = 0; i < 50; ++i) ends.step();
  EXPECT_TRUE(ends.sender.ended.empty() && ends.receiver.ended.empty());
  EXPECT_FALSE(ends.sender.lanes->closed() || ends.receiver.lanes->closed());
  ends.gpu_copier().release();
  ASSERT_TRUE(over(ends, 1));
  EXPECT_EQ(ends.sender.ended[0].status.code(), Code::kTimeout);
  EXPECT_EQ(ends.receiver.ended[0].status.code(), Code::kTimeout);
}

// What a liar tells of checksums is bounded by the jobs that there are.
TEST_P(LaneSums, OfNoJobAreRefused) {
  TwoEnds ends(GetParam());
  ASSERT_TRUE(ends.begin({{0, 1000}}, {{0, 1000}}, 7).is_ok());
  ASSERT_TRUE(over(ends, 1));
  for (int i = 0; i < 5; ++i) ends.step();  // all has been told
  const uint64_t sum = 5;
  LaneFrame frame{.way = GetParam().way, .what = JobSums::kSum, .words = std::as_bytes(std::span(&sum, 1))};
  for (const uint64_t place : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    frame.number = place;
    EXPECT_EQ(ends.receiver.lanes->on(frame).code(), Code::kProtocol) << "place " << place;
  }
  ASSERT_TRUE(ends.begin({{0, 1000}}, {{0, 1000}}, 8).is_ok());
  ASSERT_TRUE(wait_until([&] {
    ends.step();
    return ends.sender.ended.size() == 2 && ends.receiver.ended.size() == 2;
  }));
  EXPECT_TRUE(ends.receiver.ended[1].status.is_ok());
  frame.number = 1;
  frame.words = frame.words.first(7);
  EXPECT_EQ(ends.receiver.lanes->on(frame).code(), Code::kProtocol) << "7 bytes";
}

TEST_P(LaneConformance, ManyAtOnceMeetTheirs) {
  TwoEnds ends(GetParam());
  constexpr size_t kJobs = 100, kEach = kMemory / kJobs;
  fill(ends.sender);
  for (size_t i = 0; i < kJobs; ++i)
    ASSERT_TRUE(ends.begin({{i * kEach, kEach}}, {{(kJobs - 1 - i) * kEach, kEach}}, 1000 + i).is_ok());
  ASSERT_TRUE(over(ends, kJobs));
  for (size_t i = 0; i < kJobs; ++i)
    ASSERT_TRUE(contents(ends.sender, {{i * kEach, kEach}}) == contents(ends.receiver, {{(kJobs - 1 - i) * kEach, kEach}})) << i;
  for (TwoEnds::End* end : {&ends.sender, &ends.receiver}) {
    std::vector<uint64_t> numbers;
    for (const auto& ended : end->ended) {
      EXPECT_TRUE(ended.status.is_ok());
      numbers.push_back(ended.number);
    }
    std::sort(numbers.begin(), numbers.end());
    ASSERT_EQ(numbers.size(), kJobs);
    EXPECT_EQ(numbers.front(), 1000u);
    EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end()) << "one has ended twice";
  }
}

TEST_P(LaneConformance, WhatHasEndedIsReportedUntilItIsDropped) {
  TwoEnds ends(GetParam());
  ASSERT_TRUE(ends.begin({{0, 1000}}, {{0, 1000}}, 7).is_ok());
  Lane* lane = nullptr;
  ASSERT_TRUE(wait_until([&] {
    (void)ends.receiver.stream.flush();
    (void)ends.sender.stream.flush();
    (void)ends.receiver.stream.receive(ends.receiver, true);
    (void)ends.sender.stream.receive(ends.sender, true);
    for (TwoEnds::End* end : {&ends.sender, &ends.receiver}) {
      for (Lane* each : end->lanes->all()) {
        (void)each->progress(TimePoint{});
        if (each->ended() != nullptr && each->receives()) lane = each;
      }
    }
    return lane != nullptr;
  }));
  for (int i = 0; i < 3; ++i) {
    (void)lane->progress(TimePoint{});
    ASSERT_NE(lane->ended(), nullptr);
    EXPECT_EQ(lane->ended()->number, 7u);
    EXPECT_FALSE(lane->idle());
  }
  lane->drop_ended();
  EXPECT_EQ(lane->ended(), nullptr);
  EXPECT_TRUE(lane->idle());
}

// Whenever it fails: in each step of some transfers.
TEST_P(LaneConformance, AFailureEndsEveryJobAndNothingIsTouchedAfterIt) {
  const Status why(Code::kTimeout, "test", "given up");
  bool all_over = false;
  for (int steps = 0; !all_over; ++steps) {
    TwoEnds ends(GetParam());
    fill(ends.sender);
    constexpr size_t kJobs = 4, kEach = kMemory / kJobs;
    for (size_t i = 0; i < kJobs; ++i) ASSERT_TRUE(ends.begin({{i * kEach, kEach}}, {{i * kEach, kEach}}, i).is_ok());
    for (int i = 0; i < steps; ++i) ends.step();
    all_over = ends.receiver.ended.size() == kJobs && ends.sender.ended.size() == kJobs;
    for (TwoEnds::End* end : {&ends.receiver, &ends.sender}) {
      // What waits for a Go is in no lane.
      const size_t expected = kJobs - end->offered.size();
      end->lanes->fail(why);
      end->lanes->fail(Status(Code::kInternal, "test", "the second reason"));
      ASSERT_TRUE(wait_until([&] {
        for (Lane* lane : end->lanes->all()) {
          (void)lane->progress(TimePoint{});
          for (; Job* const job = lane->ended(); lane->drop_ended())
            end->ended.push_back({job->number, lane->receives(), job->status});
        }
        return end->lanes->closed();
      })) << "after "
          << steps << " steps";
      ASSERT_EQ(end->ended.size(), expected) << "after " << steps << " steps";
      for (const auto& ended : end->ended)
        EXPECT_TRUE(ended.status.is_ok() || ended.status.code() == Code::kTimeout) << ended.status.to_string();
    }
    const Bytes before = ends.receiver.memory;
    for (int i = 0; i < 5; ++i) ends.step();
    EXPECT_TRUE(before == ends.receiver.memory) << "after " << steps << " steps";
    ASSERT_LT(steps, 100'000);
  }
}

TEST_P(LaneConformance, MemoryOfThePeersJobIsServedUntilItHasEnded) {
  TwoEnds ends(GetParam());
  EXPECT_FALSE(ends.receiver.lanes->serves(ends.receiver.region));
  ASSERT_TRUE(ends.begin({{0, kMemory}}, {{0, kMemory}}, 1).is_ok());
  EXPECT_TRUE(ends.receiver.lanes->serves(ends.receiver.region));
  EXPECT_FALSE(ends.receiver.lanes->serves(ends.sender.region));
  EXPECT_FALSE(ends.sender.lanes->serves(ends.sender.region)) << "that is its own";
  ASSERT_TRUE(over(ends, 1));
  EXPECT_FALSE(ends.receiver.lanes->serves(ends.receiver.region));
}

TEST_P(LaneConformance, ForgottenMemoryIsRegisteredWithNobody) {
  TwoEnds ends(GetParam());
  const size_t before = ends.network().registrations();
  for (uint64_t number = 1; number <= 3; ++number) {
    fill(ends.sender);
    ASSERT_TRUE(ends.begin({{0, kMemory}}, {{0, kMemory}}, number).is_ok());
    ASSERT_TRUE(over(ends, number));
    EXPECT_TRUE(ends.sender.memory == ends.receiver.memory);
    (void)ends.sender.lanes->forget(ends.sender.region);
    (void)ends.receiver.lanes->forget(ends.receiver.region);
    EXPECT_EQ(ends.network().registrations(), before);
  }
}

// An end may fail when memory is wanting, or go on later. It never says that a job is over which is not, nor forgets one.
TEST_P(LaneConformance, WantOfMemoryAtEachPlace) {
  uint64_t refusals = 0;
  for (bool refused = true; refused; ++refusals) {
    TwoEnds ends(GetParam());
    fill(ends.sender);
    ASSERT_TRUE(ends.begin({{0, 50'000}, {60'000, 50'000}}, {{7, 30'000}, {90'000, 70'000}}, 1).is_ok());
    refused = false;
    uint64_t left = refusals;
    const bool ended = wait_until([&] {
      if (refused) {
        ends.step();
      } else {
        const uint64_t before = allocation_count();
        const NoMemory none(left);
        try {
          ends.step();
        } catch (const std::bad_alloc&) {
        }
        refused = NoMemory::refused();
        left -= std::min(left, allocation_count() - before);
      }
      if (refused) {  // as a connection does
        const Status why(Code::kExhausted, "allocate", "out of memory");
        for (TwoEnds::End* end : {&ends.sender, &ends.receiver}) {
          end->stream.fail(why);
          end->lanes->fail(why);
        }
      }
      return (ends.sender.lanes->idle() && ends.receiver.lanes->idle()) && (refused || ends.sender.ended.size() == 1);
    });
    ASSERT_TRUE(ended) << "after " << refusals << " allocations" << ends.sender.lanes->flight_record() << " / "
                       << ends.receiver.lanes->flight_record();
    for (const TwoEnds::End* end : {&ends.sender, &ends.receiver}) EXPECT_LE(end->ended.size(), 1u);
    const auto well = [](const TwoEnds::End& end) { return end.ended.size() == 1 && end.ended[0].status.is_ok(); };
    if (well(ends.receiver)) {
      EXPECT_TRUE(contents(ends.sender, {{0, 50'000}, {60'000, 50'000}}) ==
                  contents(ends.receiver, {{7, 30'000}, {90'000, 70'000}}));
    }
    EXPECT_TRUE(refused || (well(ends.sender) && well(ends.receiver)));
  }
  EXPECT_GT(refusals, 1u) << "nothing was tried";
}

TEST_P(LaneConformance, AGoForAWayThatWasNotOffered) {
  TwoEnds ends(GetParam());
  const auto job = ends.job(ends.sender, {{0, 10}}, 1, false), two = ends.job(ends.sender, {{0, 10}, {20, 10}}, 1, false);
  const Offer offer = ends.offer_of(*job).value();
  const auto objection = [&](const Job& to, GoFrame go) { return Lanes::objection_to(go, to.ranges, offer.ways); };
  EXPECT_TRUE(objection(*job, {.packing = Packing::kWhole}).empty()) << "the network is always there";
  EXPECT_FALSE(objection(*two, {.packing = Packing::kWhole}).empty()) << "a vector as a whole";
  EXPECT_TRUE(objection(*job, {.way = GetParam().way}).empty());
  for (const Way way : {Way::kPull, Way::kRing, Way{9}})
    EXPECT_EQ(objection(*job, {.way = way}).empty(), (offer.ways & bit(way)) != 0) << name_of(way);
  EXPECT_EQ((offer.ways & bit(Way::kRing)) != 0, GetParam().on_host);
  EXPECT_EQ((offer.ways & bit(Way::kPull)) != 0, GetParam().reads);
}

TEST_P(LaneConformance, WithoutAJobItRests) {
  TwoEnds ends(GetParam());
  const auto rests = [&](const TwoEnds::End& end) {
    return end.lanes->idle() && end.lanes->rests(TimePoint{}) && !end.lanes->can_move() && end.lanes->wants(TimePoint{}) == 0 &&
           end.lanes->chunks_in_flight() == 0 && end.lanes->flight_record().empty();
  };
  EXPECT_TRUE(rests(ends.sender) && rests(ends.receiver));
  ASSERT_TRUE(ends.begin({{0, kMemory}}, {{0, kMemory}}, 1).is_ok());
  EXPECT_FALSE(ends.receiver.lanes->idle());
  EXPECT_FALSE(ends.receiver.lanes->flight_record().empty());
  ASSERT_TRUE(over(ends, 1));
  EXPECT_TRUE(rests(ends.sender) && rests(ends.receiver));
}

TEST_P(LaneConformance, ANetworkThatHasFailedWithoutAJobHasWork) {
  TwoEnds ends(GetParam());
  Lane& network = *ends.receiver.lanes->all()[1];
  EXPECT_FALSE(network.has_work());
  const LaneFrame broken{.what = static_cast<uint64_t>(PeerMessage::kChannelDown)};  // without its payload
  ASSERT_TRUE(ends.receiver.lanes->on(broken).is_ok());
  EXPECT_FALSE(network.status().is_ok());
  EXPECT_TRUE(network.idle() && network.has_work()) << "the link must learn of it";
}

}  // namespace
}  // namespace tcpx::testing
