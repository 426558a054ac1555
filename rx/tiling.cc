#include "rx/tiling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace tcpx {
namespace {

constexpr int kSlotBitsBeyondCount = 1;  // 2 to 4 slots per fragment; with more the table outgrows the first-level cache
constexpr int kMaxRounds = 16;           // one step per lookup; the fullest of 8192 slots has about 6 of 2048 begins

}  // namespace

bool proves_tiling(std::span<const Fragment> list, uint64_t message_bytes, uint64_t secret) {
  // A chained hash table of begins. A begin's place is that of its fragment in the list; the end of the message comes after
  // them all.
  const size_t count = list.size();
  const auto none = static_cast<uint16_t>(count + 1);
  const int slot_bits = std::bit_width(count) + kSlotBitsBeyondCount;
  std::array<uint16_t, size_t{2} * kMaxFragments << kSlotBitsBeyondCount> first;  // by slot: a place, or none
  std::array<uint64_t, kMaxFragments + 2> begin;                                  // by place
  std::array<uint16_t, kMaxFragments + 2> next;                                   // by place: another place in the same slot
  std::fill_n(first.begin(), size_t{1} << slot_bits, none);
  begin[none] = ~uint64_t{0};  // higher than any end reached from 0
  next[none] = none;
  const auto insert = [&](size_t place, uint64_t off) {
    begin[place] = off;
    next[place] = std::exchange(first[tiling_slot(off, secret, slot_bits)], static_cast<uint16_t>(place));
  };
  for (size_t i = 0; i < count; ++i) insert(i, list[i].dst_off);
  insert(count, message_bytes);

  // Every lookup goes one step down its chain, then those not found yet go another one, and so on. Following one chain to its
  // end before the next would lose most of the time to mispredicted branches.
  std::array<uint64_t, kMaxFragments + 1> wanted;  // each round overwrites it behind the reader
  std::array<uint16_t, kMaxFragments + 1> candidate;
  size_t open_count = 0;
  const auto compare = [&](uint64_t off, uint16_t place) {
    wanted[open_count] = off;
    candidate[open_count] = next[place];
    open_count += begin[place] != off;
  };
  const auto ask = [&](uint64_t off) { compare(off, first[tiling_slot(off, secret, slot_bits)]); };
  ask(0);
  for (const Fragment& f : list) ask(f.dst_off + f.len);  // may wrap, but not where it is reached from 0
  for (int round = 1; open_count > 0; ++round) {
    if (round == kMaxRounds) return false;
    const size_t asked = std::exchange(open_count, 0);
    for (size_t k = 0; k < asked; ++k) compare(wanted[k], candidate[k]);
  }
  return true;
}

}  // namespace tcpx
