// The sample of README.md as a program: two endpoints, one of which writes into memory of the other. Exit code 1 when bytes
// differ.
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
#include <vector>

#include "tcpx/endpoint.h"
#include "tcpx/help.h"

// README.md shows from here
using namespace tcpx;

/// One end: takes a connection and lets its other end write to `data`, which is host or GPU memory.
Status offer(Endpoint& endpoint, void* data, size_t bytes) {
  const auto peer = endpoint.accept(std::chrono::minutes(10));
  if (!peer.is_ok()) return peer.status();
  const auto memory = endpoint.register_memory(data, bytes);
  if (!memory.is_ok()) return memory.status();
  const auto slot = endpoint.advertise(peer->conn, {*memory, data, bytes});
  if (!slot.is_ok()) return slot.status();
  return endpoint.send_slot(peer->conn, *slot);
}

/// The other end: writes there. @param conn from connect(host, gpu, port), or add_remote_endpoint(metadata shipped by any means)
Status fill(Endpoint& endpoint, ConnId conn, void* data, size_t bytes) {
  const auto memory = endpoint.register_memory(data, bytes);
  if (!memory.is_ok()) return memory.status();
  const auto slot = endpoint.recv_slot(conn);
  if (!slot.is_ok()) return slot.status();
  const NotifyMsg done{.name = "done"};  // comes after the data
  return endpoint.write(conn, {*memory, data, bytes}, {*slot}, {.notify = &done});
}
// to here

namespace {

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

int verdict(const Status& status, bool equal) {
  if (!status.is_ok()) std::fprintf(stderr, "FAILED: %s\n%s\n", status.to_string().c_str(), help_lines(status).c_str());
  if (status.is_ok()) std::puts(equal ? "PASSED: every byte is where it belongs" : "FAILED: bytes differ");
  return status.is_ok() && equal ? 0 : 1;
}

Status fill_at(const std::string& host, int port) {
  std::vector<char> source = pattern();
  const auto endpoint = Endpoint::create();
  if (!endpoint.is_ok()) return endpoint.status();
  const auto conn = (*endpoint)->connect(host, 0, port);
  return conn.is_ok() ? fill(**endpoint, *conn, source.data(), source.size()) : conn.status();
}

/// @param alone the other end is a thread of this process
int serve(bool alone) {
  std::vector<char> target(kBytes);
  const auto made = Endpoint::create({.listen_address = alone ? "127.0.0.1" : ""});
  if (!made.is_ok()) return verdict(made.status(), false);
  Endpoint& endpoint = **made;
  const auto here = Endpoint::read_metadata(endpoint.get_metadata());
  if (!here.is_ok()) return verdict(here.status(), false);
  Status filled;
  std::thread other;
  if (alone) {
    other = std::thread([&] { filled = fill_at(here->ip, here->port); });
  } else {
    std::fprintf(stderr, "listening for first_transfer --connect %s:%d\n", here->ip.c_str(), here->port);
  }
  const Status offered = offer(endpoint, target.data(), target.size());
  std::vector<NotifyMsg> messages;
  if (offered.is_ok()) messages = endpoint.wait_notifs();
  if (other.joinable()) other.join();
  if (!filled.is_ok()) return verdict(filled, false);
  return verdict(offered, target == pattern() && messages.size() == 1 && messages[0].name == "done");
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, interrupted);
  std::signal(SIGTERM, interrupted);
  const std::string option = argc > 1 ? argv[1] : "", peer = argc > 2 ? argv[2] : "";
  const size_t colon = peer.rfind(':');
  if (argc == 1) return serve(true);
  if (argc == 2 && option == "--server") return serve(false);
  if (argc == 3 && option == "--connect" && colon != peer.npos)
    return verdict(fill_at(peer.substr(0, colon), std::atoi(peer.c_str() + colon + 1)), true);
  std::fputs(kUsage, option == "--help" ? stdout : stderr);
  return option == "--help" ? 0 : 2;
}
