// Guarantees for consumers of the ABI: TrapNN shows the plugin's behaviour for the NNth trap of using GPUDirect-TCPX directly
// (docs/TCPX_LOGIC_MAPPING.md lists them).
#include <algorithm>
#include <cstring>

#include "base/environment.h"
#include "net/soft/soft_table.h"
#include "tests/support/soft_conformance.h"

namespace tcpx::testing {
namespace {

using SoftConformance = SoftConformanceFixture;

/// Bytes lie where a NIC has put them (tests/devmem/guest_init.sh), not in whole pages.
bool comes_by_nic() {
  return environment_text(Variable::kNetwork) == "devmem";
}

// The version 7 table that a file exports is the same code: SoftTable runs over both.
INSTANTIATE_TEST_SUITE_P(Plugin, SoftConformance, ::testing::Values("linked", "v9", "v10", "v11"), name_of_table);

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
  for (int i = 0; i < 2; ++i) {
    void* again = nullptr;
    ASSERT_EQ(table_->connect(0, used.bytes.data(), &again, nullptr), abi::kNcclSuccess);
    EXPECT_EQ(used, pair.handle);
    EXPECT_EQ(table_->close_send(again), abi::kNcclSuccess);
  }
}

TEST_P(SoftConformance, Trap03_OneListenerServesManyPeers) {
  TablePair pair(*table_);
  for (int i = 0; i < 20; ++i) TablePair(*table_, pair.listener, pair.handle);
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
  TableLink link(*table_, kMiB);
  void* recv = link.recv(kMiB);
  link.send(kMiB);
  EXPECT_EQ(link.finish(recv), static_cast<int>(kMiB));
}

TEST_P(SoftConformance, Trap09_TestingAnyButTheOldestIsRefusedAndHarmless) {
  TableLink link(*table_, 8192);
  void *first = link.recv(4096), *second = link.recv(4096, 4096);
  void *send_first = link.send(4096), *send_second = link.send(4096, 4096);
  for (void* younger : {second, send_second}) {
    int done = 7;
    EXPECT_EQ(table_->test(younger, &done, nullptr), abi::kNcclInternalError);
    EXPECT_EQ(done, 0);
  }
  for (void* request : {first, second, send_first, send_second}) EXPECT_EQ(link.finish(request), 4096);
}

TEST_P(SoftConformance, Trap10_CompletionIsReportedOnce) {
  TableLink link(*table_, 4096);
  void *recv = link.recv(100), *send = link.send(100);
  for (void* request : {recv, send}) {
    link.finish(request);
    int done = 1;
    EXPECT_EQ(table_->test(request, &done, nullptr), abi::kNcclInternalError);
    EXPECT_EQ(done, 0);
  }
  link.consume(recv);
}

TEST_P(SoftConformance, Trap11_APostBeyondTheQueueIsRefusedUntilASlotComesBack) {
  for (const MemoryType type : {MemoryType::kHost, MemoryType::kCuda}) {
    TableLink link(*table_, 4096, type);
    std::vector<void*> sends, recvs;
    for (uint32_t i = 0; i < soft::kRequests; ++i) sends.push_back(link.send(64));
    for (uint32_t i = 0; i < (type == MemoryType::kHost ? soft::kRequests : kQueueDepth); ++i) {
      recvs.push_back(link.recv(64));
      EXPECT_EQ(static_cast<char*>(recvs[i]) - static_cast<char*>(recvs[0]), 128 * i) << "requests lie in one ring";
    }
    EXPECT_EQ(link.refused_send(64), abi::kNcclInternalError);
    EXPECT_EQ(link.refused_recv(64), abi::kNcclInternalError);
    link.finish(sends[0]);
    EXPECT_EQ(link.send(64), sends[0]) << "request k+128 has the address of request k";
    link.finish(recvs[0]);
    EXPECT_EQ(link.refused_recv(64), abi::kNcclInternalError) << "done is not enough: a receive holds its slot until consumed";
    link.consume(recvs[0]);
    EXPECT_EQ(link.recv(64) == recvs[0], type == MemoryType::kHost);
  }
}

// The lists of receives of CUDA memory lie in a queue of sixteen, which other receives must not take from them.
TEST_P(SoftConformance, AReceiveOfCudaMemoryBoundsThoseBehindIt) {
  constexpr size_t kBytes = 2 * kPageBytes;
  TableLink link(*table_, soft::kRequests * kBytes, MemoryType::kHost);
  TestMemory listed(MemoryType::kCuda, kBytes);
  void* const handle = link.register_with(link.receiver, listed);
  const auto content = pattern_bytes(soft::kRequests * kBytes, 11);
  link.source.write(content);
  void* const first = link.post_recv(listed, handle, kBytes);
  std::vector<void*> recvs;
  for (size_t i = 1; i < kQueueDepth; ++i) recvs.push_back(link.recv(kBytes, i * kBytes));
  EXPECT_EQ(link.refused_recv(kBytes), abi::kNcclInternalError);
  for (size_t i = 0; i < soft::kRequests; ++i) link.send(kBytes, i * kBytes);
  link.finish(first);
  std::vector<std::byte> got(kBytes);
  gather(*static_cast<abi::TcpxRequest*>(first), link.device_handle, got.data());
  EXPECT_TRUE(std::equal(got.begin(), got.end(), content.begin()));
  link.consume(first);
  for (size_t i = kQueueDepth; i < soft::kRequests; ++i) recvs.push_back(link.recv(kBytes, i * kBytes));
  for (size_t i = 1; i < soft::kRequests; ++i) EXPECT_EQ(link.take(recvs[i - 1], i * kBytes), static_cast<int>(kBytes));
  const auto arrived = link.target.read();
  EXPECT_TRUE(std::equal(arrived.begin() + kBytes, arrived.end(), content.begin() + kBytes));
}

TEST_P(SoftConformance, Trap12_APeerThatClosesHidesNothingItSent) {
  TableLink link(*table_, 4 * kMiB);
  link.source.write(pattern_bytes(kMiB, 12));
  void* sends[] = {link.send(kMiB), link.send(kMiB)};
  void* recvs[] = {link.recv(kMiB), link.recv(kMiB, kMiB)};
  for (void* send : sends) link.finish(send);
  link.close_sender();
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(link.take(recvs[i], i * kMiB), static_cast<int>(kMiB)) << "not one transient error on the way";
    EXPECT_TRUE(link.has_arrived(kMiB, 12, i * kMiB));
  }
}

