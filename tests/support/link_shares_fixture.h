// A link whose peer is another process of the same host, with a GPU whose memory both share in chunks. The GPU is a stand-in.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/hidden_memory_ops.h"
#include "tests/support/near_link_fixture.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

/// Shares memory in chunks of one size, and maps every share of another process to the same place.
class ChunkedOps : public HiddenMemoryOps {
 public:
  Result<MemoryShare> share(const void* address, UniqueFd& /*fd*/) override {
    if (wanting) return Status(Code::kExhausted, "share GPU memory", "the test has none now");
    const void* none = nullptr;
    first_asked.compare_exchange_strong(none, address);
    ++sharing;
    EXPECT_TRUE(wait_until([this] { return !sharing_held_; }));
    const auto offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(base);
    return MemoryShare{
        .kind = ShareKind::kIpc, .base = reinterpret_cast<uintptr_t>(base) + offset / chunk * chunk, .bytes = chunk};
  }
  Result<MemoryBuffer> map_shared(int /*device*/, const MemoryShare& share, int /*fd*/) override {
    last_begun = share.base;
    ++begun;
    EXPECT_TRUE(wait_until([&] { return (!mapping_held_ || share.base == let_base_) && share.base != held_base_; }));
    if (refuses || share.base == refused_base) return Status(Code::kCuda, "map shared GPU memory", "the test refuses");
    ++mapped;
    return counted("mappings of a peer's GPU memory", MemoryBuffer(nullptr, peers, share.bytes, [this] {
                     EXPECT_TRUE(wait_until([this] { return !unmapping_held_; }));
                     --mapped;
                   }));
  }
  bool reaches(int /*device*/, const void* /*address*/) override { return !out_of_reach; }
  Result<MemoryBuffer> map_host(int device, void* host, size_t bytes) override {
    EXPECT_TRUE(wait_until([this] { return !pinning_held_; }));
    return HiddenMemoryOps::map_host(device, host, bytes);
  }
  std::optional<uint64_t> extent(const void* address) const override {
    return told_chunks * chunk - (reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(base)) % chunk;
  }
  /// As where the application's kernels run on.
  void hold_unmapping() { unmapping_held_ = true; }
  void release_unmapping() { unmapping_held_ = false; }
  void hold_sharing() { sharing_held_ = true; }
  void release_sharing() { sharing_held_ = false; }
  void hold_pinning() { pinning_held_ = true; }
  void release_pinning() { pinning_held_ = false; }
  void hold_mapping() { mapping_held_ = true; }
  void release_mapping() { mapping_held_ = false; }
  /// As `hold_mapping`, of one share. @param at its address; 0: of none
  void hold_mapping_of(uint64_t at) { held_base_ = at; }
  /// Lets one share pass `hold_mapping`.
  void let_map(uint64_t at) { let_base_ = at; }

  std::byte* base = nullptr;
  std::byte* peers = nullptr;
  size_t chunk = 0;
  size_t told_chunks = 1;  // an extent reaches so many chunks far
  bool wanting = false;
  bool out_of_reach = false;
  std::atomic<size_t> sharing = 0;  // shares that it was asked for
  std::atomic<const void*> first_asked = nullptr;
  std::atomic<bool> refuses = false;
  std::atomic<uint64_t> refused_base = 0;
  std::atomic<uint64_t> last_begun = 0;  // the share that the driver was last asked to map
  std::atomic<size_t> begun = 0;         // shares that it was asked to map
  std::atomic<int> mapped = 0;           // by an Unmapper's threads

 private:
  std::atomic<bool> sharing_held_ = false, pinning_held_ = false, mapping_held_ = false, unmapping_held_ = false;
  std::atomic<uint64_t> held_base_ = 0, let_base_ = 0;
};

class LinkShares : public NearLinkTest {
 protected:
  static constexpr uint64_t kShare = 5, kBase = uint64_t{1} << 40;
  static constexpr size_t kChunk = kPart / 4, kHalf = kLong / 2;
  static constexpr uint64_t kSecond = kBase + (uint64_t{1} << 30);

  LinkShares() {
    gpu_.base = device_.data();
    gpu_.peers = peers_.data();
    gpu_.chunk = kChunk;
    machine_ = &gpu_;
    link_.reset();
    bulk_copier_ = gpu_.make_segment_copier(0).value();
    renew(make_host(true));
    host_peer_->same_process = false;
  }
  ~LinkShares() override {
    link_.reset();
    unmapper_.end();
    EXPECT_EQ(gpu_.mapped, 0);
  }

  void share(uint64_t bytes) { NearLinkTest::share(kShare, {.kind = ShareKind::kIpc, .base = kBase, .bytes = bytes}); }
  void offer_write_from(uint64_t offset) {
    offer_write({{.share = kShare, .address = kBase + offset, .bytes = kLong}}, {advertised(device_id_, 0, kLong)});
  }
  /// Renews the link, with a peer in another process.
  void renew_apart() {
    auto host = make_host(true);
    host->same_process = false;
    renew(std::move(host));
  }
  /// The same, where all of the driver's threads are held by mappings for the peer. @param behind mappings that wait for a thread
  void renew_apart_busy(size_t behind = 0) {
    gpu_.hold_mapping();
    renew_apart();
    for (size_t i = 1; i <= Unmapper::kMappingThreads + behind; ++i)
      NearLinkTest::share(kShare + i, {.kind = ShareKind::kIpc, .base = kBase + i * kLong, .bytes = kLong});
    step();
    EXPECT_TRUE(wait_until([this] { return gpu_.begun == Unmapper::kMappingThreads; }));
  }
  /// All is shared early that is.
  bool shared_early() {
    return drive([this] { return !link_->needs_turns(); });
  }
  MemoryId add(Bytes& memory, size_t bytes) { return registry_.add(memory.data(), bytes, MemoryType::kCuda).value(); }
  void write_from(MemoryId region) {
    RegionUse use = registry_.use(region).value();
    std::byte* const data = use.region().data;
    (void)write(HeldRange(std::move(use), data, kLong));
  }
  /// A write from two shares, of which the second is held by the driver.
  void offer_write_from_two(bool ring = true) {
    gpu_.hold_mapping_of(kSecond);
    share(kHalf);
    NearLinkTest::share(kShare + 1, {.kind = ShareKind::kIpc, .base = kSecond, .bytes = kLong - kHalf});
    step();
    ASSERT_TRUE(wait_until([this] { return gpu_.mapped == 1; }));
    offer_write(
        {{.share = kShare, .address = kBase, .bytes = kHalf}, {.share = kShare + 1, .address = kSecond, .bytes = kLong - kHalf}},
        {advertised(device_id_, 0, kLong)}, ring);
    steps(2);
  }
  std::vector<WireSource> offered(size_t offset) {
    (void)send(device(offset, kLong));
    const auto offer = this->offer(FrameType::kSend);
    if (!hear(FrameType::kSend) || !offer) return {{.share = 99, .address = 9, .bytes = 9}};
    return offer->sources;
  }

  ChunkedOps gpu_;
  Bytes other_ = pattern(kPart, 4);
};

}  // namespace tcpx::testing
