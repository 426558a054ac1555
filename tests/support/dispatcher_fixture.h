// One half of a pipeline without the pipeline: channels over the wires of a fake plugin, a ring of transfers, a dispatcher,
// and what it says to its peer.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_net_plugin.h"
#include "tests/support/fake_peer_mailbox.h"
#include "tests/support/fake_unpacker.h"
#include "tests/support/manual_clock.h"
#include "transfer/chunk_dispatcher.h"
#include "transfer/peer_messages.h"

namespace tcpx::testing {

inline std::vector<ChannelParts> parts_of_channels(FakeNetPlugin& fake, FakeUnpacker& unpacker, Direction direction,
                                                   size_t count) {
  std::vector<ChannelParts> parts;
  for (size_t i = 0; i < count; ++i) {
    const auto [send, recv] = fake.make_wire();
    Comm comm = direction == Direction::kSend ? Comm(fake, send) : Comm(fake, recv);
    parts.push_back(
        {.comm = std::move(comm), .receive = {.unpacker = &unpacker, .pool = fake.pool()}, .nic = "nic" + std::to_string(i)});
  }
  return parts;
}

class DispatcherFixture {
 public:
  static constexpr uint32_t kChunkBytes = 4096;

  DispatcherFixture(Direction direction, size_t count, bool failover = false, uint32_t window = kQueueDepth,
                    bool sender_places = false)
      : channels(parts_of_channels(fake, unpacker, direction, count), clock, {.window = window}),
        dispatcher(ChunkDispatcher::create({.channels = channels,
                                            .transfers = transfers,
                                            .peer = &peer_,
                                            .chunk_bytes = kChunkBytes,
                                            .failover = failover,
                                            .sender_places = sender_places})) {
    memory = channels.memory().add(bytes_.data(), bytes_.size(), MemoryType::kHost).value();
  }
  ~DispatcherFixture() { channels.fail(Status(Code::kCancelled, "test", "over")), progress(); }

  /// @return its number
  uint64_t submit(size_t bytes) {
    const auto id = transfers.add({.memory = memory, .bytes = bytes}, ChunkPlan::make(bytes, kChunkBytes).value());
    EXPECT_TRUE(dispatcher->submitted(*id).is_ok());
    return static_cast<uint64_t>(*id);
  }
  bool post() { return dispatcher->post(clock.now()).value(); }
  Status take(PeerMessage type, std::span<const std::byte> payload) { return dispatcher->take(type, payload); }
  Status take_number(PeerMessage type, uint64_t number) {
    std::array<std::byte, kMaxPeerMessageBytes> room;
    return take(type, encode_transfer_number(room, number));
  }
  /// All chunks under way on `channel` reach their good end.
  Status finish(size_t channel, uint64_t transfer, uint32_t count) {
    const std::vector<ChunkEnd> ends(count, ChunkEnd{.transfer = TransferId{transfer}, .bytes = kChunkBytes});
    return dispatcher->finished(channel, ends, clock.now());
  }
  /// The channel fails and closes.
  void lose(size_t channel) {
    channels[channel].fail(Status(Code::kSystem, "test", "lost"));
    progress();
    dispatcher->lost(channel);
  }
  void progress() {
    for (size_t i = 0; i < channels.size(); ++i) channels.progress(i);
  }
  /// Messages to the peer since the last call, in order.
  std::vector<std::pair<PeerMessage, std::vector<std::byte>>> said() {
    std::vector<std::pair<PeerMessage, std::vector<std::byte>>> all(to_peer->messages.begin(), to_peer->messages.end());
    to_peer->messages.clear();
    return all;
  }
  TransferState state(uint64_t transfer) { return transfers.poll(TransferId{transfer}, {}).state; }

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(256 * 1024);

 public:
  std::shared_ptr<FakePeerMailbox::Queue> to_peer = std::make_shared<FakePeerMailbox::Queue>();
  FakeNetPlugin fake;
  FakeUnpacker unpacker;
  ManualClock clock;
  ChannelSet channels;
  TransferRing transfers{8};
  RegisteredMemory memory;

 private:
  FakePeerMailbox peer_{std::make_shared<FakePeerMailbox::Queue>(), to_peer};

 public:
  std::unique_ptr<ChunkDispatcher> dispatcher;
};

}  // namespace tcpx::testing
