// Any scatter list: the block accepts exactly what a byte map accepts, and what it accepts unpacks to what the byte map says
// without touching a byte outside. No choice of the secret makes rx/tiling.h prove more than that.
//
// Input: u8 flags (1 entries of full width), u16 pool_bytes, u16 message_bytes, u16 destination_bytes, then entries {src_off,
// len, dst_off} of {u16, u16, u16} or {u32, u32, u64}.
#include <vector>

#include "rx/rx_descriptor.h"
#include "rx/tiling.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using tcpx::Fragment;

/// For each byte of the message the pool byte that belongs there; empty when the list must be refused.
std::vector<uint64_t> byte_map(const std::vector<Fragment>& list, uint64_t message_bytes, uint64_t pool_bytes) {
  constexpr uint64_t kNowhere = ~uint64_t{0};
  std::vector<uint64_t> from(message_bytes, kNowhere);
  for (const Fragment& f : list) {
    if (f.len == 0) return {};
    for (uint64_t i = 0; i < f.len; ++i) {
      if (f.dst_off >= message_bytes || f.dst_off + i >= message_bytes || f.src_off + i >= pool_bytes) return {};
      uint64_t& source = from[f.dst_off + i];
      if (source != kNowhere) return {};
      source = f.src_off + i;
    }
  }
  if (std::find(from.begin(), from.end(), kNowhere) != from.end()) return {};
  return from;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tcpx::fuzz::FuzzInput in(data, size);
  const bool wide = (in.take<uint8_t>() & 1) != 0;
  const uint64_t pool_bytes = in.take<uint16_t>() % 4097;
  const uint64_t message_bytes = in.take<uint16_t>() % 4097;
  const uint64_t destination_bytes = in.take<uint16_t>() % 4097;
  std::vector<Fragment> list;
  while (!in.empty()) {
    Fragment f{};
    f.src_off = wide ? in.take<uint32_t>() : in.take<uint16_t>();
    f.len = wide ? in.take<uint32_t>() : in.take<uint16_t>();
    f.dst_off = wide ? in.take<uint64_t>() : in.take<uint16_t>();
    list.push_back(f);
  }

  // Allocations of exactly these sizes: the address checker is the guard.
  std::vector<std::byte> pool(pool_bytes), destination(destination_bytes, std::byte{0xA5});
  for (size_t i = 0; i < pool.size(); ++i) pool[i] = static_cast<std::byte>(i * 31 + (i >> 8));
  const tcpx::UnpackTarget target{pool.data(), pool_bytes, destination.data(), destination_bytes};
  tcpx::DescriptorBlock block;
  const tcpx::Status status = block.build(list, message_bytes, target);

  const std::vector<uint64_t> from = byte_map(list, message_bytes, pool_bytes);
  const bool tiled = message_bytes == 0 ? list.empty() : !from.empty();
  uint64_t sum = 0;
  uint32_t shortest = UINT32_MAX, longest = 0;
  for (const Fragment& f : list) {
    sum += f.len;
    shortest = std::min(shortest, f.len);
    longest = std::max(longest, f.len);
  }
  if (list.size() <= tcpx::kMaxFragments && shortest > 0 && sum == message_bytes) {
    const uint64_t secret = list.empty() ? 0 : list.back().src_off;
    const bool proved = tcpx::proves_tiling(list, message_bytes, secret);
    std::vector<Fragment> anywhere = list;  // the byte map wants sources inside the pool, this question does not
    for (Fragment& f : anywhere) f.src_off = 0;
    const bool covered = message_bytes == 0 ? list.empty() : !byte_map(anywhere, message_bytes, UINT64_MAX).empty();
    FUZZ_REQUIRE(covered || !proved);
    FUZZ_REQUIRE(proved || !covered || list.size() > 15);  // 16 begins and the end may meet in one slot
  }

  const bool legal = pool_bytes > 0 && message_bytes <= destination_bytes && list.size() <= 2048 && tiled;
  FUZZ_REQUIRE(status.is_ok() == legal);
  if (!legal) {
    FUZZ_REQUIRE(!status.detail().empty());
    FUZZ_REQUIRE(block.fragments().empty() && block.message_bytes() == 0 && block.target().destination == nullptr);
    FUZZ_REQUIRE(block.longest_bytes() == 0 && block.joined_distance() == 0 && block.contiguous_source() == nullptr);
    return 0;
  }
  FUZZ_REQUIRE(std::equal(list.begin(), list.end(), block.fragments().begin(), block.fragments().end()));
  FUZZ_REQUIRE(block.message_bytes() == message_bytes && block.longest_bytes() == longest);
  bool in_one_piece = !from.empty();
  for (size_t i = 0; i < from.size(); ++i) in_one_piece = in_one_piece && from[i] == from[0] + i;
  const std::byte* source = block.contiguous_source();
  FUZZ_REQUIRE(source == nullptr || (in_one_piece && source == block.target().pool + from[0]));
  FUZZ_REQUIRE(source != nullptr || !in_one_piece || list.size() > 15);  // a list that was proved the slow way may go without
  tcpx::cpu_unpack(block);
  for (size_t i = 0; i < destination.size(); ++i)
    FUZZ_REQUIRE(destination[i] == (i < from.size() ? pool[from[i]] : std::byte{0xA5}));
  return 0;
}
