#include "net/soft/page_pool.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace tcpx::soft {

Result<std::shared_ptr<PagePool>> PagePool::create(MemoryOps& memory, int device, uint64_t bytes) {
  TCPX_ASSIGN_OR_RETURN(auto buffer, memory.allocate_mapped(device, bytes));
  return behind(std::move(buffer), 0);
}

std::shared_ptr<PagePool> PagePool::behind(MemoryBuffer memory, uint64_t front_bytes) {
  return std::shared_ptr<PagePool>(new PagePool(std::move(memory), front_bytes));
}

PagePool::PagePool(MemoryBuffer buffer, uint64_t front_bytes)
    : buffer_(std::move(buffer)),
      front_bytes_(front_bytes),
      page_count_(static_cast<uint32_t>((buffer_.size() - front_bytes) / kPageBytes)),
      free_bits_((page_count_ + 63) / 64, ~uint64_t{0}),
      free_count_(page_count_) {}

bool PagePool::may_take(const Client& client, uint32_t count) const {
  if (client.held_ + count > free_count_) return false;
  return client.held_ == 0 ||
         std::none_of(waiting_.begin(), waiting_.end(), [](const Client* other) { return other->held_ == 0; });
}

uint32_t PagePool::next_page(uint32_t page, bool is_free) const {
  while (page < page_count_) {
    const uint64_t word = free_bits_[page / 64];
    const uint64_t wanted = (is_free ? word : ~word) >> (page % 64);
    if (wanted != 0) return std::min(page + static_cast<uint32_t>(std::countr_zero(wanted)), page_count_);
    page = (page / 64 + 1) * 64;
  }
  return page_count_;
}

uint32_t PagePool::find_run(uint32_t count) const {
  for (uint32_t begin = 0; (begin = next_page(begin, true)) < page_count_;) {
    const uint32_t end = next_page(begin, false);
    if (end - begin >= count) return begin;
    begin = end;
  }
  return 0;
}

bool PagePool::try_take(Client& client, uint32_t count, std::vector<uint32_t>& pages) {
  assert(count <= page_count_);
  pages.clear();
  pages.reserve(count);  // want of memory must not end the call when some are taken
  MutexLock lock(mutex_);
  if (!may_take(client, count)) {
    if (!client.waiting_) {
      waiting_.push_back(&client);
      client.waiting_ = true;
    }
    return false;
  }
  if (client.waiting_) {
    client.waiting_ = false;
    std::erase(waiting_, &client);
  }
  // Low pages first: they were used last and are likeliest to be in the cache.
  for (uint32_t page = find_run(count); pages.size() < count; ++page) {
    page = next_page(page, true);
    pages.push_back(page);
    free_bits_[page / 64] &= ~(uint64_t{1} << (page % 64));
  }
  free_count_ -= count;
  client.held_ += count;
  return true;
}

void PagePool::give_back(Client& client, std::span<const uint32_t> pages) {
  if (pages.empty()) return;
  MutexLock lock(mutex_);
  for (const uint32_t page : pages) {
    assert((free_bits_[page / 64] >> (page % 64) & 1) == 0 && "page given back twice");
    free_bits_[page / 64] |= uint64_t{1} << (page % 64);
  }
  free_count_ += static_cast<uint32_t>(pages.size());
  client.held_ -= static_cast<uint32_t>(pages.size());
  for (Client* waiting : waiting_) waiting->pages_available();
}

void PagePool::forget(Client& client) {
  MutexLock lock(mutex_);
  if (!client.waiting_) return;
  client.waiting_ = false;
  std::erase(waiting_, &client);
  for (Client* waiting : waiting_) waiting->pages_available();  // the departed one may have blocked them
}

uint32_t PagePool::free_count() const {
  MutexLock lock(mutex_);
  return free_count_;
}

}  // namespace tcpx::soft
