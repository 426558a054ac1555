// Channel: one comm and the chunks in flight on it. The same pipeline for both directions; a receive has two more stations.
//
// `progress` does, in this order: test the oldest posted request (and the next, while they are done); hand all arrived messages
// to the unpacker; give back the oldest unpacked one (and the next, while they are done). Nothing else touches the comm.
//
// Batches. Arrived messages go out at once, as one submit with one ticket. Waiting for more would add the wait to every
// transfer, and gains nothing under load: several messages are done in one pass then, because arrivals outrun the calls of
// `progress`. All or nothing: when the unpacker is full, or a list is refused, no message of the batch has been started.
//
// Failure. The first error wins. From then on nothing is posted, tested or given back; the channel waits until the unpacker has
// let go of the memory, deregisters and closes the comm so that the plugin lets go of it too, and only then is `closed`: callers
// report the failure only after that. The wait is bounded by `drain_limit`; past it the channel is `abandoned` to GPU copies that
// may still be running. So it is to a plugin that does not return from closing the comm.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/trace_range.h"
#include "rx/rx_descriptor.h"
#include "rx/unpacker.h"
#include "transfer/chunk_budget.h"
#include "transfer/chunk_plan.h"
#include "transfer/comm.h"
#include "transfer/inflight_fifo.h"

namespace tcpx {

enum class TransferId : uint64_t {};

/// ChannelLimits::window; those of long chunks need not be many.
inline constexpr uint64_t kManyRequestsBytes = 32 * 1024 * 1024;
/// Also the default NCCL_DYNAMIC_CHUNK_SIZE: a request of at most chunk size x sockets leaks no page of the vendor's pool (18).
inline constexpr uint32_t kDefaultChunkBytes = 512 * 1024;
/// Of long transfers over a plugin that loses none: 16 MiB and more in longer chunks move 1.2 to 1.5 times as fast over one channel and
/// cost less (docs/field_notes.md).
inline constexpr uint32_t kLongestChunkBytes = 2 * 1024 * 1024;

/// Requests that suit a plugin. Each of several channels has few: what one over a slow NIC has taken, no other can deliver.
uint32_t default_window(const NetPlugin& plugin, Direction direction, size_t channels);

struct ChannelLimits {
  /// Requests held at once, 1 ... NetPlugin::queue_depth; 0, for a ChannelSet: default_window. More than kQueueDepth only while they have fewer bytes
  /// than kManyRequestsBytes together, and none of them is a receive of CUDA memory.
  uint32_t window = 0;
  /// Work is waiting and nothing advances for this long: the channel fails with kTimeout and logs its flight record.
  Duration stall_limit = std::chrono::seconds(30);
  /// GPUDirect-TCPX says "peer gone" once when it sees the end of the control stream behind the last message, and then delivers
  /// that message (12). A receive therefore fails with kPeerGone only when its test has said so `peer_gone_tests` times with no
  /// request done in between; after each such answer the next test waits, so that together they span `peer_gone_grace`. A send
  /// fails at once.
  Duration peer_gone_grace = std::chrono::milliseconds(100);
  uint32_t peer_gone_tests = 5;  ///< at least 2
  Duration drain_limit = std::chrono::seconds(5);
  /// Of sends, shared with other channels of the same thread; must outlive the channel. Null: only the window limits.
  ChunkBudget* budget = nullptr;
  const void* connection = nullptr;  ///< whose share of it counts together
};

/// One chunk with all that posting it takes.
struct ChunkWork {
  TransferId transfer{};
  Chunk chunk;
  std::byte* data = nullptr;  ///< begin of the chunk
  MemoryHandle memory{};
  MemoryType type = MemoryType::kHost;
  int tag = 0;
};

/// A chunk that has reached its good end.
struct ChunkEnd {
  TransferId transfer{};
  uint32_t bytes = 0;
};

/// Sees every received message once, when it has arrived and before it is copied. For tools that show them.
class ReceiveTap {
 public:
  virtual ~ReceiveTap() = default;
  virtual void arrived(const ChunkWork& work, const ReceivedMessage& message, const DescriptorBlock& block) = 0;
};

/// Parts that a receiving channel needs besides the comm. All must outlive the channel.
struct ReceiveParts {
  Unpacker* unpacker = nullptr;
  BouncePool pool;
  ReceiveTap* tap = nullptr;  ///< may be null
};

/// One thread at a time.
class Channel {
 public:
  /// @param receive ignored for sends. Without an unpacker only messages that arrive in place (host memory) can be taken.
  Channel(Comm comm, const ReceiveParts& receive, const Clock& clock, const ChannelLimits& limits);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  Direction direction() const { return comm_.direction(); }
  Comm& comm() { return comm_; }

