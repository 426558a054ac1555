// Both ends of a pipeline over the wires of a fake plugin, with their memory, under a manual clock.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "measure/pattern.h"
#include "tests/support/fake_net_plugin.h"
#include "tests/support/fake_peer_mailbox.h"
#include "tests/support/fake_unpacker.h"
#include "tests/support/faulty_net_plugin.h"
#include "tests/support/manual_clock.h"
#include "tests/support/ok.h"
#include "transfer/pipeline.h"

namespace tcpx::testing {

struct PipelinePairOptions {
  size_t channels = 1;
  std::string peer_nic = {};  ///< interface of the link between the halves
  FakeNetPlugin::Options fake;
  PipelineOptions send{.limits = {.window = kQueueDepth - 4}, .chunk_bytes = 4096, .max_transfers = 8};
  PipelineOptions recv{.limits = {.window = kQueueDepth}, .chunk_bytes = 4096, .max_transfers = 8};
  MemoryType recv_type = MemoryType::kCuda;
  size_t memory_bytes = 256 * 1024;
  ReceiveTap* tap = nullptr;
  std::optional<FaultPolicy> faults = {};  ///< of a plugin in front of the fake
};

/// Several channels, and pages for the windows of all.
inline PipelinePairOptions channels(size_t count, bool failover = false) {
  PipelinePairOptions options;
  options.channels = count;
  options.fake.page_count = 1024;
  options.send.failover = options.recv.failover = failover;
  return options;
}

/// The fake's pool is host memory, so "device" memory here is host memory.
struct PipelinePair {
  static constexpr std::byte kUntouched{0x5A};

  explicit PipelinePair(const PipelinePairOptions& options = {}) : fake(options.fake), memory(make_host_memory_ops()) {
    if (options.faults) faulty = std::make_unique<FaultyNetPlugin>(fake, *options.faults);
    NetPlugin& plugin = faulty ? static_cast<NetPlugin&>(*faulty) : fake;
    source = memory->allocate_device(0, options.memory_bytes).value();
    target = memory->allocate_device(0, options.memory_bytes).value();
    std::vector<ChannelParts> send_parts, recv_parts;
    for (size_t i = 0; i < options.channels; ++i) {
      const auto [send_comm, recv_comm] = fake.make_wire();
      raw_sends.push_back(send_comm);
      raw_recvs.push_back(recv_comm);
      const std::string nic = options.channels > 1 ? "nic" + std::to_string(i) : "";
      send_parts.push_back({.comm = Comm(plugin, send_comm), .receive = {}, .nic = nic});
      recv_parts.push_back({.comm = Comm(plugin, recv_comm),
                            .receive = {.unpacker = &unpacker, .pool = fake.pool(), .tap = options.tap},
                            .nic = nic});
    }
    raw_send = raw_sends[0];
    raw_recv = raw_recvs[0];
    const auto links = [&](auto in, auto out) {
      PipelineMeans made;
      made.peer_nic = options.peer_nic;
      if (options.channels > 1) made.peer = std::make_unique<FakePeerMailbox>(in, out);
      return made;
    };
    PipelineMeans send_links = links(to_sender, to_receiver), recv_links = links(to_receiver, to_sender);
    send_links.link_is_down = [this](const std::string& nic) { return sender_lost.contains(nic); };
    recv_links.link_is_down = [this](const std::string& nic) { return receiver_lost.contains(nic); };
    send = Pipeline::create(std::move(send_parts), std::move(send_links), clock, options.send).value();
    recv = Pipeline::create(std::move(recv_parts), std::move(recv_links), clock, options.recv).value();
    send_memory = send->register_memory(source.device(), source.size(), MemoryType::kCuda).value();
    recv_memory = recv->register_memory(target.device(), target.size(), options.recv_type).value();
    std::fill_n(target.host(), target.size(), kUntouched);
  }
  PipelinePair(const PipelinePair&) = delete;

  std::span<std::byte> received(size_t offset, size_t bytes) { return {target.host() + offset, bytes}; }

