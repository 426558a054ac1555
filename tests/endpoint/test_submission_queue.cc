#include "endpoint/submission_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace tcpx {
namespace {

struct Item {
  Item* next_submitted = nullptr;
  uint64_t number = 0;
};

TEST(SubmissionQueue, GivesWhatWasPushedInOrder) {
  SubmissionQueue<Item> queue;
  EXPECT_EQ(queue.pop(), nullptr);
  EXPECT_FALSE(queue.has_new());
  std::vector<Item> items(5);
  for (Item& item : items) queue.push(item);
  EXPECT_TRUE(queue.has_new());
  EXPECT_EQ(queue.pop(), &items[0]);
  Item late;
  queue.push(late);
  for (size_t i = 1; i < items.size(); ++i) EXPECT_EQ(queue.pop(), &items[i]);
  EXPECT_EQ(queue.pop(), &late);
  EXPECT_EQ(queue.pop(), nullptr);
  EXPECT_FALSE(queue.has_new());
}

// Items are pushed again as soon as they were popped, as slots of operations are.
TEST(SubmissionQueue, KeepsTheOrderOfEachThreadAndLosesNothing) {
  constexpr uint64_t kThreads = 4, kRounds = 20000, kItems = 8;
  SubmissionQueue<Item> queue;
  std::vector<std::thread> threads;
  std::vector<std::atomic<uint64_t>> popped(kThreads);
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Item> items(kItems);
      for (uint64_t round = 0; round < kRounds; ++round) {
        while (round >= popped[t].load(std::memory_order_acquire) + kItems) std::this_thread::yield();
        Item& item = items[round % kItems];
        item.number = t << 32 | round;
        queue.push(item);
      }
      while (popped[t].load(std::memory_order_acquire) < kRounds) std::this_thread::yield();
    });
  }
  for (uint64_t total = 0; total < kThreads * kRounds;) {
    const Item* const item = queue.pop();
    if (item == nullptr) {
      std::this_thread::yield();
      continue;
    }
    const uint64_t t = item->number >> 32;
    EXPECT_EQ(item->number & 0xffffffff, popped[t].load(std::memory_order_relaxed));
    popped[t].fetch_add(1, std::memory_order_release);
    ++total;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(queue.pop(), nullptr);
}

}  // namespace
}  // namespace tcpx
