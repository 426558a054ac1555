// Guarantees for consumers of the ABI, driven through the raw version 7 table: once linked in, once opened as a file. Tests named
// TrapNN show the plugin's behaviour for the NNth trap of using GPUDirect-TCPX directly (docs/TCPX_LOGIC_MAPPING.md lists them).
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "base/environment.h"
#include "tests/support/expect_log.h"
#include "tests/support/table_harness.h"

namespace tcpx::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Small enough for a test to exhaust it.
const int pool_size_is_set = ::setenv("UCCL_TCPX_SOFT_POOL_BYTES", "16777216", 1);

class SoftConformance : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_EQ(pool_size_is_set, 0);
    table_ = std::string(GetParam()) == "linked" ? linked_table() : file_table();
    ASSERT_NE(table_, nullptr);
    ASSERT_EQ(table_->init(&quiet_logger), abi::kNcclSuccess);
    allow_log("tcpx-soft");  // many of these tests provoke refusals
  }
  static void quiet_logger(int, unsigned long, const char*, int, const char*, ...) {}

  /// Sends `bytes` of pattern `seed` and checks what arrives after gathering it.
  void roundtrip(TablePair& pair, MemoryType type, size_t bytes, uint64_t seed) {
    const size_t capacity = (bytes / kPageBytes + 2) * kPageBytes;
    TestMemory source(type, capacity), target(type, capacity);
    const auto data = pattern_bytes(bytes, seed);
    source.write(data);
    void* send_handle = pair.register_with(pair.sender, source);
    void* recv_handle = pair.register_with(pair.receiver, target);
    void* recv = pair.post_recv(target, recv_handle, bytes);
    void* send = pair.post_send(source, send_handle, bytes);
    EXPECT_EQ(pair.finish(recv), static_cast<int>(bytes));
    EXPECT_EQ(pair.finish(send), static_cast<int>(bytes));
    const auto& request = *static_cast<const abi::TcpxRequest*>(recv);
    EXPECT_EQ(request.size, static_cast<int>(bytes));
    EXPECT_EQ(*request.unpack_slot.cnt == 0, type == MemoryType::kHost || bytes == 0) << "host memory receives land in place";
    gather(request, pair.device_handle, target.data());
    pair.consume(recv);
    auto arrived = target.read();
    for (size_t i = bytes; i < arrived.size(); ++i) ASSERT_EQ(arrived[i], std::byte{0}) << "byte past the message at " << i;
    arrived.resize(bytes);
    EXPECT_TRUE(arrived == data) << bytes << " bytes";
    EXPECT_EQ(table_->dereg_mr(pair.sender, send_handle), abi::kNcclSuccess);
    EXPECT_EQ(table_->dereg_mr(pair.receiver, recv_handle), abi::kNcclSuccess);
  }

  const abi::NetTable_v7* table_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(Plugin, SoftConformance, ::testing::Values("linked", "file"),
                         [](const auto& param_info) { return param_info.param; });

TEST_P(SoftConformance, DevicesAndProperties) {
  int count = 0;
  ASSERT_EQ(table_->devices(&count), abi::kNcclSuccess);
  ASSERT_EQ(count, 1) << "tests run on loopback only";
  abi::NetProperties_v7 properties{};
  ASSERT_EQ(table_->get_properties(0, &properties), abi::kNcclSuccess);
  EXPECT_STREQ(properties.name, "lo");
  EXPECT_EQ(properties.ptr_support, 3);
  EXPECT_EQ(properties.max_recvs, 1);
  EXPECT_EQ(properties.max_comms, 65536);
  EXPECT_GT(properties.speed, 0);
  EXPECT_STREQ(table_->name, "tcpx-soft");
  EXPECT_NE(table_->get_properties(1, &properties), abi::kNcclSuccess);
  EXPECT_NE(table_->get_properties(-1, &properties), abi::kNcclSuccess);
}

TEST_P(SoftConformance, BytesArriveForManySizesAndBothMemoryTypes) {
  TablePair pair(*table_);
  uint64_t seed = 1;
  for (const MemoryType type : {MemoryType::kCuda, MemoryType::kHost}) {
    for (const size_t bytes : {size_t{1}, size_t{7}, size_t{22}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{65536},
                               size_t{524288}, size_t{524289}, kMiB + 17, 4 * kMiB - 1, 4 * kMiB}) {
      roundtrip(pair, type, bytes, seed++);
    }
  }
}

