// CopierTest: a SegmentCopier of host memory or of a GPU, and buffers whose content the test knows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/byte_sum.h"
#include "base/clock.h"
#include "base/memory_ops.h"
#include "device/gpu_presence.h"
#include "measure/pattern.h"
#include "tests/support/ok.h"
#include "tests/support/process_state.h"

namespace tcpx::testing {

inline constexpr size_t kBytes = 8u << 20;
inline constexpr std::byte kGuard{0xEE};

inline Deadline late() {
  return Deadline::after(std::chrono::seconds(20));
}

enum class Place { kDevice, kMapped };

/// A buffer and its expected content.
struct Side {
  MemoryBuffer memory;
  std::vector<std::byte> expected;
};

class CopierTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    memory_ = GetParam() ? make_machine_memory_ops() : make_host_memory_ops();
    if (GetParam() && !memory_->has_gpu()) GTEST_SKIP() << gpu_count().status().detail();
    ASSERT_TRUE(memory_->set_current_device(0).is_ok());
    copier_ = must(memory_->make_segment_copier(0));
    lane_ = memory_->make_copy_lane(0).value();
  }

  Side make(Place place, uint64_t seed, size_t bytes = kBytes) {
    Side side{(place == Place::kDevice ? memory_->allocate_device(0, bytes) : memory_->allocate_mapped(0, bytes)).value(), {}};
    side.expected.resize(bytes, kGuard);
    if (seed != 0) fill_pattern(side.expected, seed, 0);
    EXPECT_TRUE(lane_->copy(side.memory.device(), side.expected.data(), bytes).is_ok());
    return side;
  }
  static CopySegment segment(const Side& to, size_t to_off, const Side& from, size_t from_off, size_t bytes) {
    return {to.memory.device() + to_off, from.memory.device() + from_off, bytes};
  }
  /// Expected result of the copy.
  static void expect(Side* to, const Side& from, const std::vector<CopySegment>& segments) {
    for (const CopySegment& s : segments) {
      const size_t to_off = static_cast<size_t>(s.to - to->memory.device()),
                   from_off = static_cast<size_t>(s.from - from.memory.device());
      ASSERT_TRUE(to_off + s.bytes <= to->expected.size() && from_off + s.bytes <= from.expected.size());
      std::copy_n(from.expected.data() + from_off, s.bytes, to->expected.data() + to_off);
    }
  }
  void wait(CopyTicket ticket) {
    const Deadline deadline = late();
    for (;;) {
      if (must(copier_->query(ticket))) return;
      ASSERT_FALSE(deadline.expired());
      std::this_thread::yield();
    }
  }
  void run(const std::vector<CopySegment>& segments) {
    const auto ticket = must(copier_->submit(segments));
    ASSERT_NO_FATAL_FAILURE(wait(ticket));
  }
  void check(const Side& side) {
    std::vector<std::byte> found(side.expected.size());
    ASSERT_TRUE(lane_->copy(found.data(), side.memory.device(), found.size()).is_ok());
    // At once: std::mismatch looks at one byte after another where nothing is optimised.
    if (std::memcmp(found.data(), side.expected.data(), found.size()) == 0) return;
    const auto wrong = std::mismatch(found.begin(), found.end(), side.expected.begin()).first;
    ASSERT_TRUE(wrong == found.end()) << "wrong at byte " << wrong - found.begin();
  }
  static const std::vector<std::pair<Place, Place>>& ways() {
    static const std::vector<std::pair<Place, Place>> all = {{Place::kDevice, Place::kDevice},
                                                             {Place::kMapped, Place::kDevice},
                                                             {Place::kDevice, Place::kMapped},
                                                             {Place::kMapped, Place::kMapped}};
    return all;
  }

  std::unique_ptr<MemoryOps> memory_;
  std::unique_ptr<SegmentCopier> copier_;
  std::unique_ptr<CopyLane> lane_;
};

inline std::string name_of_memory(const ::testing::TestParamInfo<bool>& which) {
  return which.param ? "Gpu" : "Host";
}

}  // namespace tcpx::testing
