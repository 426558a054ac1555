// Staging memory between a GPU and its sockets: pinned memory in slots, for sends from memory that the host cannot read.
//
// One pool per GPU and process, shared by all sending comms. An I/O thread writes one socket at a time, so a few slots per
// thread keep copies and writes overlapping, however many comms there are. So the pool has a fixed size, and an idle comm holds
// nothing of it.
//
// The slot that has been free longest is handed out first. The one returned last would be the natural choice, as it is in the
// cache, but in that of the core that has just sent it, where the GPU's writes are slow: 18.6 GB/s against 33, measured with
// eight sockets. Older slots have moved on to the cache that all cores share.
//
// Its memory, and the copy thread, are created with the first region that needs them and freed with the last comm of the GPU.
//
// Fairness: a socket that holds no slot waits in line for its first one, and while any waits none gets a second one. A slot that
// comes back is kept for the first in line, which leaves it and is told: the threads of many sockets come for theirs side by side. When the
// line forms, the holders of slots are told: a socket that is full, because its peer reads slowly or not at all, returns its
// slots, copies done or not needed. That loses no data: the source stays unchanged until its request is done, and is copied
// again when the peer reads on. So stalled peers cannot starve the others.
//
// The kernel may read a slot after its bytes were sent (base/zero_copy.h). Such a slot is lent: until the kernel is done with it
// nobody writes to it, and it counts for no client, as none can give it back. At most kMostLent are lent, so that peers that do not
// acknowledge leave the others enough. A socket that is closed meanwhile departs: the pool keeps its descriptor, ends the stream, and
// looks at its error queue when slots are taken.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/memory_ops.h"
#include "base/mutex.h"
#include "base/unique_fd.h"
#include "base/zero_copy.h"
#include "net/soft/copy_thread.h"

namespace tcpx::soft {

class StagingPool {
 public:
  static constexpr uint32_t kSlots = 64;
  static constexpr uint32_t kSlotBytes = 512 * 1024;
  static constexpr uint32_t kMostLent = kSlots / 2;

  /// A user of slots. Before its destruction it returns all of them and calls `forget`.
  class Client {
   public:
    virtual ~Client() = default;
    /// A slot is kept for a client that waited; others wait for a slot that this one holds. Called under the pool's lock from
    /// any thread: must not call the pool.
    virtual void staging_changed() = 0;

   private:
    friend class StagingPool;
    uint32_t held_ = 0;  // with the one that is kept for it
    bool waiting_ = false;
    std::optional<uint32_t> kept_;
  };

  /// Ownership of a slot, or of none. Destruction returns it. One thread at a time.
  class Slot {
   public:
    Slot() = default;
    Slot(Slot&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), index_(other.index_) {}
    Slot& operator=(Slot&& other) noexcept {
      reset();
      pool_ = std::exchange(other.pool_, nullptr);
      index_ = other.index_;
      return *this;
    }
    ~Slot() { reset(); }

    explicit operator bool() const { return pool_ != nullptr; }
    const std::byte* data() const;
    /// Queues a copy of `bytes` bytes of `source` to `offset` in the slot, behind earlier requests. No other copy of this
    /// slot may be in flight.
    void copy(uint32_t offset, const std::byte* source, uint32_t bytes);
    /// Starts copying `bytes` bytes of `source` to the beginning of the slot, on the calling thread, whose current GPU must be
    /// the pool's, and ahead of others. For small sends whose caller waits.
    Status copy_now(const std::byte* source, uint32_t bytes);
    /// True when the bytes are copied; an error is that of the copy.
    Result<bool> is_copied() const;
    /// Waits for the copy, successful or not, and returns the slot.
    void reset();
    /// Charges a slot that was taken without a client to `client` from now on.
    void move_to(Client& client);
    /// Call before the kernel is let read the slot by itself. False: too many slots are lent. The loan ends when the slot is returned.
    bool lend();
    /// Charges a lent slot to no client from now on.
    void leave_client();

   private:
    friend class StagingPool;
    Slot(StagingPool* pool, uint32_t index) : pool_(pool), index_(index) {}
    StagingPool* pool_ = nullptr;
    uint32_t index_ = 0;
  };

  /// A slot that several threads send from, each a part. The last one to drop it returns it.
  class SharedSlot {
   public:
    /// @param slot in which a copy has been started, or none has been since the last one was done
    /// @param bytes that it holds then
    SharedSlot(Slot slot, uint32_t bytes) : bytes_(bytes), slot_(std::move(slot)) {}
    const std::byte* data() const { return slot_.data(); }
    uint32_t bytes() const { return bytes_; }
    // As Slot's, for any thread.
    Result<bool> is_copied() TCPX_EXCLUDES(mutex_);
    bool lend() { return slot_.lend(); }
    void leave_client() { slot_.leave_client(); }

