// Random lists and messages through every unpacker.
#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/support/process_state.h"
#include "tests/support/unpack_cases.h"

namespace tcpx::testing {

std::vector<Fragment> UnpackCases::random_message() {
  constexpr uint32_t kLongest[] = {8, 64, 64, 300, 300, 1448, 1448, 4097};
  const auto pool_bytes = static_cast<uint32_t>(pool_.shadow.size());
  const bool many = random_below(512) == 0;
  const uint32_t count = random_below(many ? kMaxFragments + 1 : 13);
  const uint32_t longest = many ? 64 : kLongest[random_below(std::size(kLongest))];
  const uint32_t home = random_below(pool_bytes - (64 << 10));
  std::vector<Fragment> list;
  uint64_t dst_off = 0;
  for (uint32_t follower = 0; list.size() < count;) {
    const uint32_t len = 1 + random_below(longest);
    uint32_t src_off = follower;  // one in four follows its predecessor, most others are near
    if (random_below(4) != 0 || follower + len > pool_bytes)
      src_off = random_below(16) == 0 ? random_below(pool_bytes - len + 1) : home + random_below(32 << 10);
    list.push_back({src_off, len, dst_off});
    dst_off += len;
    follower = src_off + len;
  }
  if (random_below(2) == 0) shuffle(list);
  return list;
}

TEST_P(UnpackCases, ManyRandomMessagesBetweenGuards) {
  constexpr size_t kDestinationBytes = 8 << 20;
  ASSERT_NO_FATAL_FAILURE(make_arenas(1 << 20, kDestinationBytes));
  std::vector<Message> batch;
  uint64_t at = 1;
  // On a GPU all of them where the kernels' work is hardest to see through, in GPU memory. What the other kinds of memory and of
  // unpackers add shows in fewer; a copy of its own for each fragment takes many times as long as a kernel's share of it.
  const UnpackSetup& setup = GetParam();
  const bool is_kernel = setup.kind == UnpackKind::kKernel;
  const bool all = is_kernel && setup.pool == Place::kDevice && setup.destination == Place::kDevice;
  const int messages = all ? 100'000 : setup.needs_gpu ? (is_kernel ? 20'000 : 5'000) : kIsChecked ? 2'000 : 20'000;
  for (int unpacked = 0; unpacked < messages; ++unpacked) {
    Message message{random_message(), 0, at + random_below(32)};
    const uint64_t end = message.destination_off + total_bytes(message.list);
    if (batch.size() == kMaxBatchBlocks || end >= kDestinationBytes) {
      ASSERT_NO_FATAL_FAILURE(unpack_batch(batch));
      batch.clear();
    }
    if (end >= kDestinationBytes) {  // full: the next round begins
      SCOPED_TRACE(::testing::Message() << "up to message " << unpacked);
      ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
      ASSERT_NO_FATAL_FAILURE(reset_destination());
      at = 1;
      continue;
    }
    at = end + 1;
    batch.push_back(std::move(message));
  }
  ASSERT_NO_FATAL_FAILURE(unpack_batch(batch));
  ASSERT_NO_FATAL_FAILURE(expect_destination_as_shadow());
}

}  // namespace tcpx::testing
