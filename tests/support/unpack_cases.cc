#include "tests/support/unpack_cases.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "measure/pattern.h"
#include "tests/support/ok.h"

namespace tcpx::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::byte kGuard{0xa5};
constexpr size_t kGuardBytes = 64;

std::vector<uint32_t> tested_lengths() {
  std::vector<uint32_t> lengths;
  for (uint32_t n = 0; n <= 64; ++n) lengths.push_back(n);
  for (uint32_t n = 1445; n <= 1451; ++n) lengths.push_back(n);
  for (uint32_t n : {4095u, 4096u, 4097u, 65535u, 65536u, 65537u}) lengths.push_back(n);
  return lengths;
}

uint64_t to_alignment(const std::byte* base, uint64_t offset, uint32_t alignment) {
  const uint64_t at = reinterpret_cast<uintptr_t>(base) + offset;
  return offset + (16 - at % 16) % 16 + alignment;
}

}  // namespace

uint64_t total_bytes(std::span<const Fragment> list) {
  uint64_t total = 0;
  for (const Fragment& f : list) total += f.len;
  return total;
}

void UnpackCases::SetUp() {
  const UnpackSetup& setup = GetParam();
  memory_ = setup.make_memory();
  if (setup.needs_gpu && !memory_->has_gpu()) GTEST_SKIP() << make_unpacker(UnpackKind::kKernel, 0, *memory_).status().detail();
  unpacker_ = must(make_unpacker(setup.kind, 0, *memory_));
  lane_ = must(memory_->make_copy_lane(0));
}

void UnpackCases::make_arena(Arena* arena, Place place, size_t bytes) {
  if (place == Place::kPageable) {
    arena->pageable.resize(bytes);
    arena->address = arena->pageable.data();
  } else {
    Result<MemoryBuffer> buffer =
        place == Place::kDevice ? memory_->allocate_device(0, bytes) : memory_->allocate_mapped(0, bytes);
    ASSERT_TRUE(buffer.is_ok()) << buffer.status().to_string();
    arena->buffer = std::move(buffer).value();
    arena->address = arena->buffer.device();
  }
  arena->shadow.resize(bytes);
}

void UnpackCases::make_arenas(size_t pool_bytes, size_t destination_bytes) {
  make_arena(&pool_, GetParam().pool, pool_bytes);
  make_arena(&destination_, GetParam().destination, destination_bytes);
  if (HasFatalFailure()) return;
  fill_pattern(pool_.shadow, 3);
  ASSERT_OK(lane_->copy(pool_.address, pool_.shadow.data(), pool_bytes));
  reset_destination();
}

void UnpackCases::reset_destination() {
  std::fill(destination_.shadow.begin(), destination_.shadow.end(), kGuard);
  ASSERT_OK(lane_->copy(destination_.address, destination_.shadow.data(), destination_.shadow.size()));
}

Result<UnpackTicket> UnpackCases::submit(std::span<const Fragment> list, uint64_t destination_off) {
  const UnpackTarget target{pool_.address, pool_.shadow.size(), destination_.address + destination_off,
                            destination_.shadow.size() - destination_off};
  TCPX_RETURN_IF_ERROR(blocks_[0].build(list, total_bytes(list), target));
  return unpacker_->submit(blocks_[0]);
}

void UnpackCases::unpack_batch(std::span<const Message> batch) {
  // blocks_ are refilled while earlier submissions are in flight: submit must have copied what it needs.
  const std::span<DescriptorBlock> blocks = std::span(blocks_).first(batch.size());
  const auto build = [&](std::byte* pool, std::byte* destination) {
    for (size_t i = 0; i < batch.size(); ++i) {
      const Message& message = batch[i];
      const UnpackTarget target{pool + message.pool_off, pool_.shadow.size() - message.pool_off,
                                destination + message.destination_off, destination_.shadow.size() - message.destination_off};
      ASSERT_OK(blocks[i].build(message.list, total_bytes(message.list), target));
    }
  };
  ASSERT_NO_FATAL_FAILURE(build(pool_.shadow.data(), destination_.shadow.data()));
  for (const DescriptorBlock& block : blocks) cpu_unpack(block);
  ASSERT_NO_FATAL_FAILURE(build(pool_.address, destination_.address));
  Result<UnpackTicket> ticket = unpacker_->submit(blocks);
  if (!ticket.is_ok() && ticket.status().code() == Code::kExhausted && !in_flight_.empty()) {
    wait(in_flight_.front());
    in_flight_.pop_front();
    ticket = unpacker_->submit(blocks);
  }
  ASSERT_TRUE(ticket.is_ok()) << ticket.status().to_string();
  in_flight_.push_back(*ticket);
}

