#include "wire/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/text.h"
#include "wire/messages.h"

namespace tcpx {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Frame sample() {
  return {FrameType::kHandles, bytes_of("some payload of a frame")};
}

// Feeds `bytes` to the assembler in pieces of at most `piece`; stops at its first error, or when it needs no more.
Status feed(FrameAssembler& assembler, std::span<const std::byte> bytes, size_t piece, size_t* used = nullptr) {
  size_t at = 0;
  Status status = Status::ok();
  while (status.is_ok() && at < bytes.size() && !assembler.wanted().empty()) {
    const size_t n = std::min({piece, bytes.size() - at, assembler.wanted().size()});
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), n, assembler.wanted().begin());
    at += n;
    status = assembler.filled(n);
  }
  if (used != nullptr) *used = at;
  return status;
}

// A frame with one header field overwritten.
template <class T>
std::vector<std::byte> with_field(size_t offset, T value) {
  std::vector<std::byte> bytes = encode_frame(sample());
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

Status refusal(const std::vector<std::byte>& bytes) {
  FrameAssembler assembler;
  return feed(assembler, bytes, bytes.size());
}

TEST(BootstrapFrame, LooksOnTheWireAsDocumented) {
  const auto bytes = encode_frame({FrameType::kFinish, bytes_of("xyz"), 7});
  ASSERT_EQ(bytes.size(), 40u + 3u + 8u);
  EXPECT_EQ(std::memcmp(bytes.data(), "TCPX\x0e\x05\x00\x00\x03\x00\x00\x00", 12), 0);
  for (size_t i = 12; i < 40; ++i) EXPECT_EQ(bytes[i], std::byte(i == 24 ? 7 : 0)) << i;
  EXPECT_EQ(std::memcmp(bytes.data() + 40, "xyz", 3), 0);
  const uint64_t check = 0x224ab3802886141;  // by Python, from the definition of base/byte_sum.h
  EXPECT_EQ(std::memcmp(bytes.data() + 43, &check, sizeof check), 0);
}

TEST(BootstrapFrame, SurvivesAnyPartition) {
  const auto bytes = encode_frame(sample());
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    FrameAssembler assembler;
    ASSERT_TRUE(feed(assembler, bytes, piece).is_ok()) << piece;
    ASSERT_TRUE(assembler.whole()) << piece;
    const Frame frame = assembler.take();
    EXPECT_EQ(frame.type, FrameType::kHandles);
    EXPECT_EQ(frame.payload, sample().payload);
  }
}

TEST(BootstrapFrame, EmptyAndLongestPayload) {
  for (const size_t size : {size_t{0}, size_t{kMaxSetUpPayloadBytes}}) {
    const Frame sent{FrameType::kParameters, std::vector<std::byte>(size, std::byte{9})};
    FrameAssembler assembler;
    ASSERT_TRUE(feed(assembler, encode_frame(sent), 1000).is_ok());
    ASSERT_TRUE(assembler.whole());
    EXPECT_EQ(assembler.take().payload, sent.payload);
  }
}

TEST(BootstrapFrame, NeverAsksForBytesOfTheNextFrame) {
  auto two = encode_frame(sample());
  const size_t first = two.size();
  const auto second = encode_frame({.type = FrameType::kBarrier, .value = 1});
  two.insert(two.end(), second.begin(), second.end());
  FrameAssembler assembler;
  size_t used = 0;
  ASSERT_TRUE(feed(assembler, two, two.size(), &used).is_ok());
  EXPECT_EQ(used, first);
  EXPECT_EQ(assembler.take().type, FrameType::kHandles);
  ASSERT_TRUE(feed(assembler, std::span(two).subspan(used), two.size()).is_ok());
  ASSERT_TRUE(assembler.whole());
  EXPECT_EQ(assembler.take().type, FrameType::kBarrier);
}