TEST_P(SoftConformance, ManyRequestsInFlightKeepTheirOrder) {
  TablePair pair(*table_);
  constexpr size_t kBytes = 70001, kStride = 73728, kRounds = 5;
  TestMemory source(MemoryType::kCuda, kStride * kQueueDepth), target(MemoryType::kCuda, kStride * kQueueDepth);
  void* send_handle = pair.register_with(pair.sender, source);
  void* recv_handle = pair.register_with(pair.receiver, target);
  for (size_t round = 0; round < kRounds; ++round) {
    std::vector<void*> sends, recvs;
    for (size_t i = 0; i < kQueueDepth; ++i) source.write(pattern_bytes(kBytes, round * 100 + i), i * kStride);
    for (size_t i = 0; i < kQueueDepth; ++i) sends.push_back(pair.post_send(source, send_handle, kBytes, i * kStride));
    for (size_t i = 0; i < kQueueDepth; ++i) recvs.push_back(pair.post_recv(target, recv_handle, kBytes, i * kStride));
    for (size_t i = 0; i < kQueueDepth; ++i) {
      EXPECT_EQ(pair.finish(recvs[i]), static_cast<int>(kBytes));
      gather(*static_cast<abi::TcpxRequest*>(recvs[i]), pair.device_handle, target.data() + i * kStride);
      pair.consume(recvs[i]);
    }
    for (void* send : sends) pair.finish(send);
    const auto all = target.read();
    for (size_t i = 0; i < kQueueDepth; ++i) {
      const auto expected = pattern_bytes(kBytes, round * 100 + i);
      EXPECT_EQ(std::memcmp(all.data() + i * kStride, expected.data(), kBytes), 0) << "round " << round << " message " << i;
    }
  }
}

TEST_P(SoftConformance, Trap01_ConnectFinishesInOneCallWithoutAnAccept) {
  Handle handle;
  void *listener = nullptr, *sender = nullptr;
  ASSERT_EQ(table_->listen(0, handle.bytes.data(), &listener), abi::kNcclSuccess);
  EXPECT_EQ(table_->connect(0, handle.bytes.data(), &sender, nullptr), abi::kNcclSuccess);
  EXPECT_NE(sender, nullptr);
  EXPECT_EQ(table_->close_send(sender), abi::kNcclSuccess);
  EXPECT_EQ(table_->close_listen(listener), abi::kNcclSuccess);
}

TEST_P(SoftConformance, Trap02_TheHandleStaysAsItIsAndServesAgain) {
  TablePair pair(*table_);
  Handle used = pair.handle;
  void* second = nullptr;
  ASSERT_EQ(table_->connect(0, used.bytes.data(), &second, nullptr), abi::kNcclSuccess);
  EXPECT_EQ(used, pair.handle);
  void* third = nullptr;
  ASSERT_EQ(table_->connect(0, used.bytes.data(), &third, nullptr), abi::kNcclSuccess);
  EXPECT_EQ(table_->close_send(second), abi::kNcclSuccess);
  EXPECT_EQ(table_->close_send(third), abi::kNcclSuccess);
}

TEST_P(SoftConformance, Trap03_OneListenerServesManyPeers) {
  TablePair pair(*table_);
  for (int i = 0; i < 20; ++i) {
    Handle copy = pair.handle;
    void* sender = nullptr;
    ASSERT_EQ(table_->connect(0, copy.bytes.data(), &sender, nullptr), abi::kNcclSuccess);
    void* receiver = accept_one(*table_, pair.listener, nullptr);
    EXPECT_EQ(table_->close_send(sender), abi::kNcclSuccess);
    EXPECT_EQ(table_->close_recv(receiver), abi::kNcclSuccess);
  }
  void* nobody = &pair;
  EXPECT_EQ(table_->accept(pair.listener, &nobody, nullptr), abi::kNcclSuccess);
  EXPECT_EQ(nobody, nullptr) << "no peer: success with a NULL comm";
}

TEST_P(SoftConformance, Trap04_Trap05_AcceptTakesNullDeviceHandlesAndDataStillFlows) {
  TablePair pair(*table_);
  abi::NetDeviceHandle* null_inner = nullptr;
  for (abi::NetDeviceHandle** device_handle : {static_cast<abi::NetDeviceHandle**>(nullptr), &null_inner}) {
    pair.close_sender();
    pair.close_receiver();
    Handle copy = pair.handle;
    ASSERT_EQ(table_->connect(0, copy.bytes.data(), &pair.sender, nullptr), abi::kNcclSuccess);
    pair.receiver = accept_one(*table_, pair.listener, device_handle);
    roundtrip(pair, MemoryType::kHost, 5000, 3);
  }
}

TEST_P(SoftConformance, Trap07_NothingHasToBeSetForBytesToMove) {
  ASSERT_FALSE(environment_is_set(Variable::kDynamicChunkSize));
  TablePair pair(*table_);
  roundtrip(pair, MemoryType::kCuda, kMiB, 9);
}

TEST_P(SoftConformance, Trap08_ASendMovesThoughItsSenderNeverTests) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, kMiB), target(MemoryType::kCuda, kMiB);
  void* recv = pair.post_recv(target, pair.register_with(pair.receiver, target), kMiB);
  pair.post_send(source, pair.register_with(pair.sender, source), kMiB);
  EXPECT_EQ(pair.finish(recv), static_cast<int>(kMiB));
}

TEST_P(SoftConformance, Trap09_TestingAnyButTheOldestIsRefusedAndHarmless) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, 8192), target(MemoryType::kCuda, 8192);
  void* recv_handle = pair.register_with(pair.receiver, target);
  void* send_handle = pair.register_with(pair.sender, source);
  void* first = pair.post_recv(target, recv_handle, 4096);
  void* second = pair.post_recv(target, recv_handle, 4096, 4096);
  void* send_first = pair.post_send(source, send_handle, 4096);
  void* send_second = pair.post_send(source, send_handle, 4096, 4096);
  int done = 7;
  EXPECT_EQ(table_->test(second, &done, nullptr), abi::kNcclInternalError);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(table_->test(send_second, &done, nullptr), abi::kNcclInternalError);
  EXPECT_EQ(pair.finish(first), 4096);
  EXPECT_EQ(pair.finish(second), 4096);
  pair.finish(send_first);
  pair.finish(send_second);
}

