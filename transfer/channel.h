// Channel: one comm and the chunks in flight on it. Both directions use the same pipeline; a receive has two more stations.
//
// `progress` works in this order: it tests the oldest posted request, and the next ones while they are done; it hands all arrived
// messages to the unpacker; it gives back the oldest unpacked message, and the next ones while they are done. Nothing else
// touches the comm.
//
// Batches. All arrived messages are submitted to the unpacker at once, with one ticket. Waiting for more messages would delay
// every transfer and gain nothing under load: arrivals then outrun the calls of `progress`, so one pass handles several messages
// anyway. A batch is submitted whole or not at all: when the unpacker is full or refuses a list, no message of it has been
// started.
//
// Failure. The first error wins. From then on the channel posts, tests and gives back nothing. It waits until the unpacker has
// let go of the memory, then deregisters the memory and closes the comm, so that the plugin lets go of it, too. Only then is the
// channel `closed`, and callers report the failure only after that. `drain_limit` bounds the wait. When it passes, or when the
// plugin does not return from closing the comm, the channel is `abandoned`: GPU copies, or the plugin, may still touch the
// memory.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
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

/// A channel holds more than kQueueDepth requests only while together they have fewer bytes than this: a few long chunks suffice
/// to keep the network busy (ChannelLimits::window).
inline constexpr uint64_t kManyRequestsBytes = 32 * 1024 * 1024;
/// Default chunk size. It is also the default of NCCL_DYNAMIC_CHUNK_SIZE: a request of at most that size times the number of
/// sockets leaks no page of the vendor's pool (18).
inline constexpr uint32_t kDefaultChunkBytes = 512 * 1024;
/// Longest chunk of a long transfer, with a plugin that loses no pages to long requests. Over one channel, transfers of 16 MiB
/// and more are 1.2 to 1.5 times as fast in such chunks, and cost less (docs/field_notes.md).
inline constexpr uint32_t kLongestChunkBytes = 2 * 1024 * 1024;

/// The window that suits a plugin, in requests. With several channels each window is small, because no other channel can deliver
/// the chunks that a channel over a slow NIC has taken.
uint32_t default_window(const NetPlugin& plugin, Direction direction, size_t channels);

struct ChannelLimits {
  /// Most requests held at once, 1 ... NetPlugin::queue_depth; 0 (for a ChannelSet only): default_window. A channel holds more
  /// than kQueueDepth requests only while they have fewer bytes than kManyRequestsBytes together and none of them receives into
  /// CUDA memory.
  uint32_t window = 0;
  /// When work is waiting and nothing advances for this long, the channel fails with kTimeout and logs its flight record.
  Duration stall_limit = std::chrono::seconds(30);
  /// GPUDirect-TCPX says "peer gone" once when it sees the end of the control stream behind the last message, and then delivers
  /// that message (12). A receive therefore fails with kPeerGone only when its tests have said so `peer_gone_tests` times with no
  /// request done in between. The tests are spaced so that together they span `peer_gone_grace`. A send fails at once.
  Duration peer_gone_grace = std::chrono::milliseconds(100);
  uint32_t peer_gone_tests = 5;  ///< at least 2
  Duration drain_limit = std::chrono::seconds(5);
  /// Limits the sends of several channels of one thread together; must outlive the channel. Null: only the window limits.
  ChunkBudget* budget = nullptr;
  const void* connection = nullptr;  ///< identifies the connection in the budget: its channels are counted together
};

/// One chunk with everything needed to post it.
struct ChunkWork {
  TransferId transfer{};
  Chunk chunk;
  std::byte* data = nullptr;  ///< first byte of the chunk
  MemoryHandle memory{};
  MemoryType type = MemoryType::kHost;
  int tag = 0;
};

/// A chunk that has been sent or received successfully.
struct ChunkEnd {
  TransferId transfer{};
  uint32_t bytes = 0;
};

