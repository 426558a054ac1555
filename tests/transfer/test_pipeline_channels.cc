// Pipelines of several channels: distribution of the chunks, messages between the halves, loss of a channel.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/support/expect_log.h"
#include "tests/support/pipeline_pair.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;
using testing::channels;
using testing::expect_clean_success;
using testing::expect_let_go;
using testing::expect_moves;
using testing::PipelinePair;
using testing::PipelinePairOptions;

uint64_t sum_of_chunks(const Pipeline& connection) {
  uint64_t sum = 0;
  for (const ChannelCounters& channel : connection.counters()) sum += channel.chunks;
  return sum;
}

TEST(PipelineChannels, EveryChannelCarriesItsShareAndIsCounted) {
  PipelinePair p(channels(4));
  for (int round = 0; round < 20; ++round) {
    const uint64_t seed = static_cast<uint64_t>(round) + 1;
    expect_moves(p, 200001, seed);
  }
  for (const Pipeline* connection : {p.send.get(), p.recv.get()}) {
    uint64_t bytes = 0;
    for (const ChannelCounters& channel : connection->counters()) {
      EXPECT_NEAR(static_cast<double>(channel.chunks), 20 * 49 / 4.0, 50) << channel.nic;
      EXPECT_TRUE(channel.open);
      bytes += channel.bytes;
    }
    EXPECT_EQ(bytes, 20u * 200001);
    EXPECT_EQ(connection->counters()[2].nic, "nic2");
  }
  EXPECT_TRUE(p.send->close().is_ok());
  EXPECT_TRUE(p.recv->close().is_ok());
  EXPECT_FALSE(p.recv->counters()[0].open);
}

TEST(PipelineChannels, SizesThatDifferEndBothBeforeDataMoves) {
  PipelinePair p(channels(2));
  const TransferId sent = p.submit_send(0, 8192), got = p.submit_recv(0, 12288);
  ASSERT_TRUE(p.drive_to_end());
  const TransferAnswer send = p.send->poll(sent), recv = p.recv->poll(got);
  EXPECT_EQ(send.status.code(), Code::kMismatch) << send.status.to_string();
  EXPECT_EQ(recv.status.code(), Code::kMismatch) << recv.status.to_string();
  for (const Status& status : {send.status, recv.status}) {
    EXPECT_NE(status.detail().find("8192 bytes at the sender and 12288 at the receiver"), std::string::npos)
        << status.to_string();
  }
  EXPECT_EQ(p.fake.calls(testing::Call::kSend), 0u);
  expect_let_go(p);
}

/// Waits, while nothing moves, as long as an interface may be down; the next check is one too many, and finds chunks in flight.
void outwait_the_link(PipelinePair& p) {
  p.fake.answer_not_yet(testing::Call::kSend, 1'000'000);
  for (int i = 0; i < 30; ++i) {
    p.clock.advance(milliseconds(100));
    p.progress();
  }
  p.fake.answer_not_yet(testing::Call::kSend, 0);
  p.send->progress();
  p.clock.advance(milliseconds(150));
}

TEST(PipelineChannels, WithoutFailoverALostChannelEndsBothEndsAndIsNamed) {
  testing::allow_log("channel gives up");
  for (const bool at_the_sender : {true, false}) {
    PipelinePairOptions options = channels(4);
    options.send.limits.window = options.recv.limits.window = 2;
    PipelinePair p(options);
    const TransferId sent = p.submit_send(0, 200000), got = p.submit_recv(0, 200000);
    p.progress(3);
    (at_the_sender ? p.sender_lost : p.receiver_lost) = {"nic2"};
    outwait_the_link(p);
    ASSERT_TRUE(p.drive_to_end());
    const Status send = p.send->poll(sent).status, recv = p.recv->poll(got).status;
    EXPECT_NE(recv.detail().find("channel 2 (nic2): "), std::string::npos) << recv.to_string();
    EXPECT_NE(recv.detail().find("nic2 is down"), std::string::npos) << recv.to_string();
    // A sender whose bytes have all been taken is done before it learns of it.
    EXPECT_TRUE((!at_the_sender && send.is_ok()) || send.detail().find("nic2 is down") != std::string::npos) << send.to_string();
    expect_let_go(p);
  }
}

