// Messages between the halves of a connection: every field survives, and inconsistent ones are refused.
#include "transfer/peer_messages.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "tests/support/ok.h"

namespace tcpx {
namespace {

using testing::must;

using Room = std::array<std::byte, kMaxPeerMessageBytes>;

std::vector<std::byte> copy_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

GrantHeader header(uint32_t count) {
  return {.transfer = 0x0102030405060708, .transfer_bytes = 1ull << 50, .first_chunk = 77, .count = count, .reserved = 0};
}

TEST(PeerMessages, GrantsThatDoNotAddUpAreRefused) {
  Room room;
  const std::array<uint8_t, 3> channels{0, 1, 2};
  const auto text = copy_of(encode_grant(room, {.header = header(3), .channels = channels}));
  EXPECT_TRUE(decode_grant(text, 3).is_ok());
  EXPECT_EQ(decode_grant(text, 2).status().code(), Code::kProtocol) << "a channel that is not there";
  for (size_t bytes = 0; bytes < text.size(); ++bytes)
    EXPECT_EQ(decode_grant(std::span(text).first(bytes), 3).status().code(), Code::kProtocol) << bytes;
  auto longer = text;
  longer.push_back({});
  EXPECT_EQ(decode_grant(longer, 3).status().code(), Code::kProtocol);
  for (const uint32_t count : {0u, 4u, kMaxGrantChunks + 1, 0xffffffffu}) {
    auto forged = text;
    std::memcpy(forged.data() + offsetof(GrantHeader, count), &count, sizeof count);
    EXPECT_EQ(decode_grant(forged, 3).status().code(), Code::kProtocol) << count;
  }
}

TEST(PeerMessages, RegrantsAndAcknowledgementsSurviveOrAreRefused) {
  Room room;
  const Regrant regrant{.transfer = 5, .transfer_bytes = 6, .chunk = 7, .channel = 3, .reserved = 0};
  const auto text = copy_of(encode_regrant(room, regrant));
  const auto decoded = must(decode_regrant(text, 4));
  EXPECT_EQ(std::memcmp(&decoded, &regrant, sizeof regrant), 0);
  EXPECT_EQ(decode_regrant(text, 3).status().code(), Code::kProtocol);
  EXPECT_EQ(decode_regrant(std::span(text).first(text.size() - 1), 4).status().code(), Code::kProtocol);
  const auto received = copy_of(encode_transfer_number(room, 42));
  EXPECT_EQ(decode_transfer_number(received).value(), 42u);
  EXPECT_EQ(decode_transfer_number(std::span(received).first(7)).status().code(), Code::kProtocol);
  EXPECT_EQ(decode_transfer_number(text).status().code(), Code::kProtocol);
}

TEST(PeerMessages, AReasonSurvivesPrintableAndBounded) {
  Room room;
  const auto round_trip = [&](const Status& reason) {
    return decode_channel_down(encode_channel_down(room, {.channel = 2, .reason = reason}), 3);
  };
  const auto down = round_trip(Status(Code::kSystem, "watch network interface", "eth3 is down", Domain::kErrno, 100));
  ASSERT_TRUE(down.is_ok());
  EXPECT_EQ(down->channel, 2u);
  EXPECT_EQ(down->reason.code(), Code::kSystem);
  EXPECT_EQ(down->reason.detail(), "watch network interface: eth3 is down");
  EXPECT_EQ(round_trip(Status(Code::kPeerGone, "a", "\x1b[31m\n"))->reason.detail(), "a: .[31m.");
  EXPECT_LT(round_trip(Status(Code::kPeerGone, "a", std::string(10000, 'x')))->reason.detail().size(), kMaxPeerMessageBytes);
}

TEST(PeerMessages, AReasonThatDoesNotAddUpIsRefused) {
  Room room;
  const auto text = copy_of(encode_channel_down(room, {.channel = 2, .reason = Status(Code::kTimeout, "x", "y")}));
  EXPECT_EQ(decode_channel_down(text, 2).status().code(), Code::kProtocol);
  for (size_t bytes = 0; bytes < text.size(); ++bytes)
    EXPECT_EQ(decode_channel_down(std::span(text).first(bytes), 3).status().code(), Code::kProtocol) << bytes;
  for (const int32_t code : {0, -1, static_cast<int32_t>(kLastCode) + 1, 1 << 30}) {
    auto forged = text;
    std::memcpy(forged.data() + 4, &code, sizeof code);
    EXPECT_EQ(decode_channel_down(forged, 3)->reason.code(), Code::kPeerGone) << "a code of another build is still a failure";
  }
}

}  // namespace
}  // namespace tcpx
