// The same 1e5 random messages through every unpacker: each must produce the result of cpu_unpack, guard bytes included, and so
// that of all others.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/unpacker_factory.h"
#include "measure/pattern.h"
#include "tests/support/hidden_memory_ops.h"

namespace tcpx::testing {
namespace {

constexpr size_t kMessages = 100'000;
constexpr size_t kPoolBytes = 1 << 20;
constexpr size_t kDestinationBytes = 8 << 20;
constexpr std::byte kGuard{0xa5};

struct RandomMessage {
  std::vector<Fragment> list;
  uint64_t bytes = 0;
  uint64_t destination_off = 0;
};

class RandomMessages {
 public:
  /// One destination full of messages, with 1 to 32 guard bytes between them.
  std::vector<RandomMessage> fill_destination() {
    std::vector<RandomMessage> messages;
    for (uint64_t at = 1 + below(32);;) {
      RandomMessage message = next();
      if (message.bytes > kDestinationBytes - 32 - at) return messages;
      message.destination_off = at;
      at += message.bytes + 1 + below(32);
      messages.push_back(std::move(message));
    }
  }

 private:
  RandomMessage next() {
    constexpr uint32_t kLongest[] = {8, 64, 64, 300, 300, 1448, 1448, 4097};
    const bool many = below(512) == 0;
    const uint32_t count = many ? below(kMaxFragments + 1) : below(13);
    const uint32_t longest = many ? 64 : kLongest[below(std::size(kLongest))];
    RandomMessage message;
    const uint32_t home = below(kPoolBytes - (64 << 10));
    uint64_t follower = 0;  // offset after the previous fragment
    while (message.list.size() < count) {
      const uint32_t len = 1 + below(longest);
      uint64_t src_off = follower;
      if (below(4) != 0 || follower + len > kPoolBytes) {
        // Mostly close to the others, like the pages of one message.
        src_off = below(16) == 0 ? below(kPoolBytes - len + 1) : home + below(32 << 10);
      }
      message.list.push_back({static_cast<uint32_t>(src_off), len, message.bytes});
      message.bytes += len;
      follower = src_off + len;
    }
    if (below(2) == 0) std::shuffle(message.list.begin(), message.list.end(), random_);
    return message;
  }

  uint32_t below(size_t limit) { return static_cast<uint32_t>(random_() % limit); }

  std::mt19937 random_{3};
};

/// An unpacker with a pool and a destination of its own.
class Contender {
 public:
  using Allocate = Result<MemoryBuffer> (MemoryOps::*)(int device, size_t bytes);

  Contender(std::string name, UnpackKind kind, MemoryOps& memory, Allocate pool, Allocate destination)
      : name_(std::move(name)),
        pool_((memory.*pool)(0, kPoolBytes)),
        destination_((memory.*destination)(0, kDestinationBytes)),
        lane_(memory.make_copy_lane(0)),
        unpacker_(make_unpacker(kind, 0, memory)) {}

  const std::string& name() const { return name_; }

  void prepare(std::span<const std::byte> pool_content) {
    ASSERT_TRUE(unpacker_.is_ok()) << unpacker_.status().to_string();
    ASSERT_TRUE(pool_.is_ok() && destination_.is_ok() && lane_.is_ok());
    const Status filled = (*lane_)->copy(pool_->device(), pool_content.data(), pool_content.size());
    ASSERT_TRUE(filled.is_ok()) << filled.to_string();
  }

  /// Unpacks the messages in batches over a destination of guard bytes.
  /// @param found receives the whole destination.
  void unpack(std::span<const RandomMessage> messages, std::vector<std::byte>& found) {
    std::fill(found.begin(), found.end(), kGuard);
    const Status reset = (*lane_)->copy(destination_->device(), found.data(), found.size());
    ASSERT_TRUE(reset.is_ok()) << reset.to_string();
    while (!messages.empty()) {
      const size_t count = std::min<size_t>(messages.size(), kMaxBatchBlocks);
      ASSERT_NO_FATAL_FAILURE(submit(messages.first(count)));
      messages = messages.subspan(count);
    }
    while (!in_flight_.empty()) ASSERT_NO_FATAL_FAILURE(wait_for_oldest());
    const Status read = (*lane_)->copy(found.data(), destination_->device(), found.size());
    ASSERT_TRUE(read.is_ok()) << read.to_string();
  }

