// Many threads on one endpoint, and many peers at once.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/process_state.h"
#include "tests/support/threads.h"

namespace tcpx::testing {
namespace {

constexpr int kThreads = 8;
constexpr int kRounds = kIsChecked ? 60 : 200;

/// @param: cores that the endpoints count on; from four on, threads poll before they sleep
class EndpointThreads : public ::testing::TestWithParam<uint32_t> {
 protected:
  static std::unique_ptr<Endpoint> make_endpoint() {
    EndpointConfig config = loopback_config();
    config.num_cpus = GetParam();
    return testing::make_endpoint(config);
  }
};

INSTANTIATE_TEST_SUITE_P(, EndpointThreads, ::testing::Values(2u, 8u),
                         [](const auto& cores) { return concat("On", cores.param, "Cores"); });

// Each thread has a connection of its own and shares one with all others, on which messages of one length may meet any receive.
TEST_P(EndpointThreads, AllCallsFromAllThreads) {
  allow_broken_connections();
  const auto a = make_endpoint(), b = make_endpoint();
  const auto [shared_a, shared_b] = connect_pair(*a, *b);
  std::vector<std::pair<ConnId, ConnId>> own;
  for (int i = 0; i < kThreads; ++i) own.push_back(connect_pair(*a, *b));
  constexpr size_t kSizes[] = {0, 8, 4096, 40000, 300000};

  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i, shared_a = shared_a, shared_b = shared_b] {
      Memory source(*a, 300000), target(*b, 300000), shared_in(*b, 512);
      const auto [at_a, at_b] = own[static_cast<size_t>(i)];
      for (int round = 0; round < kRounds; ++round) {
        const size_t bytes = kSizes[(i + round) % 5];
        source.fill(static_cast<uint64_t>(i * 1000 + round));
        const LocalRange out = source.range(0, bytes), in = target.range(0, bytes);
        const OperationId received = b->recv_async(at_b, {&in, 1}).value();
        EXPECT_TRUE(a->send(at_a, {&out, 1}).is_ok());
        EXPECT_TRUE(wait_until([&] { return b->poll(received).state == OperationState::kDone; }));
        EXPECT_EQ(std::memcmp(source.bytes().data(), target.bytes().data(), bytes), 0);

        const LocalRange short_out = source.range(0, 512), short_in = shared_in.whole();
        const OperationId shared = b->recv_async(shared_b, {&short_in, 1}).value();
        EXPECT_TRUE(a->send(shared_a, {&short_out, 1}).is_ok());
        EXPECT_TRUE(b->wait(shared, kCallTime).is_ok());

        // One that nobody meets: its end races with the cancel of another thread.
        const OperationId lonely = a->recv_async(at_a, {&short_out, 1}).value();
        std::thread canceller([&] { (void)a->cancel(lonely); });
        EXPECT_TRUE(a->cancel(lonely).is_ok());
        EXPECT_EQ(a->wait(lonely, kCallTime).code(), Code::kCancelled);
        canceller.join();
        EXPECT_EQ(a->poll(lonely).state, OperationState::kUnknown);
      }
    });
  }
  Repeating watching(1, [&] {
    EXPECT_GE(a->stats().connections.size(), static_cast<size_t>(kThreads) + 1);
    EXPECT_FALSE(b->flight_record().empty());
    (void)b->get_notifs();
  });
  for (int i = 0; i < kRounds / 4; ++i) {
    const auto [at_a, at_b] = connect_pair(*a, *b);
    EXPECT_TRUE(moves(*b, at_b, *a, at_a, 1000));
    EXPECT_TRUE(a->remove_connection(at_a).is_ok());
    EXPECT_TRUE(b->remove_connection(at_b).is_ok());
  }
  for (std::thread& thread : threads) thread.join();
  watching.stop();
  EXPECT_EQ(a->stats().operations_outstanding, 0u);
  EXPECT_EQ(b->stats().operations_outstanding, 0u);
}