TEST_P(SoftConformance, Trap13_AnExtraReceiveGetsRc2AndHidesNoOther) {
  TableLink link(*table_, 8192);
  void *good = link.recv(4096), *extra = link.recv(4096, 4096);
  link.finish(link.send(4096));
  link.close_sender();
  EXPECT_EQ(link.finish(good), 4096);
  EXPECT_EQ(link.wait_for_error(extra), abi::kNcclSystemError);
  EXPECT_EQ(link.wait_for_error(extra), abi::kNcclSystemError) << "and stays so";
  link.consume(good);
  EXPECT_EQ(link.refused_recv(1), abi::kNcclSystemError);
}

TEST_P(SoftConformance, Trap15_SizesAreFilled) {
  TableLink link(*table_, 4096);
  void* recv = link.recv(4096);
  link.send(1234);
  EXPECT_EQ(link.finish(recv), 1234);
  EXPECT_EQ(static_cast<abi::TcpxRequest*>(recv)->size, 1234);
}

TEST_P(SoftConformance, Trap16_AMessageLargerThanPostedFailsThatReceiveOnly) {
  for (const MemoryType type : {MemoryType::kCuda, MemoryType::kHost}) {
    TableLink link(*table_, 2 * kMiB, type);
    link.source.write(pattern_bytes(2 * kMiB, 5));
    void *small = link.recv(100), *next = link.recv(4096, 4096);
    void* sends[2] = {link.send(2 * kMiB), link.send(4096)};
    EXPECT_EQ(link.wait_for_error(small), abi::kNcclInternalError);
    EXPECT_TRUE(logged("100 were posted"));
    EXPECT_EQ(link.finish(next), 4096) << "the stream goes on";
    gather(*static_cast<abi::TcpxRequest*>(next), link.device_handle, link.target.data() + 4096);
    link.consume(small);
    link.consume(next);
    for (void* send : sends) link.finish(send);
    const auto arrived = link.target.read();
    for (size_t i = 0; i < 4096; ++i) ASSERT_EQ(arrived[i], std::byte{0}) << "written past or into the refused receive at " << i;
    EXPECT_TRUE(link.has_arrived(4096, 5, 4096));
  }
}

TEST_P(SoftConformance, Trap17_MessagesPairInPostOrderWhateverTheirTags) {
  TableLink link(*table_, 8192);
  link.source.write(pattern_bytes(8192, 17));
  void *first = link.recv(4096, 0, 1), *second = link.recv(4096, 4096, 2);
  link.send(4096, 0, 2);
  link.send(4096, 4096, 1);
  link.take(first);
  link.take(second, 4096);
  EXPECT_TRUE(link.has_arrived(8192, 17));
}

