// A plugin that ends the process, as the assertions of GPUDirect-TCPX do: the report, and exits that must not be mistaken for
// one. Every case forks and checks the child's standard error.
#include "net/plugin_exit.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/log.h"
#include "tests/support/vendor_fixture.h"

namespace tcpx {
namespace {

using std::chrono::seconds;
using ::testing::ExitedWithCode;
using testing::FakeControl;
using testing::FakeLibrary;
using testing::PluginDirectory;
using testing::VendorReceive;

class PluginExitDeathTest : public ::testing::Test {
 protected:
  /// Drives until the process ends, or long enough to be sure that it does not.
  [[noreturn]] static void drive(VendorReceive& receive) {
    const Deadline deadline = Deadline::after(seconds(30));
    while (!deadline.expired()) receive.connection().progress();
    ::_exit(99);
  }
  [[noreturn]] void receive_until(FakeControl::Exit exits) const {
    VendorReceive receive(plugin_, Clock::steady());
    receive.control().exits = exits;
    drive(receive);
  }
  abi::NetTable_v7& table(const FakeLibrary& library) const { return *library.symbol<abi::NetTable_v7>(abi::kNetPluginV7Symbol); }

  PluginDirectory directory_;  // the child ends without removing it
  const std::string plugin_ = directory_.fresh_plugin("vendor");
};

TEST_F(PluginExitDeathTest, Trap23_AnExitWithinACallIsToldWithTheFlightRecord) {
  EXPECT_EXIT(receive_until(FakeControl::Exit::kInTest), ExitedWithCode(1),
              "^tcpx: error: net plugin GPUDirectTCPX_v7 ends this process by exit, from within test\\(\\); last flight record: "
              "in flight: 1 recv chunks\n  chunk 0 of transfer 1: posted, 5000 bytes, [0-9]+ ms, tag 0\n$");
}

TEST_F(PluginExitDeathTest, Trap23_AnExitInAThreadOfThePluginIsToldWithTheFlightRecordOfAnother) {
  EXPECT_EXIT(receive_until(FakeControl::Exit::kInOwnThread), ExitedWithCode(1),
              "^tcpx: error: net plugin GPUDirectTCPX_v7 ends this process by exit, from within a thread of its own; last flight "
              "record: in flight: 1 recv chunks\n  chunk 0 of transfer 1: posted, 5000 bytes, [0-9]+ ms, tag 0\n$");
}

TEST_F(PluginExitDeathTest, Trap23_AnExitOfInitIsToldThoughNothingIsInFlight) {
  const auto load = [this] {
    const FakeLibrary library(plugin_);
    table(library).init = [](abi::NcclLogger) -> int { std::exit(1); };
    (void)PluginLoader::load({.path = plugin_});
    ::_exit(99);
  };
  EXPECT_EXIT(load(), ExitedWithCode(1), "from within init\\(\\); last flight record: nothing in flight\n$");
}

// A static Endpoint would wait here for its thread, which is the one that exits.
struct LoudObject {
  ~LoudObject() { (void)!::write(STDERR_FILENO, "destroyed\n", 10); }
};

TEST_F(PluginExitDeathTest, ItIsToldBeforeObjectsGoThatWereMadeBeforeTheFirstConnection) {
  const auto receive = [this] {
    (void)PluginLoader::load({.path = plugin_});
    static const LoudObject object;
    receive_until(FakeControl::Exit::kInTest);
  };
  EXPECT_EXIT(receive(), ExitedWithCode(1), "^tcpx: error: .*, tag 0\ndestroyed\n$");
}

TEST_F(PluginExitDeathTest, WhoSilencesTheLogHearsNothing) {
  const auto receive = [this] {
    set_log_level(LogLevel::kOff);
    receive_until(FakeControl::Exit::kInTest);
  };
  EXPECT_EXIT(receive(), ExitedWithCode(1), "^$");
}

TEST_F(PluginExitDeathTest, AnExitOfTheApplicationIsItsOwn) {
  const auto outside = [this] {
    VendorReceive receive(plugin_, Clock::steady());
    receive.connection().progress();
    std::exit(3);
  };
  EXPECT_EXIT(outside(), ExitedWithCode(3), "^$");
}

TEST_F(PluginExitDeathTest, AnExitInASignalHandlerIsTheApplicationsThoughThePluginWasCalled) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread checker objects to applications that do so";
#endif
  const auto by_signal = [this] {
    const FakeLibrary library(plugin_);
    table(library).test = [](void*, int*, int*) { return ::raise(SIGUSR1); };
    ::signal(SIGUSR1, [](int) { std::exit(4); });
    VendorReceive receive(plugin_, Clock::steady());
    drive(receive);
  };
  EXPECT_EXIT(by_signal(), ExitedWithCode(4), "^$");
}

}  // namespace
}  // namespace tcpx
