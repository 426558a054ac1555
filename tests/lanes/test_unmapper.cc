// Unmapper: what is made at once, in which order, and what is not made any more.
#include "lanes/unmapper.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

class UnmapperTest : public ::testing::Test {
 protected:
  using Pending = std::shared_ptr<PendingBuffer>;

  UnmapperTest() {
    for (auto& held : held_) held = true;
  }
  ~UnmapperTest() override {
    for (auto& held : held_) held = false;
    unmapper_.end();
  }

  /// Keeps all threads busy, each until its `held_` is false.
  void hold_all() {
    for (auto& held : held_) {
      unmapper_.begin([this, &held] {
        ++begun_;
        EXPECT_TRUE(wait_until([&] { return !held; }));
      });
    }
    ASSERT_TRUE(wait_until([this] { return begun_ == held_.size(); })) << begun_ << " are made at once";
  }
  Pending make(char name) {
    return unmapper_.make([this, name] {
      note(name);
      return Result<MemoryBuffer>(MemoryBuffer());
    });
  }
  void note(char name) {
    const MutexLock lock(mutex_);
    order_ += name;
  }
  /// Lets one of the threads go. @return what has been made, once that is so much
  std::string order_of(size_t count) {
    held_[0] = false;
    EXPECT_TRUE(wait_until([&] { return order().size() >= count; }));
    return order();
  }
  std::string order() {
    const MutexLock lock(mutex_);
    return order_;
  }

  std::array<std::atomic<bool>, Unmapper::kMappingThreads> held_;
  std::atomic<size_t> begun_ = 0;
  Mutex mutex_;
  std::string order_ TCPX_GUARDED_BY(mutex_);
  Unmapper unmapper_{make_host_memory_ops(), 0, {}};
};

TEST_F(UnmapperTest, SeveralAreMadeAtOnceAndTheOthersInOrder) {
  hold_all();
  for (const char name : {'a', 'b', 'c'}) (void)make(name);
  EXPECT_EQ(order(), "");
  EXPECT_EQ(order_of(3), "abc");
}

TEST_F(UnmapperTest, WhatIsHurriedIsMadeFirstInTheOrderOfTheCalls) {
  hold_all();
  const Pending a = make('a'), b = make('b'), c = make('c'), d = make('d');
  (void)make('e');
  unmapper_.hurry({d.get(), c.get()});
  unmapper_.hurry({b.get()});
  unmapper_.begin([this] { note('s'); });
  const std::string order = order_of(6);
  // Those of the first call keep their order, and go before that of the second unless it was before them from the beginning.
  EXPECT_EQ(order, "cdbsae");
}

TEST_F(UnmapperTest, WhatIsCancelledIsNeverMade) {
  hold_all();
  const Pending a = make('a'), b = make('b'), c = make('c');
  EXPECT_TRUE(unmapper_.cancel(*b));
  EXPECT_FALSE(unmapper_.cancel(*b)) << "twice";
  EXPECT_EQ(order_of(2), "ac");
  EXPECT_FALSE(unmapper_.cancel(*a)) << "it has been made";
  EXPECT_FALSE(b->is_done());
}

}  // namespace
}  // namespace tcpx::testing