TEST_P(SoftConformance, Trap18_WhenThePoolRunsDrySendersWaitAndAllRecovers) {
  TableLink hog(*table_, 2 * kMiB);
  TablePair other(*table_);
  std::vector<void*> sends, recvs;
  for (uint32_t i = 0; i < kQueueDepth; ++i) {  // 32 MiB through a pool of 16
    recvs.push_back(hog.recv(2 * kMiB));
    sends.push_back(hog.send(2 * kMiB));
  }
  for (size_t i = 0; i < 4; ++i) hog.finish(recvs[i]);
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
  TableLink link(*table_, 4096);
  void *empty = link.recv(4096), *full = link.recv(4096);
  link.send(0);
  link.send(4096);
  EXPECT_EQ(link.finish(empty), 0);
  EXPECT_EQ(*static_cast<abi::TcpxRequest*>(empty)->unpack_slot.cnt, 0u);
  link.consume(empty);
  EXPECT_EQ(table_->irecv_consumed(link.receiver, 1, empty), abi::kNcclInternalError) << "twice";
  EXPECT_EQ(link.finish(full), 4096) << "the next receive is not disturbed";
  EXPECT_EQ(static_cast<abi::TcpxRequest*>(full)->unpack_slot.idx, 1u) << "the empty one took slot 0";
  link.consume(full);
}

TEST_P(SoftConformance, Trap20_PagesStayUntouchedUntilConsumed) {
  constexpr size_t kBytes = 300000, kCapacity = 303104;
  TableLink link(*table_, kCapacity);
  link.source.write(pattern_bytes(kBytes, 20));
  void* held = link.recv(kBytes);
  link.finish(link.send(kBytes));
  link.finish(held);
  TableLink busy(*table_, kCapacity);  // other comms share the pool and cycle through it meanwhile
  busy.source.write(pattern_bytes(kBytes, 999));
  for (int i = 0; i < 100; ++i) {
    void* recv = busy.recv(kBytes);
    busy.finish(busy.send(kBytes));
    busy.finish(recv);
    busy.consume(recv);
  }
  gather(*static_cast<abi::TcpxRequest*>(held), link.device_handle, link.target.data());
  link.consume(held);
  EXPECT_TRUE(link.has_arrived(kBytes, 20));
}

TEST_P(SoftConformance, Trap21_TheBounceBaseIsInTheDeviceStruct) {
  TablePair pair(*table_);
  EXPECT_EQ(pair.device_handle.net_device_type, 1);
  EXPECT_EQ(pair.device_handle.net_device_version, 7);
  EXPECT_EQ(pair.device_handle.size, sizeof(abi::UnpackNetDeviceHandle));
  EXPECT_EQ(pair.device_handle.needs_proxy_progress, 1);
  abi::UnpackNetDeviceHandle unpack{}, other{};
  const auto lane = must(machine_memory().make_copy_lane(0));
  ASSERT_OK(lane->copy(&unpack, pair.device_handle.handle, sizeof unpack));
  EXPECT_NE(unpack.meta, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(unpack.bounce_buf) % 4096, 0u);
  EXPECT_EQ(unpack.head, ~uint64_t{0}) << "NCCL's kernel increments before its first slice";
  TablePair second(*table_);
  ASSERT_OK(lane->copy(&other, second.device_handle.handle, sizeof other));
  EXPECT_EQ(other.bounce_buf, unpack.bounce_buf) << "one base for all comms of a GPU";
  EXPECT_NE(other.meta, unpack.meta);
}

TEST_P(SoftConformance, Trap22_Trap23_TheListTilesTheMessageInFragmentsOfAtMostAPage) {
  TableLink link(*table_, 4 * kMiB);
  for (const size_t bytes : {size_t{1}, size_t{4097}, kMiB + 5, 4 * kMiB}) {
    void* recv = link.recv(bytes);
    link.finish(link.send(bytes));
    link.finish(recv);
    const auto& slot = static_cast<abi::TcpxRequest*>(recv)->unpack_slot;
    ASSERT_LE(*slot.cnt, kMaxFragments);
    if (comes_by_nic()) {
      EXPECT_TRUE(*slot.cnt > (bytes + 4095) / 4096 || bytes < kMiB) << "its packets have no whole pages: is it used?";
    } else {
      EXPECT_EQ(*slot.cnt, (bytes + 4095) / 4096);
    }
    std::vector<int> covered(bytes, 0);
    const auto* list = static_cast<const Fragment*>(slot.mem);
    for (uint64_t i = 0; i < *slot.cnt; ++i) {
      ASSERT_GE(list[i].len, 1u);
      ASSERT_LE(list[i].len, 4096u);
      ASSERT_TRUE(comes_by_nic() || (list[i].src_off % 16 == 0 && list[i].dst_off % 16 == 0));
      ASSERT_LE(list[i].dst_off + list[i].len, bytes);
      for (uint32_t b = 0; b < list[i].len; ++b) ++covered[list[i].dst_off + b];
    }
    EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), static_cast<std::ptrdiff_t>(bytes));
    link.consume(recv);
  }
}