 private:
  void submit(std::span<const RandomMessage> messages) {
    for (size_t i = 0; i < messages.size(); ++i) {
      const RandomMessage& message = messages[i];
      const Status built = blocks_[i].build(message.list, message.bytes,
                                            {pool_->device(), kPoolBytes, destination_->device() + message.destination_off,
                                             kDestinationBytes - message.destination_off});
      ASSERT_TRUE(built.is_ok()) << built.to_string();
    }
    const std::span<const DescriptorBlock> batch = std::span(blocks_).first(messages.size());
    Result<UnpackTicket> ticket = (*unpacker_)->submit(batch);
    if (ticket.status().code() == Code::kExhausted && !in_flight_.empty()) {
      ASSERT_NO_FATAL_FAILURE(wait_for_oldest());
      ticket = (*unpacker_)->submit(batch);
    }
    ASSERT_TRUE(ticket.is_ok()) << ticket.status().to_string();
    in_flight_.push_back(*ticket);
  }

  void wait_for_oldest() {
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    for (;;) {
      const Result<bool> done = (*unpacker_)->query(in_flight_.front());
      ASSERT_TRUE(done.is_ok()) << done.status().to_string();
      if (*done) break;
      ASSERT_FALSE(deadline.expired());
    }
    in_flight_.pop_front();
  }

  const std::string name_;
  const Result<MemoryBuffer> pool_;
  const Result<MemoryBuffer> destination_;
  const Result<std::unique_ptr<CopyLane>> lane_;
  std::vector<DescriptorBlock> blocks_{kMaxBatchBlocks};
  std::deque<UnpackTicket> in_flight_;
  const Result<std::unique_ptr<Unpacker>> unpacker_;  // last: its destructor waits for copies that touch the memory
};

void expect_identical_bytes(std::span<Contender> contenders) {
  std::vector<std::byte> pool(kPoolBytes);
  fill_pattern(pool, 7);
  for (Contender& contender : contenders) {
    SCOPED_TRACE(contender.name());
    ASSERT_NO_FATAL_FAILURE(contender.prepare(pool));
  }
  RandomMessages random;
  DescriptorBlock block;
  std::vector<std::byte> expected(kDestinationBytes);
  std::vector<std::byte> found(kDestinationBytes);
  for (size_t unpacked = 0; unpacked < kMessages;) {
    const std::vector<RandomMessage> messages = random.fill_destination();
    std::fill(expected.begin(), expected.end(), kGuard);
    for (const RandomMessage& message : messages) {
      const Status built = block.build(message.list, message.bytes,
                                       {pool.data(), kPoolBytes, expected.data() + message.destination_off, message.bytes});
      ASSERT_TRUE(built.is_ok()) << built.to_string();
      cpu_unpack(block);
    }
    for (Contender& contender : contenders) {
      SCOPED_TRACE(::testing::Message() << contender.name() << ", from message " << unpacked << " on");
      ASSERT_NO_FATAL_FAILURE(contender.unpack(messages, found));
      const auto [at, wanted] = std::mismatch(found.begin(), found.end(), expected.begin());
      ASSERT_TRUE(at == found.end()) << "destination byte " << at - found.begin() << " is " << static_cast<int>(*at) << ", not "
                                     << static_cast<int>(*wanted);
    }
    unpacked += messages.size();
  }
}

constexpr Contender::Allocate kDevice = &MemoryOps::allocate_device;
constexpr Contender::Allocate kMapped = &MemoryOps::allocate_mapped;

TEST(UnpackRandom, TheHostLeavesTheSameBytesInEveryMemory) {
  const std::unique_ptr<MemoryOps> plain = make_host_memory_ops();
  HiddenMemoryOps hidden;
  Contender contenders[] = {{"host", UnpackKind::kHost, *plain, kMapped, kDevice},
                            {"host, hidden pool", UnpackKind::kHost, hidden, kDevice, kMapped},
                            {"host, hidden destination", UnpackKind::kHost, hidden, kMapped, kDevice},
                            {"host, hidden pool and destination", UnpackKind::kHost, hidden, kDevice, kDevice}};
  expect_identical_bytes(contenders);
}

TEST(UnpackRandom, AllKindsLeaveTheSameBytesOnAGpu) {
  const std::unique_ptr<MemoryOps> memory = make_machine_memory_ops();
  if (!memory->has_gpu()) GTEST_SKIP() << make_unpacker(UnpackKind::kKernel, 0, *memory).status().detail();
  Contender contenders[] = {{"kernel", UnpackKind::kKernel, *memory, kDevice, kDevice},
                            {"kernel, mapped pool", UnpackKind::kKernel, *memory, kMapped, kDevice},
                            {"d2d", UnpackKind::kD2d, *memory, kDevice, kDevice},
                            {"d2d, mapped pool", UnpackKind::kD2d, *memory, kMapped, kDevice},
                            {"host", UnpackKind::kHost, *memory, kDevice, kDevice},
                            {"host, mapped pool", UnpackKind::kHost, *memory, kMapped, kDevice}};
  expect_identical_bytes(contenders);
}

}  // namespace
}  // namespace tcpx::testing
