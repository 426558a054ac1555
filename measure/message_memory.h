// The memory of an end's messages: where they are sent from, where they land, and whether what landed is right.
//
// The bytes sent depend on the seed, the message and the end that sends it. Only the last messages of a round are compared, those
// that no later one has overwritten; a round begins by overwriting what the one before received.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory_ops.h"
#include "measure/end.h"
#include "measure/message_plan.h"
#include "measure/test_memory.h"
#include "rx/unpacker.h"

namespace tcpx {

/// One thread at a time.
class MessageMemory {
 public:
  /// Makes the GPU of `setup` current where there is one: do it before anything that binds to it.
  /// @return kCuda; kInvalidArgument for no such GPU.
  static Result<MessageMemory> create(const EndSetup& setup);

  /// Memory for the messages of `row`. That of the rows before stays valid.
  Status allocate(const RowSetup& row);
  /// Gives all of it back: nothing is registered any more.
  void release();
  /// The next `count` messages are the round. Overwrites what was received, and makes the contents of a plan side by side.
  Status begin_round(uint64_t count);
  /// Names messages counted from the begin of the round.
  Result<ComparedBytes> compare();

  bool on_gpu() const { return setup_.memory == MemoryType::kCuda; }
  int device() const { return on_gpu() ? setup_.gpu : 0; }
  bool leads() const { return setup_.leads; }
  bool sends() const { return setup_.leads || both_ways(); }
  bool receives() const { return !setup_.leads || both_ways(); }

  const RowSetup& row() const { return row_; }
  const MessagePlan& plan() const { return plan_; }
  /// Number of the first message of the round, and how many they are.
  uint64_t first() const { return first_; }
  uint64_t count() const { return count_; }

  /// Empty at an end that does not send, or receive. May be larger than the row needs.
  const TestMemory& to_send() const { return to_send_; }
  const TestMemory& received() const { return received_; }

  /// Memory that a plugin takes for that of a GPU: its own, or that of the host standing in.
  MemoryOps& machine() { return *machine_; }
  /// As UCCL_TCPX_UNPACK_IMPL names it, for where messages land. @return also kBadConfig.
  Result<std::unique_ptr<Unpacker>> make_unpacker();
  CopyLane& copies() { return *copies_; }

 private:
  explicit MessageMemory(const EndSetup& setup)
      : setup_(setup), machine_(make_machine_memory_ops()), host_(make_host_memory_ops()) {}
  /// Makes `memory` one of at least `bytes` bytes.
  Status enlarge(TestMemory& memory, uint64_t bytes);
  bool both_ways() const { return row_.pattern == Pattern::kPingPong || row_.pattern == Pattern::kBothWays; }
  uint64_t seed_of(bool leader) const { return 2 * (row_.seed + (plan_.is_side_by_side() ? round_ : 0)) + (leader ? 1 : 0); }

  EndSetup setup_;
  std::unique_ptr<MemoryOps> machine_, host_;
  std::unique_ptr<CopyLane> copies_;
  RowSetup row_;
  MessagePlan plan_{1, 1};
  TestMemory to_send_, received_;
  std::vector<TestMemory> outgrown_;
  uint64_t round_ = 0, first_ = 0, count_ = 0;
};

}  // namespace tcpx
