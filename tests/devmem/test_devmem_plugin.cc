// libnccl-net-tcpx-devmem.so: the software plugin, which asks for device-memory TCP by itself.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>

#include "net/abi/nccl_net_v7.h"

namespace tcpx::testing {
namespace {

void log_to_stderr(int, unsigned long, const char*, int, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
}

// In a new process, as a plugin starts once. Encryption is what it cannot have.
int init_with(const char* network) {
  ::setenv("UCCL_TCPX_SECURITY", "encrypt", 1);
  ::setenv("UCCL_TCPX_SECRET_FILE", TCPX_SECRET_FILE, 1);
  if (network != nullptr) ::setenv("UCCL_TCPX_NETWORK", network, 1);
  void* const library = ::dlopen(TCPX_DEVMEM_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  const auto* table = library != nullptr ? static_cast<abi::NetTable_v7*>(::dlsym(library, "ncclNetPlugin_v7")) : nullptr;
  return table != nullptr ? table->init(log_to_stderr) : 255;
}

TEST(DevmemPlugin, AsksForDeviceMemoryUnlessTheUserAsksForSomethingElse) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(::_exit(init_with(nullptr)), ::testing::ExitedWithCode(abi::kNcclInternalError),
              "UCCL_TCPX_NETWORK=devmem needs IPsec");
  EXPECT_EXIT(::_exit(init_with("soft")), ::testing::ExitedWithCode(abi::kNcclSuccess), "");
}

}  // namespace
}  // namespace tcpx::testing