TEST_P(SoftConformance, Trap10_CompletionIsReportedOnce) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, 4096), target(MemoryType::kCuda, 4096);
  void* recv = pair.post_recv(target, pair.register_with(pair.receiver, target), 100);
  void* send = pair.post_send(source, pair.register_with(pair.sender, source), 100);
  pair.finish(recv);
  pair.finish(send);
  int done = 1;
  EXPECT_EQ(table_->test(recv, &done, nullptr), abi::kNcclInternalError);
  EXPECT_EQ(done, 0);
  EXPECT_EQ(table_->test(send, &done, nullptr), abi::kNcclInternalError);
  pair.consume(recv);
}

TEST_P(SoftConformance, Trap11_TheSeventeenthPostIsRefusedUntilASlotComesBack) {
  // Requests are outstanding to the end: the memory must outlive the comms.
  TestMemory source(MemoryType::kCuda, 4096), target(MemoryType::kCuda, 4096);
  TablePair pair(*table_);
  void* send_handle = pair.register_with(pair.sender, source);
  void* recv_handle = pair.register_with(pair.receiver, target);
  std::vector<void*> sends, recvs;
  for (uint32_t i = 0; i < kQueueDepth; ++i) {
    sends.push_back(pair.post_send(source, send_handle, 64));
    recvs.push_back(pair.post_recv(target, recv_handle, 64));
    EXPECT_EQ(static_cast<char*>(recvs[i]) - static_cast<char*>(recvs[0]), 128 * i) << "requests lie in one ring";
  }
  void *request = nullptr, *data = target.data();
  int size = 64, tag = 0;
  EXPECT_EQ(table_->isend(pair.sender, source.data(), 64, 0, send_handle, &request), abi::kNcclInternalError);
  EXPECT_EQ(table_->irecv(pair.receiver, 1, &data, &size, &tag, &recv_handle, &request), abi::kNcclInternalError);
  EXPECT_EQ(request, nullptr);
  pair.finish(sends[0]);
  EXPECT_EQ(pair.post_send(source, send_handle, 64), sends[0]) << "request k+16 has the address of request k";
  pair.finish(recvs[0]);
  EXPECT_EQ(table_->irecv(pair.receiver, 1, &data, &size, &tag, &recv_handle, &request), abi::kNcclInternalError)
      << "done is not enough: a receive holds its slot until consumed";
  pair.consume(recvs[0]);
  EXPECT_EQ(pair.post_recv(target, recv_handle, 64), recvs[0]);
}

TEST_P(SoftConformance, Trap12_APeerThatClosesHidesNothingItSent) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, kMiB), target(MemoryType::kCuda, 4 * kMiB);
  const auto data = pattern_bytes(kMiB, 12);
  source.write(data);
  void* send_handle = pair.register_with(pair.sender, source);
  std::vector<void*> sends;
  for (int i = 0; i < 2; ++i) sends.push_back(pair.post_send(source, send_handle, kMiB));
  void* recv_handle = pair.register_with(pair.receiver, target);
  std::vector<void*> recvs = {pair.post_recv(target, recv_handle, kMiB), pair.post_recv(target, recv_handle, kMiB, kMiB)};
  for (void* send : sends) pair.finish(send);
  pair.close_sender();
  for (size_t i = 0; i < recvs.size(); ++i) {
    EXPECT_EQ(pair.finish(recvs[i]), static_cast<int>(kMiB)) << "not one transient error on the way";
    gather(*static_cast<abi::TcpxRequest*>(recvs[i]), pair.device_handle, target.data() + i * kMiB);
    pair.consume(recvs[i]);
  }
  auto arrived = target.read();
  EXPECT_EQ(std::memcmp(arrived.data(), data.data(), kMiB), 0);
  EXPECT_EQ(std::memcmp(arrived.data() + kMiB, data.data(), kMiB), 0);
}

TEST_P(SoftConformance, Trap13_AnExtraReceiveGetsRc2AndHidesNoOther) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, 4096), target(MemoryType::kCuda, 8192);
  void* recv_handle = pair.register_with(pair.receiver, target);
  void* good = pair.post_recv(target, recv_handle, 4096);
  void* extra = pair.post_recv(target, recv_handle, 4096, 4096);
  pair.finish(pair.post_send(source, pair.register_with(pair.sender, source), 4096));
  pair.close_sender();
  EXPECT_EQ(pair.finish(good), 4096);
  EXPECT_EQ(pair.wait_for_error(extra), abi::kNcclSystemError);
  EXPECT_EQ(pair.wait_for_error(extra), abi::kNcclSystemError) << "and stays so";
  pair.consume(good);
  void *request = nullptr, *data = target.data();
  int size = 1, tag = 0;
  EXPECT_EQ(table_->irecv(pair.receiver, 1, &data, &size, &tag, &recv_handle, &request), abi::kNcclSystemError);
}

