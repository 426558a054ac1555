// Maps GPU memory of another process, of each GPU for each of this process. Cases are skipped without a GPU.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/text.h"
#include "device/gpu_pattern.h"
#include "device/gpu_presence.h"
#include "tests/support/gpu_memory_peer.h"
#include "tests/support/ok.h"

namespace tcpx::testing {

inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr uint64_t kBlockBytes = 2 * kMiB;  // small allocations share blocks of this size

/// A GPU of this process that copies mapped memory, and compares it.
class Reader {
 public:
  Reader(int device, MemoryOps& memory) : device_(device), memory_(memory), pattern_(must(GpuPattern::create(device, memory))) {
    EXPECT_OK(memory.set_current_device(device));
    copier_ = must(memory.make_segment_copier(device));
  }
  /// Copies all of it in `segments` pieces, the last first: one takes the copy engine, many one kernel.
  Status copy(std::byte* to, const std::byte* from, uint64_t bytes, uint64_t segments) {
    TCPX_RETURN_IF_ERROR(memory_.set_current_device(device_));
    const uint64_t piece = (bytes - 1) / std::min(bytes, segments) + 1;
    std::vector<CopySegment> list;
    for (uint64_t at = 0; at < bytes; at += piece) list.push_back({to + at, from + at, std::min(piece, bytes - at)});
    std::reverse(list.begin(), list.end());
    TCPX_ASSIGN_OR_RETURN(const CopyTicket ticket, copier_->submit(list));
    for (const Deadline deadline = soon();;) {
      TCPX_ASSIGN_OR_RETURN(const bool done, copier_->query(ticket));
      if (done) return Status::ok();
      if (deadline.expired()) return Status(Code::kTimeout, "copy", "does not end");
    }
  }
  /// Compares every byte of a copy with the pattern.
  void expect(const std::byte* from, uint64_t bytes, uint64_t seed, uint64_t offset = 0) {
    for (const uint64_t segments : {1, 1000}) {
      const MemoryBuffer here = must(memory_.allocate_device(device_, bytes));
      ASSERT_OK(copy(here.device(), from, bytes, segments));
      const PatternCheck found = must(pattern_->check(here.device(), bytes, seed, offset));
      ASSERT_EQ(found.wrong, 0u) << "of " << bytes << " bytes on GPU " << device_ << ", in " << segments
                                 << " segments; the first is byte " << found.first_wrong;
    }
  }

 private:
  const int device_;
  MemoryOps& memory_;
  const std::unique_ptr<GpuPattern> pattern_;
  std::unique_ptr<SegmentCopier> copier_;
};

class SharedGpuMemoryTest : public ::testing::Test {
 protected:
  // Things that the driver keeps of the first time, descriptors above all, are none of a case's.
  static void SetUpTestSuite() {
    const std::unique_ptr<MemoryOps> memory = make_machine_memory_ops();
    if (!memory->has_gpu()) return;
    GpuMemoryPeer peer(TCPX_GPU_MEMORY_PEER);
    for (int owner = 0; owner < memory->device_count(); ++owner) {
      for (const uint32_t chunks : {0, 1}) {
        const PeerAnswer made = peer.make(owner, kMiB, 1, chunks);
        for (int device = 0; device < memory->device_count(); ++device) {
          UniqueFd fd;
          const PeerAnswer answer = peer.share(made.id, 0, &fd);
          const auto mapped = memory->map_shared(device, answer.share, fd.get());
          std::printf("memory of GPU %d by %s, mapped for GPU %d: %s\n", owner, chunks == 0 ? "cudaMalloc" : "cuMemCreate",
                      device, text_of(mapped).c_str());
          if (mapped.is_ok()) Reader(device, *memory).expect(mapped->device(), answer.share.bytes, 1);
        }
      }
    }
  }
  void SetUp() override {
    if (!memory_->has_gpu()) GTEST_SKIP() << gpu_count().status().detail();
    for (int device = 0; device < memory_->device_count(); ++device)
      readers_.push_back(std::make_unique<Reader>(device, *memory_));
    peer_ = std::make_unique<GpuMemoryPeer>(TCPX_GPU_MEMORY_PEER);
  }
  void TearDown() override {
    if (memory_->has_gpu()) {
      EXPECT_OK(memory_->set_current_device(0));
    }
  }

  int gpus() const { return memory_->device_count(); }
  /// @param at offset into what the other process has made
  MemoryBuffer map(int device, const PeerAnswer& made, uint64_t at = 0, MemoryShare* share = nullptr) {
    UniqueFd fd;
    const PeerAnswer answer = peer_->share(made.id, at, &fd);
    EXPECT_EQ(static_cast<bool>(fd), answer.share.kind == ShareKind::kFile);
    if (share != nullptr) *share = answer.share;
    return must(memory_->map_shared(device, answer.share, fd.get()));
  }
  template <class Visit>
  void for_each_pair(Visit visit) {
    for (int owner = 0; owner < gpus(); ++owner) {
      for (int device = 0; device < gpus(); ++device) {
        SCOPED_TRACE(concat("memory of GPU ", owner, ", mapped for GPU ", device));
        visit(owner, device);
      }
    }
  }

  std::unique_ptr<MemoryOps> memory_ = make_machine_memory_ops();
  std::vector<std::unique_ptr<Reader>> readers_;
  std::unique_ptr<GpuMemoryPeer> peer_;
};

}  // namespace tcpx::testing
