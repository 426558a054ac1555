// Drives a version 7 table directly, as a consumer of the ABI does: no adapter in between.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_ops.h"
#include "net/abi/nccl_net_v7.h"
#include "net/abi/tcpx_request.h"
#include "tcpx/types.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

/// The memory of this machine: a GPU's where there is one, else host memory standing in.
MemoryOps& machine_memory();

/// The table linked into this program.
const abi::NetTable_v7* linked_table();
/// The table of the software plugin opened as a file (path given at build time).
const abi::NetTable_v7* file_table();

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

/// A listener, one sending comm and the receiving comm it is connected to. Closes what is still open.
class TablePair {
 public:
  explicit TablePair(const abi::NetTable_v7& table);
  ~TablePair();
  TablePair(const TablePair&) = delete;
  TablePair& operator=(const TablePair&) = delete;

  const abi::NetTable_v7& table;
  Handle handle;
  void* listener = nullptr;
  void* sender = nullptr;
  void* receiver = nullptr;
  abi::NetDeviceHandle device_handle{};

  void* register_with(void* comm, const TestMemory& memory);
  void* post_send(const TestMemory& memory, void* mhandle, size_t bytes, size_t offset = 0, int tag = 0);
  void* post_recv(const TestMemory& memory, void* mhandle, size_t bytes, size_t offset = 0, int tag = 0);
  /// Tests until done; fails the test case when that never happens or rc is not 0. @return bytes reported.
  int finish(void* request);
  /// Tests until rc is not 0. @return that rc, 0 when it stays 0.
  int wait_for_error(void* request);
  void consume(void* request);
  void close_sender();
  void close_receiver();
};

/// Accepts on `listener` until a peer connects.
void* accept_one(const abi::NetTable_v7& table, void* listener, abi::NetDeviceHandle** device_handle);

std::vector<std::byte> pattern_bytes(size_t bytes, uint64_t seed);

}  // namespace tcpx::testing
