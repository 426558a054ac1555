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
    if (sockets.device_sockets == 0) sockets.device_sockets = sockets.data.size();
    return must(SoftRecvComm::create(*memory_, 0, io_, nic.pool()->pages, std::move(sockets)));
  }
  std::unique_ptr<SoftSendComm> send_by(PlayedNic& nic, ConnectedSockets sockets) {
    sockets.device_sources = nic.sources();
    if (sockets.device_sockets == 0) sockets.device_sockets = sockets.data.size();
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
      for (const int buffer : {0, 64 * 1024, 1}) {
        SCOPED_TRACE(concat(static_cast<int>(from), static_cast<int>(into), " ", buffer));
        PlayedNic nic(*memory_);
        const bool beside_others = buffer == 1;
        auto sockets = wire(kStreamChunkBytes, beside_others ? 0 : buffer, beside_others ? 6 : 3);
        if (beside_others) sockets->ours.device_sockets = sockets->theirs.device_sockets = 3;
        const auto sends = send_by(nic, std::move(sockets->ours));
        const auto receives = receive_by(nic, std::move(sockets->theirs));
        move_messages(*sends, *receives, *nic.pool()->pages, from, into, kMessages);
        EXPECT_TRUE(all_are_back(nic));
        if (beside_others && into == MemoryType::kHost) continue;
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
  void start(const PlayedNic::Traits& traits = {}, uint32_t message_pages = 1024, size_t sockets = 2) {
    nic_ = std::make_unique<PlayedNic>(*memory_, traits, message_pages);
    start_over(wire(kStreamChunkBytes, 0, sockets));
  }
  void start_over(std::unique_ptr<Wire> sockets) {
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
  std::unique_ptr<Wire> wire_;
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
  start({}, 1024, 1);
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

/// A connection with sockets of both kinds.
class BothKinds : public DeviceReceiver {
 protected:
  void SetUp() override {
    DeviceReceiver::SetUp();
    nic_ = std::make_unique<PlayedNic>(*memory_, PlayedNic::Traits{.linear_of_ten = 0, .whole_of_ten = 0});
    wire_ = wire(kStreamChunkBytes, 0, 4);
    wire_->ours.device_sockets = wire_->theirs.device_sockets = 2;
  }
};

// What the receiver says may come too late for the first messages, and then holds for all.
TEST_F(BothKinds, AMessageGoesByTheSocketsThatItsReceiverNames) {
  start_over(std::move(wire_));
  for (const SoftRegion* region : {host_, device_, host_}) {
    const auto comes_by_nic = [&] {
      const uint64_t before = nic_->fragments();
      const auto* request = post(50'000, region);
      send(50'000);
      EXPECT_TRUE(is_done(*receives_, request));
      const auto there =
          region == host_ ? std::vector(host_into_.begin(), host_into_.begin() + 50'000) : listed(*request, 50'000);
      EXPECT_TRUE(std::equal(there.begin(), there.end(), source_.begin()));
      EXPECT_OK(receives_->consumed(request));
      return nic_->fragments() != before;
    };
    ASSERT_TRUE(wait_until([&] { return comes_by_nic() == (region == device_); }));
    for (int i = 0; i < 20; ++i) EXPECT_EQ(comes_by_nic(), region == device_) << i;
  }
  EXPECT_TRUE(all_are_back(*nic_));
}

TEST_F(BothKinds, AChoiceThatNoReceiverCouldMakeEndsTheConnection) {
  for (const std::vector<uint64_t>& sequences : {std::vector<uint64_t>{uint64_t{1} << 40}, {3, 3}, {3, 2}}) {
    auto made = wire(kStreamChunkBytes, 0, 4);
    made->ours.device_sockets = 2;
    const auto comm = sender(*memory_, std::move(made->ours));
    auto* const region = must(comm->register_region(source_.data(), source_.size(), MemoryType::kHost));
    for (const uint64_t sequence : sequences) {
      std::array<std::byte, kChoiceBytes> record;
      encode_choice({.sequence = sequence, .device = true}, record);
      send_bytes(made->theirs.control, record);
    }
    Status status;
    ASSERT_TRUE(wait_until([&] {
      const auto request = comm->isend(source_.data(), 0, 0, region);
      status = request.is_ok() ? error_of(*comm, *request) : request.status();
      return !status.is_ok();
    }));
    EXPECT_EQ(status.code(), Code::kPeerGone) << status.to_string() << ", " << sequences.back();
  }
}

/// The set-up of a connection to a listener whose NIC puts what comes into device memory.
class DeviceHandshake : public SoftDeviceMemory {
 protected:
  void listen(PlayedNic::Traits::Fault fault, uint32_t linear_of_ten = 0) {
    nic_ = std::make_unique<PlayedNic>(*memory_,
                                       PlayedNic::Traits{.linear_of_ten = linear_of_ten, .whole_of_ten = 0, .fault = fault});
    const HandleInfo info = {.addresses = {SocketAddress::loopback(0)},
                             .data_sockets = 2,
                             .chunk_bytes = kStreamChunkBytes,
                             .host_addresses = {SocketAddress::loopback(0)},
                             .headers_apart = true};
    listener_ = must(SoftListener::create(info, io_));
    listener_->receive_into(nic_->pool());
    info_ = must(decode_handle(listener_->handle()));
  }
  void connect(Deadline deadline = soon(), const std::string& sends_by = {}) {
    const auto connector = must(Connector::start(info_, {SocketAddress::loopback(0)}, deadline));
    if (!sends_by.empty()) connector->send_from(nic_->sources(), sends_by);
    std::optional<ConnectedSockets> connected;
    ASSERT_TRUE(wait_until([&] { return (connected = must(connector->advance(std::chrono::milliseconds(50)))).has_value(); }));
    ours_ = std::move(*connected);
    EXPECT_TRUE(wait_until([&] { return listener_->has_peer(); }));
    pool_of_theirs_ = listener_->device_pool();
    theirs_ = accept_softly(*listener_);
  }
  void expect_host_memory(const std::string& why) {
    EXPECT_EQ(ours_.device_sockets, 0u);
    EXPECT_EQ(ours_.data.size(), 2u);
    EXPECT_EQ(theirs_.device_sockets, 0u);
    EXPECT_EQ(theirs_.data.size(), 2u);
    EXPECT_EQ(pool_of_theirs_, nullptr);
    EXPECT_EQ(theirs_.device_pool, nullptr);
    EXPECT_TRUE(logged("gets its data in host memory"));
    EXPECT_TRUE(logged(why)) << why;
    EXPECT_FALSE(listener_->has_peer()) << "there is one connection";
    const auto sends = sender(*memory_, std::move(ours_));
    const auto receives = receiver(std::move(theirs_));
    move_messages(*sends, *receives, *pool_, MemoryType::kCuda, MemoryType::kCuda, 50);
  }
  std::unique_ptr<PlayedNic> nic_;
  std::unique_ptr<SoftListener> listener_;
  HandleInfo info_;
  ConnectedSockets ours_, theirs_;
  std::shared_ptr<const DevicePool> pool_of_theirs_;
};

TEST_F(DeviceHandshake, ANicThatProvesItselfHasSocketsBesideOrdinaryOnes) {
  listen(PlayedNic::Traits::Fault::kNone);
  connect();
  for (const ConnectedSockets* end : {&ours_, &theirs_}) {
    EXPECT_EQ(end->data.size(), 4u);
    EXPECT_EQ(end->device_sockets, 2u);
  }
  EXPECT_EQ(theirs_.device_pool, nic_->pool());
  EXPECT_EQ(pool_of_theirs_, nic_->pool());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(peer_address(ours_.data[i].get())->to_string(),
              (i < 2 ? info_.addresses : info_.host_addresses).front().to_string());
    EXPECT_EQ(peer_address(ours_.data[i].get())->to_string(), local_address(theirs_.data[i].get())->to_string());
  }
  EXPECT_EQ(peer_address(ours_.control.get())->to_string(), info_.host_addresses.front().to_string());
  EXPECT_TRUE(all_are_back(*nic_));
  const auto sends = send_by(*nic_, std::move(ours_));
  const auto receives = receive_by(*nic_, std::move(theirs_));
  move_messages(*sends, *receives, *nic_->pool()->pages, MemoryType::kCuda, MemoryType::kCuda, 50);
  EXPECT_GT(nic_->sends(), 0u);
}

TEST_F(DeviceHandshake, AProofComesFromDeviceMemoryWhereTheNicSendsFromIt) {
  listen(PlayedNic::Traits::Fault::kNone);
  connect(soon(), "lo");
  EXPECT_EQ(ours_.device_sockets, 2u);
  ASSERT_NE(ours_.device_sources, nullptr);
  EXPECT_EQ(nic_->sends(), 2u) << "one of each device socket";
  const auto sends = sender(*memory_, std::move(ours_));
  const auto receives = receive_by(*nic_, std::move(theirs_));
  move_messages(*sends, *receives, *nic_->pool()->pages, MemoryType::kCuda, MemoryType::kCuda, 50);
  EXPECT_GT(nic_->sends(), 50u);
}

TEST_F(DeviceHandshake, ANicThatCannotSendFromDeviceMemoryReceives) {
  for (const bool other_nic : {false, true}) {
    listen(other_nic ? PlayedNic::Traits::Fault::kNone : PlayedNic::Traits::Fault::kCannotSend);
    connect(soon(), other_nic ? "another0" : "lo");
    EXPECT_EQ(ours_.device_sockets, 2u);
    EXPECT_EQ(ours_.device_sources, nullptr);
    EXPECT_EQ(nic_->sends(), 0u);
    EXPECT_EQ(theirs_.device_pool, nic_->pool());
  }
}

TEST_F(DeviceHandshake, ANicThatSendsOtherBytesIsNotUsed) {
  listen(PlayedNic::Traits::Fault::kSendsOther);
  connect(soon(), "lo");
  EXPECT_EQ(ours_.device_sources, nullptr);
  expect_host_memory("byte 4000 of its proof page did not come as it was sent");
}

TEST_F(DeviceHandshake, ANicThatGarblesIsNotUsed) {
  listen(PlayedNic::Traits::Fault::kGarbles);
  connect();
  expect_host_memory("of its proof page did not come as it was sent");
  EXPECT_TRUE(all_are_back(*nic_));
}

TEST_F(DeviceHandshake, ANicThatPutsAllIntoHostMemoryIsNotUsed) {
  listen(PlayedNic::Traits::Fault::kNone, 10);
  connect();
  expect_host_memory("came in host memory: header split or flow steering does not work");
}

TEST_F(DeviceHandshake, ANicThatLosesAllIsNotWaitedForLong) {
  listen(PlayedNic::Traits::Fault::kLoses);
  connect(Deadline::after(std::chrono::seconds(1)));
  expect_host_memory("nothing was heard of its proof pages");
}

// No lack of right to connect, which is another matter, is made one of the NIC.
TEST_F(DeviceHandshake, WhoIsRefusedHearsWhy) {
  listen(PlayedNic::Traits::Fault::kNone);
  info_.cookie.words[0] ^= 1;
  const Status status = connect_to_listener(info_, {SocketAddress::loopback(0)}, soon()).status();
  EXPECT_EQ(status.code(), Code::kPeerGone) << status.to_string();
  EXPECT_FALSE(listener_->has_peer());
}

TEST_F(DeviceHandshake, EachSocketComesToAPortOfItsKind) {
  listen(PlayedNic::Traits::Fault::kNone);
  for (const bool device : {false, true}) {
    const UniqueFd fd = must(connect_tcp((device ? info_.host_addresses : info_.addresses).front(), soon()));
    std::array<std::byte, kHelloBytes> record;
    encode_hello({.connection = 1,
                  .socket_index = device ? 0u : 2u,
                  .data_sockets = 4,
                  .device_sockets = 2,
                  .headers_apart = true,
                  .proof = in_clear(info_.cookie)},
                 record);
    send_bytes(fd, record);
    EXPECT_TRUE(is_dropped(fd));
    EXPECT_TRUE(wait_until(
        [&] { return logged(device ? "socket 0 at a port for host memory" : "socket 2 at a port for device memory"); }));
  }
}

}  // namespace
}  // namespace tcpx::testing
