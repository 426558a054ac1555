// Two endpoints on two hosts that know of each other only by metadata, for the scenarios.
//
//   meet serve               prints "at METADATA", in hexadecimal; takes one connection, and a message that it compares
//   meet connect METADATA    connects, and sends that message; prints "over N NICs"
//
// Before the last line stand "bytes N", how long the message is, and "nic NAME sent N received N" of the statistics for each NIC. The
// last line is "ok", or what failed and why; exit code 0 or 1.
#include <tcpx/endpoint.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/hex_text.h"

namespace {

using namespace tcpx;

constexpr size_t kBytes = 16 << 20;
constexpr std::chrono::seconds kTime{10};

std::vector<char> message() {
  std::vector<char> bytes(kBytes);
  for (size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(i * 131 + (i >> 13));
  return bytes;
}

Status serve(Endpoint& endpoint) {
  const auto metadata = endpoint.get_metadata();
  std::printf("at %s\n", testing::to_hex_text(metadata.data(), metadata.size()).c_str());
  std::fflush(stdout);
  const auto accepted = endpoint.accept(std::chrono::seconds(30));
  if (!accepted.is_ok()) return accepted.status();
  std::vector<char> bytes(kBytes);
  const auto memory = endpoint.register_memory(bytes.data(), bytes.size());
  if (!memory.is_ok()) return memory.status();
  const Status received = endpoint.recv(accepted->conn, LocalRange{*memory, bytes.data(), bytes.size()});
  if (!received.is_ok()) return received;
  return bytes == message() ? Status::ok() : Status(Code::kInternal, "compare", "the bytes are wrong");
}

Status connect(Endpoint& endpoint, const std::string& metadata) {
  const auto conn = endpoint.add_remote_endpoint(testing::from_hex_text(metadata), kTime);
  if (!conn.is_ok()) return conn.status();
  std::vector<char> bytes = message();
  const auto memory = endpoint.register_memory(bytes.data(), bytes.size());
  if (!memory.is_ok()) return memory.status();
  const Status sent = endpoint.send(*conn, LocalRange{*memory, bytes.data(), bytes.size()});
  std::printf("over %zu NICs\n", endpoint.stats().connections.front().nics.size());
  return sent;
}

void tell(const Endpoint& endpoint) {
  std::printf("bytes %zu\n", kBytes);
  const EndpointStats stats = endpoint.stats();
  std::vector<NicStats> nics = stats.ended.nics;
  for (const ConnectionStats& one : stats.connections) nics.insert(nics.end(), one.nics.begin(), one.nics.end());
  for (const NicStats& nic : nics) {
    std::printf("nic %s sent %llu received %llu\n", nic.name.c_str(), static_cast<unsigned long long>(nic.bytes_sent),
                static_cast<unsigned long long>(nic.bytes_received));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (!(role == "serve" && argc == 2) && !(role == "connect" && argc == 3)) return std::puts("meet serve | connect METADATA"), 2;
  const auto endpoint = Endpoint::create({.num_cpus = 2});
  Status status = endpoint.status();
  if (endpoint.is_ok()) status = role == "serve" ? serve(**endpoint) : connect(**endpoint, argv[2]);
  if (status.is_ok()) tell(**endpoint);
  std::puts(status.is_ok() ? "ok" : status.to_string().c_str());
  return status.is_ok() ? 0 : 1;
}
