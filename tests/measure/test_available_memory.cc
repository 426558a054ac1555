// What bench_soft_plugin takes for the memory that is free.
#include "measure/available_memory.h"

#include <gtest/gtest.h>

#include <string>

namespace tcpx::bench {
namespace {

TEST(AvailableMemory, IsTheKernelsEstimate) {
  const std::string text = "MemTotal:       24684084 kB\nMemFree:        1000 kB\nMemAvailable:   23085852 kB\nBuffers: 5 kB\n";
  EXPECT_EQ(available_memory_in(text).value(), uint64_t{23085852} * 1024);
  EXPECT_EQ(available_memory_in("MemAvailable: 0 kB").value(), 0u);
}

TEST(AvailableMemory, IsNotGuessed) {
  for (const char* text : {"", "MemFree: 5 kB\n", "MemAvailable:\n", "MemAvailable: x kB\n", "MemAvailable: 5\n5 kB\n",
                           "MemAvailable: -1 kB\n", "MemAvailable: 18446744073709551615 kB\n"}) {
    EXPECT_EQ(available_memory_in(text).status().code(), Code::kProtocol) << text;
  }
}

TEST(AvailableMemory, OfThisMachineIsThere) {
  const Result<uint64_t> bytes = available_memory();
  ASSERT_TRUE(bytes.is_ok()) << bytes.status().to_string();
  EXPECT_GT(*bytes, 1u << 20);
}

}  // namespace
}  // namespace tcpx::bench