TEST_P(SoftConformance, Trap15_SizesAreFilled) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, 4096), target(MemoryType::kCuda, 4096);
  void* recv = pair.post_recv(target, pair.register_with(pair.receiver, target), 4096);
  pair.post_send(source, pair.register_with(pair.sender, source), 1234);
  EXPECT_EQ(pair.finish(recv), 1234);
  EXPECT_EQ(static_cast<abi::TcpxRequest*>(recv)->size, 1234);
}

TEST_P(SoftConformance, Trap16_AMessageLargerThanPostedFailsThatReceiveOnly) {
  for (const MemoryType type : {MemoryType::kCuda, MemoryType::kHost}) {
    TablePair pair(*table_);
    TestMemory source(type, 2 * kMiB), target(type, 2 * kMiB);
    source.write(pattern_bytes(2 * kMiB, 5));
    void* send_handle = pair.register_with(pair.sender, source);
    void* recv_handle = pair.register_with(pair.receiver, target);
    void* small = pair.post_recv(target, recv_handle, 100);
    void* next = pair.post_recv(target, recv_handle, 4096, 4096);
    void* sends[2] = {pair.post_send(source, send_handle, 2 * kMiB), pair.post_send(source, send_handle, 4096)};
    EXPECT_EQ(pair.wait_for_error(small), abi::kNcclInternalError);
    EXPECT_TRUE(GetParam() != std::string("linked") || logged("100 were posted"));
    EXPECT_EQ(pair.finish(next), 4096) << "the stream goes on";
    gather(*static_cast<abi::TcpxRequest*>(next), pair.device_handle, target.data() + 4096);
    pair.consume(small);
    pair.consume(next);
    for (void* send : sends) pair.finish(send);
    const auto arrived = target.read();
    const auto expected = pattern_bytes(4096, 5);
    for (size_t i = 0; i < 4096; ++i) ASSERT_EQ(arrived[i], std::byte{0}) << "written past or into the refused receive at " << i;
    EXPECT_EQ(std::memcmp(arrived.data() + 4096, expected.data(), 4096), 0);
  }
}

TEST_P(SoftConformance, Trap17_MessagesPairInPostOrderWhateverTheirTags) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, 8192), target(MemoryType::kCuda, 8192);
  source.write(pattern_bytes(8192, 17));
  void* recv_handle = pair.register_with(pair.receiver, target);
  void* send_handle = pair.register_with(pair.sender, source);
  void* first = pair.post_recv(target, recv_handle, 4096, 0, 1);
  void* second = pair.post_recv(target, recv_handle, 4096, 4096, 2);
  pair.post_send(source, send_handle, 4096, 0, 2);
  pair.post_send(source, send_handle, 4096, 4096, 1);
  for (void* request : {first, second}) {
    pair.finish(request);
    gather(*static_cast<abi::TcpxRequest*>(request), pair.device_handle, target.data() + (request == first ? 0 : 4096));
    pair.consume(request);
  }
  EXPECT_TRUE(target.read() == source.read());
}

TEST_P(SoftConformance, Trap18_WhenThePoolRunsDrySendersWaitAndAllRecovers) {
  TablePair hog(*table_), other(*table_);
  TestMemory source(MemoryType::kCuda, 2 * kMiB), target(MemoryType::kCuda, 2 * kMiB);
  void* send_handle = hog.register_with(hog.sender, source);
  void* recv_handle = hog.register_with(hog.receiver, target);
  std::vector<void*> sends, recvs;
  for (uint32_t i = 0; i < kQueueDepth; ++i) {  // 32 MiB through a pool of 16
    recvs.push_back(hog.post_recv(target, recv_handle, 2 * kMiB));
    sends.push_back(hog.post_send(source, send_handle, 2 * kMiB));
  }
  for (int i = 0; i < 4; ++i) hog.finish(recvs[static_cast<size_t>(i)]);
  int done = 1;
  EXPECT_EQ(table_->test(recvs[4], &done, nullptr), abi::kNcclSuccess) << "waiting for pages is not an error";
  EXPECT_EQ(done, 0) << "one comm cannot take more than half of the pool";
  roundtrip(other, MemoryType::kCuda, 4 * kMiB, 18);  // a comm that never consumes does not starve another
  for (uint32_t i = 0; i < kQueueDepth; ++i) {
    if (i >= 4) {
      EXPECT_EQ(hog.finish(recvs[i]), static_cast<int>(2 * kMiB));
    }
    hog.consume(recvs[i]);
  }
  for (void* send : sends) hog.finish(send);
}

TEST_P(SoftConformance, Trap19_AZeroSizeMessageTakesASlotAndIsConsumedExactlyOnce) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, 4096), target(MemoryType::kCuda, 4096);
  void* send_handle = pair.register_with(pair.sender, source);
  void* recv_handle = pair.register_with(pair.receiver, target);
  void* empty = pair.post_recv(target, recv_handle, 4096);
  void* full = pair.post_recv(target, recv_handle, 4096);
  pair.post_send(source, send_handle, 0);
  pair.post_send(source, send_handle, 4096);
  EXPECT_EQ(pair.finish(empty), 0);
  EXPECT_EQ(*static_cast<abi::TcpxRequest*>(empty)->unpack_slot.cnt, 0u);
  pair.consume(empty);
  EXPECT_EQ(table_->irecv_consumed(pair.receiver, 1, empty), abi::kNcclInternalError) << "twice";
  EXPECT_EQ(pair.finish(full), 4096) << "the next receive is not disturbed";
  EXPECT_EQ(static_cast<abi::TcpxRequest*>(full)->unpack_slot.idx, 1u) << "the empty one took slot 0";
  pair.consume(full);
}

