// An endpoint of a test, and another one in a process of its own that may die, stop, or lose its rights.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/hex_text.h"
#include "tests/support/verbs.h"

namespace tcpx::testing {

inline constexpr size_t kShort = 512, kBulk = 1 << 20;
inline constexpr size_t kCount = 16;           // operations begun together
inline constexpr size_t kPlaces = 2 * kCount;  // of as many as are under way

/// An endpoint in a process of its own.
class PeerProcess {
 public:
  /// @param hidden cannot read this process's memory
  explicit PeerProcess(uint16_t port = 0, bool hidden = false) : child_(command(port, hidden)) {
    const std::string line = child_.read_line(Deadline::after(kTestDeadline));
    EXPECT_EQ(line.substr(0, 6), "ready ") << line;
    metadata_ = from_hex_text(line.substr(std::min<size_t>(6, line.size())));
  }
  const std::vector<uint8_t>& metadata() const { return metadata_; }
  uint16_t port() const { return Endpoint::read_metadata(metadata_).value().port; }
  void tell(const std::string& line) { child_.write_line(line); }
  std::string answer() { return child_.read_line(Deadline::after(kTestDeadline)); }
  std::string ask(const std::string& line) {
    tell(line);
    return answer();
  }
  void stop() { child_.stop(); }
  void go_on() { child_.send_signal(SIGCONT); }
  /// Returns before its threads have ended.
  void begin_to_kill() { child_.send_signal(SIGKILL); }
  void kill() {
    begin_to_kill();
    (void)child_.wait();
  }

 private:
  static std::vector<std::string> command(uint16_t port, bool hidden) {
    std::vector<std::string> words = {TCPX_ENDPOINT_PEER, std::to_string(port)};
    if (hidden) words.emplace_back("hidden");
    return words;
  }
  ChildProcess child_;
  std::vector<uint8_t> metadata_;
};

class EndpointProcesses : public ::testing::Test {
 protected:
  /// @param hidden neither process reads the other's memory
  explicit EndpointProcesses(bool hidden = false) : hidden_(hidden) {
    allow_broken_connections();
    meet(peer_);
  }
  /// A connection to the peer, and the slot it advertises.
  void meet(PeerProcess& peer) {
    peer.tell("accept");
    const auto added = endpoint_->add_remote_endpoint(peer.metadata(), kCallTime);
    ASSERT_TRUE(added.is_ok()) << added.status().to_string();
    conn_ = *added;
    ASSERT_EQ(peer.answer(), "ok");
    const std::string slot = peer.ask(concat("advertise ", kPlaces * kBulk));
    ASSERT_EQ(slot.substr(0, 5), "slot ");
    const auto bytes = from_hex_text(slot.substr(5));
    ASSERT_EQ(bytes.size(), sizeof slot_);
    std::memcpy(&slot_, bytes.data(), sizeof slot_);
  }
  void expect_data_flows(PeerProcess& peer) {
    for (const size_t bytes : {kShort, kBulk}) {
      const LocalRange range = memory_.range(0, bytes);
      peer.tell(concat("send ", bytes));
      Status status = endpoint_->recv(conn_, {&range, 1});
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      EXPECT_EQ(memory_.bytes()[bytes - 1], static_cast<std::byte>((bytes - 1) % 251));
      EXPECT_EQ(peer.answer(), "ok");
      peer.tell(concat("recv ", bytes));
      status = endpoint_->send(conn_, {&range, 1});
      EXPECT_TRUE(status.is_ok()) << status.to_string();
      EXPECT_EQ(peer.answer(), "ok");
    }
  }
  /// Starts `kCount` operations of `ranges` ranges each, every one in a place of its own at both ends.
  std::vector<OperationId> start_many(OperationKind kind, size_t bytes, size_t ranges, std::chrono::milliseconds timeout) {
    std::vector<OperationId> ids;
    const SubmitOptions options{.timeout = timeout};
    for (size_t i = 0; i < kCount; ++i) {
      std::vector<LocalRange> local;
      std::vector<RemoteRange> remote;
      for (size_t part = 0; part < ranges; ++part) {
        const size_t offset = begun_ % kPlaces * kBulk + part * (bytes / ranges);
        local.push_back(memory_.range(offset, bytes / ranges));
        remote.push_back({slot_, offset});
      }
      const auto id = start(*endpoint_, kind, conn_, local, remote, options);
      EXPECT_TRUE(id.is_ok()) << id.status().to_string();
      if (id.is_ok()) ids.push_back(*id);
      ++begun_;
    }
    return ids;
  }
  /// Waits for all; each ends once. @return how many of them with `code`; the others are done
  size_t count_ended(const std::vector<OperationId>& ids, Code code) {
    size_t count = 0;
    for (const OperationId id : ids) {
      const Status status = endpoint_->wait(id, kCallTime);
      if (!status.is_ok()) {
        EXPECT_EQ(status.code(), code) << status.to_string();
        ++count;
      }
      EXPECT_EQ(endpoint_->poll(id).state, OperationState::kUnknown);
    }
    return count;
  }

  const bool hidden_;
  PeerProcess peer_{0, hidden_};
  std::unique_ptr<Endpoint> endpoint_ = hidden_ ? make_endpoint_that_reads_nobody() : make_endpoint();
  Memory memory_{*endpoint_, kPlaces* kBulk};
  ConnId conn_{};
  RemoteSlot slot_{};
  size_t begun_ = 0;
};

}  // namespace tcpx::testing
