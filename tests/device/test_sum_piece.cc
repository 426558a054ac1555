// The share of a checksum that the threads of a GPU compute, computed by the host, beside what the host computes in its own way.
#include "device/sum_piece.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "base/byte_sum.h"

namespace tcpx::testing {
namespace {

const ByteSumKey kKey(17);

uint64_t own_part(std::span<const std::byte> bytes, uint64_t position, uint64_t total) {
  ByteSumPart part(kKey, position);
  part.add(bytes);
  return part.value(total);
}

// As a block of the kernel does.
uint64_t block_part(std::span<const std::byte> bytes, uint64_t position, uint64_t total) {
  const SumPiece piece{bytes.data(), position, bytes.size()};
  uint64_t sum = 0;
  for (uint32_t thread = 0; thread < kSumThreads; ++thread) {
    const uint64_t own = sum_of_thread(PieceWords(piece), thread, kKey.squares()[8]);
    sum = sum_add(sum, sum_multiply(own, kKey.power_in_block(thread)));
  }
  const uint64_t behind = words_up_to(total) - words_up_to(position + bytes.size()) + 1;
  uint64_t power = 1;
  for (uint32_t thread = 0; thread < 32; ++thread)
    power = sum_multiply(power, power_of_thread(kKey.squares().data(), behind, thread));
  return sum_multiply(sum, power);
}

TEST(SumPiece, ComputesAsTheKeyDoes) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> values{0, 1, 2, kSumPrime - 1, kSumPrime - 2, 0xffffffff, uint64_t{1} << 32, uint64_t{1} << 60};
  for (int i = 0; i < 200; ++i) values.push_back(random() % kSumPrime);
  for (const uint64_t a : values) {
    for (const uint64_t b : values) {
      ASSERT_EQ(sum_add(a, b), ByteSumKey::add(a, b)) << a << ", " << b;
      ASSERT_EQ(sum_multiply(a, b), ByteSumKey::multiply(a, b)) << a << ", " << b;
    }
  }
}

// Its neighbours are ones, so that one that counted would show.
TEST(SumPiece, OfEveryLengthAndAlignmentIsThatOfThePart) {
  std::mt19937_64 random(2);
  alignas(16) std::byte memory[400];
  for (size_t bytes = 1; bytes <= 300; ++bytes) {
    for (size_t address = 0; address < 8; ++address) {
      for (uint64_t position = 0; position < 4; ++position) {
        std::fill(std::begin(memory), std::end(memory), std::byte{0xff});
        const std::span<std::byte> piece(memory + 16 + address, bytes);
        if (random() % 8 != 0) {
          for (std::byte& byte : piece) byte = static_cast<std::byte>(random());
        }
        const uint64_t begin = 4 * (random() % 1000) + position, total = begin + bytes + random() % 100;
        ASSERT_EQ(block_part(piece, begin, total), own_part(piece, begin, total))
            << bytes << " bytes at address " << address << ", position " << begin << " of " << total;
      }
    }
  }
}

TEST(SumPiece, LongOnesAndFarPlaces) {
  std::mt19937_64 random(3);
  std::vector<std::byte> memory(80'000, std::byte{0xff});
  for (int round = 0; round < 40; ++round) {
    const size_t address = random() % 64, bytes = 1 + random() % (memory.size() - 64);
    const uint64_t position = random() % (uint64_t{1} << (round + 2)), total = position + bytes + random() % (uint64_t{1} << 62);
    for (size_t i = address; round % 4 != 0 && i < address + bytes; ++i) memory[i] = static_cast<std::byte>(random());
    const auto piece = std::span<const std::byte>(memory).subspan(address, bytes);
    ASSERT_EQ(block_part(piece, position, total), own_part(piece, position, total)) << "round " << round;
  }
}

}  // namespace
}  // namespace tcpx::testing
