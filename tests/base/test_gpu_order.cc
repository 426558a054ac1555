// GpuOrder where host memory stands in for a GPU: there is no work to wait for, and every call is refused.
#include <gtest/gtest.h>

#include "base/memory_ops.h"

namespace tcpx {
namespace {

TEST(GpuOrderWithoutAGpu, RefusesEverything) {
  const std::unique_ptr<MemoryOps> memory = make_host_memory_ops();
  const std::unique_ptr<GpuOrder> order = memory->make_gpu_order(0);
  int something = 0;
  EXPECT_EQ(order->mark_stream(nullptr, 0).status().code(), Code::kUnsupported);
  EXPECT_EQ(order->mark_stream(&something, 0).status().code(), Code::kUnsupported);
  EXPECT_EQ(order->mark_event(&something).status().code(), Code::kUnsupported);
  EXPECT_EQ(order->make_signal().status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace tcpx
