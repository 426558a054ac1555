// Joint copies: which end takes which slice, and what an end does with what the other one has stored.
#include "base/joint_copy.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <utility>
#include <vector>

namespace tcpx {
namespace {

constexpr uint32_t kNumber = 7;
constexpr uint64_t kSlice = JointCopy::kSliceBytes;

class JointCopies : public ::testing::Test {
 protected:
  explicit JointCopies(size_t bytes = 8 * kSlice) : from(bytes, std::byte{1}), to(bytes) {}
  JointCopy copy(bool helps, uint32_t number = kNumber, size_t bytes = 8 * kSlice) {
    return JointCopy(words, number, helps, {to.data(), from.data(), bytes});
  }
  uint64_t at(const CopySegment& slice) const { return static_cast<uint64_t>(slice.to - to.data()); }
  /// Takes what it can. @return the slices, by their places
  std::map<uint64_t, uint64_t> take_all(JointCopy& end) {
    std::map<uint64_t, uint64_t> taken;
    for (auto slice = end.take(); slice; slice = end.take()) {
      EXPECT_EQ(slice->from - from.data(), slice->to - to.data());
      EXPECT_TRUE(taken.emplace(at(*slice), slice->bytes).second);
    }
    return taken;
  }

  JointWords words{};
  std::vector<std::byte> from, to;
};

TEST_F(JointCopies, OneEndTakesFromTheFrontAndTheOtherFromTheBack) {
  JointCopy starter = copy(false), helper = copy(true);
  EXPECT_FALSE(helper.take()) << "it has not begun";
  starter.begin();
  EXPECT_EQ(at(*starter.take()), 0u);
  EXPECT_EQ(at(*helper.take()), 7 * kSlice);
  EXPECT_EQ(at(*helper.take()), 6 * kSlice);
  helper.end_slice(true);
  EXPECT_EQ(at(*starter.take()), kSlice);
  EXPECT_EQ(take_all(starter).size(), 4u);
  EXPECT_FALSE(helper.take());
  EXPECT_FALSE(starter.is_over()) << "the helper copies";
  helper.end_slice(true);
  EXPECT_TRUE(starter.is_over());
  EXPECT_TRUE(starter.is_whole());
}

TEST_F(JointCopies, AHelperThatDoesNotComeTakesNothing) {
  JointCopy starter = copy(false);
  starter.begin();
  EXPECT_EQ(take_all(starter).size(), 8u);
  EXPECT_TRUE(starter.is_over() && starter.is_whole());
  JointCopy late = copy(true);
  EXPECT_FALSE(late.take());
}

// Whole pages, at least two slices, and nothing twice.
TEST_F(JointCopies, SlicesAreTheBytes) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4096}, uint64_t{4097}, kSlice - 1, kSlice, kSlice + 1, 2 * kSlice,
                               2 * kSlice + 1, 7 * kSlice + 4095}) {
    for (const bool helps : {false, true}) {
      JointCopy starter = copy(false, kNumber, bytes), end = copy(helps, kNumber, bytes);
      starter.begin();
      const auto slices = take_all(end);
      uint64_t next = 0;
      for (const auto& [place, length] : slices) {
        EXPECT_EQ(place, next) << bytes;
        EXPECT_EQ(place % 4096, 0u);
        EXPECT_LE(length, kSlice);
        next = place + length;
      }
      EXPECT_EQ(next, bytes);
      EXPECT_EQ(slices.size() > 1, bytes > 4096) << bytes;
    }
  }
}

TEST_F(JointCopies, WhatTheHelperCouldNotCopyIsMissed) {
  JointCopy starter = copy(false), helper = copy(true);
  starter.begin();
  ASSERT_TRUE(helper.take());
  helper.end_slice(false);
  EXPECT_EQ(take_all(starter).size(), 7u);
  EXPECT_TRUE(starter.is_over());
  EXPECT_FALSE(starter.is_whole());
  // It says nothing of the next one.
  JointCopy next = copy(false, kNumber + 1);
  next.begin();
  EXPECT_EQ(take_all(next).size(), 8u);
  EXPECT_TRUE(next.is_over() && next.is_whole());
}

TEST_F(JointCopies, AfterItWasGivenUpNobodyTakesAnything) {
  JointCopy starter = copy(false), helper = copy(true);
  starter.begin();
  ASSERT_TRUE(starter.take() && helper.take() && helper.take());
  helper.end_slice(true);
  starter.give_up();
  EXPECT_FALSE(starter.take());
  EXPECT_FALSE(helper.take());
  EXPECT_FALSE(starter.is_over()) << "the helper still copies";
  helper.end_slice(true);
  starter.give_up();
  EXPECT_TRUE(starter.is_over());
  EXPECT_FALSE(starter.is_whole());
}

TEST_F(JointCopies, AMessageThatComesLateIsAboutNone) {
  JointCopy starter = copy(false), late = copy(true);
  starter.begin();
  (void)take_all(starter);
  JointCopy next = copy(false, kNumber + 1);
  next.begin();
  EXPECT_FALSE(late.take());
  EXPECT_EQ(take_all(next).size(), 8u);
}

// Each end takes at most the slices of the copy, all of them within it, whatever the other one stores.
TEST_F(JointCopies, TheOtherEndIsNotBelieved) {
  for (const bool helps : {false, true}) {
    JointCopy end = copy(helps);
    size_t taken = 0;
    for (int i = 0; i < 100; ++i) {
      words.taken = uint64_t{kNumber} << 32;  // again and again
      const auto slice = end.take();
      if (!slice) break;
      ++taken;
      EXPECT_LE(at(*slice) + slice->bytes, to.size());
    }
    EXPECT_EQ(taken, 8u);
    for (const uint64_t counts : {uint64_t{0xffff0000}, uint64_t{0xffff}, uint64_t{0xffffffff}, uint64_t{0x80000}, uint64_t{9}}) {
      JointCopy another = copy(helps);
      words.taken = uint64_t{kNumber} << 32 | counts;
      EXPECT_FALSE(another.take()) << counts;
    }
  }
}

// Each slice is stored by the end that has taken it: together they are all, each once.
TEST_F(JointCopies, BothAtTheSameTime) {
  for (uint32_t number = 1; number <= 500; ++number) {
    JointCopy starter = copy(false, number), helper = copy(true, number);
    std::map<uint64_t, uint64_t> own;
    starter.begin();
    std::thread other([&] {
      while (const auto slice = helper.take()) {
        *slice->to = std::byte{2};
        helper.end_slice(true);
      }
    });
    own = take_all(starter);
    while (!starter.is_over()) std::this_thread::yield();
    EXPECT_TRUE(starter.is_whole());
    // Read before the other thread is joined: what it has stored is seen once its slices have ended.
    for (uint64_t place = 0; place < to.size(); place += kSlice)
      EXPECT_EQ(std::exchange(to[place], std::byte{0}), own.contains(place) ? std::byte{0} : std::byte{2}) << place;
    other.join();
  }
}

}  // namespace
}  // namespace tcpx
