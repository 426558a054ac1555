// Registrations: memory that every channel of a pipeline can read or write.
//
// Memory longer than a plugin takes is registered in parts that overlap by a chunk, so that each chunk lies within one of them.
// Slots are used again; a generation tells what is registered in a slot now from what was registered there before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transfer/channel.h"

namespace tcpx {

/// Memory registered with every channel of a pipeline. A view: the memory must live until it is deregistered, which the
/// pipeline does at the latest when it closes.
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
  /// @param channels 1 ... kMaxChannels; must outlive it. Closing their comms deregisters what is left.
  explicit Registrations(std::vector<Channel*> channels) : channels_(std::move(channels)) {}

  /// Registers with every channel that has not failed, in whole pages for kCuda. The device's GPU must be current for kCuda.
  /// @return the first refusal of a plugin; nothing is registered then
  Result<RegisteredMemory> add(void* data, size_t bytes, MemoryType type);
  /// Whether `memory` is what is registered in its slot now.
  bool holds(const RegisteredMemory& memory) const;
  /// The same, and whether a chunk that ends at `off` bytes of it lies within one of its parts.
  bool reaches(const RegisteredMemory& memory, size_t off) const;
  /// Deregisters `memory`, which must be held, with every channel whose comm is still open, in spite of plugin errors.
  /// @return the first error of a plugin; the memory counts as deregistered all the same
  Status remove(const RegisteredMemory& memory);

  /// The handle that a chunk at `off` of `memory` is posted with. A channel that had failed when the memory was registered has no
  /// handle for it, and takes nothing.
  MemoryHandle handle(size_t channel, const RegisteredMemory& memory, size_t off) const;

 private:
  struct Registration {
    uint32_t generation = 0;
    /// Part by part, and of each part channel by channel; empty: free.
    std::vector<std::optional<MemoryHandle>> handles = {};
  };

  std::vector<Channel*> channels_;
  std::vector<Registration> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace tcpx
