// The contract of MemoryOps, for host memory standing in and for this machine's own.
#include "base/memory_ops.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/mappings.h"
#include "base/unique_fd.h"
#include "device/cuda_memory_ops.h"
#include "measure/pattern.h"
#include "tests/support/ok.h"

namespace tcpx::testing {
namespace {

struct Maker {
  const char* name;
  std::unique_ptr<MemoryOps> (*make)();
};
void PrintTo(const Maker& maker, std::ostream* out) {
  *out << maker.name;
}

class MemoryOpsContract : public ::testing::TestWithParam<Maker> {
 protected:
  MemoryBuffer mapped(size_t bytes) { return must(memory_->allocate_mapped(0, bytes)); }
  MemoryBuffer device(size_t bytes) { return must(memory_->allocate_device(0, bytes)); }
  std::unique_ptr<CopyLane> lane() { return must(memory_->make_copy_lane(0)); }

  const std::unique_ptr<MemoryOps> memory_ = GetParam().make();
};

constexpr size_t kBytes = 100'000;

TEST_P(MemoryOpsContract, MappedMemoryIsPageAlignedZeroedAndForBothSides) {
  for (const size_t bytes : {kBytes, size_t{5'000'001}}) {
    MemoryBuffer buffer = mapped(bytes);
    std::byte* const host = buffer.host();
    ASSERT_NE(host, nullptr);
    ASSERT_NE(buffer.device(), nullptr);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(host) % 4096, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.device()) % 4096, 0u);
    EXPECT_TRUE(std::all_of(host, host + bytes, [](std::byte b) { return b == std::byte{0}; }));
    EXPECT_TRUE(memory_->host_readable(host));
    std::fill_n(host, bytes, std::byte{0x77});
    std::vector<std::byte> read(bytes);
    ASSERT_TRUE(lane()->copy(read.data(), buffer.device(), bytes).is_ok());
    EXPECT_TRUE(std::equal(read.begin(), read.end(), host)) << "the device's address shows the same bytes";
    buffer = MemoryBuffer();
    if (bytes > kBytes) {
      EXPECT_EQ(mapped_bytes(host), std::nullopt) << "it has been given back";
    }
  }
}

// The first of two processes that writes to a page which they share gets another page.
TEST_P(MemoryOpsContract, AChildTakesNoPageOfMappedMemory) {
  constexpr size_t kLong = 5'000'000;
  const MemoryBuffer buffer = mapped(kLong);
  std::fill_n(buffer.host(), kLong, std::byte{1});
  int stays[2];
  ASSERT_EQ(::pipe(stays), 0);
  UniqueFd child_end(stays[0]), end(stays[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(stays[1]);
    char byte = 0;
    ::_exit(static_cast<int>(::read(stays[0], &byte, 1)));  // until the parent closes its end
  }
  ASSERT_GT(child, 0);
  std::fill_n(buffer.host(), kLong, std::byte{2});
  std::vector<std::byte> read(kLong);
  EXPECT_TRUE(lane()->copy(read.data(), buffer.device(), kLong).is_ok());
  EXPECT_TRUE(std::all_of(read.begin(), read.end(), [](std::byte b) { return b == std::byte{2}; }));
  end.reset();
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// As two processes share it: a file in memory, mapped here.
TEST_P(MemoryOpsContract, HostMemoryThatIsThereServesTheDevice) {
  constexpr size_t kWhole = 32 * 4096;
  const UniqueFd file(memfd_create("shared", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), kWhole), 0);
  void* const shared = mmap(nullptr, kWhole, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(shared, MAP_FAILED);
  const MemoryBuffer memory = device(kBytes);
  std::vector<std::byte> wanted(kBytes), read(kBytes);
  const auto copier = must(memory_->make_segment_copier(0));
  const auto copy = [&](std::byte* to, const std::byte* from) {
    const CopySegment parts[] = {{to, from, 17}, {to + 17, from + 17, kBytes - 17}};
    const CopyTicket ticket = must(copier->submit(parts));
    while (!must(copier->query(ticket))) {
    }
  };
  for (uint64_t round = 1; round <= 2; ++round) {  // again, when it is mapped no more
    MemoryBuffer mapped = must(memory_->map_host(0, shared, kWhole));
    EXPECT_EQ(mapped.host(), shared);
    EXPECT_EQ(mapped.size(), kWhole);
    fill_pattern(wanted, round);
    std::copy(wanted.begin(), wanted.end(), mapped.host());
    copy(memory.device(), mapped.device());
    ASSERT_TRUE(lane()->copy(read.data(), memory.device(), kBytes).is_ok());
    EXPECT_TRUE(read == wanted);
    std::fill_n(mapped.host(), kWhole, std::byte{0});
    copy(mapped.device(), memory.device());
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), mapped.host()));
  }
  EXPECT_EQ(munmap(shared, kWhole), 0);
}

