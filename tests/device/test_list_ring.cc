#include "device/list_ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace tcpx {
namespace {

TEST(ListRing, WhatDoesNotFitBeforeTheEndBeginsAnew) {
  ListRing ring(10);
  const ListStretch a = *ring.take(5);
  const ListStretch b = *ring.take(3);
  ring.release(a.held);
  const ListStretch c = *ring.take(4);
  EXPECT_EQ(c.first, 0u);
  EXPECT_EQ(c.held, 6u) << "the two skipped entries are held too";
  EXPECT_EQ(ring.take(2).status().code(), Code::kExhausted);
  EXPECT_EQ(ring.take(1)->first, 4u);
  ring.release(b.held);
  EXPECT_EQ(ring.take(3)->first, 5u);
}

TEST(ListRing, AnEmptyRingTakesItsCapacityWhereverItStood) {
  for (size_t before = 0; before <= 8; ++before) {
    ListRing ring(8);
    ring.release(ring.take(before)->held);
    const Result<ListStretch> whole = ring.take(8);
    ASSERT_TRUE(whole.is_ok()) << before << ": " << whole.status().to_string();
    EXPECT_EQ(whole->first, 0u);
    EXPECT_EQ(whole->held, 8u);
  }
}

TEST(ListRing, MoreThanTheCapacityIsRefusedForEver) {
  ListRing ring(8);
  EXPECT_EQ(ring.take(9).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ring.take(~size_t{0}).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(ring.take(8).is_ok());
  EXPECT_EQ(ring.take(9).status().code(), Code::kInvalidArgument) << "also when it is full";
}

TEST(ListRing, NoEntriesAreAlwaysToBeHad) {
  ListRing ring(3);
  EXPECT_EQ(ring.take(0)->held, 0u);
  ASSERT_TRUE(ring.take(3).is_ok());
  EXPECT_EQ(ring.take(0)->held, 0u);
}

/// The holder of each entry. A refusal is checked, too: a stretch may only begin after the newest one or at 0.
class Model {
 public:
  explicit Model(size_t capacity) : holders_(capacity) {}

  bool fits(size_t count) const {
    if (live_.empty() || count == 0) return true;
    const size_t next = live_.back().end;
    if (count <= holders_.size() - next) return is_free(next, next + count);
    return is_free(next, holders_.size()) && is_free(0, count);
  }

  void take(const ListStretch& stretch, size_t count) {
    const size_t end = stretch.first + count;
    ASSERT_LE(end, holders_.size());
    const size_t skipped_from = stretch.first == 0 && !live_.empty() ? live_.back().end : holders_.size();
    const size_t skipped = count == 0 ? 0 : holders_.size() - skipped_from;
    ASSERT_EQ(stretch.held, count + skipped);
    for (size_t i = stretch.first; i < end; ++i) hold(i);
    for (size_t i = holders_.size() - skipped; i < holders_.size(); ++i) hold(i);
    ++newest_;
    if (count != 0) live_.push_back({newest_, end});
  }

  void release(size_t age) {
    for (size_t& holder : holders_) {
      if (holder == age) holder = 0;
    }
    if (!live_.empty() && live_.front().age == age) live_.pop_front();
  }

 private:
  struct Live {
    size_t age;
    size_t end;
  };
  bool is_free(size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i) {
      if (holders_[i] != 0) return false;
    }
    return true;
  }
  void hold(size_t i) {
    ASSERT_EQ(holders_[i], 0u) << "entry " << i << " is in use";
    holders_[i] = newest_ + 1;
  }

  std::vector<size_t> holders_;  // age of the stretch that holds the entry, from 1; 0: free
  std::deque<Live> live_;        // non-empty ones
  size_t newest_ = 0;
};

TEST(ListRing, AgreesWithAModelOnRandomSchedules) {
  std::mt19937 random(3);
  const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
  size_t refused = 0;
  size_t wrapped = 0;
  for (size_t round = 0; round < 400; ++round) {
    const size_t capacity = 1 + below(40);
    SCOPED_TRACE(::testing::Message() << "round " << round << ", capacity " << capacity);
    ListRing ring(capacity);
    Model model(capacity);
    std::deque<ListStretch> live;
    size_t oldest = 1;
    size_t last = 0;
    const size_t longest = 1 + below(capacity);
    for (size_t step = 0; step < 500; ++step) {
      if (below(2) == 0) {
        const size_t count = below(longest + 1);
        const bool fits = model.fits(count);
        const Result<ListStretch> taken = ring.take(count);
        ASSERT_EQ(taken.is_ok(), fits) << "step " << step << ", " << count << " entries";
        if (!fits) {
          ASSERT_EQ(taken.status().code(), Code::kExhausted);
          ++refused;
          continue;
        }
        ASSERT_NO_FATAL_FAILURE(model.take(*taken, count)) << "step " << step;
        if (taken->first < last) ++wrapped;
        last = taken->first;
        live.push_back(*taken);
      } else if (!live.empty()) {
        ring.release(live.front().held);
        live.pop_front();
        model.release(oldest++);
      }
    }
  }
  EXPECT_GT(refused, 1000u) << "the schedules must come to full rings";
  EXPECT_GT(wrapped, 1000u) << "and around the end";
}

}  // namespace
}  // namespace tcpx
