// Registrations on their own: parts, channels that have failed, slots that are used again. Their use by a pipeline is in
// test_pipeline_registrations.cc.
#include "transfer/registrations.h"

#include <gtest/gtest.h>

#include "tests/support/dispatcher_fixture.h"
#include "tests/support/ok.h"

namespace tcpx {
namespace {

using testing::must;

constexpr size_t kGiB = size_t{1} << 30;

class Registered : public ::testing::Test {
 protected:
  /// An address that nobody looks behind.
  std::byte* const data_ = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
  testing::FakeNetPlugin fake_;
  testing::FakeUnpacker unpacker_;
  testing::ManualClock clock_;
  ChannelSet channels_{testing::parts_of_channels(fake_, unpacker_, Direction::kRecv, 2), clock_, {}};
  Registrations memory_{{&channels_[0], &channels_[1]}};
};

TEST_F(Registered, EachPartIsRegisteredWithEachChannel) {
  const auto memory = must(memory_.add(data_, 2 * kGiB + 1, MemoryType::kHost));
  EXPECT_EQ(fake_.registrations(), 2u * 3);
  for (const size_t channel : {0, 1}) {
    const MemoryHandle first = memory_.handle(channel, memory, 0);
    EXPECT_EQ(memory_.handle(channel, memory, kGiB - 1), first);
    EXPECT_NE(memory_.handle(channel, memory, kGiB), first);
    EXPECT_NE(memory_.handle(channel, memory, 2 * kGiB), memory_.handle(channel, memory, kGiB));
    EXPECT_EQ(memory_.handle(channel, memory, 2 * kGiB + 1), memory_.handle(channel, memory, 2 * kGiB)) << "nothing, at the end";
  }
  EXPECT_NE(memory_.handle(0, memory, 0), memory_.handle(1, memory, 0));
  EXPECT_TRUE(memory_.reaches(memory, 2 * kGiB + 1));
  RegisteredMemory longer = memory;
  longer.bytes = 4 * kGiB;
  EXPECT_FALSE(memory_.reaches(longer, 3 * kGiB)) << "no such part";
  EXPECT_TRUE(memory_.remove(memory).is_ok());
  EXPECT_EQ(fake_.registrations(), 0u);
}

TEST_F(Registered, AChannelThatHadFailedHasNoHandle) {
  channels_[0].fail(Status(Code::kSystem, "test", "lost"));
  const auto memory = must(memory_.add(data_, 4096, MemoryType::kHost));
  EXPECT_EQ(fake_.registrations(), 1u);
  EXPECT_EQ(memory_.handle(0, memory, 0), MemoryHandle{});
  EXPECT_NE(memory_.handle(1, memory, 0), MemoryHandle{});
  EXPECT_TRUE(memory_.holds(memory));
  EXPECT_TRUE(memory_.remove(memory).is_ok());
}

TEST_F(Registered, ASlotThatIsUsedAgainIsNotTheMemoryThatWasThere) {
  const auto gone = memory_.add(data_, 4096, MemoryType::kHost);
  ASSERT_TRUE(memory_.remove(*gone).is_ok());
  EXPECT_FALSE(memory_.holds(*gone)) << "free";
  const auto next = memory_.add(data_, 4096, MemoryType::kHost);
  EXPECT_EQ(next->slot, gone->slot);
  EXPECT_FALSE(memory_.holds(*gone)) << "another's";
  EXPECT_TRUE(memory_.holds(*next));
  EXPECT_FALSE(memory_.holds({.slot = 1}));
  EXPECT_TRUE(memory_.remove(*next).is_ok());
}

}  // namespace
}  // namespace tcpx