  TransferId submit_send(size_t offset, size_t bytes, uint64_t seed = 1) {
    fill_pattern({source.host() + offset, bytes}, seed);
    return send->submit({.memory = send_memory, .offset = offset, .bytes = bytes, .tag = 42}).value();
  }
  TransferId submit_recv(size_t offset, size_t bytes) { return submit_recv(recv_memory, offset, bytes); }
  TransferId submit_recv(const RegisteredMemory& into, size_t offset, size_t bytes) {
    return recv->submit({.memory = into, .offset = offset, .bytes = bytes, .tag = 42}).value();
  }
  /// The target once more, as another type of memory: messages into kHost arrive in place.
  RegisteredMemory target_as(MemoryType type) { return recv->register_memory(target.device(), target.size(), type).value(); }

  /// Drives both ends, 1 ms per round, until `until` or for `rounds`. @return whether `until` came true.
  template <class Condition>
  bool drive(Condition until, int rounds = 2000) {
    for (int i = 0; i < rounds; ++i) {
      if (until()) return true;
      progress();
      clock.advance(std::chrono::milliseconds(1));
    }
    return until();
  }
  /// The same without time, so many rounds.
  void progress(int rounds = 1) {
    for (int i = 0; i < rounds; ++i) {
      send->progress();
      recv->progress();
    }
  }
  bool drive_to_end(int rounds = 2000) {
    return drive([this] { return send->pending() == 0 && recv->pending() == 0; }, rounds);
  }

  FakeNetPlugin fake;
  std::unique_ptr<FaultyNetPlugin> faulty;  ///< null unless asked for
  ManualClock clock;
  FakeUnpacker unpacker;
  std::unique_ptr<MemoryOps> memory;
  MemoryBuffer source, target;
  std::vector<SendComm> raw_sends;  ///< by channel
  std::vector<RecvComm> raw_recvs;
  SendComm raw_send{};  ///< of channel 0
  RecvComm raw_recv{};
  std::shared_ptr<FakePeerMailbox::Queue> to_sender = std::make_shared<FakePeerMailbox::Queue>();
  std::shared_ptr<FakePeerMailbox::Queue> to_receiver = std::make_shared<FakePeerMailbox::Queue>();
  std::set<std::string> sender_lost, receiver_lost;  ///< interfaces that are down at that end: nic0, nic1, ...
  std::unique_ptr<Pipeline> send, recv;
  RegisteredMemory send_memory, recv_memory;
};

/// Checks that must hold after every successful transfer.
inline void expect_clean_success(PipelinePair& p, TransferId sent, TransferId got, size_t offset, size_t bytes,
                                 uint64_t seed = 1) {
  const TransferAnswer send = p.send->poll(sent);
  const TransferAnswer recv = p.recv->poll(got);
  EXPECT_EQ(send.state, TransferState::kDone) << send.status.to_string();
  EXPECT_EQ(recv.state, TransferState::kDone) << recv.status.to_string();
  EXPECT_EQ(recv.bytes_done, bytes);
  EXPECT_OK(verify_pattern(p.received(offset, bytes), seed));
  EXPECT_EQ(p.fake.misuse(), std::vector<std::string>());
}

/// Moves a transfer at the begin of the memory, cleanly.
inline void expect_moves(PipelinePair& p, size_t bytes, uint64_t seed = 1) {
  const TransferId sent = p.submit_send(0, bytes, seed), got = p.submit_recv(0, bytes);
  ASSERT_TRUE(p.drive_to_end()) << p.recv->flight_record();
  expect_clean_success(p, sent, got, 0, bytes, seed);
}

/// Checks that must hold once a pipeline has reported a failure: nobody can touch its memory any more.
inline void expect_let_go(PipelinePair& p) {
  EXPECT_EQ(p.unpacker.in_flight(), 0u);
  EXPECT_EQ(p.fake.misuse(), std::vector<std::string>());
}

}  // namespace tcpx::testing