TEST_P(SoftConformance, Trap20_PagesStayUntouchedUntilConsumed) {
  TablePair pair(*table_);
  constexpr size_t kBytes = 300000, kCapacity = 303104;
  TestMemory source(MemoryType::kCuda, kCapacity), target(MemoryType::kCuda, kCapacity);
  const auto data = pattern_bytes(kBytes, 20);
  source.write(data);
  void* send_handle = pair.register_with(pair.sender, source);
  void* recv_handle = pair.register_with(pair.receiver, target);
  void* held = pair.post_recv(target, recv_handle, kBytes);
  pair.finish(pair.post_send(source, send_handle, kBytes));
  pair.finish(held);
  TestMemory noise(MemoryType::kCuda, kCapacity), sink(MemoryType::kCuda, kCapacity);
  noise.write(pattern_bytes(kBytes, 999));
  TablePair busy(*table_);  // other comms share the pool and cycle through it meanwhile
  void* noise_handle = busy.register_with(busy.sender, noise);
  void* sink_handle = busy.register_with(busy.receiver, sink);
  for (int i = 0; i < 100; ++i) {
    void* recv = busy.post_recv(sink, sink_handle, kBytes);
    busy.finish(busy.post_send(noise, noise_handle, kBytes));
    busy.finish(recv);
    busy.consume(recv);
  }
  gather(*static_cast<abi::TcpxRequest*>(held), pair.device_handle, target.data());
  pair.consume(held);
  auto arrived = target.read();
  EXPECT_EQ(std::memcmp(arrived.data(), data.data(), kBytes), 0);
}

TEST_P(SoftConformance, Trap21_TheBounceBaseIsInTheDeviceStruct) {
  TablePair pair(*table_);
  EXPECT_EQ(pair.device_handle.net_device_type, 1);
  EXPECT_EQ(pair.device_handle.net_device_version, 7);
  EXPECT_EQ(pair.device_handle.size, sizeof(abi::UnpackNetDeviceHandle));
  EXPECT_EQ(pair.device_handle.needs_proxy_progress, 1);
  abi::UnpackNetDeviceHandle unpack{};
  auto lane = machine_memory().make_copy_lane(0);
  ASSERT_TRUE((*lane)->copy(&unpack, pair.device_handle.handle, sizeof unpack).is_ok());
  EXPECT_NE(unpack.meta, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(unpack.bounce_buf) % 4096, 0u);
  EXPECT_EQ(unpack.head, ~uint64_t{0}) << "NCCL's kernel increments before its first slice";
  TablePair second(*table_);
  abi::UnpackNetDeviceHandle other{};
  ASSERT_TRUE((*lane)->copy(&other, second.device_handle.handle, sizeof other).is_ok());
  EXPECT_EQ(other.bounce_buf, unpack.bounce_buf) << "one base for all comms of a GPU";
  EXPECT_NE(other.meta, unpack.meta);
}

TEST_P(SoftConformance, Trap22_Trap23_TheListTilesTheMessageInFragmentsOfAtMostAPage) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, 4 * kMiB), target(MemoryType::kCuda, 4 * kMiB);
  void* send_handle = pair.register_with(pair.sender, source);
  void* recv_handle = pair.register_with(pair.receiver, target);
  for (const size_t bytes : {size_t{1}, size_t{4097}, kMiB + 5, 4 * kMiB}) {
    void* recv = pair.post_recv(target, recv_handle, bytes);
    pair.finish(pair.post_send(source, send_handle, bytes));
    pair.finish(recv);
    const auto& slot = static_cast<abi::TcpxRequest*>(recv)->unpack_slot;
    ASSERT_LE(*slot.cnt, kMaxFragments);
    EXPECT_EQ(*slot.cnt, (bytes + 4095) / 4096);
    std::vector<int> covered(bytes, 0);
    const auto* list = static_cast<const Fragment*>(slot.mem);
    for (uint64_t i = 0; i < *slot.cnt; ++i) {
      ASSERT_GE(list[i].len, 1u);
      ASSERT_LE(list[i].len, 4096u);
      ASSERT_EQ(list[i].src_off % 16, 0u);
      ASSERT_EQ(list[i].dst_off % 16, 0u);
      ASSERT_LE(list[i].dst_off + list[i].len, bytes);
      for (uint32_t b = 0; b < list[i].len; ++b) ++covered[list[i].dst_off + b];
    }
    EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), static_cast<std::ptrdiff_t>(bytes));
    pair.consume(recv);
  }
}

TEST_P(SoftConformance, Trap24_UnalignedCudaMemoryIsRefusedHostMemoryIsNot) {
  TablePair pair(*table_);
  TestMemory cuda(MemoryType::kCuda, 8192), host(MemoryType::kHost, 8192);
  void* mhandle = nullptr;
  EXPECT_EQ(table_->reg_mr(pair.sender, cuda.data() + 1, 4096, abi::kNcclPtrCuda, &mhandle), abi::kNcclInternalError);
  EXPECT_EQ(table_->reg_mr(pair.sender, cuda.data() + 2048, 4096, abi::kNcclPtrCuda, &mhandle), abi::kNcclInternalError);
  EXPECT_EQ(mhandle, nullptr);
  EXPECT_EQ(table_->reg_mr(pair.sender, host.data() + 1, 4096, abi::kNcclPtrHost, &mhandle), abi::kNcclSuccess);
  EXPECT_EQ(table_->dereg_mr(pair.sender, mhandle), abi::kNcclSuccess);
}

