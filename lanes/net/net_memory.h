// NetMemory: the memory that a network lane has registered with its plugin: regions of the application, and the staging slots that its
// packed jobs are gathered into and scattered from.
//
// Some memory must be packed whatever its ranges look like:
//  - memory that the plugin refuses to register;
//  - a receiver's host memory, if the plugin steers flows to the GPU (NetPlugin::steers_flows). The slots are then GPU memory; what
//    has arrived there is fetched into memory that GPU and host reach, and scattered from that;
//  - memory of a GPU that the endpoint's GPU does not reach. A copier of that GPU packs it; the slots are memory that every GPU
//    reaches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/memory_registry.h"
#include "base/segment_copier.h"
#include "lanes/net/staging_buffers.h"
#include "transfer/pipeline.h"
#include "wire/messages.h"

namespace tcpx {

/// Size of a packed job's parcels, except the last. Part of the protocol: both ends cut alike.
inline constexpr size_t kParcelBytes = size_t{1} << 20;
/// Packed parcels of a lane that are gathered, scattered or under way at once.
inline constexpr size_t kStagingSlots = 16;
inline constexpr size_t kStagingBytes = kStagingSlots * kParcelBytes;

/// Ranges of host memory that are at least this long on average are not copied if the plugin takes lists: it reads and writes them where
/// they are. A system call takes 1024 of them, and spends on each what copying a few hundred bytes takes.
inline constexpr uint64_t kListedRangeBytes = 4096;

/// Parts that the network lanes of an endpoint share.
struct LaneParts {
  StagingBuffers& staging;  ///< its buffers have kStagingBytes
  SegmentCopier& device_copier;
  SegmentCopier& host_copier;
  bool steered = false;             ///< NetPlugin::steers_flows
  std::function<void()> told = {};  ///< wakes the thread that makes progress, from any thread; empty: that one never sleeps
};

/// Staging slots for one kind of memory.
struct StagingArea {
  StagingKind kind{};
  MemoryBuffer buffer;
  MemoryBuffer mapped;  ///< empty: `buffer` itself is gathered into and scattered from
  RegisteredMemory registered;
  std::vector<uint32_t> free;
  MemoryType type{};                ///< of the memory that is gathered and scattered
  SegmentCopier* copier = nullptr;  ///< gathers and scatters it
};

/// One thread at a time: the one that makes progress. The GPU must be current.
class NetMemory {
 public:
  /// All must outlive this, but for the connection, which may be gone when this goes.
  NetMemory(Pipeline& connection, const LaneParts& parts, bool receives)
      : connection_(connection), parts_(parts), receives_(receives) {}
  /// Gives the staging buffers back; neither network nor GPU may touch them any more.
  ~NetMemory();
  NetMemory(const NetMemory&) = delete;
  NetMemory& operator=(const NetMemory&) = delete;

  /// As NetLane::can_prepare.
  bool can_prepare(std::span<const HeldRange> ranges, Packing wanted);
  /// As NetLane::prepare.
  Result<Packing> prepare(std::span<const HeldRange> ranges, Packing wanted);
  /// The slots for memory such as this region. Made when first asked for. @return null while a thread makes their buffer
  Result<StagingArea*> staging_for(const Region& region);
  /// Registers the ranges of a packed job as one list, so that it needs no staging. @return nullopt: it needs it
  std::optional<RegisteredMemory> list(std::span<const HeldRange> ranges);
  /// Ends the registration of a list, whose transfers have ended.
  void drop_list(const RegisteredMemory& list) { (void)connection_.deregister_memory(list); }
  /// Memory for unwanted bytes, which overwrite each other. Made when first asked for. @return null as for `staging_for`
  Result<const RegisteredMemory*> scrap();
  /// Null: the plugin does not take the region. The plugin is asked once.
  const RegisteredMemory* registered(const Region& region);
  /// Gives the region's registration back to the plugin.
  void forget(MemoryId region);

 private:
  /// Which memory a staging area is made of.
  struct Kinds {
    StagingKind kind{};
    bool fetches = false;  // it has mapped memory, too
  };
  bool fits(std::span<const HeldRange> ranges, Packing wanted);
  bool may_register(const Region& region) const;
  bool can_list(std::span<const HeldRange> ranges) const;
  SegmentCopier& copier_for(const Region& region) const;
  StagingArea* find(MemoryType type, const SegmentCopier& copier) const;
  Kinds kinds_for(MemoryType type, const SegmentCopier& copier) const;
  bool can_make(MemoryType type, const SegmentCopier& copier) const;
  Result<std::unique_ptr<StagingArea>> make_staging(MemoryType type, SegmentCopier& copier);
  void give_back(StagingArea& staging);

  Pipeline& connection_;
  const LaneParts parts_;
  const bool receives_;
  std::unordered_map<uint64_t, std::optional<RegisteredMemory>> registrations_;  // nullopt: refused
  std::vector<std::unique_ptr<StagingArea>> staging_;  // for host memory, GPU memory, and each GPU out of reach
  std::unique_ptr<StagingArea> scrap_;
};

}  // namespace tcpx
