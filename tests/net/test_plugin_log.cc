// The logger that is given to a plugin.
#include "net/plugin_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "net/plugin_exit.h"
#include "net/plugin_status.h"
#include "tests/support/expect_log.h"

namespace tcpx {
namespace {

struct LogLines {
  static void sink(LogLevel level, std::string_view text, void* self) {
    static_cast<LogLines*>(self)->lines.emplace_back(level, std::string(text));
  }
  std::vector<std::pair<LogLevel, std::string>> lines;
};

TEST(PluginLog, Trap31_LoggerIsVariadicBoundedAndThreadSafe) {
  const abi::NcclLogger logger = plugin_logger();
  LogLines got;
  set_log_level(LogLevel::kDebug);
  set_log_sink(&LogLines::sink, &got);
  logger(abi::kNcclLogWarn, 0x10, "file.cc", 12, "%s has %d of %zu\n", "eth0", 3, size_t{9});
  logger(abi::kNcclLogInfo, ~0ul, nullptr, 0, "info");
  logger(abi::kNcclLogTrace, 0, "f", 0, "trace");
  logger(abi::kNcclLogVersion, 0, "f", 0, "version");
  logger(abi::kNcclLogAbort, 0, "f", 0, "abort");
  logger(abi::kNcclLogNone, 0, "f", 0, "nothing");
  logger(abi::kNcclLogWarn, 0, "f", 0, nullptr);
  logger(abi::kNcclLogWarn, 0, "f", 0, "%s", std::string(5000, 'x').c_str());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([logger, i] {
      for (int k = 0; k < 50; ++k) logger(abi::kNcclLogInfo, 0, "f", 0, "thread %d line %d", i, k);
    });
  }
  for (std::thread& thread : threads) thread.join();
  set_log_sink(nullptr, nullptr);

  ASSERT_EQ(got.lines.size(), 6u + 200u);
  EXPECT_EQ(got.lines[0], std::pair(LogLevel::kWarning, std::string("plugin: eth0 has 3 of 9")));
  EXPECT_EQ(got.lines[1], std::pair(LogLevel::kDebug, std::string("plugin: info")));
  EXPECT_EQ(got.lines[2], std::pair(LogLevel::kDebug, std::string("plugin: trace")));
  EXPECT_EQ(got.lines[3], std::pair(LogLevel::kInfo, std::string("plugin: version")));
  EXPECT_EQ(got.lines[4], std::pair(LogLevel::kError, std::string("plugin: abort")));
  EXPECT_EQ(got.lines[5].second, "plugin: " + std::string(1023, 'x'));
}

TEST(PluginLog, A6_AFloodOfOneWarningIsAFewLinesAndErrorsAreToldEachTime) {
  const abi::NcclLogger logger = plugin_logger();
  LogLines got;
  set_log_sink(&LogLines::sink, &got);
  const TimePoint start = Clock::steady().now();
  for (int i = 0; i < 20000; ++i) logger(abi::kNcclLogWarn, 0, "net.cc", 77, "receive on host memory");
  const auto lasted = std::chrono::duration_cast<std::chrono::seconds>(Clock::steady().now() - start).count();
  for (int i = 0; i < 3; ++i) logger(abi::kNcclLogAbort, 0, "net.cc", 78, "error %d", i);
  set_log_sink(nullptr, nullptr);
  EXPECT_EQ(std::count(got.lines.begin(), got.lines.end(),
                       std::pair(LogLevel::kWarning, std::string("plugin: receive on host memory"))),
            1);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(got.lines[got.lines.size() - 3 + static_cast<size_t>(i)].second, concat("plugin: error ", i));
  EXPECT_LE(got.lines.size(), 6u + static_cast<size_t>(lasted));
}

TEST(PluginLog, ACallHearsWhyItFailedAlsoWhenTheLogHasToldItAlready) {
  const abi::NcclLogger logger = plugin_logger();
  LogLines got;
  set_log_sink(&LogLines::sink, &got);
  const std::string plugin = "p";
  for (int i = 0; i < 3; ++i) {
    std::string words;
    const PluginCall call(plugin, "connect", &words);
    logger(abi::kNcclLogWarn, 0, "net.cc", 80, "Too many open files");
    EXPECT_EQ(words, "Too many open files") << i;
  }
  set_log_sink(nullptr, nullptr);
}

TEST(PluginStatus, ASystemErrorWhoseWordsTellOfAShortageIsOne) {
  testing::allow_log("answered ncclSystemError");
  const auto code = [](std::string_view words) { return plugin_failure("p", "connect", 2, LogLevel::kWarning, words).code(); };
  EXPECT_EQ(code("Net : Call to socket failed : Too many open files"), Code::kExhausted);
  EXPECT_EQ(code("Call to socket failed : Cannot allocate memory; and another line"), Code::kExhausted);
  EXPECT_EQ(code("tcpx-soft: TCPX_E_EXHAUSTED: listen: no port"), Code::kExhausted);
  EXPECT_EQ(code("Call to connect failed : Connection refused"), Code::kPeerGone);
  EXPECT_EQ(code(""), Code::kPeerGone);
  EXPECT_EQ(plugin_failure("p", "isend", 3, LogLevel::kDebug, "Too many open files").code(), Code::kPlugin);
}

TEST(PluginLogDeathTest, A6_TheLastCountIsToldWhenTheProcessEnds) {
  const auto flood = [] {
    const abi::NcclLogger logger = plugin_logger();
    set_log_sink(nullptr, nullptr);
    for (int i = 0; i < 100; ++i) logger(abi::kNcclLogWarn, 0, "net.cc", 79, "once more");
    std::exit(0);
  };
  EXPECT_EXIT(flood(), ::testing::ExitedWithCode(0),
              "^tcpx: warning: plugin: once more\ntcpx: warning: plugin: once more \\(99 times more in [0-9]+ ms\\)\n$");
}

}  // namespace
}  // namespace tcpx
