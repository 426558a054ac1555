// Connections of the software plugin whose payload a NIC puts into device memory, or takes from there (tests/support/played_nic.h).
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/host_dmabuf.h"
#include "base/text.h"
#include "measure/pattern.h"
#include "tests/support/apart_fixture.h"
#include "tests/support/message_stream.h"
#include "tests/support/played_nic.h"
#include "tests/support/process_state.h"

namespace tcpx::testing {
namespace {

using namespace soft;

class SoftDeviceMemory : public SoftApart {
 protected:
  SoftDeviceMemory() : SoftApart(make_machine_memory_ops()) {}
  void SetUp() override {
    SoftApart::SetUp();
    allow_log("net/devmem");
  }
  std::unique_ptr<SoftRecvComm> receive_by(PlayedNic& nic, ConnectedSockets sockets) {
    sockets.device_pool = nic.pool();
    return must(SoftRecvComm::create(*memory_, 0, io_, nic.pool()->pages, std::move(sockets)));
  }
  std::unique_ptr<SoftSendComm> send_by(PlayedNic& nic, ConnectedSockets sockets) {
    sockets.device_sources = nic.sources();
    return sender(*memory_, std::move(sockets));
  }
  /// Moves messages of all lengths, each compared.
  void move_messages(SoftSendComm& sends, SoftRecvComm& receives, const PagePool& pool, MemoryType from, MemoryType into,
                     uint64_t count) {
    const StreamLimits limits{.window = kQueueDepth, .total = count};
    auto out = must(SendStream::create(*memory_, sends, from, limits));
    auto in = must(RecvStream::create(*memory_, receives, pool, into, limits));
    const Deadline deadline = Deadline::after(kTestDeadline);
    while ((in.finished() < count || out.finished() < count) && !deadline.expired()) {
      const auto sent = out.step();
      ASSERT_OK(sent);
      const auto received = in.step();
      ASSERT_OK(received);
      if (!*sent && !*received) ::sched_yield();
    }
    EXPECT_EQ(in.finished(), count);
    EXPECT_EQ(out.finished(), count);
  }
  static bool all_are_back(const PlayedNic& nic) {
    return wait_until([&] { return nic.tokens_out() == 0; });
  }
};

TEST_F(SoftDeviceMemory, MessagesOfAllLengthsArriveBetweenMemoryOfBothKinds) {
  constexpr uint64_t kMessages = kIsChecked ? 200 : 600;
  for (const MemoryType from : {MemoryType::kCuda, MemoryType::kHost}) {
    for (const MemoryType into : {MemoryType::kCuda, MemoryType::kHost}) {
      for (const int buffer : {0, 64 * 1024}) {
        SCOPED_TRACE(concat(static_cast<int>(from), static_cast<int>(into), " ", buffer));
        PlayedNic nic(*memory_);
        auto sockets = wire(kStreamChunkBytes, buffer, 3);
        const auto sends = send_by(nic, std::move(sockets->ours));
        const auto receives = receive_by(nic, std::move(sockets->theirs));
        move_messages(*sends, *receives, *nic.pool()->pages, from, into, kMessages);
        EXPECT_TRUE(all_are_back(nic));
        EXPECT_GT(nic.fragments(), kMessages);
        EXPECT_EQ(nic.sends() > 0, from == MemoryType::kCuda);
      }
    }
  }
}

// More fragments than a list holds: all of the message is then gathered in its pages.
TEST_F(SoftDeviceMemory, MessagesInTooManyFragmentsArrive) {
  PlayedNic nic(*memory_, {.longest_fragment = 60, .linear_of_ten = 2, .whole_of_ten = 0});
  auto sockets = wire(kStreamChunkBytes, 0, 3);
  const auto sends = send_by(nic, std::move(sockets->ours));
  const auto receives = receive_by(nic, std::move(sockets->theirs));
  move_messages(*sends, *receives, *nic.pool()->pages, MemoryType::kCuda, MemoryType::kCuda, kIsChecked ? 100 : 300);
  EXPECT_TRUE(all_are_back(nic));
}

TEST_F(SoftDeviceMemory, ThePoolsFrontIsExportedAlone) {
  constexpr size_t kFront = 2 << 20;
  const MemoryBuffer memory = must(memory_->allocate_device(0, kFront + 16 * kPageBytes));
  const auto exported = memory_->export_dmabuf(0, {memory.device(), kFront});
  if (!memory_->has_gpu() && !has_udmabuf()) {
    EXPECT_EQ(exported.status().code(), Code::kUnsupported);
    GTEST_SKIP() << "neither a GPU nor /dev/udmabuf";
  }
  ASSERT_OK(exported);
  EXPECT_EQ(::lseek(exported->get(), 0, SEEK_END), static_cast<off_t>(kFront));
  EXPECT_FALSE(memory_->export_dmabuf(0, {memory.device() + 100, kPageBytes}).is_ok());
  std::vector<std::byte> host(kPageBytes);
  EXPECT_FALSE(memory_->export_dmabuf(0, whole_pages(host.data(), host.size())).is_ok());
}

/// A receiver, and a source of messages for it.
class DeviceReceiver : public SoftDeviceMemory {
 protected:
  void start(const PlayedNic::Traits& traits = {}, uint32_t message_pages = 1024) {
    nic_ = std::make_unique<PlayedNic>(*memory_, traits, message_pages);
    auto sockets = wire(kStreamChunkBytes);
    sends_ = sender(*memory_, std::move(sockets->ours));
    receives_ = receive_by(*nic_, std::move(sockets->theirs));
    fill_pattern(source_, 1);
    from_ = must(sends_->register_region(source_.data(), source_.size(), MemoryType::kHost));
    into_ = must(memory_->allocate_device(0, source_.size()));
    device_ = must(receives_->register_region(into_.device(), into_.size(), MemoryType::kCuda));
    host_ = must(receives_->register_region(host_into_.data(), host_into_.size(), MemoryType::kHost));
  }
  void send(size_t bytes) {
    auto* const request = must(sends_->isend(source_.data(), static_cast<int>(bytes), 0, from_));
    EXPECT_TRUE(is_done(*sends_, request));
  }
  abi::TcpxRequest* post(size_t bytes, const SoftRegion* region) {
    return must(receives_->irecv(region == host_ ? host_into_.data() : into_.device(), static_cast<int>(bytes), 0, region));
  }
  /// The bytes that the list of a receive names, in order.
  std::vector<std::byte> listed(const abi::TcpxRequest& request, size_t bytes) const {
    std::vector<std::byte> all(bytes);
    const PagePool& pool = *nic_->pool()->pages;
    const auto* list = static_cast<const Fragment*>(request.unpack_slot.mem);
    for (uint64_t i = 0; i < *request.unpack_slot.cnt; ++i) {
      EXPECT_LE(list[i].len, kPageBytes) << "longer ones are beyond NCCL's kernels";
      EXPECT_OK(nic_->pool()->copies->copy(all.data() + list[i].dst_off, pool.device_base() + list[i].src_off, list[i].len));
    }
    return all;
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(4 << 20);
  std::unique_ptr<PlayedNic> nic_;
  std::unique_ptr<SoftSendComm> sends_;
  std::unique_ptr<SoftRecvComm> receives_;
  SoftRegion* from_ = nullptr;
  MemoryBuffer into_;
  std::vector<std::byte> host_into_ = std::vector<std::byte>(4 << 20);
  SoftRegion *device_ = nullptr, *host_ = nullptr;
};

TEST_F(DeviceReceiver, PagesStayUntilTheirMessageIsConsumed) {
  start();
  constexpr size_t kBytes = 100'000;
  std::array<abi::TcpxRequest*, 3> requests;
  for (auto& request : requests) request = post(kBytes, device_);
  for (size_t i = 0; i < requests.size(); ++i) send(kBytes);
  for (const auto* request : requests) ASSERT_TRUE(is_done(*receives_, request));
  for (const auto* request : requests) {
    const size_t before = nic_->tokens_out();
    EXPECT_TRUE(std::equal(source_.begin(), source_.begin() + kBytes, listed(*request, kBytes).begin()));
    ASSERT_OK(receives_->consumed(request));
    EXPECT_TRUE(wait_until([&] { return nic_->tokens_out() < before; }));
  }
  EXPECT_TRUE(all_are_back(*nic_));
}

TEST_F(DeviceReceiver, BytesThatGoToHostMemoryHoldNoPages) {
  start({.pool_pages = 64}, 16);
  const auto* request = post(source_.size(), host_);
  send(source_.size());
  ASSERT_TRUE(is_done(*receives_, request));
  EXPECT_TRUE(std::equal(source_.begin(), source_.end(), host_into_.begin()));
  EXPECT_TRUE(all_are_back(*nic_)) << "though it is not consumed";
  EXPECT_GT(nic_->fragments(), 64u) << "pages were used again";
}

TEST_F(DeviceReceiver, CopiedBytesGiveNoOtherMessagesPagesBack) {
  start();
  const auto* first = post(50'000, device_);
  const auto* second = post(50'000, host_);
  send(50'000);
  send(50'000);
  ASSERT_TRUE(is_done(*receives_, first));
  ASSERT_TRUE(is_done(*receives_, second));
  EXPECT_TRUE(std::equal(source_.begin(), source_.begin() + 50'000, listed(*first, 50'000).begin()));
  EXPECT_GT(nic_->tokens_out(), 0u);
  ASSERT_OK(receives_->consumed(first));
  EXPECT_TRUE(all_are_back(*nic_));
}

TEST_F(DeviceReceiver, AMessageThatIsTooLargeIsDiscardedWithItsPages) {
  start();
  const auto* small = post(100, device_);
  const auto* next = post(100, device_);
  send(50'000);
  send(100);
  EXPECT_EQ(error_of(*receives_, small).code(), Code::kInvalidArgument);
  ASSERT_OK(receives_->consumed(small));
  ASSERT_TRUE(is_done(*receives_, next));
  EXPECT_TRUE(std::equal(source_.begin(), source_.begin() + 100, listed(*next, 100).begin()));
  ASSERT_OK(receives_->consumed(next));
  EXPECT_TRUE(all_are_back(*nic_));
}

// Receives that are not consumed hold pages: the others wait for them, in the kernel.
TEST_F(DeviceReceiver, NoMoreIsReceivedThanThePoolHasPagesFor) {
  start({}, 32);
  constexpr size_t kBytes = 20 * kPageBytes;
  const auto* first = post(kBytes, device_);
  const auto* second = post(kBytes, device_);
  send(kBytes);
  send(kBytes);
  ASSERT_TRUE(is_done(*receives_, first));
  EXPECT_FALSE(wait_until([&] { return receives_->test(second)->done; }, std::chrono::milliseconds(100)));
  ASSERT_OK(receives_->consumed(first));
  ASSERT_TRUE(is_done(*receives_, second));
  ASSERT_OK(receives_->consumed(second));
}

/// A sender from device memory, whose other end is driven by the test.
class DeviceSender : public SoftDeviceMemory {
 protected:
  void start() {
    nic_ = std::make_unique<PlayedNic>(*memory_);
    nic_->hold_ends(true);
    wire_ = wire(kStreamChunkBytes, 0, 1);
    comm_ = send_by(*nic_, std::move(wire_->ours));
    source_ = must(memory_->allocate_device(0, kBytes));
    std::vector<std::byte> content(kBytes);
    fill_pattern(content, 1);
    ASSERT_OK(nic_->pool()->copies->copy(source_.device(), content.data(), kBytes));
    region_ = must(comm_->register_region(source_.device(), kBytes, MemoryType::kCuda));
    request_ = must(comm_->isend(source_.device(), kBytes, 0, region_));
  }
  void take_all() {
    std::vector<std::byte> bytes(kBytes);
    EXPECT_OK(recv_all(wire_->theirs.data[0].get(), bytes, soon()));
    EXPECT_OK(verify_pattern(bytes, 1));
  }
  /// How the data socket ends for the peer, which has not read all.
  int end_of_data() {
    std::array<std::byte, 4096> bytes;
    ssize_t n = 0;
    EXPECT_TRUE(wait_until([&] {
      while ((n = ::recv(wire_->theirs.data[0].get(), bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0) continue;
      return n == 0 || errno != EAGAIN;
    }));
    return n == 0 ? 0 : errno;
  }

  static constexpr int kBytes = 100'000;
  std::unique_ptr<PlayedNic> nic_;
  std::unique_ptr<Wire> wire_;
  std::unique_ptr<SoftSendComm> comm_;
  MemoryBuffer source_;
  SoftRegion* region_ = nullptr;
  abi::TcpxRequest* request_ = nullptr;
};

TEST_F(DeviceSender, AMessageIsNotDoneBeforeItsMemoryIsFree) {
  start();
  take_all();
  EXPECT_FALSE(wait_until([&] { return comm_->test(request_)->done; }, std::chrono::milliseconds(100)));
  nic_->hold_ends(false);
  // The kernel has told of the end, and was not heard. It tells of the next one.
  auto* const next = must(comm_->isend(source_.device(), kBytes, 0, region_));
  take_all();
  EXPECT_TRUE(is_done(*comm_, request_));
  EXPECT_TRUE(is_done(*comm_, next));
}

// The kernel would send, or send again, what is in the memory by then.
TEST_F(DeviceSender, ACommThatIsClosedBeforeSendsNothingMore) {
  start();
  ASSERT_TRUE(wait_until([&] { return nic_->sends() > 0; }));
  comm_.reset();
  EXPECT_EQ(end_of_data(), ECONNRESET);
}

TEST_F(DeviceSender, MemoryThatIsTakenBackBeforeIsReadNoMore) {
  start();
  ASSERT_TRUE(wait_until([&] { return nic_->sends() > 0; }));
  ASSERT_OK(comm_->deregister_region(region_));
  EXPECT_EQ(end_of_data(), ECONNRESET);
  EXPECT_EQ(error_of(*comm_, request_).code(), Code::kSystem);
}

}  // namespace
}  // namespace tcpx::testing
