// The sample of README.md as a program: two endpoints, one of which writes into memory of the other. Exit code 1 when bytes
// differ.
#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tcpx/endpoint.h"

// README.md shows from here
using namespace tcpx;

/// One end: takes a connection and lets its other end write to `data`, which is host or GPU memory.
Status offer(Endpoint& endpoint, void* data, size_t bytes) {
  const auto peer = endpoint.accept();
  if (!peer.is_ok()) return peer.status();
  const auto memory = endpoint.register_memory(data, bytes);
  if (!memory.is_ok()) return memory.status();
  const auto slot = endpoint.advertise(peer->conn, {*memory, data, bytes});
  if (!slot.is_ok()) return slot.status();
  NotifyMsg message{.name = "slot", .msg = std::string(kRemoteSlotBytes, '\0')};
  serialize_fifo_item(*slot, message.msg.data());
  return endpoint.notify(peer->conn, message);
}

/// The other end: writes there. @param metadata of the first endpoint, shipped by any means
Status fill(Endpoint& endpoint, std::span<const uint8_t> metadata, void* data, size_t bytes) {
  const auto conn = endpoint.add_remote_endpoint(metadata);
  if (!conn.is_ok()) return conn.status();
  const auto memory = endpoint.register_memory(data, bytes);
  if (!memory.is_ok()) return memory.status();
  std::vector<NotifyMsg> messages;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (messages.empty() && std::chrono::steady_clock::now() < until) messages = endpoint.get_notifs();
  if (messages.empty() || messages[0].msg.size() != kRemoteSlotBytes)
    return Status(Code::kTimeout, "wait for a slot", "none came");
  RemoteRange to;
  deserialize_fifo_item(messages[0].msg.data(), &to.slot);
  const LocalRange from{*memory, data, bytes};
  const NotifyMsg done{.name = "done"};  // comes after the data
  return endpoint.write(*conn, {&from, 1}, {&to, 1}, {.notify = &done});
}
// to here

int main() {
  std::vector<char> source(8 << 20), target(source.size());
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>(i * 2654435761u >> 13);
  Endpoint first(EndpointConfig{.listen_address = "127.0.0.1"}), second(EndpointConfig{});
  Status offered;
  std::thread other([&] { offered = offer(first, target.data(), target.size()); });
  const Status filled = fill(second, first.get_metadata(), source.data(), source.size());
  other.join();
  for (const Status& status : {offered, filled}) {
    if (!status.is_ok()) std::fprintf(stderr, "first_transfer: %s\n", status.to_string().c_str());
  }
  const std::vector<NotifyMsg> messages = first.get_notifs();
  const bool passed = source == target && messages.size() == 1 && messages[0].name == "done";
  std::puts(passed ? "PASSED: every byte is where it belongs" : "FAILED: bytes differ");
  return passed ? 0 : 1;
}
