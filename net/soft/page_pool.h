// The bounce pool: memory that sockets receive into and kernels read from, handed out in pages.
//
// One pool per GPU and process, shared by all receive comms of that GPU, because NCCL's kernel knows one bounce base per thread
// block. Pages of a message are taken all at once, when its first chunk arrives, and return when it is consumed; so no message
// waits for pages while holding some.
//
// Fairness: a comm may take n pages if it would then hold no more than were free (the dynamic threshold of Choudhury and Hahne,
// 1998). One that never consumes gets half of the pool, two that grow side by side a third each, and a comm that holds none may
// take all free pages. While a comm that holds none waits for pages, comms that hold some take no more, so a large message waits
// for pages already out, not for those that busy comms would take next. Comms that drop to none between their messages may still
// overtake it, and pages that are never consumed are lost to all: no rule can share a pool smaller than what is pinned in it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/memory_ops.h"
#include "base/mutex.h"
#include "tcpx/types.h"

namespace tcpx::soft {

class PagePool {
 public:
  /// A comm's account. Destroy it before the pool, holding no pages.
  class Client {
   public:
    virtual ~Client() = default;
    /// Pages were returned: try again. Called under the pool's lock from any thread: must not call the pool.
    virtual void pages_available() = 0;

   private:
    friend class PagePool;
    uint32_t held_ = 0;
    bool waiting_ = false;
  };

  /// `bytes` is a multiple of kPageBytes. Pages lie in mapped memory that `device` reads directly.
  static Result<std::shared_ptr<PagePool>> create(MemoryOps& memory, int device, uint64_t bytes);
  /// The pages lie behind the first `front_bytes` of `memory`, which are others'. Both are multiples of kPageBytes.
  static std::shared_ptr<PagePool> behind(MemoryBuffer memory, uint64_t front_bytes);

  /// Of the memory: page 0 begins front_bytes() behind it. nullptr: the host cannot access it.
  std::byte* host_base() const { return buffer_.host(); }
  std::byte* device_base() const { return buffer_.device(); }
  uint64_t front_bytes() const { return front_bytes_; }
  /// Offset of a page from the base.
  uint32_t offset_of(uint32_t page) const { return static_cast<uint32_t>(front_bytes_ + uint64_t{page} * kPageBytes); }
  uint32_t page_count() const { return page_count_; }

  /// Replaces `pages` by `count` page numbers in ascending order: the lowest contiguous run of that length, so that one read
  /// and one copy can cover them all, else the lowest pages. False: not now; the client is told when pages are returned.
  /// `count` must not exceed page_count().
  bool try_take(Client& client, uint32_t count, std::vector<uint32_t>& pages) TCPX_EXCLUDES(mutex_);
  void give_back(Client& client, std::span<const uint32_t> pages) TCPX_EXCLUDES(mutex_);
  /// Ends the client's wait.
  void forget(Client& client) TCPX_EXCLUDES(mutex_);

  uint32_t free_count() const TCPX_EXCLUDES(mutex_);

 private:
  PagePool(MemoryBuffer buffer, uint64_t front_bytes);
  /// The first page from `page` on that is free (`is_free`) or in use; page_count_ when there is none.
  uint32_t next_page(uint32_t page, bool is_free) const TCPX_REQUIRES(mutex_);
  /// Start of the lowest run of `count` free pages; 0 when there is none, as the lowest pages are taken then.
  uint32_t find_run(uint32_t count) const TCPX_REQUIRES(mutex_);
  bool may_take(const Client& client, uint32_t count) const TCPX_REQUIRES(mutex_);

  const MemoryBuffer buffer_;
  const uint64_t front_bytes_;
  const uint32_t page_count_;
  mutable Mutex mutex_;
  std::vector<uint64_t> free_bits_ TCPX_GUARDED_BY(mutex_);  // bit set = page free
  uint32_t free_count_ TCPX_GUARDED_BY(mutex_);
  std::deque<Client*> waiting_ TCPX_GUARDED_BY(mutex_);
};

}  // namespace tcpx::soft
