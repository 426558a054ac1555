// Descriptors: how many a connection takes, and what happens when there are fewer. A process of its own lacks them, so that the other
// end has all it wants.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "tests/support/endpoint_processes.h"
#include "tests/support/process_state.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;

// More than it takes to make a connection here.
constexpr int kPlenty = 40;
// Of them, so many are looked at together: each has a process of its own, and some wait for what does not come.
constexpr int kTogether = 8;
// Longer than the software plugin waits for descriptors to come back.
constexpr milliseconds kPatience(1500);
constexpr const char* kExhausted = "failed TCPX_E_EXHAUSTED: ";

enum class Transport { kTcp, kOneHost };

class EndpointDescriptors : public ::testing::TestWithParam<Transport> {
 protected:
  EndpointDescriptors() {
    allow_broken_connections();
    for (const char* line : {"a connection was not made", "bootstrap: dropped", "dropped during the handshake",
                             "TCPX_E_EXHAUSTED", "cannot take connections"})
      allow_log(line);
    if (GetParam() == Transport::kTcp) {
      ::setenv("UCCL_TCPX_LOCAL", "off", 1);
      // Through its table: the causes of its failures come a longer way than those of the one that is linked in.
      ::setenv("UCCL_TCPX_PLUGIN_PATH", TCPX_SOFT_PLUGIN, 1);
    }
    endpoint_ = make_endpoint();
  }
  ~EndpointDescriptors() override {
    ::unsetenv("UCCL_TCPX_LOCAL");
    ::unsetenv("UCCL_TCPX_PLUGIN_PATH");
  }

  /// Tries with 0, 1, 2, ... free descriptors, until a group of tries has all that it needs. Both directions are opened at once, so
  /// that the most which are open at one moment differs a little from time to time.
  /// @return the least from which on all have sufficed; kPlenty: none
  int least_that_suffices(const std::function<bool(int free)>& suffices) {
    int least = 0;
    for (int first = 0; first < kPlenty && first < least + kTogether; first += kTogether) {
      std::vector<std::future<bool>> tries;
      for (int i = 0; i < kTogether; ++i) tries.push_back(std::async(std::launch::async, suffices, first + i));
      for (int i = 0; i < kTogether; ++i) {
        if (!tries[static_cast<size_t>(i)].get()) least = first + i + 1;
      }
    }
    return least;
  }
  static size_t descriptors_of(PeerProcess& peer) { return std::strtoul(peer.ask("descriptors").c_str(), nullptr, 10); }
  /// Nothing of what has ended, well or badly, stays open.
  static void expect_no_more_than(size_t before, PeerProcess& peer, int free) {
    EXPECT_TRUE(wait_until([&] { return descriptors_of(peer) <= before; }))
        << "with " << free << " free: " << descriptors_of(peer) << " of " << before;
  }

  std::unique_ptr<Endpoint> endpoint_;
};

TEST_P(EndpointDescriptors, AConnectorWithoutThemSaysSoAndIsWelcomeWithThem) {
  ASSERT_TRUE(endpoint_->start_accepting().is_ok());
  const std::string connect = concat("connect ", port_of(*endpoint_));
  const int least = least_that_suffices([&](int free) {
    PeerProcess peer;
    const size_t before = descriptors_of(peer);
    EXPECT_EQ(peer.ask(connect), "ok");  // the first time may take more
    EXPECT_EQ(peer.ask("close"), "ok");
    expect_no_more_than(before, peer, free);
    EXPECT_EQ(peer.ask(concat("free ", free)), "ok");
    const std::string answer = peer.ask(connect);
    EXPECT_EQ(peer.ask("unlimited"), "ok");
    if (answer == "ok") return peer.ask("close") == "ok";
    EXPECT_TRUE(answer.starts_with(kExhausted)) << "with " << free << " free: " << answer;
    expect_no_more_than(before, peer, free);
    EXPECT_EQ(peer.ask(connect), "ok");
    return false;
  });
  EXPECT_LT(least, kPlenty);
}

TEST_P(EndpointDescriptors, AnAcceptorWithoutThemSaysSoAndItsPeerWaitsNoLongerThanAsked) {
  const int least = least_that_suffices([&](int free) {
    PeerProcess peer;
    const auto connect = [&](milliseconds timeout) { return endpoint_->connect("127.0.0.1", 0, peer.port(), timeout); };
    const auto leave = [&](const Result<ConnId>& conn) {
      EXPECT_TRUE(conn.is_ok()) << conn.status().to_string();
      if (conn.is_ok()) (void)endpoint_->remove_connection(*conn);
      EXPECT_EQ(peer.ask("close"), "ok");
    };
    const size_t before = descriptors_of(peer);
    peer.tell("accept");
    const auto first = connect(kCallTime);  // the first time may take more
    EXPECT_EQ(peer.answer(), "ok");
    leave(first);
    expect_no_more_than(before, peer, free);
    EXPECT_EQ(peer.ask(concat("free ", free)), "ok");
    peer.tell(concat("accept ", kPatience.count()));
    const auto conn = connect(kPatience);
    const std::string answer = peer.answer();
    EXPECT_EQ(peer.ask("unlimited"), "ok");
    if (answer == "ok") {
      leave(conn);
      return true;
    }
    EXPECT_TRUE(answer.starts_with(kExhausted)) << "with " << free << " free: " << answer;
    const Code code = conn.status().code();
    EXPECT_TRUE(code == Code::kExhausted || code == Code::kTimeout) << "with " << free << " free: " << conn.status().to_string();
    expect_no_more_than(before, peer, free);
    peer.tell("accept");
    const auto last = connect(kCallTime);
    EXPECT_EQ(peer.answer(), "ok");
    leave(last);
    return false;
  });
  EXPECT_LT(least, kPlenty);
}

// docs/endpoint.md tells these numbers.
TEST_P(EndpointDescriptors, AConnectionTakesDescriptorsForItsSocketsAndFewElse) {
  ::setenv("NCCL_NSOCKS_PERTHREAD", "4", 1);
  ::setenv("UCCL_TCPX_NUM_CHANNELS", "1", 1);
  PeerProcess acceptor, connector;
  ::unsetenv("NCCL_NSOCKS_PERTHREAD");
  ::unsetenv("UCCL_TCPX_NUM_CHANNELS");
  const size_t of_pipelines = 2 * (4 + 1);  // each way four data sockets and the plugin's control socket
  const size_t most = of_pipelines + (GetParam() == Transport::kOneHost ? 3 : 1);
  EXPECT_EQ(acceptor.ask("passive"), "ok");
  const std::string connect = concat("connect ", acceptor.port());
  EXPECT_EQ(connector.ask(connect), "ok");  // makes what connections share, which ends with the last of them
  const size_t before = descriptors_of(connector), there = descriptors_of(acceptor);
  EXPECT_EQ(connector.ask(connect), "ok");
  EXPECT_TRUE(wait_until([&] { return descriptors_of(connector) <= before + most; })) << descriptors_of(connector) - before;
  EXPECT_TRUE(wait_until([&] { return descriptors_of(acceptor) <= there + most; })) << descriptors_of(acceptor) - there;
}

INSTANTIATE_TEST_SUITE_P(Ways, EndpointDescriptors, ::testing::Values(Transport::kTcp, Transport::kOneHost),
                         [](const auto& way) { return way.param == Transport::kTcp ? "Tcp" : "OneHost"; });

}  // namespace
}  // namespace tcpx::testing
