#include "transfer/registrations.h"

#include <algorithm>
#include <utility>

namespace tcpx {
namespace {

// Distance between the starts of two parts; each part is one registration. A part must be smaller than the largest int, which is
// all that plugins of version 7 take.
constexpr size_t kPartStride = size_t{1} << 30;
// A chunk that begins in one stride may end in the next, so each part reaches a chunk further. It also reaches a page further,
// because strides count from the start of the memory, and registrations of GPU memory from the start of its first page.
constexpr size_t kPartOverlap = kMaxRequestBytes + kPageBytes;

// Index of the part of `memory` that contains the chunk at `off`. An empty chunk at the very end belongs to the last part.
size_t part_of(const RegisteredMemory& memory, size_t off) {
  return (off < memory.bytes || off == 0 ? off : off - 1) / kPartStride;
}

}  // namespace

Result<RegisteredMemory> Registrations::add(void* data, size_t bytes, MemoryType type) {
  auto* const begin = static_cast<std::byte*>(data);
  // Whole pages may include bytes outside the memory. `Pipeline::submit` checks a transfer's range against the memory itself.
  const Pages pages = type == MemoryType::kCuda ? whole_pages(data, bytes) : Pages{begin, bytes};
  return add(begin, bytes, type, pages.bytes, [&](Comm& comm, size_t off) {
    return comm.register_memory(pages.begin + off, std::min(pages.bytes - off, kPartStride + kPartOverlap), type);
  });
}

// Each part is the whole list: a plugin that takes lists takes them of any length.
Result<RegisteredMemory> Registrations::add(const std::shared_ptr<const RangeList>& list) {
  return add(list->begin(), list->bytes(), MemoryType::kHost, list->bytes(),
             [&](Comm& comm, size_t /*off*/) { return comm.register_list(list); });
}

template <class AddPart>
Result<RegisteredMemory> Registrations::add(std::byte* begin, size_t bytes, MemoryType type, size_t registered_bytes,
                                            AddPart add_part) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const uint32_t number = free_.back();
  free_.pop_back();
  Registration& slot = slots_[number];
  const RegisteredMemory memory{begin, bytes, type, number, slot.generation};
  size_t off = 0;
  do {
    for (Channel* const channel : channels_) {
      std::optional<MemoryHandle> handle;
      if (channel->status().is_ok()) {
        const auto registered = add_part(channel->comm(), off);
        if (!registered.is_ok()) {
          (void)remove(memory);  // the first error wins
          return registered.status();
        }
        handle = *registered;
      }
      slot.handles.push_back(handle);
    }
    off += kPartStride;
  } while (off < registered_bytes);
  return memory;
}

bool Registrations::holds(const RegisteredMemory& memory) const {
  return memory.slot < slots_.size() && slots_[memory.slot].generation == memory.generation &&
         !slots_[memory.slot].handles.empty();
}

bool Registrations::reaches(const RegisteredMemory& memory, size_t off) const {
  return holds(memory) && part_of(memory, off) < slots_[memory.slot].handles.size() / channels_.size();
}

Status Registrations::remove(const RegisteredMemory& memory) {
  Registration& slot = slots_[memory.slot];
  Status first;
  for (size_t i = 0; i < slot.handles.size(); ++i) {
    Comm& comm = channels_[i % channels_.size()]->comm();
    if (!slot.handles[i] || !comm.is_open()) continue;
    Status status = comm.deregister_memory(*slot.handles[i]);
    if (first.is_ok()) first = std::move(status);
  }
  slot.handles.clear();
  ++slot.generation;
  free_.push_back(memory.slot);
  return first;
}

MemoryHandle Registrations::handle(size_t channel, const RegisteredMemory& memory, size_t off) const {
  return slots_[memory.slot].handles[part_of(memory, off) * channels_.size() + channel].value_or(MemoryHandle{});
}

}  // namespace tcpx
