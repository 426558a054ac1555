#include "net/received_message.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "net/abi/nccl_net_common.h"
#include "net/abi/tcpx_request.h"
#include "tests/support/expect_log.h"
#include "tests/support/ok.h"

namespace tcpx {
namespace {

using testing::allow_log;
using testing::must;

/// A request of exactly 128 bytes on the heap, so that the address sanitizer catches a read beyond it. Offsets are literal
/// numbers: those of the plugin's sources, not of our structs.
class RequestBytes {
 public:
  explicit RequestBytes(size_t slot_offset = 56) : slot_(slot_offset) {
    set<int32_t>(16, 1);    // op: receive
    set<int32_t>(20, 2);    // memory type: CUDA
    set<int32_t>(36, 100);  // size
    select(0);
  }
  template <class T>
  void set(size_t offset, T value) {
    std::memcpy(bytes_.get() + offset, &value, sizeof value);
  }
  template <class T>
  void set_slot(size_t offset, T value) {
    set(slot_ + offset, value);
  }
  /// Points the unpack slot at queue slot `idx`, as the plugin does.
  void select(uint64_t idx) {
    set_slot<uint64_t>(0, 1);
    set_slot<uint64_t>(8, idx);
    set_slot<void*>(16, meta_.get() + idx * 32768);
    set_slot<void*>(24, meta_.get() + 524288 + idx * 8);
    idx_ = idx;
  }
  void set_count(uint64_t count) { std::memcpy(meta_.get() + 524288 + idx_ * 8, &count, 8); }
  std::byte* meta() { return meta_.get(); }
  const void* get() const { return bytes_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  static std::byte* zeroed(size_t bytes) { return static_cast<std::byte*>(std::calloc(1, bytes)); }

  size_t slot_;
  uint64_t idx_ = 0;
  std::unique_ptr<std::byte, Free> bytes_{zeroed(128)};
  std::unique_ptr<std::byte, Free> meta_{zeroed(524416)};
};

void expect_refused(const RequestBytes& request, const std::string& part) {
  allow_log("read scatter list");
  const auto message = read_received_message(request.get());
  ASSERT_FALSE(message.is_ok());
  EXPECT_EQ(message.status().code(), Code::kProtocol);
  EXPECT_NE(message.status().detail().find(part), std::string::npos) << message.status().to_string();
  EXPECT_TRUE(testing::logged(part));
}

TEST(ReceivedMessage, Trap28_SlotIsFoundAtEitherPlaceForEveryQueueIndex) {
  for (const size_t slot_offset : {56u, 64u}) {
    for (uint64_t idx = 0; idx < 16; ++idx) {
      RequestBytes request(slot_offset);
      request.select(idx);
      request.set_count(1);
      const Fragment fragment{7, 100, 0};
      std::memcpy(request.meta() + idx * 32768, &fragment, sizeof fragment);
      const auto message = must(read_received_message(request.get()));
      EXPECT_EQ(message.queue_index, idx);
      EXPECT_EQ(message.bytes, 100u);
      EXPECT_EQ(message.fragment_count, 1u);
      EXPECT_EQ(message.fragments[0], fragment);
      EXPECT_FALSE(message.in_place);
    }
  }
}

TEST(ReceivedMessage, Trap28_EveryFieldOfTheInvariantCounts) {
  for (const size_t slot_offset : {56u, 64u}) {
    const auto broken = [slot_offset](auto change) {
      RequestBytes request(slot_offset);
      request.select(3);
      ASSERT_TRUE(read_received_message(request.get()).is_ok());
      change(request);
      expect_refused(request, "no receive of the 2024 or the 2026 layout");
    };
    broken([](RequestBytes& r) { r.set<int32_t>(16, 0); });       // a send
    broken([](RequestBytes& r) { r.set<int32_t>(16, 2); });       // no such operation
    broken([](RequestBytes& r) { r.set<int32_t>(20, 0); });       // no such memory
    broken([](RequestBytes& r) { r.set<int32_t>(20, 3); });       // no such memory
    broken([](RequestBytes& r) { r.set_slot<uint64_t>(8, 4); });  // not the queue slot of the pointers
    broken([](RequestBytes& r) { r.set_slot<uint64_t>(8, 16); });
    broken([](RequestBytes& r) { r.set_slot<void*>(16, r.meta() + 4 * 32768); });
    broken([](RequestBytes& r) { r.set_slot<void*>(24, r.meta() + 524288 + 4 * 8); });
    broken([](RequestBytes& r) { r.set_slot<void*>(24, nullptr); });  // nothing has arrived yet
    broken([](RequestBytes& r) {                                      // right distance, no list
      r.set_slot<uint64_t>(16, 0);
      r.set_slot<uint64_t>(24, 524288 - 3 * 32768 + 3 * 8);
    });
    broken([](RequestBytes& r) {  // right distance, no place for a list
      r.set_slot<void*>(16, r.meta() + 3 * 32768 + 8);
      r.set_slot<void*>(24, r.meta() + 524288 + 3 * 8 + 8);
    });
  }
}

TEST(ReceivedMessage, Trap28_EmptyRequestIsRefused) {
  const std::vector<std::byte> zeros(128);
  allow_log("2024 or the 2026 layout");
  EXPECT_EQ(read_received_message(zeros.data()).status().code(), Code::kProtocol);
  EXPECT_EQ(read_received_message(nullptr).status().code(), Code::kInvalidArgument);
}

TEST(ReceivedMessage, NegativeSizeIsRefused) {
  RequestBytes request;
  request.set<int32_t>(36, -1);
  expect_refused(request, "-1 bytes");
}

TEST(ReceivedMessage, FragmentCountIsBounded) {
  RequestBytes request;
  request.set_count(2048);
  EXPECT_EQ(read_received_message(request.get())->fragment_count, 2048u);
  request.set_count(2049);
  expect_refused(request, "2049 fragments");
  request.set_count(~uint64_t{0});
  expect_refused(request, "18446744073709551615 fragments");
}

TEST(ReceivedMessage, HostMemoryIsInPlaceWithAnEmptyList) {
  RequestBytes request;
  request.set<int32_t>(20, 1);
  const auto message = must(read_received_message(request.get()));
  EXPECT_TRUE(message.in_place);
  EXPECT_EQ(message.fragment_count, 0u);
  EXPECT_EQ(message.bytes, 100u);
  request.set_count(1);
  expect_refused(request, "host memory");
}

TEST(ReceivedMessage, DeviceMemoryWithAnEmptyListIsInPlaceUnlessEmpty) {
  RequestBytes request;
  EXPECT_TRUE(read_received_message(request.get())->in_place);
  request.set<int32_t>(36, 0);
  const auto nothing = read_received_message(request.get());
  EXPECT_FALSE(nothing->in_place);
  EXPECT_EQ(nothing->bytes, 0u);
  EXPECT_EQ(nothing->fragment_count, 0u);
}

/// Host memory whose extent the test sets.
class ExtentOps final : public MemoryOps {
 public:
  explicit ExtentOps(std::optional<uint64_t> extent) : extent_(extent) {}
  bool has_gpu() const override { return false; }
  int device_count() const override { return 1; }
  Result<int> current_device() const override { return 0; }
  Status set_current_device(int) override { return Status::ok(); }
  Result<MemoryBuffer> allocate_mapped(int device, size_t bytes) override { return real_->allocate_mapped(device, bytes); }
  Result<MemoryBuffer> allocate_device(int device, size_t bytes) override { return real_->allocate_device(device, bytes); }
  bool host_readable(const void*) const override { return true; }
  bool is_device_memory(const void*) const override { return true; }
  std::optional<uint64_t> extent(const void*) const override { return extent_; }
  Result<std::unique_ptr<CopyLane>> make_copy_lane(int device) override { return real_->make_copy_lane(device); }

