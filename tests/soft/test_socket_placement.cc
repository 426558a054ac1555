// Sockets of a connection reach all I/O threads in each direction, whatever other connections are made at the same time.
#include "net/soft/socket_placement.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tcpx::soft {
namespace {

constexpr size_t kThreads = 8;

/// Sockets that each I/O thread has got.
using Used = std::vector<size_t>;

void make_comm(CommSide side, size_t sockets, Used& used) {
  const SocketPlacement placement = place_sockets(side, sockets);
  for (size_t i = 0; i < sockets; ++i) ++used[placement.thread_of(i) % used.size()];
}

TEST(SocketPlacement, EachConnectionHasAllThreads) {
  std::vector<Used> used(20, Used(kThreads));
  std::vector<std::thread> connecting;
  for (size_t connection = 0; connection < used.size() / 2; ++connection) {
    connecting.emplace_back([&, connection] {
      for (int channel = 0; channel < 4; ++channel) {
        make_comm(CommSide::kSends, 2, used[2 * connection]);
        make_comm(CommSide::kReceives, 2, used[2 * connection + 1]);
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : connecting) thread.join();
  for (const Used& of_one : used) EXPECT_EQ(of_one, Used(kThreads, 1));
}

TEST(SocketPlacement, ConnectionsOfFewSocketsTakeTurns) {
  Used used(kThreads);
  for (int connection = 0; connection < 4; ++connection) {
    std::thread([&] { make_comm(CommSide::kSends, 2, used); }).join();
  }
  EXPECT_EQ(used, Used(kThreads, 1)) << "each from a thread of its own";
  for (int comm = 0; comm < 4; ++comm) make_comm(CommSide::kSends, 2, used);
  EXPECT_EQ(used, Used(kThreads, 2)) << "all from one thread, as NCCL makes them";
}

TEST(SocketPlacement, FirstSocketsOfManyConnectionsHaveAllThreads) {
  Used used(kThreads);
  for (size_t comm = 0; comm < kThreads; ++comm) ++used[place_sockets(CommSide::kSends, kThreads).thread_of(0) % kThreads];
  EXPECT_EQ(used, Used(kThreads, 1)) << "all from one thread";
  used = Used(kThreads);
  for (size_t comm = 0; comm < kThreads; ++comm) {
    std::thread([&] { ++used[place_sockets(CommSide::kSends, kThreads).thread_of(0) % kThreads]; }).join();
  }
  EXPECT_EQ(used, Used(kThreads, 1)) << "each from a thread of its own";
}

}  // namespace
}  // namespace tcpx::soft
