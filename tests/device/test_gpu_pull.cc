// Memory of another process' GPU, pulled by the segment copier, in one piece and in many, and by CUDA's own copy. Prints the rates and
// compares every byte once; how fast is fast enough depends on the machine.
#include <chrono>
#include <cstdio>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "device/cuda_handles.h"
#include "device/segment_launch.h"
#include "tests/support/shared_gpu_memory_fixture.h"

namespace tcpx::testing {
namespace {

constexpr uint64_t kBytes = 128 * kMiB;

class GpuPull : public SharedGpuMemoryTest {
 protected:
  /// Prints the median of a few runs. @return its GB/s
  static double say_rate(const std::string& what, uint64_t bytes, const std::function<void()>& run) {
    std::vector<double> seconds;
    for (int i = 0; i < 13; ++i) {
      const auto began = std::chrono::steady_clock::now();
      run();
      if (i >= 3) seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + 5, seconds.end());
    std::printf("  %-44s %8.1f us %7.1f GB/s\n", what.c_str(), seconds[5] * 1e6, static_cast<double>(bytes) / seconds[5] / 1e9);
    return static_cast<double>(bytes) / seconds[5] / 1e9;
  }

  /// `count` equal parts of all bytes, at random places on both sides.
  static std::vector<CopySegment> scatter(std::byte* to, const std::byte* from, uint64_t count) {
    const uint64_t bytes = kBytes / count;
    std::mt19937_64 random(count);
    std::vector<uint64_t> places(count), sources(count);
    std::iota(places.begin(), places.end(), 0);
    sources = places;
    std::shuffle(places.begin(), places.end(), random);
    std::shuffle(sources.begin(), sources.end(), random);
    std::vector<CopySegment> segments;
    for (uint64_t i = 0; i < count; ++i) segments.push_back({to + places[i] * bytes, from + sources[i] * bytes, bytes});
    return segments;
  }

  void measure(int device, const std::byte* from, uint64_t seed) {
    ASSERT_OK(memory_->set_current_device(device));
    const MemoryBuffer here = must(memory_->allocate_device(device, kBytes));
    const auto copier = must(memory_->make_segment_copier(device));
    const auto pattern = must(GpuPattern::create(device, *memory_));
    const auto pull = [&](const std::vector<CopySegment>& segments) {
      const CopyTicket ticket = must(copier->submit(segments));
      while (!must(copier->query(ticket))) {
      }
    };
    const Stream own = must(Stream::create());
    const cudaStream_t stream = own.view().get();
    double engine = 0;
    for (const uint64_t bytes : {kBytes / 2, kBytes}) {
      engine = say_rate(concat("CUDA's copy of ", bytes >> 20, " MiB"), bytes, [&] {
        EXPECT_EQ(cudaMemcpyAsync(here.device(), from, bytes, cudaMemcpyDefault, stream), cudaSuccess);
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      });
    }
    say_rate("segment copier, 64 MiB in one piece", kBytes / 2, [&] { pull({{here.device(), from, kBytes / 2}}); });
    for (const uint64_t count : {2, 256, 1024, 4096, 8192, 16384}) {
      const std::vector<CopySegment> segments = scatter(here.device(), from, count);
      const uint64_t bytes = kBytes / count;
      const double rate =
          say_rate(concat("segment copier, ", count, " x ", bytes >> 10, " KiB scattered"), kBytes, [&] { pull(segments); });
      if (count != 4096) continue;
      std::printf("  %44s %.2f of CUDA's copy\n", "", rate / engine);
      for (const CopySegment& segment : segments) {
        const uint64_t offset = static_cast<uint64_t>(segment.from - from);
        ASSERT_EQ(must(pattern->check(segment.to, bytes, seed, offset)).wrong, 0u) << "from byte " << offset << " on";
      }
    }
    sweep(here.device(), from, device, stream);
  }

  /// The copier's kernel for 4096 blocks, cut into pieces of other sizes than the copier's: what its policy could gain.
  void sweep(std::byte* to, const std::byte* from, int device, cudaStream_t stream) {
    const std::vector<CopySegment> segments = scatter(to, from, 4096);
    for (const uint64_t piece : {4096, 8192, 16384, 32768}) {
      const uint64_t count = kBytes / piece;
      const MemoryBuffer list = must(memory_->allocate_mapped(device, count * sizeof(KernelSegment)));
      auto* next = reinterpret_cast<KernelSegment*>(list.host());
      for (const CopySegment& segment : segments) {
        for (uint64_t at = 0; at < segment.bytes; at += piece) *next++ = {segment.to + at, segment.from + at, piece};
      }
      say_rate(concat("its kernel, the same in pieces of ", piece >> 10, " KiB"), kBytes, [&] {
        const auto* const begin = reinterpret_cast<const KernelSegment*>(list.device());
        EXPECT_EQ(launch_copy_segments(begin, static_cast<uint32_t>(count), stream), cudaSuccess);
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      });
    }
  }
};

TEST_F(GpuPull, SaysHowFastMemoryOfAnotherProcessIs) {
  for (const uint32_t chunks : {0, 1}) {
    const int owner = gpus() - 1;
    const PeerAnswer made = peer_->make(owner, kBytes, 1000, chunks);
    const MemoryBuffer mapped = map(0, made);
    std::printf("another process' memory of GPU %d (%s), pulled by GPU 0:\n", owner, chunks == 0 ? "cudaMalloc" : "cuMemCreate");
    measure(0, mapped.device(), 1000);
  }
}

TEST_F(GpuPull, SaysHowFastItsOwnMemoryIs) {
  const int owner = gpus() - 1;
  const MemoryBuffer there = must(memory_->allocate_device(owner, kBytes));
  ASSERT_OK(must(GpuPattern::create(owner, *memory_))->fill(there.device(), kBytes, 1001));
  ASSERT_TRUE(memory_->reaches(0, there.device()));
  std::printf("this process' memory of GPU %d, pulled by GPU 0:\n", owner);
  measure(0, there.device(), 1001);
}

}  // namespace
}  // namespace tcpx::testing