TEST(BootstrapFrame, ForeignGreetingsAreRefusedAtTheFirstWrongByte) {
  using std::string_view_literals::operator""sv;
  for (const auto text :
       {"GET / HTTP/1.1\r\nHost: x\r\n\r\n"sv, "SSH-2.0-OpenSSH_9.2"sv, "\x16\x03\x01"sv, "\0\0\0\0"sv}) {
    FrameAssembler assembler;
    size_t used = 0;
    const Status status = feed(assembler, bytes_of(text), 1, &used);
    EXPECT_EQ(status.code(), Code::kProtocol) << text;
    EXPECT_LE(used, 5u) << text;
  }
  EXPECT_NE(refusal(bytes_of("GET / HTTP/1.1\r\n\r\n")).detail().find("GET / HTTP/1.1...."), std::string::npos);
}

TEST(BootstrapFrame, HeaderFieldsOutOfRangeAreRefusedByName) {
  EXPECT_EQ(refusal(with_field<char>(3, 'Y')).code(), Code::kProtocol) << "magic";
  for (const uint8_t version : {0, 7, 8, 9, 10, 11, 12, 13, kProtocolVersion + 1, 255}) {
    const Status other = refusal(with_field<uint8_t>(4, version));
    EXPECT_EQ(other.code(), Code::kUnsupported);
    EXPECT_EQ(other.detail(), concat("the peer speaks version ", version, " of the protocol, this build speaks 14"));
  }
  for (const uint8_t type : {0, 22, 255}) EXPECT_EQ(refusal(with_field<uint8_t>(5, type)).code(), Code::kProtocol) << type;
  EXPECT_EQ(refusal(with_field<uint8_t>(6, 3)).code(), Code::kProtocol) << "packing";
  EXPECT_EQ(refusal(with_field<uint8_t>(7, kMaxWays)).code(), Code::kProtocol) << "way";
  EXPECT_EQ(refusal(with_field<uint32_t>(8, kMaxSetUpPayloadBytes + 1)).code(), Code::kProtocol);
  EXPECT_EQ(refusal(with_field<uint32_t>(8, 0xffffffffu)).code(), Code::kProtocol);
}

TEST(BootstrapFrame, AnyFlippedBitIsRefused) {
  const auto bytes = encode_frame(sample());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    FrameAssembler assembler;
    const Status status = feed(assembler, flipped, flipped.size());
    EXPECT_FALSE(status.is_ok() && assembler.whole()) << "bit " << bit;  // a longer one goes on waiting
  }
}

TEST(BootstrapFrame, ABuildFromBeforeVersionEightIsNamed) {
  const auto hello = bytes_of(std::string_view("TCPXBOOT\x01\x00\x01\x00", 12));
  std::vector<std::byte> old(48);
  std::copy(hello.begin(), hello.end(), old.begin());
  EXPECT_EQ(refusal(old).to_string(),
            "TCPX_E_UNSUPPORTED: read frame: the peer speaks version 7 or older of the protocol, this build speaks 14");
}

TEST(BootstrapFrame, OfAFrameThatIsNotOfTheSetUpOnlyTheHeaderIsWanted) {
  std::vector<std::byte> bytes;
  const Frame data = sample();
  encode(SendDataFrame{.operation = 5, .data = data.payload}, bytes);
  FrameAssembler assembler;
  size_t used = 0;
  ASSERT_TRUE(feed(assembler, bytes, 7, &used).is_ok());
  EXPECT_TRUE(assembler.ends_set_up() && !assembler.whole());
  EXPECT_EQ(used, sizeof(FrameHeader));
  EXPECT_TRUE(assembler.wanted().empty());
}

TEST(BootstrapFrame, AnOversizeLengthReservesNothing) {
  FrameAssembler assembler;
  const auto bytes = with_field<uint32_t>(8, 0xfffffff0u);
  EXPECT_FALSE(feed(assembler, std::span(bytes).first(sizeof(FrameHeader)), 48).is_ok());
  EXPECT_TRUE(assembler.wanted().empty());
}

TEST(BootstrapFrame, PrintableHidesControlCharacters) {
  EXPECT_EQ(printable(bytes_of("a\x1b[31mb\r\n\x7f\xff"), 100), "a.[31mb....");
  EXPECT_EQ(printable(bytes_of("abcdef"), 3), "abc");
}

}  // namespace
}  // namespace tcpx
