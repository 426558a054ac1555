// GpuOrder over CUDA: marks on streams that the test holds back, and signals that hold streams back. Skipped without a GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/memory_ops.h"
#include "device/cuda_handles.h"
#include "device/gpu_presence.h"
#include "device/signal_kernel.h"
#include "device/stream_gpu.h"
#include "tests/support/ok.h"

namespace tcpx {
namespace {

using testing::must;

Deadline late() {
  return Deadline::after(std::chrono::seconds(2));
}

bool is_done(const Event& event) {
  const auto done = event.view().is_done();
  EXPECT_TRUE(done.is_ok());
  return done.is_ok() && *done;
}

class CudaGpuOrderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!memory_->has_gpu()) GTEST_SKIP() << gpu_count().status().detail();
    ASSERT_TRUE(memory_->set_current_device(0).is_ok());
    flag_ = memory_->allocate_mapped(0, 4096).value();
    order_ = memory_->make_gpu_order(0);
  }
  void TearDown() override {
    if (flag_) release();
  }

  /// Stops `stream` until release.
  void hold(const Stream& stream) {
    ASSERT_EQ(launch_await_flag(reinterpret_cast<uint32_t*>(flag_.device()), 1, stream.view().get()), cudaSuccess);
  }
  void release() { std::atomic_ref(*reinterpret_cast<uint32_t*>(flag_.host())).store(1); }
  /// True when the work that `stream` holds now ends in time.
  static bool ends(const Stream& stream) {
    const Event end = Event::create().value();
    EXPECT_TRUE(end.view().record(stream.view()).is_ok());
    return passes(end);
  }
  static bool passes(const Event& event) {
    const Deadline deadline = late();
    while (!deadline.expired()) {
      if (is_done(event)) return true;
      std::this_thread::yield();
    }
    return false;
  }
  static bool gets_there(GpuMark& mark) {
    const Deadline deadline = late();
    while (!deadline.expired()) {
      const auto reached = mark.reached();
      if (!reached.is_ok() || *reached) return reached.is_ok();
      std::this_thread::yield();
    }
    return false;
  }
  static void wait_for(const Stream& stream, const GpuSignal& signal) {
    ASSERT_EQ(cudaStreamWaitEvent(stream.view().get(), static_cast<cudaEvent_t>(signal.event()), 0), cudaSuccess);
  }

  std::unique_ptr<MemoryOps> memory_ = make_machine_memory_ops();
  MemoryBuffer flag_;
  std::unique_ptr<GpuOrder> order_;
};

// Of which the default streams share their handles.
TEST_F(CudaGpuOrderTest, StreamsOfAnotherGpuAreMarkedToo) {
  if (memory_->device_count() < 2) GTEST_SKIP() << "there is one GPU";
  ASSERT_TRUE(memory_->set_current_device(1).is_ok());
  const Stream held = Stream::create().value(), other = Stream::create().value();
  hold(held);
  ASSERT_EQ(launch_await_flag(reinterpret_cast<uint32_t*>(flag_.device()), 1, cudaStreamLegacy), cudaSuccess);
  ASSERT_TRUE(memory_->set_current_device(0).is_ok());
  EXPECT_EQ(must(gpu_of_stream(held.view())), 1);
  const auto behind = must(order_->mark_stream(held.view().get(), 0)), free = must(order_->mark_stream(other.view().get(), 0));
  const auto by_default = must(order_->mark_stream(nullptr, 1)), here = must(order_->mark_stream(nullptr, 0));
  EXPECT_TRUE(gets_there(*free));
  EXPECT_TRUE(gets_there(*here));
  EXPECT_FALSE(must(behind->reached()));
  EXPECT_FALSE(must(by_default->reached()));
  release();
  EXPECT_TRUE(gets_there(*behind));
  EXPECT_TRUE(gets_there(*by_default));
  EXPECT_EQ(must(memory_->current_device()), 0);
}

TEST_F(CudaGpuOrderTest, AStreamOfAnotherGpuWaitsForASignal) {
  if (memory_->device_count() < 2) GTEST_SKIP() << "there is one GPU";
  ASSERT_TRUE(memory_->set_current_device(1).is_ok());
  const Stream waiting = Stream::create().value();
  const Event behind = Event::create().value();
  const auto signal = must(order_->make_signal());
  wait_for(waiting, *signal);
  ASSERT_TRUE(behind.view().record(waiting.view()).is_ok());
  EXPECT_FALSE(is_done(behind));
  signal->fire();
  EXPECT_TRUE(passes(behind));
  ASSERT_TRUE(memory_->set_current_device(0).is_ok());
}

TEST_F(CudaGpuOrderTest, AMarkIsReachedBehindTheStreamsWork) {
  const Stream held = Stream::create().value(), other = Stream::create().value();
  const auto before = order_->mark_stream(held.view().get(), 0).value();
  ASSERT_NO_FATAL_FAILURE(hold(held));
  const auto mark = must(order_->mark_stream(held.view().get(), 0));
  EXPECT_TRUE(gets_there(*before));
  // Work of another stream begins and ends meanwhile.
  const auto free = order_->mark_stream(other.view().get(), 0).value();
  EXPECT_TRUE(gets_there(*free));
  EXPECT_FALSE(mark->reached().value());
  release();
  EXPECT_TRUE(gets_there(*mark));
  EXPECT_TRUE(mark->reached().value());
}

TEST_F(CudaGpuOrderTest, MarksTheLegacyDefaultStream) {
  const auto mark = must(order_->mark_stream(nullptr, 0));
  EXPECT_TRUE(gets_there(*mark));
}

