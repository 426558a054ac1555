// Registrations: memory that every channel of a pipeline can read or write.
//
// Memory longer than a plugin takes is registered in parts that overlap by a chunk, so that each chunk lies within one part.
// Slots are reused; a generation number distinguishes the current registration of a slot from earlier ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transfer/channel.h"

namespace tcpx {

/// Memory registered with every channel of a pipeline. A view: the memory must live until it is deregistered. The pipeline
/// deregisters it when it closes, at the latest.
struct RegisteredMemory {
  std::byte* data = nullptr;  ///< device address for kCuda, host address for kHost
  size_t bytes = 0;
  MemoryType type = MemoryType::kHost;
  uint32_t slot = 0;        ///< of the pipeline's registrations
  uint32_t generation = 0;  ///< which registration of that slot
};

/// One thread at a time.
class Registrations {
 public:
  /// @param channels 1 ... kMaxChannels; they must outlive this object. Closing their comms deregisters what is left.
  explicit Registrations(std::vector<Channel*> channels) : channels_(std::move(channels)) {}

  /// Registers memory with every channel that has not failed, in whole pages for kCuda. The device's GPU must be current for
  /// kCuda.
  /// @return the first refusal of a plugin; nothing is registered then
  Result<RegisteredMemory> add(void* data, size_t bytes, MemoryType type);
  /// Registers a list of host memory likewise. Its addresses count from RangeList::begin. Call if NetPlugin::takes_lists.
  Result<RegisteredMemory> add(const std::shared_ptr<const RangeList>& list);
  /// True when `memory` is the current registration of its slot.
  bool holds(const RegisteredMemory& memory) const;
  /// True when `holds` is and one of the parts contains a chunk that ends `off` bytes into the memory.
  bool reaches(const RegisteredMemory& memory, size_t off) const;
  /// Deregisters `memory`, for which `holds` must be true, with every channel whose comm is still open, in spite of plugin
  /// errors.
  /// @return the first error of a plugin; the memory counts as deregistered even then
  Status remove(const RegisteredMemory& memory);

  /// The handle with which to post a chunk at `off` of `memory`. A channel that had failed when the memory was registered has no
  /// handle for it, and takes no chunks.
  MemoryHandle handle(size_t channel, const RegisteredMemory& memory, size_t off) const;

 private:
  struct Registration {
    uint32_t generation = 0;
    /// One handle for each channel of each part, part by part. Empty: the slot is free.
    std::vector<std::optional<MemoryHandle>> handles = {};
  };

  /// @param add_part registers the part that begins `off` bytes into the memory with a comm
  template <class AddPart>
  Result<RegisteredMemory> add(std::byte* begin, size_t bytes, MemoryType type, size_t registered_bytes, AddPart add_part);

  std::vector<Channel*> channels_;
  std::vector<Registration> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace tcpx
