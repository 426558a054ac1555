// The sample of README.md as a program: two endpoints, one of which writes into memory of the other. Exit code 1 if bytes differ.
//
//   first_transfer                        both ends in this process
//   first_transfer --server               on one machine; it prints what to start on the other:
//   first_transfer --connect HOST:PORT
#include <unistd.h>

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

using namespace tcpx;

namespace {

void must(const Status& status) {
  if (status.is_ok()) return;
  std::fprintf(stderr, "FAILED: %s\n%s\n", status.to_string().c_str(), help_lines(status).c_str());
  std::quick_exit(1);
}

template <class T>
T must(Result<T> result) {
  must(result.status());
  return std::move(*result);
}

// README.md shows from here
/// One end: lets the other end of a connection write to `data`, which is host or GPU memory.
void offer(Endpoint& endpoint, ConnId conn, void* data, size_t bytes) {
  const auto memory = must(endpoint.register_memory(data, bytes));
  must(endpoint.send_slot(conn, must(endpoint.advertise(conn, {memory, data, bytes}))));
}

/// The other end: writes there.
void fill(Endpoint& endpoint, ConnId conn, void* data, size_t bytes) {
  const auto memory = must(endpoint.register_memory(data, bytes));
  const NotifyMsg done{.name = "done"};  // comes after the data
  must(endpoint.write(conn, {memory, data, bytes}, {must(endpoint.recv_slot(conn))}, {.notify = &done}));
}
// to here

constexpr size_t kBytes = 8 << 20;
constexpr char kUsage[] =
    "usage: first_transfer [--server | --connect HOST:PORT]\nWithout options both ends run in this process.\n";

void interrupted(int signal) {
  constexpr char kText[] = "interrupted\n";
  (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
  ::_exit(128 + signal);
}

std::vector<char> pattern() {
  std::vector<char> bytes(kBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  return bytes;
}

int verdict(bool good) {
  std::puts(good ? "PASSED: every byte is where it belongs" : "FAILED: bytes differ");
  return good ? 0 : 1;
}

void fill_at(const std::string& host, int port) {
  std::vector<char> source = pattern();
  const auto endpoint = must(Endpoint::create());  // destroyed before the memory that is registered with it
  fill(*endpoint, must(endpoint->connect(host, 0, port)), source.data(), source.size());
}

/// @param alone the other end is a thread of this process
int serve(bool alone) {
  std::vector<char> target(kBytes);
  const auto endpoint = must(Endpoint::create({.listen_address = alone ? "127.0.0.1" : ""}));
  const auto here = must(Endpoint::read_metadata(endpoint->get_metadata()));
  std::thread other;
  if (alone) {
    other = std::thread([&] { fill_at(here.ip, here.port); });
  } else {
    std::fprintf(stderr, "listening for first_transfer --connect %s:%d\n", here.ip.c_str(), here.port);
  }
  offer(*endpoint, must(endpoint->accept(std::chrono::minutes(10))).conn, target.data(), target.size());
  const std::vector<NotifyMsg> messages = endpoint->wait_notifs();
  if (other.joinable()) other.join();
  return verdict(target == pattern() && messages.size() == 1 && messages[0].name == "done");
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, interrupted);
  std::signal(SIGTERM, interrupted);
  const std::string option = argc > 1 ? argv[1] : "", peer = argc > 2 ? argv[2] : "";
  const size_t colon = peer.rfind(':');
  if (argc == 1) return serve(true);
  if (argc == 2 && option == "--server") return serve(false);
  if (argc == 3 && option == "--connect" && colon != peer.npos) {
    fill_at(peer.substr(0, colon), std::atoi(peer.c_str() + colon + 1));
    return verdict(true);
  }
  std::fputs(kUsage, option == "--help" ? stdout : stderr);
  return option == "--help" ? 0 : 2;
}