TEST_P(SoftConformance, Trap24_Trap25_CudaMemoryMustBeAlignedButNeedNotBeWholePages) {
  TablePair pair(*table_);
  TestMemory cuda(MemoryType::kCuda, 8192), host(MemoryType::kHost, 8192);
  void* mhandle = nullptr;
  for (const size_t off : {1, 2048}) {
    EXPECT_EQ(table_->reg_mr(pair.sender, cuda.data() + off, 4096, abi::kNcclPtrCuda, &mhandle), abi::kNcclInternalError);
    EXPECT_EQ(mhandle, nullptr);
  }
  EXPECT_EQ(table_->reg_mr(pair.sender, host.data() + 1, 4096, abi::kNcclPtrHost, &mhandle), abi::kNcclSuccess);
  EXPECT_EQ(table_->dereg_mr(pair.sender, mhandle), abi::kNcclSuccess);
  ASSERT_EQ(table_->reg_mr(pair.sender, cuda.data(), 5000, abi::kNcclPtrCuda, &mhandle), abi::kNcclSuccess);
  EXPECT_EQ(table_->dereg_mr(pair.sender, mhandle), abi::kNcclSuccess);
}

TEST_P(SoftConformance, Trap26_Trap37_ADeviceWithoutPciPathRegistersMemoryAndAllAreOfOneType) {
  EXPECT_STREQ(table_->name, "tcpx-soft");
  int count = 0;
  ASSERT_EQ(table_->devices(&count), abi::kNcclSuccess);
  ASSERT_EQ(count, 1) << "tests run on one interface only";
  abi::NetProperties_v7 properties{};
  ASSERT_EQ(table_->get_properties(0, &properties), abi::kNcclSuccess);
  if (!comes_by_nic()) {
    EXPECT_STREQ(properties.name, "lo");
    EXPECT_EQ(properties.pci_path, nullptr) << "loopback has none";
  }
  EXPECT_EQ(properties.ptr_support, 3);
  EXPECT_EQ(properties.max_recvs, 1);
  EXPECT_EQ(properties.max_comms, 65536);
  EXPECT_GT(properties.speed, 0);
  EXPECT_EQ(properties.net_device_type, 1);
  EXPECT_EQ(properties.net_device_version, 7);
  for (const int dev : {-1, count}) EXPECT_NE(table_->get_properties(dev, &properties), abi::kNcclSuccess);
  TableLink link(*table_, 4096);
  EXPECT_NE(link.recv_handle, nullptr);
}

TEST_P(SoftConformance, Trap28_ThePrivateFieldsHoldTheKnownInvariant) {
  TableLink link(*table_, 4096);
  for (uint64_t i = 0; i < 2 * kQueueDepth; ++i) {
    void* recv = link.recv(4096);
    EXPECT_EQ(static_cast<abi::TcpxRequest*>(recv)->unpack_slot.cnt, nullptr) << "posting clears only cnt";
    link.finish(link.send(4096));
    link.finish(recv);
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
    link.consume(recv);
  }
}

TEST_P(SoftConformance, Trap30_Trap31_InitTwiceIsHarmlessAndANullLoggerIsAccepted) {
  TablePair pair(*table_);
  EXPECT_EQ(table_->init(&log_of_file), abi::kNcclSuccess);
  EXPECT_EQ(table_->init(nullptr), abi::kNcclSuccess);
  roundtrip(pair, MemoryType::kCuda, 1000, 30);
}

TEST_P(SoftConformance, Trap32_FlushAnswersWithNothingToWaitFor) {
  TableLink link(*table_, 4096);
  void *data = link.target.data(), *request = &link;
  int size = 4096;
  EXPECT_EQ(table_->iflush(link.receiver, 1, &data, &size, &link.recv_handle, &request), abi::kNcclSuccess);
  EXPECT_EQ(request, nullptr);
}

TEST_P(SoftConformance, Trap35_SendingToAClosedPeerIsRc2NotASignal) {
  for (const size_t bytes : {size_t{1}, 4 * kMiB}) {
    TableLink link(*table_, 4 * kMiB);
    link.close_receiver();
    int rc = 0;
    EXPECT_TRUE(wait_until([&] {
      void* request = nullptr;
      rc = table_->isend(link.sender, link.source.data(), static_cast<int>(bytes), 0, link.send_handle, &request);
      int done = 0;
      while (rc == 0 && done == 0) rc = table_->test(request, &done, nullptr);
      return rc != 0;
    }));
    EXPECT_EQ(rc, abi::kNcclSystemError);
  }
}

TEST_P(SoftConformance, Trap36_ASendIsDoneBeforeTheReceiverHasCalledAnything) {
  TableLink link(*table_, 4096);
  link.source.write(pattern_bytes(4096, 36));
  link.finish(link.send(4096));
  link.source.write(pattern_bytes(4096, 37));  // done: this memory may change
  link.take(link.recv(4096));
  EXPECT_TRUE(link.has_arrived(4096, 36));
}

}  // namespace
}  // namespace tcpx::testing
