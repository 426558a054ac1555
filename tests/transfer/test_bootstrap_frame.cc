#include "wire/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string_view>

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

// A frame with one header field overwritten, and a matching check value.
template <class T>
std::vector<std::byte> with_field(size_t offset, T value) {
  const Frame frame = sample();
  std::vector<std::byte> bytes = encode_frame(frame);
  FrameHeader header;
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  std::memcpy(&header, bytes.data(), sizeof header);
  header.check = frame_check(header, frame.payload);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

Status refusal(const std::vector<std::byte>& bytes) {
  FrameAssembler assembler;
  return feed(assembler, bytes, bytes.size());
}

TEST(BootstrapFrame, LooksOnTheWireAsDocumented) {
  const auto bytes = encode_frame({FrameType::kFinish, bytes_of("xyz")});
  ASSERT_EQ(bytes.size(), 48u + 3u);
  EXPECT_EQ(std::memcmp(bytes.data(), "TCPXBOOT\x01\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00", 24), 0);
  for (size_t i = 24; i < 40; ++i) EXPECT_EQ(bytes[i], std::byte{0}) << i;
  EXPECT_EQ(std::memcmp(bytes.data() + 48, "xyz", 3), 0);
}

TEST(BootstrapFrame, CheckValueIsFnv1a) {
  // Published test vector of FNV-1a 64: "foobar" -> 85944171f73967e8. That of a frame has forty zero bytes before it, so
  // compute both parts here by the definition.
  uint64_t expected = 0xcbf29ce484222325u;
  for (int i = 0; i < 40; ++i) expected *= 0x100000001b3u;
  for (const char c : std::string_view("foobar")) expected = (expected ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  EXPECT_EQ(frame_check(FrameHeader{}, bytes_of("foobar")), expected);
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
  for (const size_t size : {size_t{0}, size_t{kMaxFramePayloadBytes}}) {
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
  const auto second = encode_frame({FrameType::kBarrier, bytes_of("12345678")});
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

TEST(BootstrapFrame, HalfAFrameIsNeitherWholeNorAnError) {
  const auto bytes = encode_frame(sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    FrameAssembler assembler;
    EXPECT_TRUE(feed(assembler, std::span(bytes).first(size), 7).is_ok()) << size;
    EXPECT_FALSE(assembler.whole()) << size;
    EXPECT_EQ(assembler.size(), size);
  }
}

TEST(BootstrapFrame, ForeignGreetingsAreRefusedAtTheFirstWrongByte) {
  using std::string_view_literals::operator""sv;
  for (const auto text :
       {"GET / HTTP/1.1\r\nHost: x\r\n\r\n"sv, "SSH-2.0-OpenSSH_9.2"sv, "TCPXSOCK"sv, "\x16\x03\x01"sv, "\0\0\0\0"sv}) {
    FrameAssembler assembler;
    size_t used = 0;
    const Status status = feed(assembler, bytes_of(text), 1, &used);
    EXPECT_EQ(status.code(), Code::kProtocol) << text;
    EXPECT_LE(used, 5u) << text;
  }
  EXPECT_NE(refusal(bytes_of("GET / HTTP/1.1\r\n\r\n")).detail().find("GET / HTTP/1.1...."), std::string::npos);
}

TEST(BootstrapFrame, HeaderFieldsOutOfRangeAreRefusedByName) {
  EXPECT_EQ(refusal(with_field<char>(7, 'X')).code(), Code::kProtocol) << "magic";
  EXPECT_EQ(refusal(with_field<uint16_t>(8, 0)).code(), Code::kProtocol) << "version 0";
  const Status newer = refusal(with_field<uint16_t>(8, 2));
  EXPECT_EQ(newer.code(), Code::kUnsupported);
  EXPECT_NE(newer.detail().find("version 2"), std::string::npos) << newer.to_string();
  for (const uint16_t type : {0, 13, 65535}) EXPECT_EQ(refusal(with_field<uint16_t>(10, type)).code(), Code::kProtocol) << type;
  EXPECT_EQ(refusal(with_field<uint32_t>(16, 1)).code(), Code::kUnsupported) << "a flag that must be known";
  EXPECT_EQ(refusal(with_field<uint32_t>(20, kMaxFramePayloadBytes + 1)).code(), Code::kProtocol);
  EXPECT_EQ(refusal(with_field<uint32_t>(20, 0xffffffffu)).code(), Code::kProtocol);
}

TEST(BootstrapFrame, AnOversizeLengthReservesNothing) {
  FrameAssembler assembler;
  const auto bytes = with_field<uint32_t>(20, 0xfffffff0u);
  EXPECT_FALSE(feed(assembler, std::span(bytes).first(sizeof(FrameHeader)), 48).is_ok());
  EXPECT_TRUE(assembler.wanted().empty());
}

TEST(BootstrapFrame, LaterVersionsMayUseReservedBytesAndHighFlags) {
  EXPECT_TRUE(refusal(with_field<uint32_t>(12, 0xabcdef01u)).is_ok());
  EXPECT_TRUE(refusal(with_field<uint64_t>(24, ~uint64_t{0})).is_ok());
  EXPECT_TRUE(refusal(with_field<uint64_t>(32, ~uint64_t{0})).is_ok());
  EXPECT_TRUE(refusal(with_field<uint32_t>(16, 0xffff0000u)).is_ok());
}

TEST(BootstrapFrame, EveryFlippedBitIsNoticed) {
  const auto good = encode_frame(sample());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bytes = good;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    FrameAssembler assembler;
    const Status status = feed(assembler, bytes, bytes.size());
    // A longer length leaves the frame waiting for bytes; anything else must be an error at once.
    EXPECT_FALSE(status.is_ok() && assembler.whole()) << "bit " << bit;
  }
}

TEST(BootstrapFrame, PrintableHidesControlCharacters) {
  EXPECT_EQ(printable(bytes_of("a\x1b[31mb\r\n\x7f\xff"), 100), "a.[31mb....");
  EXPECT_EQ(printable(bytes_of("abcdef"), 3), "abc");
}

}  // namespace
}  // namespace tcpx