TEST(PipelineChannels, B13_AnInterfaceThatIsSoonUpAgainEndsNothing) {
  for (const bool failover : {false, true}) {
    PipelinePairOptions options = channels(failover ? 1 : 4, failover);
    options.peer_nic = "nic9";
    PipelinePair p(options);
    const TransferId sent = p.submit_send(0, 200000), got = p.submit_recv(0, 200000);
    p.progress();
    p.sender_lost = p.receiver_lost = failover ? std::set<std::string>{"nic0"} : std::set<std::string>{"nic2", "nic9"};
    for (int i = 0; i < 20; ++i) {
      p.clock.advance(milliseconds(100));
      p.progress();
    }
    p.sender_lost = p.receiver_lost = {};
    ASSERT_TRUE(p.drive_to_end());
    expect_clean_success(p, sent, got, 0, 200000);
  }
}

TEST(PipelineChannels, FailoverDeliversEverythingOverTheOthers) {
  testing::allow_log("connection goes on over 3 of 4 channels: ");
  testing::allow_log("channel gives up");
  PipelinePair p(channels(4, true));
  std::vector<TransferId> sent, got;
  for (size_t i = 0; i < 4; ++i) {
    sent.push_back(p.submit_send(i * 60000, 60000, i + 1));
    got.push_back(p.submit_recv(i * 60000, 60000));
  }
  ASSERT_TRUE(p.drive([&] { return sum_of_chunks(*p.recv) > 10; }));
  p.sender_lost = {"nic1"};
  p.clock.advance(milliseconds(150));
  ASSERT_TRUE(p.drive_to_end());
  for (size_t i = 0; i < 4; ++i) expect_clean_success(p, sent[i], got[i], i * 60000, 60000, i + 1);
  EXPECT_TRUE(
      testing::logged("goes on over 3 of 4 channels: TCPX_E_SYSTEM: watch network interface: channel 1 (nic1): nic1 is down"));
  EXPECT_FALSE(p.recv->counters()[1].open);
  EXPECT_FALSE(p.send->counters()[1].open);
  EXPECT_TRUE(p.recv->status().is_ok());
  // And the next transfer does without the lost channel.
  expect_moves(p, 100000, 9);
  EXPECT_TRUE(p.send->close().is_ok());
  EXPECT_TRUE(p.recv->close().is_ok());
}

TEST(PipelineChannels, AFailoverSenderIsDoneOnlyWhenThePeerHasEverything) {
  PipelinePair p(channels(2, true));
  const TransferId got = p.submit_recv(0, 4096);
  p.recv->progress();
  const TransferId sent = p.submit_send(0, 4096);
  for (int i = 0; i < 20; ++i) p.send->progress();
  EXPECT_EQ(p.send->in_flight(), 0u) << "the plugin has let go";
  EXPECT_EQ(p.send->poll(sent).state, TransferState::kPending);
  ASSERT_TRUE(p.drive_to_end());
  expect_clean_success(p, sent, got, 0, 4096);
}

// The copy may still write to the chunk's memory after the chunk has arrived over another channel and been reported.
TEST(PipelineChannels, FailoverEndsTheConnectionWhenACopyOfTheLostChannelDoesNotEnd) {
  testing::allow_log("goes on over 1 of 2 channels");
  testing::allow_log("unpack did not end within the drain limit");
  testing::allow_log("channel gives up");
  PipelinePair p(channels(2, true));
  p.unpacker.queries_needed = 1'000'000;
  p.submit_send(0, 8 * 4096);
  const TransferId got = p.submit_recv(0, 8 * 4096);
  ASSERT_TRUE(p.drive([&] { return p.unpacker.in_flight() >= 2 && p.recv->in_flight() == 8; }));
  p.receiver_lost = {"nic1"};
  bool asked_again = false;
  for (int ms = 0; ms < 20'000 && p.recv->pending() > 0; ++ms) {
    p.clock.advance(milliseconds(1));
    p.recv->progress();
    for (const auto& [type, payload] : p.to_sender->messages) asked_again |= type == PeerMessage::kRegrant;
  }
  EXPECT_FALSE(asked_again);
  const Status status = p.recv->poll(got).status;
  EXPECT_NE(status.detail().find("nic1 is down"), std::string::npos) << status.to_string();
  EXPECT_NE(status.detail().find("may still be running"), std::string::npos) << status.to_string();
}

