// For the cases of the raw version 7 table: the one that is linked in, that of the library opened as a file, or one over a
// newer table of that file.
#pragma once

#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/log.h"
#include "tests/support/expect_log.h"
#include "tests/support/table_harness.h"
#include "tests/support/units.h"

namespace tcpx::testing {


// Small enough for a test to exhaust it.
inline const int kPoolSizeIsSet = ::setenv("UCCL_TCPX_SOFT_POOL_BYTES", "16777216", 1);

/// Puts the warnings of the library that is opened as a file into the log of the test case.
inline void log_of_file(int level, unsigned long, const char*, int, const char* format, ...) {
  if (level != abi::kNcclLogWarn) return;
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  log(LogLevel::kWarning, line);
}

inline std::string name_of_table(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

class SoftConformanceFixture : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ASSERT_EQ(kPoolSizeIsSet, 0);
    const std::string which = GetParam();
    table_ = which == "linked" ? linked_table() : which == "file" ? file_table() : file_table_over(std::stoi(which.substr(1)));
    ASSERT_NE(table_, nullptr);
    ASSERT_EQ(table_->init(&log_of_file), abi::kNcclSuccess);
    allow_log("tcpx-soft");  // many of these tests provoke refusals
  }

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
    EXPECT_EQ(pair.deregister(pair.sender, send_handle), abi::kNcclSuccess);
    EXPECT_EQ(pair.deregister(pair.receiver, recv_handle), abi::kNcclSuccess);
  }

  const abi::NetTable_v7* table_ = nullptr;
};

}  // namespace tcpx::testing
