// Endpoints with this machine's own parts over loopback, connected with each other, and memory for them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "endpoint/endpoint_parts.h"
#include "tcpx/endpoint.h"
#include "tests/support/expect_log.h"
#include "tests/support/same_bytes.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {

inline constexpr std::chrono::milliseconds kCallTime = kTestDeadline;

/// On loopback, with few cores: tests run in parallel.
inline EndpointConfig loopback_config() {
  EndpointConfig config;
  config.num_cpus = 2;
  config.listen_address = "127.0.0.1";
  return config;
}

inline std::unique_ptr<Endpoint> make_endpoint(const EndpointConfig& config = loopback_config()) {
  auto endpoint = Endpoint::create(config);
  EXPECT_TRUE(endpoint.is_ok()) << endpoint.status().to_string();
  return endpoint.is_ok() ? std::move(*endpoint) : nullptr;
}

/// One that cannot read the memory of another process.
inline std::unique_ptr<Endpoint> make_endpoint_that_reads_nobody(const EndpointConfig& config = loopback_config()) {
  auto parts = make_default_parts(config);
  EXPECT_TRUE(parts.is_ok()) << parts.status().to_string();
  if (!parts.is_ok()) return nullptr;
  parts->reads_peers = false;
  auto endpoint = EndpointMaker::make(std::move(*parts), config);
  EXPECT_TRUE(endpoint.is_ok()) << endpoint.status().to_string();
  return endpoint.is_ok() ? std::move(*endpoint) : nullptr;
}

inline uint16_t port_of(const Endpoint& endpoint) {
  const auto address = Endpoint::read_metadata(endpoint.get_metadata());
  EXPECT_TRUE(address.is_ok());
  return address.is_ok() ? address->port : uint16_t{0};
}

/// Figures of a connection; all are zero when there is none of that id any more.
inline ConnectionStats stats_of(const Endpoint& endpoint, ConnId conn) {
  for (const ConnectionStats& stats : endpoint.stats().connections) {
    if (stats.conn == conn) return stats;
  }
  return {};
}
inline bool is_alive(const Endpoint& endpoint, ConnId conn) {
  return stats_of(endpoint, conn).alive;
}

/// Call in a test whose connections end other than by an agreement.
inline void allow_broken_connections() {
  allow_log("has ended: ");
  allow_log("TCPX_E_PEER_GONE");  // of the plugin, which may see it first
}

/// Ids of a new connection at `connector` and at `acceptor`.
inline std::pair<ConnId, ConnId> connect_pair(Endpoint& connector, Endpoint& acceptor) {
  auto accepted = std::async(std::launch::async, [&] { return acceptor.accept(kCallTime); });
  const auto connected = connector.connect("127.0.0.1", 0, port_of(acceptor), kCallTime);
  const auto there = accepted.get();
  EXPECT_TRUE(connected.is_ok()) << connected.status().to_string();
  EXPECT_TRUE(there.is_ok()) << there.status().to_string();
  if (!connected.is_ok() || !there.is_ok()) return {};
  return {*connected, there->conn};
}

/// Host memory registered with an endpoint, which must outlive it unless `leave` is called.
class Memory {
 public:
  Memory(Endpoint& endpoint, size_t bytes, uint8_t fill = 0) : endpoint_(&endpoint), bytes_(bytes, std::byte{fill}) {
    const auto id = endpoint.register_memory(bytes_.data(), bytes);
    EXPECT_TRUE(id.is_ok()) << id.status().to_string();
    if (id.is_ok()) id_ = *id;
  }
  ~Memory() {
    if (endpoint_ == nullptr) return;
    const Status status = endpoint_->deregister(id_);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Call when the endpoint is gone.
  void leave() { endpoint_ = nullptr; }
  MemoryId id() const { return id_; }
  std::vector<std::byte>& bytes() { return bytes_; }
  LocalRange range(size_t offset, size_t bytes) { return {id_, bytes_.data() + offset, bytes}; }
  LocalRange whole() { return range(0, bytes_.size()); }
  void fill(uint64_t seed) {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>((i + seed) * 0x9e3779b97f4a7c15u >> 56);
  }

 private:
  Endpoint* endpoint_;
  std::vector<std::byte> bytes_;
  MemoryId id_{};
};

/// A send and its receive, compared.
inline bool moves(Endpoint& from, ConnId conn_from, Endpoint& to, ConnId conn_to, size_t bytes, uint64_t seed = 1) {
  Memory source(from, bytes), target(to, bytes);
  source.fill(seed);
  const LocalRange out = source.whole(), in = target.whole();
  const auto received = to.recv_async(conn_to, {&in, 1});
  const Status sent = from.send(conn_from, {&out, 1});
  EXPECT_TRUE(received.is_ok()) << received.status().to_string();
  EXPECT_TRUE(sent.is_ok()) << sent.to_string();
  const Status arrived = received.is_ok() ? to.wait(*received) : received.status();
  EXPECT_TRUE(arrived.is_ok()) << arrived.to_string();
  return sent.is_ok() && arrived.is_ok() && same(source.bytes(), target.bytes());
}

}  // namespace tcpx::testing
