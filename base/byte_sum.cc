#include "base/byte_sum.h"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tcpx {
namespace {

using Wide = unsigned __int128;
constexpr uint64_t kPrime = ByteSumKey::kPrime;
constexpr size_t kBlockWords = ByteSumKey::kBlockWords, kBlockBytes = kBlockWords * sizeof(uint32_t);
constexpr unsigned kLimbBits = 21;

static_assert(std::endian::native == std::endian::little, "words are taken from memory as they are");

// 2^61 is 1 modulo p.
uint64_t reduce(Wide value) {
  const Wide folded = (value & kPrime) + (value >> 61);
  const uint64_t low = static_cast<uint64_t>(folded & kPrime) + static_cast<uint64_t>(folded >> 61);
  return low >= kPrime ? low - kPrime : low;
}

uint64_t join(const auto& powers, size_t i) {
  return powers[0][i] | powers[1][i] << kLimbBits | powers[2][i] << (2 * kLimbBits);
}

}  // namespace

uint64_t ByteSumKey::power_in_block(size_t word) const {
  return join(powers_, word);
}

uint64_t ByteSumKey::sum_plainly(const std::byte* block, const Powers& powers) {
  Wide sum = 0;
  for (size_t i = 0; i < kBlockWords; ++i) {
    uint32_t word;
    std::memcpy(&word, block + i * sizeof word, sizeof word);
    sum += Wide{word} * join(powers, i);
  }
  return reduce(sum);
}

#if defined(__x86_64__)
// Four times as fast as what compilers make of the above.
__attribute__((target("avx2"))) uint64_t ByteSumKey::sum_with_avx2(const std::byte* block, const Powers& powers) {
  __m256i sums[3] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  for (size_t i = 0; i < kBlockWords; i += 4) {
    const __m256i words =
        _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + i * sizeof(uint32_t))));
#pragma GCC unroll 3  // without -O3 the sums would lie in memory, which takes four times as long
    for (size_t limb = 0; limb < 3; ++limb) {
      const __m256i power = _mm256_load_si256(reinterpret_cast<const __m256i*>(&powers[limb][i]));
      sums[limb] = _mm256_add_epi64(sums[limb], _mm256_mul_epu32(words, power));
    }
  }
  Wide limbs[3];
  for (size_t limb = 0; limb < 3; ++limb) {
    uint64_t lanes[4];  // 256 products of 53 bits, together
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), sums[limb]);
    limbs[limb] = lanes[0] + lanes[1] + lanes[2] + lanes[3];
  }
  return reduce(limbs[0] + (limbs[1] << kLimbBits) + (limbs[2] << (2 * kLimbBits)));
}
#endif

uint64_t ByteSumKey::add(uint64_t a, uint64_t b) {
  const uint64_t sum = a + b;
  return sum >= kPrime ? sum - kPrime : sum;
}

uint64_t ByteSumKey::multiply(uint64_t a, uint64_t b) {
  return reduce(Wide{a} * b);
}

ByteSumKey::ByteSumKey(uint64_t seed, bool vectors) {
#if defined(__x86_64__)
  if (vectors && __builtin_cpu_supports("avx2")) sum_ = sum_with_avx2;
#else
  (void)vectors;
#endif
  constexpr uint64_t kLeast = uint64_t{1} << 32;  // with a small one, short strings would be their own sums
  uint64_t power = seed % (kPrime - kLeast) + kLeast;
  for (uint64_t& square : squares_) {
    square = power;
    power = multiply(power, power);
  }
  uint64_t of_word = 1;
  for (size_t i = kBlockWords; i-- > 0;) {
    for (size_t limb = 0; limb < 3; ++limb) powers_[limb][i] = of_word >> (limb * kLimbBits) & ((uint64_t{1} << kLimbBits) - 1);
    of_word = multiply(of_word, multiplier());
  }
  block_power_ = of_word;
}

uint64_t ByteSumKey::power(uint64_t exponent) const {
  uint64_t power = 1;
  for (size_t bit = 0; exponent != 0; ++bit, exponent >>= 1) {
    if ((exponent & 1) != 0) power = multiply(power, squares_[bit]);
  }
  return power;
}

void ByteSumPart::add(std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  const auto add_byte = [&] {
    const unsigned place = position_ % sizeof word_;
    word_ |= std::to_integer<uint32_t>(*at) << (8 * place);
    has_word_ = place + 1 != sizeof word_;
    if (!has_word_) {
      sum_ = ByteSumKey::add(ByteSumKey::multiply(sum_, key_.multiplier()), word_);
      word_ = 0;
    }
    ++position_;
    ++at;
    --left;
  };
  while (left > 0 && position_ % sizeof word_ != 0) add_byte();
  for (; left >= kBlockBytes; at += kBlockBytes, left -= kBlockBytes, position_ += kBlockBytes)
    sum_ = ByteSumKey::add(ByteSumKey::multiply(sum_, key_.block_power_), key_.sum_(at, key_.powers_));
  if (const size_t words = left / sizeof word_; words > 0) {  // the end of a block whose first words are missing
    const size_t missing = kBlockWords - words;
    Wide sum = Wide{sum_} * key_.power_in_block(missing - 1);
    for (size_t i = 0; i < words; ++i, at += sizeof word_) {
      uint32_t word;
      std::memcpy(&word, at, sizeof word);
      sum += Wide{word} * key_.power_in_block(missing + i);
    }
    sum_ = reduce(sum);
    position_ += words * sizeof word_;
    left -= words * sizeof word_;
  }
  while (left > 0) add_byte();
}

uint64_t ByteSumPart::value(uint64_t total) const {
  constexpr uint64_t kWord = sizeof word_;
  const uint64_t sum = has_word_ ? ByteSumKey::add(ByteSumKey::multiply(sum_, key_.multiplier()), word_) : sum_;
  const uint64_t words_of_string = (total + kWord - 1) / kWord, words_so_far = (position_ + kWord - 1) / kWord;
  return ByteSumKey::multiply(sum, key_.power(words_of_string - words_so_far + 1));
}

}  // namespace tcpx