TEST_P(SoftConformance, Trap25_SizesNeedNotBeMultiplesOfAPage) {
  TablePair pair(*table_);
  TestMemory cuda(MemoryType::kCuda, 8192);
  void* mhandle = nullptr;
  ASSERT_EQ(table_->reg_mr(pair.sender, cuda.data(), 5000, abi::kNcclPtrCuda, &mhandle), abi::kNcclSuccess);
  EXPECT_EQ(table_->dereg_mr(pair.sender, mhandle), abi::kNcclSuccess);
}

TEST_P(SoftConformance, Trap26_ADeviceWithoutPciPathRegistersMemory) {
  abi::NetProperties_v7 properties{};
  ASSERT_EQ(table_->get_properties(0, &properties), abi::kNcclSuccess);
  EXPECT_EQ(properties.pci_path, nullptr) << "loopback has none";
  TablePair pair(*table_);
  TestMemory cuda(MemoryType::kCuda, 4096);
  EXPECT_NE(pair.register_with(pair.receiver, cuda), nullptr);
}

TEST_P(SoftConformance, Trap28_ThePrivateFieldsHoldTheKnownInvariant) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, 4096), target(MemoryType::kCuda, 4096);
  void* send_handle = pair.register_with(pair.sender, source);
  void* recv_handle = pair.register_with(pair.receiver, target);
  for (uint64_t i = 0; i < 2 * kQueueDepth; ++i) {
    void* recv = pair.post_recv(target, recv_handle, 4096);
    EXPECT_EQ(static_cast<abi::TcpxRequest*>(recv)->unpack_slot.cnt, nullptr) << "posting clears only cnt";
    pair.finish(pair.post_send(source, send_handle, 4096));
    pair.finish(recv);
    const auto* bytes = static_cast<const std::byte*>(recv);
    int32_t op = 0, type = 0;
    uint64_t idx = 0, mem = 0, cnt = 0;
    std::memcpy(&op, bytes + 16, 4);
    std::memcpy(&type, bytes + 20, 4);
    std::memcpy(&idx, bytes + 64, 8);
    std::memcpy(&mem, bytes + 72, 8);
    std::memcpy(&cnt, bytes + 80, 8);
    EXPECT_EQ(op, 1);
    EXPECT_EQ(type, 2);
    EXPECT_EQ(idx, i % kQueueDepth);
    EXPECT_EQ(cnt - mem, 524288 - idx * 32768 + idx * 8);
    pair.consume(recv);
  }
}

TEST_P(SoftConformance, Trap30_InitTwiceIsHarmless) {
  EXPECT_EQ(table_->init(&quiet_logger), abi::kNcclSuccess);
  TablePair pair(*table_);
  EXPECT_EQ(table_->init(&quiet_logger), abi::kNcclSuccess);
  roundtrip(pair, MemoryType::kCuda, 1000, 30);
}

TEST_P(SoftConformance, Trap31_ANullLoggerIsAccepted) {
  EXPECT_EQ(table_->init(nullptr), abi::kNcclSuccess);
}

TEST_P(SoftConformance, Trap32_FlushAnswersWithNothingToWaitFor) {
  TablePair pair(*table_);
  TestMemory target(MemoryType::kCuda, 4096);
  void *mhandle = pair.register_with(pair.receiver, target), *data = target.data(), *request = &pair;
  int size = 4096;
  EXPECT_EQ(table_->iflush(pair.receiver, 1, &data, &size, &mhandle, &request), abi::kNcclSuccess);
  EXPECT_EQ(request, nullptr);
}

TEST_P(SoftConformance, Trap35_SendingToAClosedPeerIsRc2NotASignal) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, 4 * kMiB);
  void* mhandle = pair.register_with(pair.sender, source);
  pair.close_receiver();
  int rc = 0;
  EXPECT_TRUE(wait_until([&] {
    void* request = nullptr;
    rc = table_->isend(pair.sender, source.data(), static_cast<int>(source.size()), 0, mhandle, &request);
    int done = 0;
    while (rc == 0 && done == 0) rc = table_->test(request, &done, nullptr);
    return rc != 0;
  }));
  EXPECT_EQ(rc, abi::kNcclSystemError);
}

TEST_P(SoftConformance, Trap36_ASendIsDoneBeforeTheReceiverHasCalledAnything) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, 4096), target(MemoryType::kCuda, 4096);
  const auto data = pattern_bytes(4096, 36);
  source.write(data);
  pair.finish(pair.post_send(source, pair.register_with(pair.sender, source), 4096));
  source.write(pattern_bytes(4096, 37));  // done: this memory may change
  void* recv = pair.post_recv(target, pair.register_with(pair.receiver, target), 4096);
  pair.finish(recv);
  gather(*static_cast<abi::TcpxRequest*>(recv), pair.device_handle, target.data());
  pair.consume(recv);
  EXPECT_TRUE(target.read() == data);
}

