// Requirements on every unpacker, written once: a program instantiates UnpackCases with its set-ups and lists
// support/unpack_cases.cc and support/unpack_random_cases.cc among its SOURCES.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "base/memory_ops.h"
#include "device/unpacker_factory.h"
#include "rx/unpacker.h"

namespace tcpx::testing {

enum class Place { kDevice, kMapped, kPageable };

struct UnpackSetup {
  const char* name;
  UnpackKind kind;
  std::unique_ptr<MemoryOps> (*make_memory)();
  Place pool;
  Place destination;
  bool needs_gpu;
};
inline void PrintTo(const UnpackSetup& setup, std::ostream* out) {
  *out << setup.name;
}
inline std::string name_of_setup(const ::testing::TestParamInfo<UnpackSetup>& info) {
  return info.param.name;
}

/// Memory of one of the kinds, with its expected content in `shadow`.
struct Arena {
  MemoryBuffer buffer;              // kDevice, kMapped
  std::vector<std::byte> pageable;  // kPageable
  std::byte* address = nullptr;
  std::vector<std::byte> shadow;
};

uint64_t total_bytes(std::span<const Fragment> list);

/// Input for a block.
struct Message {
  std::vector<Fragment> list;
  uint64_t pool_off;         // base of src_off in the arena of the pool
  uint64_t destination_off;  // base of dst_off in the arena of the destination
};

class UnpackCases : public ::testing::TestWithParam<UnpackSetup> {
 protected:
  void SetUp() override;

  /// Pool filled with a pattern, destination with guard bytes.
  void make_arenas(size_t pool_bytes, size_t destination_bytes);
  /// Writes guard bytes over the destination and its shadow.
  void reset_destination();
  /// Submits the messages together and gathers them in the shadow with cpu_unpack; waits for the oldest submission when too many
  /// are in flight.
  void unpack_batch(std::span<const Message> batch);
  /// A batch of one message.
  void unpack(std::vector<Fragment> list, uint64_t destination_off = 0);
  /// Only submits.
  Result<UnpackTicket> submit(std::span<const Fragment> list, uint64_t destination_off = 0);
  void wait(UnpackTicket ticket);
  void wait_for_all();
  /// Waits for all; then the whole destination, guard bytes included, against the shadow.
  void expect_destination_as_shadow();

  /// `count` fragments of random length from random places of the pool, in random order, tiling one message.
  std::vector<Fragment> random_list(size_t count, uint32_t longest);
  /// Up to 12 fragments, now and then up to the most, mostly close together like the pages of one message.
  std::vector<Fragment> random_message();
  void shuffle(std::vector<Fragment>& list);
  uint32_t random_below(uint32_t limit);

  std::unique_ptr<MemoryOps> memory_;
  std::unique_ptr<Unpacker> unpacker_;
  std::unique_ptr<CopyLane> lane_;
  Arena pool_;
  Arena destination_;
  std::deque<UnpackTicket> in_flight_;

 private:
  void make_arena(Arena* arena, Place place, size_t bytes);
  std::vector<DescriptorBlock> blocks_{kMaxBatchBlocks};
  uint64_t random_state_ = 1;
};

}  // namespace tcpx::testing
