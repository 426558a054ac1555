// Pairs of endpoints in one process, made of parts that a test chooses: plugin, memory, driver, number of channels. One set of
// test bodies runs over all of them. All traffic stays on loopback.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/pattern_word.h"
#include "endpoint/endpoint_parts.h"
#include "tcpx/endpoint.h"
#include "tests/support/threads.h"

namespace tcpx::testing {

enum class PluginKind { kLinked, kLibrary, kFake, kFaulty };
/// kThreads: the endpoints' own threads. kOutside: threads of the test, which call `progress`.
enum class Driver { kThreads, kOutside };

struct EndpointSetup {
  PluginKind plugin = PluginKind::kLinked;
  MemoryType memory = MemoryType::kHost;
  Driver driver = Driver::kThreads;
  uint32_t channels = 1;
  bool same_host = false;  ///< both ends share memory, and the receiver copies by itself; else all goes over the network
  bool checksums = false;
  bool hidden = false;     ///< of one host: neither end can read the other's memory, and bytes go through shared memory
};
/// Letters and digits, for the names of cases.
std::string name_of(const EndpointSetup& setup);
/// All setups that a suite of bodies runs over. Under a checker, which slows everything down: fewer.
std::vector<EndpointSetup> all_setups();
/// Those with a plugin that is linked in, for bodies that do not depend on one.
std::vector<EndpointSetup> few_setups();
/// The same, of endpoints that share memory.
std::vector<EndpointSetup> on_one_host(std::vector<EndpointSetup> setups);

/// Bytes between two guard zones.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t bytes);
  std::byte* data() { return bytes_.data() + kGuard; }
  size_t size() const { return bytes_.size() - 2 * kGuard; }
  std::span<std::byte> span() { return {data(), size()}; }
  /// No byte has been written since `clear`.
  bool is_clear() const;
  /// Overwrites all bytes, so that unwritten ones show.
  void clear();
  bool guards_intact() const;

 private:
  static constexpr size_t kGuard = 4096;
  std::vector<std::byte> bytes_;
};

/// One endpoint and its parts.
struct Side {
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<Repeating> driver;  ///< calls `progress`
  ConnId conn{};

  Endpoint* operator->() const { return endpoint.get(); }
  void drive() {
    driver = std::make_unique<Repeating>(1, [this_one = endpoint.get()] { (void)this_one->progress(); });
  }
  void reset() {
    driver.reset();
    endpoint.reset();
  }
};

class EndpointTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kInline = 4096;  ///< longest inline message, unless a test says otherwise

  /// Skips when this machine does not support the setup.
  void set_up(const EndpointSetup& setup);
  /// An endpoint with the setup's parts. Fields for addresses and driver are filled in.
  Side make(EndpointConfig config = {});
  /// Makes two connected ones: `a_` and `b_`.
  void make_pair(const EndpointConfig& a = {}, const EndpointConfig& b = {});
  /// Connects `from` with `to`; the ids are written to `conn`.
  void connect(Side& from, Side& to);
  MemoryId reg(const Side& side, std::span<const std::byte> memory);
  LocalRange range(const Side& side, std::span<std::byte> memory);

  /// True when it ends with success within the time of a test.
  static ::testing::AssertionResult done(const Side& side, const Result<OperationId>& id);
  /// True when it ends with this code.
  static ::testing::AssertionResult fails(const Side& side, const Result<OperationId>& id, Code code);

  /// `to` has heard all that `from` has said on that connection so far.
  static bool has_heard(const Side& to, const Side& from, ConnId conn_of_from);

  EndpointSetup setup_;
  std::shared_ptr<NetPlugin> plugin_;  // of all endpoints of the test
  std::shared_ptr<MemoryOps> memory_;  // the same; null: the machine's
  Side a_, b_;
};

/// The same for suites with parameters.
class EndpointSetupTest : public EndpointTest, public ::testing::WithParamInterface<EndpointSetup> {
 protected:
  void SetUp() override { set_up(GetParam()); }
};

/// The same with a pair in every case, which `prepare` makes.
class EndpointPairTest : public EndpointSetupTest {
 protected:
  void SetUp() override {
    EndpointSetupTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) prepare();
  }
  virtual void prepare() { make_pair(); }
};

}  // namespace tcpx::testing

#define TCPX_OVER_SETUPS(Suite, setups)                              \
  INSTANTIATE_TEST_SUITE_P(Over, Suite, ::testing::ValuesIn(setups), \
                           [](const auto& setup) { return ::tcpx::testing::name_of(setup.param); })
