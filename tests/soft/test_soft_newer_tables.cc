// All that the newer tables of the software plugin's file have beyond version 7, and which entries they leave out. SoftTable and
// SoftConformance run through each of them.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include "base/socket_io.h"
#include "base/text.h"
#include "net/abi/nccl_net_v9_to_v11.h"
#include "net/soft/wire.h"
#include "tests/support/expect_log.h"
#include "tests/support/soft_conformance.h"
#include "tests/support/table_harness.h"

namespace tcpx::testing {
namespace {

template <class Table>
class SoftNewerTables : public ::testing::Test {
 protected:
  static constexpr int kVersion = decltype(Table::calls)::kVersion;
  const Table& exported_ = *static_cast<const Table*>(file_symbol(kVersion));
  const abi::NetTable_v7& table_ = *file_table_over(kVersion);

  void SetUp() override {
    ASSERT_EQ(kPoolSizeIsSet, 0);
    ASSERT_EQ(table_.init(&log_of_file), abi::kNcclSuccess);
  }

  int connect(Handle& handle, void** comm) {
    abi::NetDeviceHandle* none = nullptr;
    if constexpr (kVersion == 9) return exported_.calls.connect(0, handle.bytes.data(), comm, &none);
    if constexpr (kVersion == 10) return exported_.calls.connect(0, nullptr, handle.bytes.data(), comm, &none);
    if constexpr (kVersion == 11) return exported_.calls.connect(nullptr, 0, handle.bytes.data(), comm, &none);
  }
  int isend(void* comm, void* data, size_t size, void* mhandle, void** request) {
    if constexpr (kVersion == 9) {
      return exported_.calls.isend(comm, data, size, 0, mhandle, request);
    } else {
      return exported_.calls.isend(comm, data, size, 0, mhandle, nullptr, request);
    }
  }
  int irecv(void* comm, void* data, size_t size, void* mhandle, void** request) {
    int tag = 0;
    if constexpr (kVersion == 9) {
      return exported_.calls.irecv(comm, 1, &data, &size, &tag, &mhandle, request);
    } else {
      return exported_.calls.irecv(comm, 1, &data, &size, &tag, &mhandle, nullptr, request);
    }
  }
};
using NewerTables = ::testing::Types<abi::NetTable_v9, abi::NetTable_v10, abi::NetTable_v11>;
TYPED_TEST_SUITE(SoftNewerTables, NewerTables);

// Bytes and places as in NVIDIA/nccl: src/include/plugin/net/net_v9.h to net_v11.h, 2.30.
TYPED_TEST(SoftNewerTables, TheTableIsWholeButForWhatNcclMayMiss) {
  const auto* const symbol = static_cast<void* const*>(file_symbol(this->kVersion));
  Dl_info file{};
  const ElfW(Sym)* entry = nullptr;
  ASSERT_NE(::dladdr1(symbol, &file, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&entry)), RTLD_DL_SYMENT), 0);
  const size_t entries = this->kVersion < 11 ? 20 : 22;
  ASSERT_GE(entry->st_size, entries * 8) << "exactly so much, but for what a checker puts behind it";
  std::vector<size_t> missing;
  for (size_t i = 0; i < entries; ++i) {
    if (symbol[i] == nullptr) missing.push_back(i);
  }
  const std::vector<size_t> may_miss = this->kVersion < 11 ? std::vector<size_t>{8, 19} : std::vector<size_t>{8, 19, 21};
  EXPECT_EQ(missing, may_miss) << "regMrDmaBuf, makeVDevice and setNetAttr, which NCCL does not call when they are NULL";
}

TYPED_TEST(SoftNewerTables, ConnectNeverWaitsForAListenerThatDoesNotAnswer) {
  const UniqueFd silent = listen_tcp(SocketAddress::loopback(0), 8).value();
  const TablePair like(this->table_);
  soft::HandleInfo info = must(soft::decode_handle(like.handle));
  info.addresses = {local_address(silent.get()).value()};
  Handle handle = soft::encode_handle(info);
  void* comm = &comm;
  for (int i = 0; i < 2; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_EQ(this->connect(handle, &comm), abi::kNcclSuccess);
    EXPECT_EQ(comm, nullptr);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  }
  void** const nowhere = nullptr;  // gives it up
  EXPECT_EQ(this->connect(handle, nowhere), abi::kNcclSuccess);
}