   private:
    const uint32_t bytes_;
    std::atomic<bool> copied_{false};
    Mutex mutex_;  // held while the copy is asked
    Slot slot_;
  };

  /// The first bytes of a message, in slots that are full but the last.
  static constexpr uint32_t kStagedSlots = 4;
  using Staged = std::array<std::shared_ptr<SharedSlot>, kStagedSlots>;
  /// The slot of byte number `offset`, or null.
  static const std::shared_ptr<SharedSlot>& slot_of(const Staged& staged, uint32_t offset);

  /// A lent slot, whose memory the kernel reads until this send of its socket is over.
  struct LentSlot {
    std::shared_ptr<SharedSlot> slot;
    uint64_t last_send;
  };

  /// A socket that sends no more, and the slots that the kernel still reads for it.
  struct Departed {
    UniqueFd fd;
    ZeroCopySends sends;
    std::vector<LentSlot> lent;
  };
  using Departure = std::list<Departed>;

  /// Allocates no memory yet, and starts no thread.
  /// @param spin that of the copy thread (CopyThread::start).
  StagingPool(MemoryOps& memory, int device, Duration spin = Duration::zero()) : memory_(memory), device_(device), spin_(spin) {}

  /// Call before the first slot is taken. Only the first call has an effect.
  Status prepare() TCPX_EXCLUDES(mutex_);
  /// True when the pool's GPU is current for the calling thread, so that starting a copy here changes nothing.
  bool is_current_here() const;

  /// A slot that no client needs more urgently, or none. For callers that can do without.
  Slot try_take() TCPX_EXCLUDES(mutex_);
  /// A slot, or none now. A client that holds none is in line from then on and told when one is kept for it.
  Slot try_take(Client& client) TCPX_EXCLUDES(mutex_);
  /// True when a client waits. A holder of slots that it cannot use at the moment returns them.
  bool is_contended() const TCPX_EXCLUDES(mutex_);
  /// Ends the client's wait, and passes on what was kept for it.
  void forget(Client& client) TCPX_EXCLUDES(mutex_);
  /// Takes over a socket. When the pool is destroyed before the kernel is done the descriptor is closed: the kernel keeps the pages, and
  /// nobody writes to them.
  /// @param departure one empty element, made beforehand: there may be no memory now
  void depart(Departure departure, UniqueFd fd, ZeroCopySends sends, std::vector<LentSlot> lent) noexcept TCPX_EXCLUDES(mutex_);

  uint32_t free_count() TCPX_EXCLUDES(mutex_);

 private:
  struct Place {
    std::unique_ptr<CopyThread::Copy> queued_copy;
    std::unique_ptr<AsyncCopy> prompt_copy;
    bool is_prompt = false;  // selects which of the two is the slot's copy
    Client* holder = nullptr;
    bool is_lent = false;
  };
  /// Makes the client the holder of a place that has none.
  static void charge(Place& place, Client& client) {
    place.holder = &client;
    ++client.held_;
  }
  bool any_free() const TCPX_REQUIRES(mutex_) { return free_count_ > 0; }
  Slot take_free(Client* holder) TCPX_REQUIRES(mutex_);
  void give_back(uint32_t index) TCPX_REQUIRES(mutex_);
  void add_free(uint32_t index) TCPX_REQUIRES(mutex_) { free_[(first_free_ + free_count_++) % kSlots] = index; }
  /// Looks at one of the departed sockets, at another one each time: a call costs the same however many there are.
  void look_at_departed() TCPX_EXCLUDES(mutex_);

  MemoryOps& memory_;
  const int device_;
  const Duration spin_;
  mutable Mutex mutex_;
  // Created once, before the first slot is taken; a slot's copy belongs to its holder.
  MemoryBuffer buffer_;
  std::unique_ptr<CopyLane> lane_, prompt_lane_;
  std::array<Place, kSlots> places_;  // holders and loans guarded by mutex_
  std::unique_ptr<CopyThread> copier_;
  // The longest free first. A ring that needs no memory: slots are given back in destructors.
  std::array<uint32_t, kSlots> free_ TCPX_GUARDED_BY(mutex_);
  uint32_t first_free_ TCPX_GUARDED_BY(mutex_) = 0, free_count_ TCPX_GUARDED_BY(mutex_) = 0;
  std::deque<Client*> waiting_ TCPX_GUARDED_BY(mutex_);
  uint32_t lent_ TCPX_GUARDED_BY(mutex_) = 0;
  Departure departed_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace tcpx::soft