void UnpackCases::unpack(std::vector<Fragment> list, uint64_t destination_off) {
  const Message message{std::move(list), 0, destination_off};
  unpack_batch(std::span(&message, 1));
}

void UnpackCases::wait(UnpackTicket ticket) {
  const Deadline deadline = Deadline::after(60s);
  for (;;) {
    const Result<bool> done = unpacker_->query(ticket);
    ASSERT_TRUE(done.is_ok()) << done.status().to_string();
    if (*done) return;
    ASSERT_FALSE(deadline.expired()) << "ticket " << static_cast<uint64_t>(ticket) << " is not done";
  }
}

void UnpackCases::wait_for_all() {
  for (; !in_flight_.empty(); in_flight_.pop_front()) ASSERT_NO_FATAL_FAILURE(wait(in_flight_.front()));
}

void UnpackCases::expect_destination_as_shadow() {
  ASSERT_NO_FATAL_FAILURE(wait_for_all());
  std::vector<std::byte> found(destination_.shadow.size());
  ASSERT_OK(lane_->copy(found.data(), destination_.address, found.size()));
  // Byte by byte it is most of the time of these tests.
  if (std::memcmp(found.data(), destination_.shadow.data(), found.size()) == 0) return;
  const auto [at, wanted] = std::mismatch(found.begin(), found.end(), destination_.shadow.begin());
  ASSERT_TRUE(at == found.end()) << "destination byte " << at - found.begin() << " is " << static_cast<int>(*at) << ", not "
                                 << static_cast<int>(*wanted);
}

uint32_t UnpackCases::random_below(uint32_t limit) {
  random_state_ = random_state_ * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>((random_state_ >> 32) * limit >> 32);
}

std::vector<Fragment> UnpackCases::random_list(size_t count, uint32_t longest) {
  std::vector<Fragment> list;
  uint64_t dst_off = 0;
  while (list.size() < count) {
    const uint32_t len = 1 + random_below(longest);
    list.push_back({random_below(static_cast<uint32_t>(pool_.shadow.size()) - len + 1), len, dst_off});
    dst_off += len;
  }
  shuffle(list);
  return list;
}

void UnpackCases::shuffle(std::vector<Fragment>& list) {
  for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random_below(static_cast<uint32_t>(i))]);
}

TEST_P(UnpackCases, EveryAlignmentAndLength) {
  const std::vector<uint32_t> lengths = tested_lengths();
  size_t room = kGuardBytes;
  for (const uint32_t length : lengths) room += length + 32 + kGuardBytes;
  ASSERT_NO_FATAL_FAILURE(make_arenas(128 * 1024, room));
  for (uint32_t source_alignment = 0; source_alignment < 16; ++source_alignment) {
    for (uint32_t alignment = 0; alignment < 16; ++alignment) {
      SCOPED_TRACE(::testing::Message() << "source +" << source_alignment << ", destination +" << alignment);
      ASSERT_NO_FATAL_FAILURE(reset_destination());
      uint64_t destination_off = 0;
      for (const uint32_t length : lengths) {
        destination_off = to_alignment(destination_.address, destination_off + kGuardBytes, alignment);
        const uint64_t src_off = to_alignment(pool_.address, random_below(32 * 1024), source_alignment);
        std::vector<Fragment> list;
        if (length != 0) list.push_back({static_cast<uint32_t>(src_off), length, 0});
        ASSERT_NO_FATAL_FAILURE(unpack(std::move(list), destination_off));
        destination_off += length;
      }
      ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
    }
  }
}

