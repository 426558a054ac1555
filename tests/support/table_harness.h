// Drives a version 7 table directly, as a consumer of the ABI does: no adapter in between.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/memory_ops.h"
#include "net/abi/nccl_net_v7.h"
#include "net/abi/tcpx_request.h"
#include "tcpx/types.h"
#include "tests/support/ok.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

/// The memory of this machine: a GPU's where there is one, else host memory standing in.
MemoryOps& machine_memory();

/// The table linked into this program.
const abi::NetTable_v7* linked_table();
/// The table of the software plugin opened as a file (path given at build time).
const abi::NetTable_v7* file_table();
/// ncclNetPlugin_v<version> of that file, nullptr when it has none.
void* file_symbol(int version);
/// The table of that file of version 9, 10 or 11, called as NCCL calls it; what callers see is a version 7 table.
const abi::NetTable_v7* file_table_over(int version);

/// Memory of either type with a copy of it for the host.
class TestMemory {
 public:
  TestMemory(MemoryType type, size_t bytes);
  std::byte* data() const { return buffer_.device(); }
  size_t size() const { return buffer_.size(); }
  MemoryType type() const { return type_; }
  void write(const std::vector<std::byte>& bytes, size_t offset = 0);
  std::vector<std::byte> read() const;

 private:
  MemoryType type_;
  MemoryBuffer buffer_;
  std::unique_ptr<CopyLane> lane_;
};

/// Copies each fragment of a finished receive from the bounce pool to its place: the slow, obvious way.
void gather(const abi::TcpxRequest& request, const abi::NetDeviceHandle& device_handle, std::byte* destination);

/// A sending comm and the receiving comm that it is connected to. Closes what is still open.
class TablePair {
 public:
  /// Over a listener of its own.
  explicit TablePair(const abi::NetTable_v7& table);
  /// Over another's listener.
  TablePair(const abi::NetTable_v7& table, void* listener, const Handle& handle);
  ~TablePair();
  TablePair(const TablePair&) = delete;
  TablePair& operator=(const TablePair&) = delete;

  const abi::NetTable_v7& table;
  Handle handle;
  void* listener = nullptr;
  void* sender = nullptr;
  void* receiver = nullptr;
  abi::NetDeviceHandle device_handle{};

  /// Registered until `deregister`, or until the comm is closed.
  void* register_with(void* comm, const TestMemory& memory);
  /// @return rc
  int deregister(void* comm, void* mhandle);
  void* post_send(const TestMemory& memory, void* mhandle, size_t bytes, size_t offset = 0, int tag = 0);
  void* post_recv(const TestMemory& memory, void* mhandle, size_t bytes, size_t offset = 0, int tag = 0);
  /// Tests until done; fails the test case when that never happens or rc is not 0. @return bytes reported.
  int finish(void* request);
  /// Tests until rc is not 0. @return that rc, 0 when it stays 0.
  int wait_for_error(void* request);
  void consume(void* request);
  void close_sender();
  void close_receiver();

 private:
  void deregister_all(void* comm);

  const bool owns_listener_;
  std::vector<std::pair<void*, void*>> registered_;  // comm and handle
};

struct MemoryOfBoth {
  MemoryOfBoth(MemoryType type, size_t bytes) : source(type, bytes), target(type, bytes) {}
  TestMemory source, target;
};

/// A pair with memory registered at both ends, which outlives the comms: requests may be outstanding to the end.
class TableLink : public MemoryOfBoth, public TablePair {
 public:
  template <class... Listener>
  TableLink(const abi::NetTable_v7& plugin, size_t bytes, MemoryType type = MemoryType::kCuda, const Listener&... over)
      : MemoryOfBoth(type, bytes),
        TablePair(plugin, over...),
        send_handle(register_with(sender, source)),
        recv_handle(register_with(receiver, target)) {}

  void* send(size_t bytes, size_t offset = 0, int tag = 0) { return post_send(source, send_handle, bytes, offset, tag); }
  void* recv(size_t bytes, size_t offset = 0, int tag = 0) { return post_recv(target, recv_handle, bytes, offset, tag); }
  /// @return rc of a post that must have no request
  int refused_send(size_t bytes);
  int refused_recv(size_t bytes);
  /// Waits for a receive, puts its bytes into the target at `offset` and consumes it. @return bytes reported.
  int take(void* request, size_t offset = 0);
  /// The target begins with the pattern `seed` at `offset`.
  bool has_arrived(size_t bytes, uint64_t seed, size_t offset = 0) const;

  void *send_handle, *recv_handle;
};

/// Accepts on `listener` until a peer connects.
void* accept_one(const abi::NetTable_v7& table, void* listener, abi::NetDeviceHandle** device_handle);

std::vector<std::byte> pattern_bytes(size_t bytes, uint64_t seed);

}  // namespace tcpx::testing