TEST(PipelineChannels, WhenTheLastChannelIsLostTheConnectionIs) {
  testing::allow_log("channel gives up");
  testing::allow_log("goes on over 1 of 2 channels");
  PipelinePair p(channels(2, true));
  const TransferId sent = p.submit_send(0, 200000), got = p.submit_recv(0, 200000);
  p.recv->progress();
  p.receiver_lost = {"nic0", "nic1"};
  outwait_the_link(p);
  ASSERT_TRUE(p.drive_to_end());
  EXPECT_EQ(p.send->poll(sent).state, TransferState::kFailed);
  EXPECT_EQ(p.recv->poll(got).state, TransferState::kFailed);
  expect_let_go(p);
}

TEST(PipelineChannels, FailoverNeedsTheInterfaceThatTheHalvesTalkOver) {
  testing::allow_log("channel gives up");
  PipelinePairOptions options = channels(2, true);
  options.peer_nic = "nic9";
  PipelinePair p(options);
  const TransferId sent = p.submit_send(0, 200000), got = p.submit_recv(0, 200000);
  p.progress(3);
  p.sender_lost = p.receiver_lost = {"nic9"};
  outwait_the_link(p);
  ASSERT_TRUE(p.drive_to_end());
  for (const Status& status : {p.send->poll(sent).status, p.recv->poll(got).status}) {
    EXPECT_NE(status.detail().find("nic9 is down, which the two halves talk over"), std::string::npos) << status.to_string();
  }
  expect_let_go(p);
}

TEST(PipelineChannels, AnInterfaceThatIsDownIsToBlameAlsoWhenThePeerIsNoticedFirst) {
  testing::allow_log("channel gives up");
  PipelinePair p(channels(2));
  const TransferId sent = p.submit_send(0, 200000);
  p.submit_recv(0, 200000);
  p.recv->progress();
  p.send->progress();
  p.sender_lost = {"nic1"};
  p.fake.kill_peer_of(p.raw_sends[0]);
  ASSERT_TRUE(p.drive([&] { return p.send->pending() == 0; }, 50)) << "before it looks at the links by itself";
  const Status status = p.send->poll(sent).status;
  EXPECT_NE(status.detail().find("channel 1 (nic1): nic1 is down"), std::string::npos) << status.to_string();
}

TEST(PipelineChannels, ABrokenLinkEndsPendingTransfers) {
  PipelinePair p(channels(2));
  const TransferId sent = p.submit_send(0, 200000), got = p.submit_recv(0, 200000);
  p.recv->progress();
  p.to_sender->broken = p.to_receiver->broken = Status(Code::kPeerGone, "read frame", "connection closed by the peer");
  ASSERT_TRUE(p.drive_to_end());
  EXPECT_EQ(p.send->poll(sent).status.code(), Code::kPeerGone);
  EXPECT_EQ(p.recv->poll(got).status.code(), Code::kPeerGone);
  expect_let_go(p);
}

TEST(PipelineChannels, ASenderThatHearsNothingGivesUpWithAFlightRecord) {
  testing::allow_log("no word from the peer for ");
  PipelinePairOptions options = channels(2);
  options.send.limits.stall_limit = milliseconds(200);
  PipelinePair p(options);
  const TransferId sent = p.submit_send(0, 200000);
  ASSERT_TRUE(p.drive([&] { return p.send->pending() == 0; }));
  EXPECT_EQ(p.send->poll(sent).status.code(), Code::kTimeout);
  EXPECT_TRUE(testing::logged("1 transfers pending"));
  expect_let_go(p);
}

// Messages to a sender that no receiver of ours sends.
using Message = std::pair<PeerMessage, std::vector<std::byte>>;
struct Forged {
  const char* name;
  std::vector<Message> messages;
  bool fails_transfer = true;  // not only the connection
};

using Room = std::array<std::byte, kMaxPeerMessageBytes>;
constexpr size_t kForgedBytes = 12288;  // of the sender's transfer, the first: three chunks

Message grant(uint64_t transfer, uint64_t first_chunk, std::vector<uint8_t> over, uint64_t bytes = kForgedBytes) {
  Room room;
  const GrantHeader header{.transfer = transfer,
                           .transfer_bytes = bytes,
                           .first_chunk = first_chunk,
                           .count = static_cast<uint32_t>(over.size()),
                           .reserved = 0};
  const auto text = encode_grant(room, {.header = header, .channels = over});
  return {PeerMessage::kGrant, {text.begin(), text.end()}};
}
Message regrant(uint64_t transfer, uint64_t chunk, uint32_t channel) {
  Room room;
  const auto text = encode_regrant(
      room, {.transfer = transfer, .transfer_bytes = kForgedBytes, .chunk = chunk, .channel = channel, .reserved = 0});
  return {PeerMessage::kRegrant, {text.begin(), text.end()}};
}
Message received(uint64_t transfer) {
  Room room;
  const auto text = encode_transfer_number(room, transfer);
  return {PeerMessage::kReceived, {text.begin(), text.end()}};
}