TEST_P(UnpackCases, EveryAlignmentAndLengthInLists) {
  // All lengths in one message, whose start takes every alignment, and with it that of each fragment. For each difference of
  // source and destination, the 16 messages go out together.
  std::vector<uint32_t> lengths = tested_lengths();
  std::erase(lengths, 0u);
  uint64_t message_bytes = 0;
  for (const uint32_t length : lengths) message_bytes += length;
  const uint64_t stride = message_bytes + 32 + kGuardBytes;
  ASSERT_NO_FATAL_FAILURE(make_arenas(128 * 1024, 16 * stride));
  for (uint32_t difference = 0; difference < 16; ++difference) {
    SCOPED_TRACE(::testing::Message() << "source +" << difference);
    ASSERT_NO_FATAL_FAILURE(reset_destination());
    std::vector<Message> batch;
    for (uint32_t alignment = 0; alignment < 16; ++alignment) {
      Message message{{}, 0, to_alignment(destination_.address, alignment * stride, alignment)};
      uint64_t dst_off = 0;
      for (const uint32_t length : lengths) {
        const auto source_alignment = static_cast<uint32_t>((alignment + dst_off + difference) % 16);
        const uint64_t src_off = to_alignment(pool_.address, random_below(32 * 1024), source_alignment);
        message.list.push_back({static_cast<uint32_t>(src_off), length, dst_off});
        dst_off += length;
      }
      shuffle(message.list);
      batch.push_back(std::move(message));
    }
    ASSERT_NO_FATAL_FAILURE(unpack_batch(batch));
    ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
  }
}

TEST_P(UnpackCases, WholeRequestInPermutedPages) {
  ASSERT_NO_FATAL_FAILURE(make_arenas(8 << 20, kMaxRequestBytes + 2 * kGuardBytes));
  std::vector<Fragment> list;
  for (uint32_t i = 0; i < kMaxRequestBytes / kPageBytes; ++i) {
    list.push_back({(i * 1237 % 2048) * kPageBytes, kPageBytes, uint64_t{i} * kPageBytes});
  }
  ASSERT_NO_FATAL_FAILURE(unpack(std::move(list), kGuardBytes));
  ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
}

TEST_P(UnpackCases, OneLongFragmentAmongShortOnes) {
  ASSERT_NO_FATAL_FAILURE(make_arenas(6 << 20, 6 << 20));
  for (const uint32_t source : {0u, 5u}) {
    std::vector<Fragment> list{{source + (4u << 20), 7, 0}, {source, (4u << 20) - 3, 7}, {1, 1, (4u << 20) + 4}};
    ASSERT_NO_FATAL_FAILURE(unpack(std::move(list), 16 + source * 100));
    ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
  }
}

TEST_P(UnpackCases, MostFragmentsInOneBlock) {
  ASSERT_NO_FATAL_FAILURE(make_arenas(1 << 20, 1 << 20));
  ASSERT_NO_FATAL_FAILURE(unpack(random_list(kMaxFragments, 300), 77));
  ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
}

TEST_P(UnpackCases, MostFragmentsInABatch) {
  constexpr size_t kLongest = 100;
  constexpr size_t kRoom = kMaxFragments * kLongest + kGuardBytes;
  ASSERT_NO_FATAL_FAILURE(make_arenas(1 << 20, kMaxBatchBlocks * kRoom));
  std::vector<Message> batch;
  for (size_t i = 0; i < kMaxBatchBlocks; ++i) batch.push_back({random_list(kMaxFragments, kLongest), 0, i * kRoom});
  ASSERT_NO_FATAL_FAILURE(unpack_batch(batch));
  ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
}

TEST_P(UnpackCases, ADoneTicketLeavesThePoolFree) {
  ASSERT_NO_FATAL_FAILURE(make_arenas(1 << 20, 1 << 20));
  ASSERT_NO_FATAL_FAILURE(unpack(random_list(100, 4096)));
  ASSERT_NO_FATAL_FAILURE(wait_for_all());
  const std::vector<std::byte> other(pool_.shadow.size(), std::byte{0x11});
  ASSERT_TRUE(lane_->copy(pool_.address, other.data(), other.size()).is_ok());
  ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
}

