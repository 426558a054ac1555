// Any messages from the peer of a connection, in any order, at a sender and at a receiver of three channels: whatever they say,
// the plugin is used by the book, nothing is sent that was not granted, and after the end nothing touches the memory any more.
//
// Input: u8 flags (1: receiver, 2: failover, 4: chunks that grow, 8: the sender places), then steps: u8 what (0: raw message, 1: grant,
// 2: regrant, 3: "received", "submitted" or "delivered", 4: submit, 5: progress). A raw message is u8 type, u8 length and the bytes of its payload;
// the others have small fields (u8, sizes u16), so that they are often right.
#include <array>
#include <vector>

#include "base/log.h"
#include "base/memory_ops.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/fake_net_plugin.h"
#include "tests/support/fake_peer_mailbox.h"
#include "tests/support/fake_unpacker.h"
#include "tests/support/manual_clock.h"
#include "transfer/pipeline.h"

namespace {

using namespace tcpx;           // NOLINT: a program, not a header
using namespace tcpx::testing;  // NOLINT

constexpr size_t kMemory = 16 * 1024;

std::vector<std::byte> make_message(uint8_t what, fuzz::FuzzInput& in, PeerMessage& type) {
  std::array<std::byte, kMaxPeerMessageBytes> room;
  std::span<const std::byte> text;
  if (what == 0) {
    type = static_cast<PeerMessage>(in.take<uint8_t>() % 8);
    text = in.take_bytes(in.take<uint8_t>());
  } else if (what == 1) {
    type = PeerMessage::kGrant;
    GrantHeader header{.transfer = in.take<uint8_t>(),
                       .transfer_bytes = in.take<uint16_t>(),
                       .first_chunk = in.take<uint8_t>(),
                       .count = in.take<uint8_t>(),
                       .reserved = 0};
    const auto channels = in.take_bytes(header.count);
    text =
        encode_grant(room, {.header = header, .channels = {reinterpret_cast<const uint8_t*>(channels.data()), channels.size()}});
  } else if (what == 2) {
    type = PeerMessage::kRegrant;
    text = encode_regrant(room, {.transfer = in.take<uint8_t>(),
                                 .transfer_bytes = in.take<uint16_t>(),
                                 .chunk = in.take<uint8_t>(),
                                 .channel = in.take<uint8_t>(),
                                 .reserved = 0});
  } else {
    const uint8_t which = in.take<uint8_t>() % 4;
    const uint64_t number = in.take<uint8_t>();
    type = which < 2 ? PeerMessage::kDelivered : which == 2 ? PeerMessage::kReceived : PeerMessage::kSubmitted;
    text = which < 2 ? encode_delivered(room, {.chunks = number, .channel = which, .reserved = 0})
                     : encode_transfer_number(room, number);
  }
  return {text.begin(), text.end()};
}

void run(fuzz::FuzzInput in) {
  const uint8_t flags = in.take<uint8_t>();
  const bool receives = (flags & 1) != 0;
  FakeNetPlugin plugin;
  FakeUnpacker unpacker;
  ManualClock clock;
  const auto memory = make_host_memory_ops();
  const MemoryBuffer buffer = memory->allocate_device(0, kMemory).value();
  const auto in_queue = std::make_shared<FakePeerMailbox::Queue>(), out_queue = std::make_shared<FakePeerMailbox::Queue>();
  std::vector<ChannelParts> parts;
  std::vector<Comm> others;
  for (int i = 0; i < 3; ++i) {
    const auto [send, recv] = plugin.make_wire();
    if (receives) {
      parts.push_back({.comm = Comm(plugin, recv), .receive = {.unpacker = &unpacker, .pool = plugin.pool()}});
      others.emplace_back(plugin, send);
    } else {
      parts.push_back({.comm = Comm(plugin, send), .receive = {}});
      others.emplace_back(plugin, recv);
    }
  }
  PipelineMeans links{.peer = std::make_unique<FakePeerMailbox>(in_queue, out_queue)};
  // Of some transfers that 16 bits of size can name the chunks have grown.
  const bool grows = (flags & 4) != 0;
  const PipelineOptions options{.limits = {},
                                .chunk_bytes = grows ? 64u : 1024u,
                                .longest_chunk_bytes = grows ? 1024u : 0u,
                                .max_transfers = 8,
                                .failover = (flags & 2) != 0,
                                .sender_places = (flags & 10) == 8};
  auto connection = Pipeline::create(std::move(parts), std::move(links), clock, options).value();
  const RegisteredMemory registered = connection->register_memory(buffer.device(), kMemory, MemoryType::kCuda).value();
  for (int step = 0; step < 200 && !in.empty(); ++step) {
    const auto what = static_cast<uint8_t>(in.take<uint8_t>() % 6);
    if (what < 4) {
      PeerMessage type{};
      auto message = make_message(what, in, type);
      in_queue->messages.emplace_back(type, std::move(message));
    } else if (what == 4) {
      (void)connection->submit({.memory = registered, .bytes = in.take<uint16_t>() % kMemory});
    } else {
      connection->progress();
    }
    clock.advance(std::chrono::milliseconds(1));
  }
  for (int i = 0; i < 50; ++i) connection->progress();
  connection.reset();
  FUZZ_REQUIRE(plugin.misuse().empty());
  FUZZ_REQUIRE(unpacker.in_flight() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool quiet = (tcpx::set_log_level(tcpx::LogLevel::kOff), true);
  (void)quiet;
  run(tcpx::fuzz::FuzzInput(data, size));
  return 0;
}
