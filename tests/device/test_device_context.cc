// Contexts over support/fake_cuda.cc in place of CUDA: none is made unasked, and every thread keeps what it had.
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "base/own_thread.h"
#include "device/cuda_handles.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/ok.h"

namespace tcpx {
namespace {

class CudaContexts : public ::testing::Test {
 protected:
  /// The fake begins a thread with its first stream.
  static void SetUpTestSuite() { ASSERT_OK(testing::must(Stream::create()).view().synchronize()); }
};

TEST_F(CudaContexts, NoneIsMadeOnAGpuThatNobodyUses) {
  const int before = testing::contexts_made_unasked();
  std::optional<Stream> stream;
  std::optional<Event> event;
  std::thread([&] {
    const auto guard = DeviceGuard::enter(1);
    ASSERT_OK(guard.status());
    stream.emplace(testing::must(Stream::create()));
    event.emplace(testing::must(Event::create()));
    ASSERT_OK(event->view().record(stream->view()));
  }).join();
  std::thread([&] {
    EXPECT_OK(stream->view().health());
    EXPECT_OK(stream->view().synchronize());
    EXPECT_TRUE(testing::must(event->view().is_done()));
    event.reset();
    stream.reset();
  }).join();
  EXPECT_EQ(testing::contexts_made_unasked(), before);
}

TEST_F(CudaContexts, NoneIsMadeByAThreadOfOurOwnThatHasLeftItsGpu) {
  const int before = testing::contexts_made_unasked();
  testing::must(start_thread("tcpx-test", [] {
    std::optional<Stream> stream;
    {
      const auto guard = DeviceGuard::enter(1);
      ASSERT_OK(guard.status());
      stream.emplace(testing::must(Stream::create()));
    }
    EXPECT_OK(stream->view().health());
  })).join();
  EXPECT_EQ(testing::contexts_made_unasked(), before);
}

TEST_F(CudaContexts, AGpuThatWasResetHasANewOne) {
  std::thread([] {
    ASSERT_OK(DeviceGuard::enter(1).status());
    ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
    ASSERT_EQ(cudaDeviceReset(), cudaSuccess);
  }).join();
  std::thread([] {
    const auto guard = DeviceGuard::enter(1);
    ASSERT_OK(guard.status());
    int device = -1;
    ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 1);
  }).join();
}

TEST_F(CudaContexts, AThreadKeepsWhatItHad) {
  std::thread([] {
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    int device = -1;
    {
      const auto guard = DeviceGuard::enter(1);
      ASSERT_OK(guard.status());
      ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
      EXPECT_EQ(device, 1);
      ASSERT_OK(DeviceGuard::enter(1).status());
      ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
      EXPECT_EQ(device, 1) << "entered twice, left once";
    }
    ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 0);
  }).join();
}

}  // namespace
}  // namespace tcpx