TEST_P(SoftConformance, Trap37_AllDevicesAreOfOneType) {
  int count = 0;
  ASSERT_EQ(table_->devices(&count), abi::kNcclSuccess);
  for (int dev = 0; dev < count; ++dev) {
    abi::NetProperties_v7 properties{};
    ASSERT_EQ(table_->get_properties(dev, &properties), abi::kNcclSuccess);
    EXPECT_EQ(properties.net_device_type, 1);
    EXPECT_EQ(properties.net_device_version, 7);
  }
}

TEST_P(SoftConformance, NullArgumentsAreRefusedEverywhere) {
  TablePair pair(*table_);
  TestMemory memory(MemoryType::kHost, 4096);
  void *mhandle = pair.register_with(pair.receiver, memory), *out = nullptr, *data = memory.data();
  int size = 1, tag = 0, done = 0;
  const int refused = abi::kNcclInternalError;
  EXPECT_EQ(table_->devices(nullptr), refused);
  EXPECT_EQ(table_->get_properties(0, nullptr), refused);
  EXPECT_EQ(table_->listen(0, nullptr, &out), refused);
  EXPECT_EQ(table_->listen(0, pair.handle.bytes.data(), nullptr), refused);
  EXPECT_EQ(table_->listen(5, pair.handle.bytes.data(), &out), refused);
  EXPECT_EQ(table_->connect(0, nullptr, &out, nullptr), refused);
  EXPECT_EQ(table_->connect(0, pair.handle.bytes.data(), nullptr, nullptr), refused);
  EXPECT_EQ(table_->accept(nullptr, &out, nullptr), refused);
  EXPECT_EQ(table_->accept(pair.listener, nullptr, nullptr), refused);
  EXPECT_EQ(table_->reg_mr(nullptr, data, 1, 1, &out), refused);
  EXPECT_EQ(table_->reg_mr(pair.sender, nullptr, 1, 1, &out), refused);
  EXPECT_EQ(table_->reg_mr(pair.sender, data, -1, 1, &out), refused);
  EXPECT_EQ(table_->reg_mr(pair.sender, data, 1, 3, &out), refused);
  EXPECT_EQ(table_->reg_mr(pair.sender, data, 1, 1, nullptr), refused);
  EXPECT_EQ(table_->dereg_mr(pair.sender, nullptr), abi::kNcclSuccess);
  EXPECT_EQ(table_->isend(nullptr, data, 1, 0, mhandle, &out), refused);
  EXPECT_EQ(table_->isend(pair.sender, data, 1, 0, nullptr, &out), refused);
  EXPECT_EQ(table_->isend(pair.sender, data, 1, 0, mhandle, &out), refused) << "registered with the other comm";
  EXPECT_EQ(table_->isend(pair.receiver, data, 1, 0, mhandle, &out), refused) << "a receiving comm cannot send";
  EXPECT_EQ(table_->irecv(nullptr, 1, &data, &size, &tag, &mhandle, &out), refused);
  EXPECT_EQ(table_->irecv(pair.receiver, 2, &data, &size, &tag, &mhandle, &out), refused);
  EXPECT_EQ(table_->irecv(pair.receiver, 1, nullptr, &size, &tag, &mhandle, &out), refused);
  EXPECT_EQ(table_->irecv(pair.receiver, 1, &data, nullptr, &tag, &mhandle, &out), refused);
  EXPECT_EQ(table_->irecv(pair.receiver, 1, &data, &size, &tag, nullptr, &out), refused);
  EXPECT_EQ(table_->irecv(pair.receiver, 1, &data, &size, &tag, &mhandle, nullptr), refused);
  EXPECT_EQ(table_->test(nullptr, &done, nullptr), refused);
  EXPECT_EQ(table_->irecv_consumed(pair.receiver, 1, nullptr), refused);
  EXPECT_EQ(table_->close_send(nullptr), abi::kNcclSuccess);
  EXPECT_EQ(table_->close_listen(nullptr), abi::kNcclSuccess);
  EXPECT_EQ(table_->close_send(pair.listener), refused) << "a listener is not a comm";
  EXPECT_EQ(out, nullptr);
}

TEST_P(SoftConformance, RequestsStayInsideTheirRegistration) {
  TablePair pair(*table_);
  TestMemory memory(MemoryType::kCuda, 8192);
  void* mhandle = nullptr;
  ASSERT_EQ(table_->reg_mr(pair.sender, memory.data(), 4096, abi::kNcclPtrCuda, &mhandle), abi::kNcclSuccess);
  void* request = nullptr;
  EXPECT_EQ(table_->isend(pair.sender, memory.data(), 4097, 0, mhandle, &request), abi::kNcclInternalError);
  EXPECT_EQ(table_->isend(pair.sender, memory.data() + 1, 4096, 0, mhandle, &request), abi::kNcclInternalError);
  EXPECT_EQ(table_->isend(pair.sender, memory.data() + 5000, 1, 0, mhandle, &request), abi::kNcclInternalError);
  EXPECT_EQ(table_->isend(pair.sender, memory.data(), -1, 0, mhandle, &request), abi::kNcclInternalError);
  EXPECT_EQ(request, nullptr);
}