std::vector<Message> grants_without_end() {
  constexpr uint64_t kBytes = 2 * kMaxPlacedChunks * 4096;
  std::vector<Message> all;
  for (uint64_t first = 0; first <= kMaxPlacedChunks; first += kMaxGrantChunks)
    all.push_back(grant(1, first, std::vector<uint8_t>(kMaxGrantChunks, 0), kBytes));
  return all;
}

class PipelineChannelsForged : public ::testing::TestWithParam<Forged> {};

TEST_P(PipelineChannelsForged, EndTheConnection) {
  testing::allow_log("gives up");
  PipelinePair p(channels(2, true));
  p.to_sender->messages.assign(GetParam().messages.begin(), GetParam().messages.end());
  const TransferId sent = p.submit_send(0, kForgedBytes);
  p.drive([&] { return p.send->pending() == 0; }, 100);
  if (GetParam().fails_transfer) {
    EXPECT_EQ(p.send->poll(sent).status.code(), Code::kProtocol);
  }
  p.progress(20);
  EXPECT_EQ(p.send->status().code(), Code::kProtocol) << p.send->status().to_string();
  EXPECT_EQ(p.fake.misuse(), std::vector<std::string>());
}

INSTANTIATE_TEST_SUITE_P(
    All, PipelineChannelsForged,
    ::testing::Values(
        Forged{"GrantsOutOfOrder", {grant(1, 1, {0})}}, Forged{"GrantsOfTheSameChunkTwice", {grant(1, 0, {0}), grant(1, 0, {0})}},
        Forged{"GrantsBeyondTheTransfer", {grant(1, 0, {0, 1, 0, 1})}}, Forged{"GrantsOverNoChannel", {grant(1, 0, {0, 2})}},
        Forged{"GrantsWithoutEnd", grants_without_end()},
        Forged{"ASizeThatChanges", {grant(1, 0, {0}), grant(1, 1, {0}, kForgedBytes + 1)}},
        Forged{"RegrantsOfWhatWasNotGranted", {regrant(1, 0, 1)}}, Forged{"AcknowledgementsOfNothing", {received(7)}},
        // It would be done before a byte of it had left.
        Forged{"AcknowledgementsOfWhatWasNotGranted", {received(1)}},
        Forged{"AcknowledgementsOfWhatWasOnlyHalfGranted", {grant(1, 0, {0, 1}), received(1)}},
        Forged{"AcknowledgementsOfWhatWasNotSubmitted", {grant(1, 0, {0, 0, 0}), grant(2, 0, {0, 0, 0}), received(2)}},
        Forged{"AcknowledgementsOfWhatWasNotSent", {grant(1, 0, {0, 0, 0}), received(1)}, false}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(PipelineChannels, MessagesForTheOtherHalfEndTheConnection) {
  PipelinePair p(channels(2, true));
  p.to_receiver->messages.push_back(grant(1, 0, {0}));
  const TransferId got = p.submit_recv(0, 4096);
  p.drive([&] { return p.recv->pending() == 0; }, 100);
  EXPECT_EQ(p.recv->poll(got).status.code(), Code::kProtocol);
}

TEST(PipelineChannels, PartsThatCannotBeAreRefused) {
  PipelinePair p;
  const auto code = [&](std::vector<ChannelParts> parts) {
    return Pipeline::create(std::move(parts), {}, p.clock, {}).status().code();
  };
  EXPECT_EQ(code({}), Code::kInvalidArgument);
  std::vector<ChannelParts> no_link, both_ways;
  for (int i = 0; i < 2; ++i) no_link.push_back({.comm = Comm(p.fake, p.fake.make_wire().first), .receive = {}});
  EXPECT_EQ(code(std::move(no_link)), Code::kInvalidArgument);
  const auto [send_comm, recv_comm] = p.fake.make_wire();
  both_ways.push_back({.comm = Comm(p.fake, send_comm), .receive = {}});
  both_ways.push_back({.comm = Comm(p.fake, recv_comm), .receive = {}});
  EXPECT_EQ(code(std::move(both_ways)), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tcpx