// A submit while another thread removes the connection gets an end or the error that there is no such connection.
TEST_P(EndpointThreads, SubmitsRaceWithTheEndOfTheirConnection) {
  allow_broken_connections();
  const auto a = make_endpoint(), b = make_endpoint();
  Memory memory(*a, 100000);
  for (int round = 0; round < kRounds / 4; ++round) {
    const auto [at_a, at_b] = connect_pair(*a, *b);
    std::atomic<int> started{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i, conn = at_a] {
        const LocalRange range = memory.range(0, i % 2 == 0 ? 64 : 100000);
        for (;;) {
          const auto id = i < 2 ? a->send_async(conn, {&range, 1}) : a->recv_async(conn, {&range, 1});
          if (!id.is_ok()) {
            EXPECT_TRUE(id.status().code() == Code::kNotFound || id.status().code() == Code::kExhausted)
                << id.status().to_string();
            break;
          }
          ++started;
          if (i < 2 || started % 4 == 0) {
            (void)a->cancel(*id);
          }
          const Status status = a->wait(*id, kCallTime);
          EXPECT_TRUE(status.is_ok() || status.code() == Code::kCancelled || status.code() == Code::kPeerGone)
              << status.to_string();
        }
      });
    }
    EXPECT_TRUE(wait_until([&] { return started > 20; }));
    EXPECT_TRUE(a->remove_connection(at_a).is_ok());
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(b->remove_connection(at_b).is_ok());
  }
  EXPECT_EQ(a->stats().operations_outstanding, 0u);
}

// More bytes under way over the network than the progress thread polls for: short operations beside them, and the end of each, are seen.
TEST_P(EndpointThreads, AStreamAndShortOnesBesideIt) {
  constexpr size_t kLong = size_t{16} << 20;
  constexpr int kAhead = 6, kLongOnes = kIsChecked ? 12 : 48;
  ::setenv("UCCL_TCPX_LOCAL", "off", 1);
  const auto a = make_endpoint(), b = make_endpoint();
  const auto [at_a, at_b] = connect_pair(*a, *b);
  ::unsetenv("UCCL_TCPX_LOCAL");
  Memory source(*a, kLong), target(*b, kAhead * kLong);
  source.fill(1);
  const LocalRange out = source.whole();
  std::vector<OperationId> sends, receives;
  const auto begin_one = [&, at_a = at_a, at_b = at_b](int i) {
    const LocalRange in = target.range(static_cast<size_t>(i % kAhead) * kLong, kLong);
    receives.push_back(b->recv_async(at_b, {&in, 1}).value());
    sends.push_back(a->send_async(at_a, {&out, 1}).value());
  };
  for (int i = 0; i < kAhead; ++i) begin_one(i);
  Repeating short_ones(1, [&, at_a = at_a] {
    EXPECT_TRUE(a->notify(at_a, {.name = "n", .msg = "beside"}).is_ok());
    EXPECT_TRUE(wait_until([&] { return !b->get_notifs().empty(); }));
  });
  for (int i = 0; i < kLongOnes; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_TRUE(a->wait(sends[at], kCallTime).is_ok());
    ASSERT_TRUE(b->wait(receives[at], kCallTime).is_ok());
    std::byte* const arrived = target.bytes().data() + static_cast<size_t>(i % kAhead) * kLong;
    EXPECT_EQ(std::memcmp(arrived, source.bytes().data(), kLong), 0) << i;
    std::memset(arrived, 0, kLong);
    if (i + kAhead < kLongOnes) begin_one(i + kAhead);
  }
  short_ones.stop();
}