/// Is shown every received message once, after it has arrived and before it is copied. For tools that display messages.
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
  /// @param receive ignored for sends. Without an unpacker the channel can receive only messages that arrive in place (host
  /// memory)
  Channel(Comm comm, const ReceiveParts& receive, const Clock& clock, const ChannelLimits& limits);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  Direction direction() const { return comm_.direction(); }
  Comm& comm() { return comm_; }

  /// Most requests held at once.
  uint32_t window() const { return fifo_.window(); }
  bool has_room() const {
    return state_ == State::kOpen && fifo_.has_room() && (fifo_.held() < kQueueDepth || held_bytes_ < kManyRequestsBytes);
  }
  /// Posts a chunk. @return false: no room, no share of the budget, the plugin said "not now", or the channel has failed; the
  /// caller keeps the chunk
  bool try_post(const ChunkWork& work);

  struct Progress {
    bool advanced = false;
    std::span<const ChunkEnd> finished;  ///< valid until the next call
  };
  Progress progress();
  /// Asks the plugin to call `told` when `progress` may have something to do (NetPlugin::tell_changes). Call before the first post.
  void tell_changes(std::function<void()> told) { told_ = comm_.tell_changes(std::move(told)); }
  /// True if the plugin, or another channel that advances, ends the wait for whatever this one waits for.
  bool is_told() const {
    const bool unpacks = fifo_.count(ChunkState::kArrived) + fifo_.count(ChunkState::kUnpacking) > 0;
    return told_ && state_ == State::kOpen && !unpacks && !had_refused_ && !waits_after_peer_gone();
  }

  /// Ends the channel with `reason`, for reasons of its owner. Has no effect when the channel has failed already.
  void fail(Status reason);
  /// Closes a channel that has nothing in flight. Has no effect after a failure, which closes the channel by itself.
  Status close();

  /// The first error; ok while all is well.
  const Status& status() const { return status_; }
  /// True when neither the plugin nor the unpacker touches the memory of any chunk, now or later; except when `abandoned`.
  bool closed() const { return state_ == State::kClosed; }
  /// True when the channel was closed at the drain limit, or its plugin does not return: GPU copies or the plugin may still touch
  /// the chunks' memory.
  bool abandoned() const { return abandoned_; }

  uint64_t in_flight() const { return closed() ? 0 : fifo_.held(); }
  /// True when nothing can advance before other channels that share the budget have had their turn.
  bool is_behind() const {
    return state_ == State::kOpen && fifo_.held() == 0 && limits_.budget != nullptr && limits_.budget->is_behind(asker_);
  }
  /// Visits the chunks that were not sent or received successfully, in order of posting. Needs a failed channel that is closed.
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
    std::optional<UnpackTicket> ticket;  // of an unpacking chunk; none when no copy has to be waited for
    TimePoint posted_at;
    ChunkBudget::Share share = 0;  // only with a budget
    TraceRange trace = {};         // from the post to the end
  };

  bool test_posted();
  bool unpack_arrived();
  bool consume_unpacked();
  Status gather(const Flight& flight);
  Result<bool> is_copied(const Flight& flight);
  /// Takes a share of the budget; without a budget it always succeeds.
  std::optional<ChunkBudget::Share> take_share(uint32_t bytes);
  void give_back(ChunkBudget::Share share);
  void leave_budget();
  void finish_oldest(ChunkState from, ChunkState to);
  void check_stall();
  void drain();
  bool peer_gone_for_good();
  /// Fails with the plugin's answer to a post or a test. Logs a warning, because the plugin's adapter does not (net_plugin.h).
  void give_up(const Status& answer);
  bool waits_after_peer_gone() const { return peer_gone_count_ > 0 && now_ < next_test_at_; }
  bool working() const { return fifo_.held() > 0 || refused_; }

  Comm comm_;
  ReceiveParts receive_;
  const Clock& clock_;
  ChannelLimits limits_;
  InflightFifo<Flight> fifo_;
  uint64_t held_bytes_ = 0;
  uint64_t after_cuda_ = 0;  // number of the chunk after the latest receive into CUDA memory
  // The current batch: the first `batch_blocks_` blocks describe the arrived chunks with numbers below `gathered_end_`. The
  // blocks are reused. A block allocates its 32 KiB at its first use, so a sender allocates none, a receiver that gets one
  // message at a time allocates one, and only a receiver whose whole window arrives between two calls allocates all of them (512
  // KiB).
  std::array<DescriptorBlock, kMaxBatchBlocks> blocks_;
  static_assert(kMaxBatchBlocks >= kQueueDepth, "all that need a copy fit into one batch");
  size_t batch_blocks_ = 0;
  uint64_t gathered_end_ = 0;
  std::optional<UnpackTicket> newest_done_;  // tickets end in order, so those up to this one need no further test

  State state_ = State::kOpen;
  bool told_ = false;  // by the plugin
  Status status_;
  bool abandoned_ = false;
  TimePoint now_;           // time of the current call
  TimePoint last_advance_;  // or the start of the current work
  TimePoint drain_until_;
  // Whether the plugin said "not now" to the latest post since the last call of `progress`, and to the latest post before that
  // call. Only a chunk that is offered again counts as waiting: the owner may have found another channel for it.
  bool refused_ = false, had_refused_ = false;
  ChunkBudget::Asker asker_;
  bool waits_for_share_ = false;  // the budget refused the latest post since the last call of `progress`
  uint32_t peer_gone_count_ = 0;
  TimePoint next_test_at_;
  std::vector<ChunkEnd> finished_;  // room for a whole window
  size_t finished_count_ = 0;
};

}  // namespace tcpx