  /// Requests held at once, at most.
  uint32_t window() const { return fifo_.window(); }
  bool has_room() const {
    return state_ == State::kOpen && fifo_.has_room() && (fifo_.held() < kQueueDepth || held_bytes_ < kManyRequestsBytes);
  }
  /// @return false: no room, no share of the budget, the plugin said "not now", or the channel has failed; the chunk is still the
  /// caller's.
  bool try_post(const ChunkWork& work);

  struct Progress {
    bool advanced = false;
    std::span<const ChunkEnd> finished;  ///< valid until the next call
  };
  Progress progress();

  /// Ends the channel with `reason` unless it has failed already. For the owner's own reasons to stop.
  void fail(Status reason);
  /// Closes a channel with nothing in flight. Ignored after a failure, which closes by itself.
  Status close();

  /// The first error; ok while all is well.
  const Status& status() const { return status_; }
  /// True when neither plugin nor unpacker touches the memory of any chunk, and none ever will.
  bool closed() const { return state_ == State::kClosed; }
  /// True when it was closed at the drain limit, or its plugin does not return: either may still touch the chunks' memory.
  bool abandoned() const { return abandoned_; }

  uint64_t in_flight() const { return closed() ? 0 : fifo_.held(); }
  /// Nothing can advance before others that share the budget have had their turn.
  bool is_behind() const {
    return state_ == State::kOpen && fifo_.held() == 0 && limits_.budget != nullptr && limits_.budget->is_behind(asker_);
  }
  /// Of a failed channel, once it is closed: the chunks that did not reach their good end, in order of posting.
  template <class Visit>
  void for_each_failed(Visit visit) const {
    require(closed() && !status_.is_ok(), "failed chunks are those of a failed channel");
    for (uint64_t number = fifo_.begin(); number != fifo_.end(); ++number) visit(fifo_.at(number).work);
  }
  ChunkState state_of(uint64_t number) const { return fifo_.state_of(number); }
  /// Chunks in flight, one per line: state, index, bytes, age.
  std::string flight_record() const;

 private:
  enum class State { kOpen, kDraining, kClosed };
  struct Flight {
    ChunkWork work;
    Request request{};
    std::optional<UnpackTicket> ticket;  ///< unpacking: to be waited for; none when there is nothing to wait for
    TimePoint posted_at;
    ChunkBudget::Share share = 0;  // with a budget
    TraceRange trace = {};         // from the post to the end
  };

  bool test_posted();
  bool unpack_arrived();
  bool consume_unpacked();
  Status gather(const Flight& flight);
  Result<bool> is_copied(const Flight& flight);
  /// Of the budget; without one everything is let through.
  std::optional<ChunkBudget::Share> take_share(uint32_t bytes);
  void give_back(ChunkBudget::Share share);
  void leave_budget();
  void finish_oldest(ChunkState from, ChunkState to);
  void check_stall();
  void drain();
  bool peer_gone_for_good();
  /// Fails with what the plugin answered to a post or a test, and warns, because the plugin's side does not (net_plugin.h).
  void give_up(const Status& answer);
  bool waits_after_peer_gone() const { return peer_gone_count_ > 0 && now_ < next_test_at_; }
  bool working() const { return fifo_.held() > 0 || refused_; }

  Comm comm_;
  ReceiveParts receive_;
  const Clock& clock_;
  ChannelLimits limits_;
  InflightFifo<Flight> fifo_;
  uint64_t held_bytes_ = 0;
  uint64_t after_cuda_ = 0;  // number behind the latest receive of CUDA memory
  // The batch under way: the first `batch_blocks_` blocks, of the arrived chunks numbered below `gathered_end_`. Reused for ever.
  // A block takes its 32 KiB at its first use, so a sender has none, a receiver that gets one message at a time has one of them,
  // and only one whose whole window has arrived between two calls has all, 512 KiB.
  std::array<DescriptorBlock, kMaxBatchBlocks> blocks_;
  static_assert(kMaxBatchBlocks >= kQueueDepth, "all that need a copy fit into one batch");
  size_t batch_blocks_ = 0;
  uint64_t gathered_end_ = 0;
  std::optional<UnpackTicket> newest_done_;  // tickets end in order: those up to this one need not be asked again

  State state_ = State::kOpen;
  Status status_;
  bool abandoned_ = false;
  TimePoint now_;           // of the current call
  TimePoint last_advance_;  // or the begin of the current work
  TimePoint drain_until_;
  // The plugin said "not now" to the latest post since the last call of `progress`, and to that before it. Only a chunk that is
  // offered again waits: the owner may have found it another channel.
  bool refused_ = false, had_refused_ = false;
  ChunkBudget::Asker asker_;
  bool waits_for_share_ = false;  // the budget refused the latest post since the last call of `progress`
  uint32_t peer_gone_count_ = 0;
  TimePoint next_test_at_;
  std::vector<ChunkEnd> finished_;  // as many as the window has
  size_t finished_count_ = 0;
};

}  // namespace tcpx