// The original accepts any deregistration at any time, and NCCL deregisters with requests outstanding when it aborts.
TEST_P(SoftConformance, DeregisteringMemoryOfAnUnfinishedReceiveEndsTheComm) {
  TablePair pair(*table_);
  TestMemory target(MemoryType::kHost, 4096), source(MemoryType::kHost, 4096);
  source.write(pattern_bytes(4096, 1));
  void* recv_handle = pair.register_with(pair.receiver, target);
  void* recv = pair.post_recv(target, recv_handle, 4096);
  EXPECT_EQ(table_->dereg_mr(pair.receiver, recv_handle), abi::kNcclSuccess);
  EXPECT_EQ(table_->dereg_mr(pair.receiver, recv_handle), abi::kNcclInternalError) << "twice";
  pair.finish(pair.post_send(source, pair.register_with(pair.sender, source), 4096));
  EXPECT_EQ(pair.wait_for_error(recv), abi::kNcclSystemError);
  EXPECT_TRUE(target.read() == std::vector<std::byte>(4096)) << "written after it was let go";
  void *data = target.data(), *request = nullptr;
  int size = 4096, tag = 0;
  EXPECT_EQ(table_->irecv(pair.receiver, 1, &data, &size, &tag, &recv_handle, &request), abi::kNcclSystemError);
}

TEST_P(SoftConformance, DeregisteringMemoryOfAnUnfinishedSendEndsTheComm) {
  TablePair pair(*table_);
  constexpr size_t kBytes = 64 << 20;  // more than the kernel buffers without a receiver
  TestMemory source(MemoryType::kHost, kBytes);
  void* mhandle = pair.register_with(pair.sender, source);
  void* send = pair.post_send(source, mhandle, kBytes);
  EXPECT_EQ(table_->dereg_mr(pair.sender, mhandle), abi::kNcclSuccess);
  EXPECT_EQ(pair.wait_for_error(send), abi::kNcclSystemError);
}

TEST_P(SoftConformance, MemoryOfAFinishedReceiveMayBeDeregistered) {
  TablePair pair(*table_);
  TestMemory target(MemoryType::kCuda, 4096), source(MemoryType::kCuda, 4096);
  void* recv_handle = pair.register_with(pair.receiver, target);
  void* recv = pair.post_recv(target, recv_handle, 4096);
  pair.finish(pair.post_send(source, pair.register_with(pair.sender, source), 4096));
  pair.finish(recv);
  EXPECT_EQ(table_->dereg_mr(pair.receiver, recv_handle), abi::kNcclSuccess) << "not consumed yet, and nobody needs it";
  pair.consume(recv);
  roundtrip(pair, MemoryType::kCuda, 4096, 2);
}

TEST_P(SoftConformance, ConsumingTooEarlyTwiceOrOutOfOrderIsRefused) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, 4096), target(MemoryType::kCuda, 4096);
  void* send_handle = pair.register_with(pair.sender, source);
  void* recv_handle = pair.register_with(pair.receiver, target);
  void* first = pair.post_recv(target, recv_handle, 100);
  void* second = pair.post_recv(target, recv_handle, 100);
  EXPECT_EQ(table_->irecv_consumed(pair.receiver, 1, first), abi::kNcclInternalError) << "not done";
  void* send = pair.post_send(source, send_handle, 100);
  pair.post_send(source, send_handle, 100);
  EXPECT_EQ(table_->irecv_consumed(pair.receiver, 1, send), abi::kNcclSuccess) << "of a send: ignored";
  pair.finish(first);
  pair.finish(second);
  EXPECT_EQ(table_->irecv_consumed(pair.receiver, 1, second), abi::kNcclInternalError) << "out of order";
  EXPECT_EQ(table_->irecv_consumed(pair.receiver, 2, first), abi::kNcclInternalError) << "n";
  pair.consume(first);
  EXPECT_EQ(table_->irecv_consumed(pair.receiver, 1, first), abi::kNcclInternalError) << "twice";
  pair.consume(second);
}

TEST_P(SoftConformance, ClosingWithRequestsOutstandingIsClean) {
  TablePair pair(*table_);
  TestMemory source(MemoryType::kCuda, 4 * kMiB), target(MemoryType::kCuda, 4 * kMiB);
  void* send_handle = pair.register_with(pair.sender, source);
  void* recv_handle = pair.register_with(pair.receiver, target);
  for (int i = 0; i < 8; ++i) {
    pair.post_send(source, send_handle, 4 * kMiB);
    pair.post_recv(target, recv_handle, 4 * kMiB);
  }
  pair.close_receiver();
  pair.close_sender();
  TablePair next(*table_);
  roundtrip(next, MemoryType::kCuda, 4 * kMiB, 4);  // the pool got its pages back
}

TEST_P(SoftConformance, TwoCommsFromTwoThreads) {
  TablePair one(*table_), two(*table_);
  const auto drive = [&](TablePair& pair, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < 60; ++i) {
      roundtrip(pair, i % 2 == 0 ? MemoryType::kCuda : MemoryType::kHost, random() % 700000, random());
    }
  };
  std::thread other([&] { drive(two, 2); });
  drive(one, 1);
  other.join();
}

}  // namespace
}  // namespace tcpx::testing
