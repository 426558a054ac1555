#include "tests/support/table_harness.h"

#include <dlfcn.h>

#include <atomic>

#include "base/text.h"
#include "measure/pattern.h"
#include "net/soft/soft_table.h"

namespace tcpx::testing {

MemoryOps& machine_memory() {
  static const std::unique_ptr<MemoryOps> memory = make_machine_memory_ops();
  return *memory;
}

const abi::NetTable_v7* linked_table() {
  return &soft::net_table();
}

void* file_symbol(int version) {
  static void* const library = ::dlopen(TCPX_SOFT_PLUGIN_PATH, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    ADD_FAILURE() << ::dlerror();
    return nullptr;
  }
  return ::dlsym(library, concat("ncclNetPlugin_v", version).c_str());
}

const abi::NetTable_v7* file_table() {
  return static_cast<const abi::NetTable_v7*>(file_symbol(7));
}

TestMemory::TestMemory(MemoryType type, size_t bytes)
    : type_(type),
      buffer_(must(type == MemoryType::kCuda ? machine_memory().allocate_device(0, bytes)
                                             : machine_memory().allocate_mapped(0, bytes))),
      lane_(must(machine_memory().make_copy_lane(0))) {}

void TestMemory::write(const std::vector<std::byte>& bytes, size_t offset) {
  ASSERT_LE(offset + bytes.size(), size());
  ASSERT_TRUE(lane_->copy(data() + offset, bytes.data(), bytes.size()).is_ok());
}

std::vector<std::byte> TestMemory::read() const {
  std::vector<std::byte> bytes(size());
  EXPECT_TRUE(lane_->copy(bytes.data(), data(), size()).is_ok());
  return bytes;
}

void gather(const abi::TcpxRequest& request, const abi::NetDeviceHandle& device_handle, std::byte* destination) {
  const auto lane = must(machine_memory().make_copy_lane(0));
  abi::UnpackNetDeviceHandle unpack{};
  ASSERT_OK(lane->copy(&unpack, device_handle.handle, sizeof unpack));
  ASSERT_NE(request.unpack_slot.cnt, nullptr);
  const auto* list = static_cast<const Fragment*>(request.unpack_slot.mem);
  // As NCCL's kernel reads it: the I/O thread may open the slot for another receive of host memory, which lists nothing.
  const uint64_t count = std::atomic_ref(*request.unpack_slot.cnt).load(std::memory_order_acquire);
  for (uint64_t i = 0; i < count; ++i) {
    const auto* from = static_cast<std::byte*>(unpack.bounce_buf) + list[i].src_off;
    ASSERT_OK(lane->copy(destination + list[i].dst_off, from, list[i].len));
  }
}

void* accept_one(const abi::NetTable_v7& table, void* listener, abi::NetDeviceHandle** device_handle) {
  void* comm = nullptr;
  EXPECT_TRUE(wait_until([&] {
    EXPECT_EQ(table.accept(listener, &comm, device_handle), abi::kNcclSuccess);
    return comm != nullptr;
  }));
  return comm;
}

std::vector<std::byte> pattern_bytes(size_t bytes, uint64_t seed) {
  std::vector<std::byte> data(bytes);
  fill_pattern(data, seed);
  return data;
}

TablePair::TablePair(const abi::NetTable_v7& table_under_test) : TablePair(table_under_test, nullptr, {}) {}

TablePair::TablePair(const abi::NetTable_v7& table_under_test, void* others_listener, const Handle& others_handle)
    : table(table_under_test), handle(others_handle), listener(others_listener), owns_listener_(others_listener == nullptr) {
  if (owns_listener_) {
    EXPECT_EQ(table.listen(0, handle.bytes.data(), &listener), abi::kNcclSuccess);
  }
  Handle copy = handle;
  EXPECT_EQ(table.connect(0, copy.bytes.data(), &sender, nullptr), abi::kNcclSuccess);
  abi::NetDeviceHandle* out = &device_handle;
  receiver = accept_one(table, listener, &out);
}

TablePair::~TablePair() {
  close_sender();
  close_receiver();
  if (owns_listener_) {
    EXPECT_EQ(table.close_listen(listener), abi::kNcclSuccess);
  }
}

void TablePair::deregister_all(void* comm) {
  for (const auto& [of, mhandle] : registered_) {
    if (of == comm) {
      EXPECT_EQ(table.dereg_mr(comm, mhandle), abi::kNcclSuccess);
    }
  }
  std::erase_if(registered_, [comm](const auto& one) { return one.first == comm; });
}

int TablePair::deregister(void* comm, void* mhandle) {
  std::erase(registered_, std::pair(comm, mhandle));
  return table.dereg_mr(comm, mhandle);
}

void TablePair::close_sender() {
  deregister_all(sender);
  EXPECT_EQ(table.close_send(sender), abi::kNcclSuccess);
  sender = nullptr;
}

void TablePair::close_receiver() {
  deregister_all(receiver);
  EXPECT_EQ(table.close_recv(receiver), abi::kNcclSuccess);
  receiver = nullptr;
}

void* TablePair::register_with(void* comm, const TestMemory& memory) {
  void* mhandle = nullptr;
  EXPECT_EQ(table.reg_mr(comm, memory.data(), static_cast<int>(memory.size()), static_cast<int>(memory.type()), &mhandle),
            abi::kNcclSuccess);
  EXPECT_NE(mhandle, nullptr);
  registered_.emplace_back(comm, mhandle);
  return mhandle;
}

void* TablePair::post_send(const TestMemory& memory, void* mhandle, size_t bytes, size_t offset, int tag) {
  void* request = nullptr;
  EXPECT_EQ(table.isend(sender, memory.data() + offset, static_cast<int>(bytes), tag, mhandle, &request), abi::kNcclSuccess);
  EXPECT_NE(request, nullptr);
  return request;
}

void* TablePair::post_recv(const TestMemory& memory, void* mhandle, size_t bytes, size_t offset, int tag) {
  void* request = nullptr;
  void* data = memory.data() + offset;
  int size = static_cast<int>(bytes);
  EXPECT_EQ(table.irecv(receiver, 1, &data, &size, &tag, &mhandle, &request), abi::kNcclSuccess);
  EXPECT_NE(request, nullptr);
  return request;
}

int TablePair::finish(void* request) {
  int done = 0, size = -1, rc = 0;
  EXPECT_TRUE(wait_until([&] { return (rc = table.test(request, &done, &size)) != abi::kNcclSuccess || done != 0; }))
      << "request never finished";
  EXPECT_EQ(rc, abi::kNcclSuccess);
  return size;
}

int TablePair::wait_for_error(void* request) {
  int done = 0, rc = 0;
  wait_until([&] { return (rc = table.test(request, &done, nullptr)) != abi::kNcclSuccess || done != 0; });
  EXPECT_EQ(done, 0);
  return rc;
}

void TablePair::consume(void* request) {
  EXPECT_EQ(table.irecv_consumed(receiver, 1, request), abi::kNcclSuccess);
}

int TableLink::refused_send(size_t bytes) {
  void* request = nullptr;
  const int rc = table.isend(sender, source.data(), static_cast<int>(bytes), 0, send_handle, &request);
  EXPECT_EQ(request, nullptr);
  return rc;
}

int TableLink::refused_recv(size_t bytes) {
  void *request = nullptr, *data = target.data();
  int size = static_cast<int>(bytes), tag = 0;
  const int rc = table.irecv(receiver, 1, &data, &size, &tag, &recv_handle, &request);
  EXPECT_EQ(request, nullptr);
  return rc;
}

int TableLink::take(void* request, size_t offset) {
  const int bytes = finish(request);
  gather(*static_cast<abi::TcpxRequest*>(request), device_handle, target.data() + offset);
  consume(request);
  return bytes;
}

bool TableLink::has_arrived(size_t bytes, uint64_t seed, size_t offset) const {
  const std::vector<std::byte> arrived = target.read();
  return verify_pattern(std::span(arrived).subspan(offset, bytes), seed).is_ok();
}

}  // namespace tcpx::testing