TEST_P(UnpackCases, TicketsAscendAndOlderOnesAreDoneFirst) {
  ASSERT_NO_FATAL_FAILURE(make_arenas(1 << 20, 1 << 20));
  const std::vector<Fragment> list = random_list(50, 1000);
  const Result<UnpackTicket> first = submit(list);
  const Result<UnpackTicket> second = submit(list);
  ASSERT_TRUE(first.is_ok() && second.is_ok());
  EXPECT_LT(static_cast<uint64_t>(*first), static_cast<uint64_t>(*second));
  ASSERT_NO_FATAL_FAILURE(wait(*second));
  EXPECT_TRUE(must(unpacker_->query(*first)));
}

TEST_P(UnpackCases, AMessageOfNoBytesHasATicketToo) {
  ASSERT_NO_FATAL_FAILURE(make_arenas(4096, 4096));
  ASSERT_NO_FATAL_FAILURE(unpack({}));
  ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
}

TEST_P(UnpackCases, ABatchOfBlocksHasOneTicket) {
  constexpr size_t kStride = 256 * 1024;
  ASSERT_NO_FATAL_FAILURE(make_arenas(4 << 20, kMaxBatchBlocks * kStride));
  std::vector<Message> batch(kMaxBatchBlocks);
  for (size_t i = 0; i < batch.size(); ++i) {
    // Misaligned against each other, each with a pool base of its own, and one without any fragment.
    batch[i] = {{}, i, i * kStride + 3 * i};
    if (i != 5) batch[i].list = random_list(1 + 7 * i, 2000);
    for (Fragment& fragment : batch[i].list) {
      fragment.src_off -= std::min<uint32_t>(fragment.src_off, kMaxBatchBlocks);  // inside all pools
    }
  }
  ASSERT_NO_FATAL_FAILURE(unpack_batch(batch));
  EXPECT_EQ(in_flight_.size(), 1u);
  ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
}

TEST_P(UnpackCases, ABatchOfNoOrTooManyBlocksIsRefused) {
  ASSERT_NO_FATAL_FAILURE(make_arenas(4096, 4096));
  EXPECT_EQ(unpacker_->submit(std::span<const DescriptorBlock>{}).status().code(), Code::kInvalidArgument);
  const std::vector<DescriptorBlock> many(kMaxBatchBlocks + 1);
  EXPECT_EQ(unpacker_->submit(many).status().code(), Code::kInvalidArgument);
  ASSERT_NO_FATAL_FAILURE(unpack(random_list(3, 100)));  // the refusal does not stick
  ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
}

TEST_P(UnpackCases, AnUnknownTicketIsRefusedAndHarmsNothing) {
  ASSERT_NO_FATAL_FAILURE(make_arenas(4096, 4096));
  EXPECT_EQ(unpacker_->query(UnpackTicket{0}).status().code(), Code::kInvalidArgument);
  ASSERT_NO_FATAL_FAILURE(unpack(random_list(3, 100)));
  ASSERT_NO_FATAL_FAILURE(wait_for_all());
  EXPECT_EQ(unpacker_->query(UnpackTicket{1}).status().code(), Code::kInvalidArgument);
  ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
}

TEST_P(UnpackCases, FullSlotsAreExhaustedUntilTheOldestIsSeenDone) {
  ASSERT_NO_FATAL_FAILURE(make_arenas(4096, 4096));
  const std::vector<Fragment> list = random_list(10, 100);
  std::vector<UnpackTicket> tickets;
  for (size_t i = 0; i < kQueueDepth; ++i) {
    tickets.push_back(must(submit(list)));
  }
  const Result<UnpackTicket> one_more = submit(list);
  if (std::string_view(unpacker_->name()) == "host") {
    EXPECT_TRUE(one_more.is_ok()) << "the host has nothing in flight";
    return;
  }
  ASSERT_EQ(one_more.status().code(), Code::kExhausted);
  ASSERT_NO_FATAL_FAILURE(wait(tickets.front()));
  EXPECT_TRUE(submit(list).is_ok());
  EXPECT_EQ(submit(list).status().code(), Code::kExhausted);
}

TEST_P(UnpackCases, MayBeDestroyedWhileWorkIsInFlight) {
  ASSERT_NO_FATAL_FAILURE(make_arenas(8 << 20, 8 << 20));
  for (int i = 0; i < 8; ++i) ASSERT_NO_FATAL_FAILURE(unpack(random_list(500, 4096), static_cast<uint64_t>(i)));
  unpacker_.reset();
  in_flight_.clear();
  ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
}

}  // namespace tcpx::testing