TEST_P(MemoryOpsContract, DeviceMemoryIsPageAlignedAndZeroed) {
  for (const size_t bytes : {size_t{1}, size_t{512}, size_t{5000}, size_t{3} << 20}) {
    const MemoryBuffer buffer = device(bytes);
    ASSERT_NE(buffer.device(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.device()) % 4096, 0u) << bytes;
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(buffer.host() == nullptr, memory_->has_gpu());
    EXPECT_TRUE(memory_->is_device_memory(buffer.device()));
    std::vector<std::byte> read(bytes, std::byte{1});
    ASSERT_TRUE(lane()->copy(read.data(), buffer.device(), bytes).is_ok());
    EXPECT_EQ(read, std::vector<std::byte>(bytes)) << "zeroed";
  }
}

TEST_P(MemoryOpsContract, ClassifiesAddresses) {
  std::vector<std::byte> heap(kBytes);
  const MemoryBuffer pinned = mapped(kBytes);
  const MemoryBuffer own = device(kBytes);
  EXPECT_TRUE(memory_->host_readable(heap.data()));
  EXPECT_TRUE(memory_->host_readable(pinned.host() + kBytes - 1));
  EXPECT_EQ(memory_->host_readable(own.device() + kBytes - 1), !memory_->has_gpu());
  EXPECT_TRUE(memory_->is_device_memory(own.device() + kBytes - 1));
  EXPECT_EQ(memory_->is_device_memory(heap.data()), !memory_->has_gpu());
  EXPECT_EQ(memory_->is_device_memory(pinned.host()), !memory_->has_gpu());
}

TEST_P(MemoryOpsContract, ExtentReachesToTheEndOfTheAllocation) {
  const MemoryBuffer pinned = mapped(kBytes);
  const MemoryBuffer own = device(kBytes);
  std::vector<std::byte> heap(kBytes);
  for (const std::byte* begin : {static_cast<const std::byte*>(pinned.device()), static_cast<const std::byte*>(own.device()),
                                 static_cast<const std::byte*>(heap.data())}) {
    const std::optional<uint64_t> whole = memory_->extent(begin);
    const std::optional<uint64_t> rest = memory_->extent(begin + 1000);
    ASSERT_TRUE(whole.has_value() && rest.has_value());
    EXPECT_GE(*whole, kBytes);
    EXPECT_EQ(*rest, *whole - 1000);
  }
  EXPECT_EQ(memory_->extent(nullptr), std::nullopt);
}