// Sixteen threads that do nothing but call, and an operation whose deadline the progress thread has to look at.
TEST_P(EndpointThreads, B5_SubmittersDoNotKeepProgressOut) {
  const auto a = make_endpoint(), b = make_endpoint();
  const ConnId conn = connect_pair(*a, *b).first;
  Memory memory(*a, 4096);
  const LocalRange range = memory.whole();
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"notify", [&] { (void)a->notify(conn, {.name = "n", .msg = "12345678"}); }},
      {"stats", [&] { (void)a->stats(); }},
      {"flight_record", [&] { (void)a->flight_record(); }},
      {"progress", [&] { (void)a->progress(); }},
      {"advertise", [&] { (void)a->advertise(conn, range); }},
      {"cancel", [&] { (void)a->cancel(OperationId{1}); }},
      {"recv_async", [&] {
         const auto id = a->recv_async(conn, {&range, 1});
         if (id.is_ok()) (void)a->cancel(*id);
         if (id.is_ok()) (void)a->wait(*id, kCallTime);
       }}};
  Repeating taking(1, [&] {
    (void)b->get_notifs();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  for (const auto& [name, call] : calls) {
    std::atomic<int> called{0};
    Repeating calling(16, [&, &call = call] {
      for (int i = 0; i < 10; ++i, ++called) call();
    });
    EXPECT_TRUE(wait_until([&] { return called > 100; })) << name;
    // It meets nobody, so its deadline ends it.
    const auto id = a->recv_async(conn, {&range, 1}, {.timeout = std::chrono::milliseconds(300)});
    ASSERT_TRUE(id.is_ok()) << name;
    const TimePoint begin = Clock::steady().now();
    const Status status = a->wait(*id, std::chrono::seconds(10));
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::steady().now() - begin);
    calling.stop();
    std::printf("%s: a deadline of 300 ms was kept after %d ms\n", name, static_cast<int>(took.count()));
    EXPECT_EQ(status.code(), Code::kTimeout) << name;
    EXPECT_NE(status.operation(), "wait") << name << ": still pending";
    EXPECT_LT(took, std::chrono::seconds(5)) << name;
    (void)a->cancel(*id);
    (void)a->wait(*id, kCallTime);
  }
}

TEST_P(EndpointThreads, ManyPeersAtOnce) {
  constexpr size_t kPeers = kIsChecked ? 16 : 64;
  constexpr size_t kBytes = 256 * 1024;
  const auto hub = make_endpoint();
  std::vector<std::unique_ptr<Endpoint>> peers;
  std::vector<std::pair<ConnId, ConnId>> conns;
  std::vector<std::unique_ptr<Memory>> out, in;
  for (size_t i = 0; i < kPeers; ++i) {
    peers.push_back(testing::make_endpoint());
    conns.push_back(connect_pair(*hub, *peers.back()));
    out.push_back(std::make_unique<Memory>(*hub, kBytes));
    in.push_back(std::make_unique<Memory>(*peers.back(), kBytes));
    out.back()->fill(i);
  }
  for (const size_t bytes : {size_t{256}, kBytes}) {
    std::vector<OperationId> sends, receives, writes;
    for (size_t i = 0; i < kPeers; ++i) {
      const LocalRange source = out[i]->range(0, bytes), target = in[i]->range(0, bytes);
      receives.push_back(peers[i]->recv_async(conns[i].second, {&target, 1}).value());
      sends.push_back(hub->send_async(conns[i].first, {&source, 1}).value());
    }
    for (size_t i = 0; i < kPeers; ++i) {
      EXPECT_TRUE(hub->wait(sends[i], kCallTime).is_ok());
      EXPECT_TRUE(peers[i]->wait(receives[i], kCallTime).is_ok());
      EXPECT_EQ(std::memcmp(out[i]->bytes().data(), in[i]->bytes().data(), bytes), 0) << i;
    }
    // And back, into where it came from.
    for (size_t i = 0; i < kPeers; ++i) {
      in[i]->fill(1000 + i);
      const RemoteRange remote{hub->advertise(conns[i].first, out[i]->range(0, bytes)).value(), 0};
      const LocalRange source = in[i]->range(0, bytes);
      writes.push_back(peers[i]->write_async(conns[i].second, {&source, 1}, {&remote, 1}).value());
    }
    for (size_t i = 0; i < kPeers; ++i) {
      const Status status = peers[i]->wait(writes[i], kCallTime);
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      EXPECT_EQ(std::memcmp(out[i]->bytes().data(), in[i]->bytes().data(), bytes), 0) << i;
      out[i]->fill(i);
    }
  }
  EXPECT_EQ(hub->stats().connections.size(), kPeers);
  out.clear();
  in.clear();
}

}  // namespace
}  // namespace tcpx::testing
