// Every unpacker on a real GPU, for every kind of memory that pool and destination may have there. Skipped without one.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "tests/support/ok.h"
#include "tests/support/unpack_cases.h"

namespace tcpx::testing {
namespace {

constexpr auto kMachine = make_machine_memory_ops;

INSTANTIATE_TEST_SUITE_P(
    Gpu, UnpackCases,
    ::testing::Values(UnpackSetup{"auto", UnpackKind::kAuto, kMachine, Place::kMapped, Place::kDevice, true},
                      UnpackSetup{"kernel_device_device", UnpackKind::kKernel, kMachine, Place::kDevice, Place::kDevice, true},
                      UnpackSetup{"kernel_mapped_device", UnpackKind::kKernel, kMachine, Place::kMapped, Place::kDevice, true},
                      UnpackSetup{"kernel_device_mapped", UnpackKind::kKernel, kMachine, Place::kDevice, Place::kMapped, true},
                      UnpackSetup{"kernel_mapped_mapped", UnpackKind::kKernel, kMachine, Place::kMapped, Place::kMapped, true},
                      UnpackSetup{"d2d_device_device", UnpackKind::kD2d, kMachine, Place::kDevice, Place::kDevice, true},
                      UnpackSetup{"d2d_mapped_device", UnpackKind::kD2d, kMachine, Place::kMapped, Place::kDevice, true},
                      UnpackSetup{"d2d_device_mapped", UnpackKind::kD2d, kMachine, Place::kDevice, Place::kMapped, true},
                      UnpackSetup{"d2d_device_pageable", UnpackKind::kD2d, kMachine, Place::kDevice, Place::kPageable, true},
                      UnpackSetup{"host_device_device", UnpackKind::kHost, kMachine, Place::kDevice, Place::kDevice, true},
                      UnpackSetup{"host_mapped_device", UnpackKind::kHost, kMachine, Place::kMapped, Place::kDevice, true},
                      UnpackSetup{"host_device_pageable", UnpackKind::kHost, kMachine, Place::kDevice, Place::kPageable, true}),
    name_of_setup);

class GpuUnpacker : public ::testing::TestWithParam<UnpackKind> {
 protected:
  void SetUp() override {
    memory_ = make_machine_memory_ops();
    if (!memory_->has_gpu()) GTEST_SKIP() << make_unpacker(UnpackKind::kKernel, 0, *memory_).status().detail();
  }
  std::unique_ptr<MemoryOps> memory_;
};

TEST_P(GpuUnpacker, RefusesADeviceThatIsNotThere) {
  EXPECT_EQ(make_unpacker(GetParam(), memory_->device_count(), *memory_).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(make_unpacker(GetParam(), -1, *memory_).status().code(), Code::kInvalidArgument);
}

TEST_P(GpuUnpacker, LeavesTheCallersDeviceAlone) {
  const int last = memory_->device_count() - 1;
  ASSERT_TRUE(memory_->set_current_device(0).is_ok());
  const auto unpacker = must(make_unpacker(GetParam(), last, *memory_));
  EXPECT_EQ(*memory_->current_device(), 0);
}

TEST_P(GpuUnpacker, WorksOnThreadsThatNeverNamedADevice) {
  const int last = memory_->device_count() - 1;
  const auto unpacker = must(make_unpacker(GetParam(), last, *memory_));
  const auto pool = memory_->allocate_device(last, 1 << 20);
  const auto destination = memory_->allocate_mapped(last, 1 << 20);
  ASSERT_TRUE(pool.is_ok() && destination.is_ok());
  const auto lane = must(memory_->make_copy_lane(last));
  const std::vector<std::byte> content(1 << 20, std::byte{0x3c});
  ASSERT_TRUE(lane->copy(pool->device(), content.data(), content.size()).is_ok());
  Status submitted = Status::ok();
  std::thread([&] {
    DescriptorBlock block;
    const Fragment whole{0, 1 << 20, 0};
    submitted = block.build({&whole, 1}, 1 << 20, {pool->device(), pool->size(), destination->device(), destination->size()});
    if (!submitted.is_ok()) return;
    const Result<UnpackTicket> ticket = unpacker->submit(block);
    if (!ticket.is_ok()) submitted = ticket.status();
  }).join();
  ASSERT_TRUE(submitted.is_ok()) << submitted.to_string();
  Result<bool> done = false;
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  while (done.is_ok() && !*done && !deadline.expired()) done = unpacker->query(UnpackTicket{0});
  ASSERT_TRUE(done.is_ok()) << done.status().to_string();
  ASSERT_TRUE(*done);
  EXPECT_TRUE(std::equal(content.begin(), content.end(), destination->host()));
}

INSTANTIATE_TEST_SUITE_P(Kinds, GpuUnpacker, ::testing::Values(UnpackKind::kKernel, UnpackKind::kD2d, UnpackKind::kHost),
                         [](const auto& kind) {
                           switch (kind.param) {
                             case UnpackKind::kAuto:
                               return "auto";
                             case UnpackKind::kKernel:
                               return "kernel";
                             case UnpackKind::kD2d:
                               return "d2d";
                             case UnpackKind::kHost:
                               return "host";
                             case UnpackKind::kNone:
                               return "none";
                           }
                           return "unknown";
                         });

}  // namespace
}  // namespace tcpx::testing