TYPED_TEST(SoftNewerTables, MemoryMayBeLargerThanAnIntAndARequestMayNot) {
  // Cut to an int it would be the size of the message.
  constexpr size_t kMessage = 70000, kOffset = size_t{1} << 32, kBytes = kOffset + kMessage;
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  {
    TablePair pair(this->table_);
    auto* const last = static_cast<std::byte*>(memory) + kOffset;
    std::vector<std::byte> arrived(kMessage);
    void *large = nullptr, *small = nullptr, *request = nullptr, *recv = nullptr;
    const auto& calls = this->exported_.calls;
    ASSERT_EQ(calls.reg_mr(pair.sender, memory, kBytes, abi::kNcclPtrHost, &large), abi::kNcclSuccess);
    ASSERT_EQ(calls.reg_mr(pair.receiver, arrived.data(), kMessage, abi::kNcclPtrHost, &small), abi::kNcclSuccess);
    allow_log(concat(kBytes, " bytes, a request has at most 2147483647"));
    EXPECT_EQ(this->isend(pair.sender, memory, kBytes, large, &request), abi::kNcclInternalError);
    EXPECT_EQ(this->irecv(pair.receiver, arrived.data(), kBytes, small, &request), abi::kNcclInternalError);
    for (const char* call : {"isend: ", "irecv: "}) EXPECT_TRUE(logged(concat(call, kBytes, " bytes")));
    EXPECT_EQ(request, nullptr);
    const auto sent = pattern_bytes(kMessage, 9);
    std::memcpy(last, sent.data(), kMessage);
    ASSERT_EQ(this->irecv(pair.receiver, arrived.data(), kMessage, small, &recv), abi::kNcclSuccess);
    ASSERT_EQ(this->isend(pair.sender, last, kMessage, large, &request), abi::kNcclSuccess);
    EXPECT_EQ(pair.finish(request), static_cast<int>(kMessage));
    EXPECT_EQ(pair.finish(recv), static_cast<int>(kMessage));
    EXPECT_TRUE(arrived == sent);
    pair.consume(recv);
    EXPECT_EQ(pair.deregister(pair.sender, large), abi::kNcclSuccess);
    EXPECT_EQ(pair.deregister(pair.receiver, small), abi::kNcclSuccess);
  }
  ::munmap(memory, kBytes);
}

TEST(SoftVersion11, AConnectionOutlivesTheContextOfAnotherCommunicator) {
  const auto& table = *static_cast<const abi::NetTable_v11*>(file_symbol(11));
  abi::NetCommConfig config{.traffic_class = 3};
  void *first = &first, *second = &second, *listener = nullptr, *sender = nullptr;
  ASSERT_EQ(table.calls.init(&first, 1, &config, nullptr, nullptr), abi::kNcclSuccess);
  ASSERT_EQ(table.calls.init(&second, 2, &config, nullptr, nullptr), abi::kNcclSuccess);
  EXPECT_NE(first, &first) << "stored";
  Handle handle;
  ASSERT_EQ(table.calls.listen(second, 0, handle.bytes.data(), &listener), abi::kNcclSuccess);
  EXPECT_EQ(table.finalize(first), abi::kNcclSuccess);
  EXPECT_TRUE(wait_until([&] {
    return table.calls.connect(second, 0, handle.bytes.data(), &sender, nullptr) != abi::kNcclSuccess || sender != nullptr;
  }));
  ASSERT_NE(sender, nullptr);
  EXPECT_EQ(table.calls.close_send(sender), abi::kNcclSuccess);
  EXPECT_EQ(table.calls.close_listen(listener), abi::kNcclSuccess);
  EXPECT_EQ(table.finalize(second), abi::kNcclSuccess);
}

}  // namespace
}  // namespace tcpx::testing
