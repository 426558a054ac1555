#include "net/soft/page_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace tcpx::soft {
namespace {

struct CountingClient final : PagePool::Client {
  int told = 0;
  void pages_available() override { ++told; }
};

class PagePoolTest : public ::testing::Test {
 protected:
  std::shared_ptr<PagePool> make(uint32_t pages) { return *PagePool::create(*memory_, 0, uint64_t{pages} * kPageBytes); }
  std::unique_ptr<MemoryOps> memory_ = make_host_memory_ops();
};

TEST_F(PagePoolTest, TakesLowestPagesFirstAndInRuns) {
  auto pool = make(200);
  CountingClient a, b;
  std::vector<uint32_t> first, second;
  ASSERT_TRUE(pool->try_take(a, 70, first));
  EXPECT_EQ(first.front(), 0u);
  EXPECT_EQ(first.back(), 69u);
  ASSERT_TRUE(pool->try_take(b, 10, second));
  EXPECT_EQ(second.front(), 70u);
  pool->give_back(a, first);
  std::vector<uint32_t> again;
  ASSERT_TRUE(pool->try_take(a, 5, again));
  EXPECT_EQ(again.front(), 0u);
  pool->give_back(a, again);
  pool->give_back(b, second);
  EXPECT_EQ(pool->free_count(), 200u);
}

TEST_F(PagePoolTest, ARunOfNeighboursGoesBeforeLowerPages) {
  auto pool = make(200);
  CountingClient first, second, third;
  std::vector<uint32_t> pages;
  ASSERT_TRUE(pool->try_take(first, 80, pages));
  pool->give_back(first, std::vector<uint32_t>{3, 4, 5, 20, 21, 22, 23, 24, 60, 61, 62, 63, 64, 65, 66});
  ASSERT_TRUE(pool->try_take(second, 5, pages));
  EXPECT_EQ(pages, (std::vector<uint32_t>{20, 21, 22, 23, 24})) << "not 3, 4, 5";
  ASSERT_TRUE(pool->try_take(second, 6, pages));
  EXPECT_EQ(pages, (std::vector<uint32_t>{60, 61, 62, 63, 64, 65})) << "over the end of a word";
  ASSERT_TRUE(pool->try_take(third, 122, pages)) << "left are 3-5, 66 and 80-199: no run is long enough";
  ASSERT_EQ(pages.size(), 122u);
  EXPECT_EQ((std::vector<uint32_t>(pages.begin(), pages.begin() + 5)), (std::vector<uint32_t>{3, 4, 5, 66, 80}));
  EXPECT_TRUE(std::is_sorted(pages.begin(), pages.end()));
  EXPECT_EQ(pool->free_count(), 2u);
}

TEST_F(PagePoolTest, AHogKeepsHalfOthersGetTheirsAndWaitersAreTold) {
  auto pool = make(100);
  CountingClient hog, other;
  std::vector<uint32_t> pages, hogged;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(pool->try_take(hog, 10, pages)) << i;
    hogged.insert(hogged.end(), pages.begin(), pages.end());
  }
  EXPECT_FALSE(pool->try_take(hog, 10, pages)) << "60 held against 50 free";
  ASSERT_TRUE(pool->try_take(other, 50, pages)) << "who holds nothing may take what is free";
  EXPECT_EQ(hog.told, 0);
  pool->give_back(other, pages);
  EXPECT_EQ(hog.told, 1);
  pool->give_back(hog, hogged);
  ASSERT_TRUE(pool->try_take(hog, 10, pages));
  pool->give_back(hog, pages);
  EXPECT_EQ(hog.told, 2) << "no longer waiting, no longer told";
}

TEST_F(PagePoolTest, ALargeWaiterIsNotStarvedBySmallOnes) {
  auto pool = make(100);
  CountingClient large, small;
  std::vector<uint32_t> held, pages;
  ASSERT_TRUE(pool->try_take(small, 10, held));
  EXPECT_FALSE(pool->try_take(large, 95, pages));
  EXPECT_FALSE(pool->try_take(small, 1, pages)) << "it holds some and somebody with none waits";
  pool->give_back(small, held);
  EXPECT_GE(large.told, 1);
  ASSERT_TRUE(pool->try_take(large, 95, held));
  EXPECT_TRUE(pool->try_take(small, 5, pages));
  pool->give_back(small, pages);
  pool->give_back(large, held);
}

TEST_F(PagePoolTest, AWaiterThatLeavesLetsTheOthersOn) {
  auto pool = make(100);
  CountingClient large, small;
  std::vector<uint32_t> held, pages;
  ASSERT_TRUE(pool->try_take(small, 10, held));
  EXPECT_FALSE(pool->try_take(large, 95, pages));
  EXPECT_FALSE(pool->try_take(small, 1, pages));
  pool->forget(large);
  EXPECT_GE(small.told, 1);
  EXPECT_TRUE(pool->try_take(small, 1, pages));
  pool->give_back(small, pages);
  pool->give_back(small, held);
  EXPECT_EQ(pool->free_count(), 100u);
}

TEST_F(PagePoolTest, NoPageIsEverHandedOutTwice) {
  auto pool = make(333);
  std::vector<CountingClient> clients(7);
  std::vector<std::vector<std::vector<uint32_t>>> held(clients.size());
  std::set<uint32_t> out;
  std::mt19937 random(4);
  for (int step = 0; step < 20000; ++step) {
    const size_t who = random() % clients.size();
    if (random() % 2 == 0) {
      std::vector<uint32_t> pages;
      const uint32_t count = 1 + random() % 40;
      if (!pool->try_take(clients[who], count, pages)) continue;
      ASSERT_EQ(pages.size(), count);
      ASSERT_TRUE(std::is_sorted(pages.begin(), pages.end()));
      for (const uint32_t page : pages) {
        ASSERT_LT(page, 333u);
        ASSERT_TRUE(out.insert(page).second) << page;
      }
      held[who].push_back(std::move(pages));
    } else if (!held[who].empty()) {
      for (const uint32_t page : held[who].back()) out.erase(page);
      pool->give_back(clients[who], held[who].back());
      held[who].pop_back();
    }
    ASSERT_EQ(pool->free_count(), 333u - out.size());
  }
  for (size_t who = 0; who < clients.size(); ++who) {
    for (const auto& pages : held[who]) pool->give_back(clients[who], pages);
    pool->forget(clients[who]);
  }
  EXPECT_EQ(pool->free_count(), 333u);
}

}  // namespace
}  // namespace tcpx::soft
