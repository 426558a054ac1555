// Latency of a message from one endpoint to another: half the round-trip time, by size, with every byte compared.
//
//   pingpong                        both ends in this process
//   pingpong --server               on one machine; it prints what to start on the other:
//   pingpong --connect HOST:PORT
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tcpx/endpoint.h"
#include "tcpx/help.h"

namespace {

using tcpx::ConnId, tcpx::Endpoint, tcpx::LocalRange, tcpx::MemoryId, tcpx::Result, tcpx::Status;
using Clock = std::chrono::steady_clock;

constexpr size_t kLongest = size_t{1} << 20;
constexpr char kUsage[] = "usage: pingpong [--server | --connect HOST:PORT]\nWithout options both ends run in this process.\n";

void interrupted(int signal) {
  constexpr char kText[] = "interrupted\n";
  (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
  ::_exit(128 + signal);
}

size_t rounds_of(size_t bytes) {
  return bytes <= 65536 ? 200 : 50;
}

void must(const Status& status) {
  if (status.is_ok()) return;
  std::fprintf(stderr, "FAILED: %s\n%s\n", status.to_string().c_str(), tcpx::help_lines(status).c_str());
  std::quick_exit(1);
}

template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(*result);
}

/// @return number of bytes that came back different
size_t measure(const std::string& host, int port) {
  std::vector<unsigned char> sent(kLongest), received(kLongest);
  const auto endpoint = must(Endpoint::create());  // destroyed before the memory that is registered with it
  const ConnId conn = must(endpoint->connect(host, 0, port));
  const MemoryId from = must(endpoint->register_memory(sent.data(), sent.size()));
  const MemoryId to = must(endpoint->register_memory(received.data(), received.size()));
  std::printf("path: %s\n%12s %8s %22s %8s\n", endpoint->stats().connections.front().path.c_str(), "bytes", "rounds",
              "half round trip (us)", "wrong");
  size_t wrong_in_all = 0;
  for (size_t bytes = 8; bytes <= kLongest; bytes *= 2) {
    const LocalRange out{from, sent.data(), bytes}, in{to, received.data(), bytes};
    std::vector<double> times;
    size_t wrong = 0;
    for (size_t round = 0; round < rounds_of(bytes); ++round) {
      for (size_t i = 0; i < bytes; ++i) sent[i] = static_cast<unsigned char>((i + round * 7919) * 2654435761u >> 11);
      const auto start = Clock::now();
      const auto answer = must(endpoint->recv_async(conn, {&in, 1}));
      must(endpoint->send(conn, {&out, 1}));
      must(endpoint->wait(answer));
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / 2);
      for (size_t i = 0; i < bytes; ++i) wrong += sent[i] != received[i];
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    std::printf("%12zu %8zu %22.1f %8zu\n", bytes, times.size(), times[times.size() / 2], wrong);
    wrong_in_all += wrong;
  }
  const LocalRange last{from, sent.data(), 1};
  must(endpoint->send(conn, {&last, 1}));
  return wrong_in_all;
}

/// @return as `measure` when `alone`, that is, without another process
size_t serve(bool alone) {
  std::vector<unsigned char> buffer(kLongest);
  const auto endpoint = must(Endpoint::create({.listen_address = alone ? "127.0.0.1" : ""}));
  const auto here = must(Endpoint::read_metadata(endpoint->get_metadata()));
  std::fprintf(stderr, "listening for pingpong --connect %s:%d\n", here.ip.c_str(), here.port);
  size_t wrong = 0;
  std::thread other;
  if (alone) other = std::thread([&] { wrong = measure(here.ip, here.port); });
  const ConnId conn = must(endpoint->accept(std::chrono::minutes(10))).conn;
  const MemoryId memory = must(endpoint->register_memory(buffer.data(), buffer.size()));
  for (size_t bytes = 8; bytes <= kLongest; bytes *= 2) {
    const LocalRange range{memory, buffer.data(), bytes};
    for (size_t round = 0; round < rounds_of(bytes); ++round) {
      must(endpoint->recv(conn, {&range, 1}));
      must(endpoint->send(conn, {&range, 1}));
    }
  }
  // A send is done when its source may be reused. Only the other end can tell that the last one has arrived.
  const LocalRange last{memory, buffer.data(), 1};
  must(endpoint->recv(conn, {&last, 1}));
  if (other.joinable()) other.join();
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, interrupted);
  std::signal(SIGTERM, interrupted);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // an interrupt keeps the lines printed so far
  const std::string option = argc > 1 ? argv[1] : "", peer = argc > 2 ? argv[2] : "";
  const size_t colon = peer.rfind(':');
  size_t wrong = 0;
  if (argc == 1) {
    wrong = serve(true);
  } else if (argc == 2 && option == "--server") {
    serve(false);
    return 0;  // the other end checks the data
  } else if (argc == 3 && option == "--connect" && colon != peer.npos) {
    wrong = measure(peer.substr(0, colon), std::atoi(peer.c_str() + colon + 1));
  } else {
    std::fputs(kUsage, option == "--help" ? stdout : stderr);
    return option == "--help" ? 0 : 2;
  }
  std::puts(wrong == 0 ? "PASSED: every byte came back" : "FAILED: bytes differ");
  return wrong == 0 ? 0 : 1;
}
