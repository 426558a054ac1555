// The other end of a connection as a process of its own, to be killed at a chosen step.
//
//   soft_peer recv STEP     prints its handle, then works as receiver
//   soft_peer send STEP     reads a handle from stdin, then works as sender
//
// It prints one word per step it has reached and dies of SIGKILL after the word STEP. "stream" is never a last word: the parent
// kills it while messages flow.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/memory_ops.h"
#include "net/soft/soft_table.h"
#include "tests/support/handle_text.h"

namespace {

using tcpx::abi::NetDeviceHandle;

std::string last_step;

void reached(const char* step) {
  std::printf("%s\n", step);
  std::fflush(stdout);
  if (last_step == step) ::kill(::getpid(), SIGKILL);
}

void check(int rc, const char* call) {
  if (rc == 0) return;
  std::fprintf(stderr, "soft_peer: %s: rc %d\n", call, rc);
  std::exit(1);
}

constexpr int kBytes = 1 << 20;
tcpx::MemoryBuffer& buffer = *new tcpx::MemoryBuffer;  // device memory, as this machine has it; never freed

int run_receiver(const tcpx::abi::NetTable_v7& table) {
  tcpx::Handle handle;
  void *listener = nullptr, *comm = nullptr, *mhandle = nullptr, *request = nullptr, *data = buffer.device();
  check(table.listen(0, handle.bytes.data(), &listener), "listen");
  std::printf("%s\n", tcpx::testing::to_hex(handle).c_str());
  reached("listen");
  NetDeviceHandle device_handle, *out = &device_handle;
  while (comm == nullptr) check(table.accept(listener, &comm, &out), "accept");
  reached("accept");
  check(table.reg_mr(comm, buffer.device(), kBytes, tcpx::abi::kNcclPtrCuda, &mhandle), "regMr");
  for (int i = 0;; ++i) {
    int size = kBytes, tag = 0, done = 0;
    check(table.irecv(comm, 1, &data, &size, &tag, &mhandle, &request), "irecv");
    reached("irecv");
    while (done == 0) check(table.test(request, &done, nullptr), "test");
    reached("done");
    check(table.irecv_consumed(comm, 1, request), "consumed");
    if (i == 3) reached("stream");
  }
}

int run_sender(const tcpx::abi::NetTable_v7& table) {
  char line[2 * tcpx::kHandleBytes + 1] = {};
  if (std::fgets(line, sizeof line, stdin) == nullptr) return 1;
  auto handle = tcpx::testing::handle_from_hex(line);
  if (!handle) return 1;
  reached("start");
  void *comm = nullptr, *mhandle = nullptr, *request = nullptr;
  check(table.connect(0, handle->bytes.data(), &comm, nullptr), "connect");
  reached("connect");
  check(table.reg_mr(comm, buffer.device(), kBytes, tcpx::abi::kNcclPtrCuda, &mhandle), "regMr");
  for (int i = 0;; ++i) {
    int done = 0;
    check(table.isend(comm, buffer.device(), kBytes, 0, mhandle, &request), "isend");
    reached("isend");
    while (done == 0) check(table.test(request, &done, nullptr), "test");
    reached("sent");
    if (i == 3) reached("stream");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  last_step = argv[2];
  ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "=lo", 1);
  ::alarm(60);  // never outlives a parent that died
  const tcpx::abi::NetTable_v7& table = tcpx::soft::net_table();
  check(table.init(nullptr), "init");
  tcpx::MemoryOps* const memory = tcpx::make_machine_memory_ops().release();
  auto allocated = memory->allocate_device(0, kBytes);
  if (!allocated.is_ok()) return 1;
  buffer = std::move(*allocated);
  return std::strcmp(argv[1], "recv") == 0 ? run_receiver(table) : run_sender(table);
}
