// Byte sum: a checksum of a string of bytes that can be computed in parts, in any order, by any number of threads. Both ends of a
// transfer compute it, although each has the bytes in ranges of its own.
//
// The string is taken as words w[0] ... w[n-1] of 32 bits, little-endian, the last one filled up with zeros. With p = 2^61 - 1 and a
// multiplier r, which is the key, the sum is
//
//     w[0] r^n + w[1] r^(n-1) + ... + w[n-1] r   modulo p.
//
// A sum of products can be cut anywhere, even within a word, and a GPU adds it up in parallel; CRC32C, the other candidate, needs a
// table look-up for each byte there. Any change within one word changes the sum. Two different strings of n words have the same sum
// for at most n of the 2^61 multipliers (a polynomial has no more roots), so with a random r that nobody else knows, and sums that
// nobody else sees, the sum also stands against changes on purpose: a forger of 1 GiB succeeds once in 2^33 attempts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tcpx {

/// A multiplier, and what is computed from it. 8 KiB. Any thread.
class ByteSumKey {
 public:
  static constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;
  /// Words of a block, for which the powers are kept.
  static constexpr size_t kBlockWords = 256;

  /// @param seed random; two seeds may have the same key
  /// @param vectors false: without the vector instructions of this processor, as on one that has none
  explicit ByteSumKey(uint64_t seed, bool vectors = true);

  uint64_t multiplier() const { return squares_[0]; }
  /// The multiplier to the power of `exponent`, modulo p.
  uint64_t power(uint64_t exponent) const;
  /// The factor of this word in the sum of a block: power(kBlockWords - 1 - word).
  uint64_t power_in_block(size_t word) const;
  /// The multiplier, its square, the square of that ...
  const std::array<uint64_t, 61>& squares() const { return squares_; }

  static uint64_t add(uint64_t a, uint64_t b);
  static uint64_t multiply(uint64_t a, uint64_t b);

 private:
  friend class ByteSumPart;
  using Powers = std::array<std::array<uint64_t, kBlockWords>, 3>;
  static uint64_t sum_plainly(const std::byte* block, const Powers& powers);
  static uint64_t sum_with_avx2(const std::byte* block, const Powers& powers);

  uint64_t (*sum_)(const std::byte* block, const Powers& powers) = sum_plainly;
  std::array<uint64_t, 61> squares_{};
  uint64_t block_power_ = 0;  // power(kBlockWords)
  // Powers for the words of a block, cut into 21, 21 and 19 bits, so that 256 products can be added up without an overflow.
  alignas(32) Powers powers_{};
};

/// A part of the string: bytes that follow each other. One thread at a time.
class ByteSumPart {
 public:
  /// @param begin position in the string of the part's first byte
  ByteSumPart(const ByteSumKey& key, uint64_t begin) : key_(key), position_(begin) {}

  /// Adds the next bytes.
  void add(std::span<const std::byte> bytes);
  /// What the part adds to the sum (`ByteSumKey::add`) of a string of `total` bytes; the part ends within it.
  uint64_t value(uint64_t total) const;

 private:
  const ByteSumKey& key_;
  uint64_t position_;      // of the next byte
  uint64_t sum_ = 0;       // of whole words, the last one times 1
  uint32_t word_ = 0;      // bytes of the word in which the next byte is
  bool has_word_ = false;  // there are such bytes
};

}  // namespace tcpx