 private:
  std::optional<uint64_t> extent_;
  std::unique_ptr<MemoryOps> real_ = make_host_memory_ops();
};

class FailingLane final : public CopyLane {
 public:
  Status copy(void*, const void*, size_t) override { return Status(Code::kCuda, "copy", "scripted", Domain::kCuda, 700); }
};

class BouncePoolTest : public ::testing::Test {
 protected:
  BouncePoolTest() {
    device_side_.bounce_buf = pool_;
    handle_ = {1, 7, &device_side_, 24, 1};
  }
  Result<BouncePool> read(MemoryOps& memory) {
    std::memcpy(storage_.bytes, &handle_, sizeof handle_);
    const auto lane = memory.make_copy_lane(0).value();
    return read_bounce_pool(storage_, memory, *lane);
  }
  void expect_refused() {
    allow_log("read device handle");
    ExtentOps memory(4096);
    EXPECT_EQ(read(memory).status().code(), Code::kProtocol);
  }

  alignas(4096) std::byte pool_[8192];
  abi::UnpackNetDeviceHandle device_side_{};
  abi::NetDeviceHandle handle_{};
  DeviceHandleStorage storage_;
};

TEST_F(BouncePoolTest, BaseAndExtentAreTold) {
  ExtentOps memory(8192);
  const auto pool = must(read(memory));
  EXPECT_EQ(pool.base, pool_);
  EXPECT_EQ(pool.bytes, 8192u);
}

TEST_F(BouncePoolTest, NoPoolIsLargerThanAnOffsetCanSay) {
  ExtentOps unknown(std::nullopt), huge(kMaxPoolBytes * 2);
  EXPECT_EQ(read(unknown)->bytes, kMaxPoolBytes);
  EXPECT_EQ(read(huge)->bytes, kMaxPoolBytes);
}

TEST_F(BouncePoolTest, HandleThatAcceptNeverFilledIsRefused) {
  handle_ = {};
  expect_refused();
}

TEST_F(BouncePoolTest, EveryFieldOfTheHandleIsChecked) {
  const abi::NetDeviceHandle good = handle_;
  handle_.net_device_type = 0;
  expect_refused();
  handle_ = good;
  handle_.net_device_version = 6;
  expect_refused();
  handle_ = good;
  handle_.size = 32;
  expect_refused();
  handle_ = good;
  handle_.handle = nullptr;
  expect_refused();
}

TEST_F(BouncePoolTest, BaseMustBeThereAndAligned) {
  device_side_.bounce_buf = nullptr;
  expect_refused();
  device_side_.bounce_buf = pool_ + 8;
  expect_refused();
}

TEST_F(BouncePoolTest, FailingCopyIsPassedOn) {
  std::memcpy(storage_.bytes, &handle_, sizeof handle_);
  ExtentOps memory(4096);
  FailingLane lane;
  const auto pool = read_bounce_pool(storage_, memory, lane);
  EXPECT_EQ(pool.status().code(), Code::kCuda);
  EXPECT_EQ(pool.status().native(), 700);
}

}  // namespace
}  // namespace tcpx