TEST_P(MemoryOpsContract, LanesCopyBetweenAnyTwoKindsOfMemory) {
  std::vector<std::byte> heap_a(kBytes);
  std::vector<std::byte> heap_b(kBytes);
  const MemoryBuffer pinned_a = mapped(kBytes);
  const MemoryBuffer pinned_b = mapped(kBytes);
  const MemoryBuffer device_a = device(kBytes);
  const MemoryBuffer device_b = device(kBytes);
  const std::unique_ptr<CopyLane> copies = lane();
  std::vector<std::byte> content(kBytes);
  std::vector<std::byte> read(kBytes);
  uint64_t seed = 0;
  for (std::byte* from : {heap_a.data(), pinned_a.device(), device_a.device()}) {
    for (std::byte* to : {heap_b.data(), pinned_b.device(), device_b.device()}) {
      fill_pattern(content, ++seed);
      ASSERT_TRUE(copies->copy(from, content.data(), kBytes).is_ok());
      // Without the first and the last byte, which must stay unchanged.
      ASSERT_TRUE(copies->copy(to, std::vector<std::byte>(kBytes, std::byte{0x5a}).data(), kBytes).is_ok());
      ASSERT_TRUE(copies->copy(to + 1, from + 1, kBytes - 2).is_ok());
      ASSERT_TRUE(copies->copy(read.data(), to, kBytes).is_ok());
      content.front() = content.back() = std::byte{0x5a};
      ASSERT_TRUE(read == content) << "combination " << seed;
    }
  }
  EXPECT_TRUE(copies->copy(nullptr, nullptr, 0).is_ok()) << "nothing to copy is no error";
}

