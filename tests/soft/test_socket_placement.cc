// Sockets of a connection reach all I/O threads in each direction, in whatever order its comms are made among others.
#include "net/soft/socket_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

namespace tcpx::soft {
namespace {

struct Comm {
  size_t connection;
  SocketPlacement::Side side;
  size_t device;
};

/// Sockets on the busiest thread, for each connection and direction.
std::vector<size_t> busiest(const std::vector<Comm>& order, size_t connections, size_t devices, size_t sockets, size_t threads) {
  SocketPlacement placement;
  std::vector<std::vector<size_t>> used(connections * 2, std::vector<size_t>(threads));
  for (const Comm& comm : order) {
    const size_t first = placement.first_thread(comm.side, comm.device, devices, sockets);
    for (size_t i = 0; i < sockets; ++i) ++used[comm.connection * 2 + comm.side][(first + i) % threads];
  }
  std::vector<size_t> most;
  for (const auto& threads_used : used) most.push_back(*std::max_element(threads_used.begin(), threads_used.end()));
  return most;
}

TEST(SocketPlacement, ConnectionsMadeAtTheSameTimeHaveAllThreadsEach) {
  struct Shape {
    size_t devices, sockets, threads;
  };
  for (const Shape& shape : {Shape{4, 2, 8}, Shape{4, 2, 4}, Shape{2, 4, 8}, Shape{1, 8, 8}, Shape{8, 2, 8}}) {
    constexpr size_t kConnections = 5;
    std::vector<Comm> order;
    for (size_t connection = 0; connection < kConnections; ++connection) {
      for (size_t device = 0; device < shape.devices; ++device) {
        order.push_back({connection, SocketPlacement::kSends, device});
        order.push_back({connection, SocketPlacement::kReceives, device});
      }
    }
    std::mt19937_64 random(shape.devices);
    for (int times = 0; times < 50; ++times) {
      std::shuffle(order.begin(), order.end(), random);
      const size_t even = shape.devices * shape.sockets / shape.threads;
      for (const size_t most : busiest(order, kConnections, shape.devices, shape.sockets, shape.threads)) EXPECT_EQ(most, even);
    }
  }
}

TEST(SocketPlacement, ThreadsTakeTurnsWhereTheyAreMoreThanSockets) {
  SocketPlacement placement;
  std::array<size_t, 8> used{};
  for (size_t comm = 0; comm < 8; ++comm) ++used[placement.first_thread(SocketPlacement::kSends, 0, 1, 1) % used.size()];
  EXPECT_TRUE(std::all_of(used.begin(), used.end(), [](size_t count) { return count == 1; }));
}

}  // namespace
}  // namespace tcpx::soft
