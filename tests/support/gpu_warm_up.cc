// For programs that use a GPU: uses each feature once before the first case, because the driver opens descriptors that it keeps, which the
// test main would count as leaks of the first case. Programs that link tcpx_endpoint have it, others list it among their SOURCES. Does
// nothing without a GPU, nor in the process of a death test, which has no next case and may look at a GPU that nobody has used.
#include <gtest/gtest.h>

#include "base/memory_ops.h"
#include "device/unpacker_factory.h"

namespace tcpx::testing {
namespace {

class GpuWarmUp final : public ::testing::Environment {
 public:
  void SetUp() override {
    const std::unique_ptr<MemoryOps> memory = make_machine_memory_ops();
    if (!memory->has_gpu() || !GTEST_FLAG_GET(internal_run_death_test).empty()) return;
    for (int device = 0; device < memory->device_count(); ++device) {
      const auto unpacker = make_unpacker(UnpackKind::kKernel, device, *memory);
      ASSERT_TRUE(unpacker.is_ok()) << unpacker.status().to_string();
      const auto pool = memory->allocate_mapped(device, 4096);
      const auto destination = memory->allocate_device(device, 4096);
      const auto lane = memory->make_copy_lane(device);
      ASSERT_TRUE(pool.is_ok() && destination.is_ok() && lane.is_ok());
      DescriptorBlock block;
      const Fragment whole{0, 4096, 0};
      ASSERT_TRUE(block.build({&whole, 1}, 4096, {pool->device(), 4096, destination->device(), 4096}).is_ok());
      ASSERT_TRUE((*unpacker)->submit(block).is_ok());
      ASSERT_TRUE((*lane)->copy(pool->host(), destination->device(), 4096).is_ok());
    }
  }
};

[[maybe_unused]] ::testing::Environment* const kRegistered = ::testing::AddGlobalTestEnvironment(new GpuWarmUp);

}  // namespace
}  // namespace tcpx::testing
