// Two endpoints on two hosts that know of each other only by metadata, for the scenarios.
//
//   meet serve [TIMES]               prints "at METADATA", in hexadecimal; takes a connection, and a message that it compares
//   meet connect METADATA [TIMES]    connects, and sends that message; prints "over N NICs"
//
// Both do so TIMES times, once by default. Before the first time and after each they print "IPv4 packets N", how many this host has sent
// until then. Before the last line stand "bytes N", how long the message is, and "nic NAME sent N received N" of the statistics for each
// NIC. The last line is "ok", or what failed and why; exit code 0 or 1.
#include <tcpx/endpoint.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
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

// Of this network namespace, as the kernel counts them: names in one line, numbers in the next.
long long ipv4_packets() {
  std::ifstream counters("/proc/net/snmp");
  std::string names, numbers;
  std::getline(counters, names);
  std::getline(counters, numbers);
  std::istringstream name(names), number(numbers);
  for (std::string one, other; name >> one && number >> other;)
    if (one == "OutRequests") return std::stoll(other);
  return -1;
}

Status serve(Endpoint& endpoint) {
  const auto accepted = endpoint.accept(std::chrono::seconds(30));
  if (!accepted.is_ok()) return accepted.status();
  std::vector<char> bytes(kBytes);
  const auto memory = endpoint.register_memory(bytes.data(), bytes.size());
  if (!memory.is_ok()) return memory.status();
  const Status received = endpoint.recv(accepted->conn, LocalRange{*memory, bytes.data(), bytes.size()});
  if (!received.is_ok()) return received;
  return bytes == message() ? Status::ok() : Status(Code::kInternal, "compare", "the bytes are wrong");
}

// A new connection, also where there is one already.
Result<ConnId> new_connection(Endpoint& endpoint, const std::string& metadata_text) {
  const auto metadata = testing::from_hex_text(metadata_text);
  if (endpoint.stats().connections.empty()) return endpoint.add_remote_endpoint(metadata, kTime);
  const auto peer = Endpoint::read_metadata(metadata);
  if (!peer.is_ok()) return peer.status();
  return endpoint.connect(peer->ip, peer->gpu_idx, peer->port, kTime);
}

Status connect(Endpoint& endpoint, const std::string& metadata) {
  const auto conn = new_connection(endpoint, metadata);
  if (!conn.is_ok()) return conn.status();
  std::vector<char> bytes = message();
  const auto memory = endpoint.register_memory(bytes.data(), bytes.size());
  if (!memory.is_ok()) return memory.status();
  const Status sent = endpoint.send(*conn, LocalRange{*memory, bytes.data(), bytes.size()});
  std::printf("over %zu NICs\n", endpoint.stats().connections.front().nics.size());
  return sent;
}

void tell_ipv4_packets() {
  std::printf("IPv4 packets %lld\n", ipv4_packets());
}

Status repeat(int times, const std::function<Status()>& once) {
  tell_ipv4_packets();
  for (int i = 0; i < times; ++i) {
    Status status = once();
    if (!status.is_ok()) return status;
    tell_ipv4_packets();
  }
  return Status::ok();
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
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool serves = !arguments.empty() && arguments[0] == "serve";
  const size_t needed = serves ? 1 : 2;
  if ((!serves && (arguments.empty() || arguments[0] != "connect")) || arguments.size() < needed || arguments.size() > needed + 1)
    return std::puts("meet serve [TIMES] | connect METADATA [TIMES]"), 2;
  const int times = arguments.size() > needed ? std::stoi(arguments[needed]) : 1;
  const auto endpoint = Endpoint::create({.num_cpus = 2});
  Status status = endpoint.status();
  if (endpoint.is_ok() && serves) {
    const auto metadata = (*endpoint)->get_metadata();
    std::printf("at %s\n", testing::to_hex_text(metadata.data(), metadata.size()).c_str());
    std::fflush(stdout);
  }
  if (endpoint.is_ok()) status = repeat(times, [&] { return serves ? serve(**endpoint) : connect(**endpoint, arguments[1]); });
  if (status.is_ok()) tell(**endpoint);
  std::puts(status.is_ok() ? "ok" : status.to_string().c_str());
  return status.is_ok() ? 0 : 1;
}