TEST_P(MemoryOpsContract, LanesOfSeveralThreadsDoNotMix) {
  constexpr int kThreads = 4;
  std::vector<MemoryBuffer> buffers;
  std::vector<std::unique_ptr<CopyLane>> lanes;
  for (int i = 0; i < kThreads; ++i) {
    buffers.push_back(device(kBytes));
    lanes.push_back(lane());
  }
  std::vector<Status> results(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      std::vector<std::byte> out(kBytes);
      std::vector<std::byte> back(kBytes);
      for (int round = 0; round < 20 && results[i].is_ok(); ++round) {
        const auto seed = static_cast<uint64_t>(i * 100 + round);
        fill_pattern(out, seed);
        results[i] = lanes[i]->copy(buffers[i].device(), out.data(), kBytes);
        if (results[i].is_ok()) results[i] = lanes[i]->copy(back.data(), buffers[i].device(), kBytes);
        if (results[i].is_ok()) results[i] = verify_pattern(back, seed);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) EXPECT_TRUE(result.is_ok()) << result.to_string();
}

TEST_P(MemoryOpsContract, CopiesRunBesideTheirOwner) {
  constexpr int kThreads = 4, kCopies = 3;
  const std::unique_ptr<CopyLane> shared = lane();
  const MemoryBuffer staging = mapped(kThreads * kCopies * kBytes);
  const MemoryBuffer source = device(kThreads * kCopies * kBytes);
  std::vector<std::byte> content(kThreads * kCopies * kBytes);
  fill_pattern(content, 1);
  ASSERT_TRUE(shared->copy(source.device(), content.data(), content.size()).is_ok());
  std::vector<std::unique_ptr<AsyncCopy>> copies;
  for (int i = 0; i < kThreads * kCopies; ++i) copies.push_back(std::move(shared->make_async_copy()).value());
  EXPECT_TRUE(*copies[0]->is_done()) << "nothing started";
  EXPECT_TRUE(copies[0]->start(nullptr, nullptr, 0).is_ok()) << "nothing to copy is no error";
  EXPECT_TRUE(*copies[0]->is_done());
  std::vector<Status> results(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        for (int k = i * kCopies; k < (i + 1) * kCopies && results[i].is_ok(); ++k) {
          std::fill_n(staging.host() + k * kBytes, kBytes, std::byte{0});
          results[i] = copies[k]->start(staging.host() + k * kBytes, source.device() + k * kBytes, kBytes);
        }
        for (int k = (i + 1) * kCopies - 1; k >= i * kCopies && results[i].is_ok(); --k) {
          Result<bool> done = false;
          if (round % 2 == 0) copies[k]->wait();
          do done = copies[k]->is_done();
          while (done.is_ok() && !*done);
          results[i] = done.status();
          if (results[i].is_ok() &&
              !std::equal(staging.host() + k * kBytes, staging.host() + (k + 1) * kBytes, &content[k * kBytes])) {
            results[i] = Status(Code::kMismatch, "copy", "done, but other bytes are there");
          }
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& result : results) EXPECT_TRUE(result.is_ok()) << result.to_string();
}

TEST_P(MemoryOpsContract, RefusesWhatIsNotThere) {
  const int beyond = memory_->device_count();
  ASSERT_GE(beyond, 1);
  for (const int bad : {-1, beyond}) {
    EXPECT_EQ(memory_->set_current_device(bad).code(), Code::kInvalidArgument);
    EXPECT_EQ(memory_->allocate_mapped(bad, 1).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(memory_->allocate_device(bad, 1).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(memory_->make_copy_lane(bad).status().code(), Code::kInvalidArgument);
  }
}

TEST(HostMemoryOps, SharesNothingAndMapsNothing) {
  const std::unique_ptr<MemoryOps> memory = make_host_memory_ops();
  const MemoryBuffer own = must(memory->allocate_device(0, 4096));
  UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto share = memory->share(own.device(), fd);
  EXPECT_EQ(share.status().code(), Code::kUnsupported);
  EXPECT_NE(share.status().detail().find("reads host memory where it lies"), std::string::npos);
  EXPECT_FALSE(fd) << "emptied";
  MemoryShare made_up;
  made_up.kind = ShareKind::kIpc;
  made_up.bytes = 4096;
  EXPECT_EQ(memory->map_shared(0, made_up, -1).status().code(), Code::kUnsupported);
}

TEST_P(MemoryOpsContract, EveryDeviceCanBecomeCurrentForOneThread) {
  const int last = memory_->device_count() - 1;
  ASSERT_TRUE(memory_->set_current_device(last).is_ok());
  ASSERT_TRUE(memory_->current_device().is_ok());
  EXPECT_EQ(*memory_->current_device(), last);
  int elsewhere = -1;
  std::thread([&] { elsewhere = memory_->current_device().is_ok() ? *memory_->current_device() : -1; }).join();
  EXPECT_EQ(elsewhere, 0) << "another thread keeps its own";
  EXPECT_TRUE(memory_->allocate_device(0, 4096).is_ok());
  EXPECT_EQ(*memory_->current_device(), last) << "allocating elsewhere changes nothing";
  ASSERT_TRUE(memory_->set_current_device(0).is_ok());
}

TEST_P(MemoryOpsContract, APciPathIsThatOfARealGpu) {
  for (int device = 0; device < memory_->device_count(); ++device) {
    const std::optional<std::string> path = memory_->pci_path(device);
    if (!path) continue;  // allowed: a container may hide sysfs
    EXPECT_TRUE(memory_->has_gpu());
    EXPECT_EQ(path->rfind("/sys/devices/", 0), 0u) << *path;
    std::printf("GPU %d: %s\n", device, path->c_str());
  }
  EXPECT_EQ(memory_->pci_path(-1), std::nullopt);
  EXPECT_EQ(memory_->pci_path(memory_->device_count()), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(All, MemoryOpsContract,
                         ::testing::Values(Maker{"host", make_host_memory_ops}, Maker{"machine", make_machine_memory_ops}),
                         [](const auto& maker) { return maker.param.name; });

TEST(MachineMemoryOps, IsTheGpusWhereOneAnswersAndElseSaysWhyNot) {
  const bool has_gpu = make_machine_memory_ops()->has_gpu();
  const auto cuda = make_cuda_memory_ops();
  EXPECT_EQ(cuda.is_ok(), has_gpu);
  if (cuda.is_ok()) return;
  EXPECT_EQ(cuda.status().code(), Code::kUnsupported);
  EXPECT_FALSE(cuda.status().detail().empty());
  std::printf("machine memory: host memory stands in: %s\n", cuda.status().detail().c_str());
}

}  // namespace
}  // namespace tcpx::testing