TEST_F(CudaGpuOrderTest, AnEventIsReachedWhenItsWorkIsDone) {
  const Stream held = Stream::create().value();
  const Event event = Event::create().value();
  ASSERT_NO_FATAL_FAILURE(hold(held));
  ASSERT_TRUE(event.view().record(held.view()).is_ok());
  const auto mark = must(order_->mark_event(event.view().get()));
  EXPECT_FALSE(mark->reached().value());
  release();
  EXPECT_TRUE(gets_there(*mark));
  EXPECT_EQ(order_->mark_event(nullptr).status().code(), Code::kInvalidArgument);
}

TEST_F(CudaGpuOrderTest, RefusesAStreamThatIsBeingCaptured) {
  const Stream stream = Stream::create().value(), other = Stream::create().value();
  const auto warm = order_->mark_stream(other.view().get(), 0).value();
  ASSERT_EQ(cudaStreamBeginCapture(stream.view().get(), cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(order_->mark_stream(stream.view().get(), 0).status().code(), Code::kUnsupported);
  // Neither the refusal nor marks of other streams, new events included, disturb the capture.
  const auto mark = must(order_->mark_stream(other.view().get(), 0));
  EXPECT_TRUE(gets_there(*mark));
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream.view().get(), &graph), cudaSuccess);
  if (graph != nullptr) cudaGraphDestroy(graph);
}

TEST_F(CudaGpuOrderTest, RefusesAnEventOfACapture) {
  const Stream stream = Stream::create().value();
  const Event event = Event::create().value();
  ASSERT_EQ(cudaStreamBeginCapture(stream.view().get(), cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event.view().get(), stream.view().get()), cudaSuccess);
  EXPECT_EQ(order_->mark_event(event.view().get()).status().code(), Code::kUnsupported);
  // CUDA invalidates a capture whose event is queried, so there may be no graph.
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream.view().get(), &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaGetLastError();
}

TEST_F(CudaGpuOrderTest, MarksComeFromAnyThread) {
  const Stream held = Stream::create().value();
  ASSERT_NO_FATAL_FAILURE(hold(held));
  std::vector<std::thread> threads;
  std::atomic<int> early = 0, waiting = 0, reached = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      // Dropped before they are reached: their events are reused.
      for (int i = 0; i < 200; ++i) early += order_->mark_stream(held.view().get(), 0).value()->reached().value();
      const auto mark = order_->mark_stream(held.view().get(), 0).value();
      early += mark->reached().value();
      if (++waiting == 4) release();
      reached += gets_there(*mark);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(early, 0);
  EXPECT_EQ(reached, 4);
}

TEST_F(CudaGpuOrderTest, ASignalHoldsAStreamBackUntilItFires) {
  const Stream waiting = Stream::create().value(), other = Stream::create().value();
  const Event end = Event::create().value();
  auto signal = must(order_->make_signal());
  ASSERT_NO_FATAL_FAILURE(wait_for(waiting, *signal));
  ASSERT_TRUE(end.view().record(waiting.view()).is_ok());
  EXPECT_TRUE(ends(other));
  EXPECT_FALSE(is_done(end));
  signal->fire();
  signal->fire();
  EXPECT_TRUE(passes(end));
}

TEST_F(CudaGpuOrderTest, ADestroyedSignalLetsStreamsGo) {
  const Stream waiting = Stream::create().value();
  for (int i = 0; i < 1000; ++i) {  // more than there are at a time: each is reused
    auto signal = order_->make_signal();
    const Deadline deadline = late();
    while (signal.status().code() == Code::kExhausted && !deadline.expired()) signal = order_->make_signal();
    ASSERT_TRUE(signal.is_ok()) << signal.status().to_string();
    ASSERT_NO_FATAL_FAILURE(wait_for(waiting, **signal));
  }
  EXPECT_TRUE(ends(waiting));
}

TEST_F(CudaGpuOrderTest, AllSignalsAtOnceBlockNeitherEachOtherNorOtherWork) {
  std::vector<std::unique_ptr<GpuSignal>> signals;
  // Created first: allocations may wait for running kernels.
  std::vector<Stream> streams;
  for (int i = 0; i < 32; ++i) streams.push_back(Stream::create().value());
  const auto copier = memory_->make_segment_copier(0).value();
  const MemoryBuffer from = memory_->allocate_mapped(0, 4096).value(), to = memory_->allocate_device(0, 4096).value();
  for (size_t i = 0; i < kMostSignals; ++i) {
    signals.push_back(must(order_->make_signal()));
  }
  EXPECT_EQ(order_->make_signal().status().code(), Code::kExhausted);
  for (const Stream& stream : streams) EXPECT_TRUE(ends(stream));
  // Our own copies get through, by kernel and by copy engine.
  for (const size_t count : {1u, 2u}) {
    const std::vector<CopySegment> segments = {{to.device(), from.device(), 8}, {to.device() + 64, from.device(), 8}};
    const auto ticket = must(copier->submit(std::span(segments).first(count)));
    const Deadline deadline = late();
    while (!*copier->query(ticket)) ASSERT_FALSE(deadline.expired());
  }
  // Newest first: each releases only its own event, while all older ones are pending.
  for (size_t i = signals.size(); i-- > 0;) {
    const auto mark = must(order_->mark_event(signals[i]->event()));
    EXPECT_FALSE(mark->reached().value());
    signals[i]->fire();
    EXPECT_TRUE(gets_there(*mark)) << "signal " << i;
  }
}

}  // namespace
}  // namespace tcpx
