// Every frame of the control connection by its fields: each comes back, the type alone says which frame it is, and a payload of
// another length than the fields say is refused.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/support/raw_frame.h"

namespace tcpx::testing {
namespace {

using Bytes = std::vector<std::byte>;

const std::vector<uint64_t> kLengths = {3, 0, 7};
const std::vector<WireRange> kSomeRanges = {{11, 5, 4}, {12, 0, 6}};
const Bytes kTen(10, std::byte{0x5a});
constexpr uint64_t kOperation = 0x0102030405060708, kSequence = 0x1112131415161718;

/// The encoded frame, as a header that has been checked and a payload.
template <class Frame>
std::pair<ControlHeader, Bytes> encoded(const Frame& frame) {
  Bytes whole = {std::byte{1}, std::byte{2}};  // of the frame before
  encode(frame, whole);
  ControlHeader header;
  std::memcpy(&header, whole.data() + 2, sizeof header);
  EXPECT_TRUE(check_header(header).is_ok()) << name_of(Frame::kType);
  EXPECT_EQ(header.type, static_cast<uint8_t>(Frame::kType));
  EXPECT_EQ(header.payload_bytes, whole.size() - 2 - sizeof header) << name_of(Frame::kType);
  return {header, Bytes(whole.begin() + 2 + sizeof header, whole.end())};
}

/// The frame as it comes back. Another type refuses it, and so does each of these lengths of the payload; its earlier contents
/// stay.
template <class Frame>
Frame back(const Frame& frame, std::function<bool(size_t)> is_refused = {}) {
  static std::vector<std::pair<ControlHeader, Bytes>> kept;  // the frame's views refer to it
  const auto& [header, payload] = kept.emplace_back(encoded(frame));
  for (uint8_t type = 1; type <= kLastControlType; ++type) {
    ControlHeader other = header;
    other.type = type;
    if (other.type == header.type) continue;
    Frame read = frame;
    EXPECT_EQ(decode(other, payload, read).code(), Code::kProtocol) << name_of(Frame::kType);
  }
  Bytes longer = payload;
  longer.push_back(std::byte{1});
  for (size_t bytes = 0; is_refused && bytes <= longer.size(); ++bytes) {
    Frame untouched{};
    const Status status = decode(header, std::span(longer).first(bytes), untouched);
    EXPECT_EQ(!status.is_ok(), is_refused(bytes)) << name_of(Frame::kType) << " of " << bytes << " bytes: " << status.to_string();
    if constexpr (requires { untouched.operation; }) {
      EXPECT_TRUE(status.is_ok() || untouched.operation == 0);
    }
  }
  Frame read{};
  const Status status = decode(header, payload, read);
  EXPECT_TRUE(status.is_ok()) << name_of(Frame::kType) << ": " << status.to_string();
  if constexpr (requires { read.operation; }) {
    EXPECT_EQ(read.operation, frame.operation);
  }
  Bytes again, first;
  encode(read, again);
  encode(frame, first);
  if constexpr (!std::is_same_v<Frame, DoneFrame>) {
    EXPECT_EQ(again, first) << name_of(Frame::kType);
  }
  return read;
}

auto all_but(size_t right) {
  return [right](size_t bytes) { return bytes != right; };
}

template <class T>
bool same(const WireArray<T>& got, const std::vector<T>& wanted) {
  return std::ranges::equal(std::as_bytes(std::span(wanted)), got.raw());
}

bool same(std::span<const std::byte> got, const Bytes& wanted) {
  return std::ranges::equal(got, wanted);
}

TEST(WireFrames, Send) {
  const SendFrame plain = back(
      SendFrame{.operation = kOperation, .sequence = kSequence, .bytes = 1'000'000, .packing = Packing::kPacked}, all_but(16));
  EXPECT_EQ(plain.sequence, kSequence);
  EXPECT_EQ(plain.bytes, 1'000'000u);
  EXPECT_EQ(plain.packing, Packing::kPacked);
  EXPECT_TRUE(plain.lengths.empty());
  EXPECT_FALSE(plain.notify.has_value());
  const SendFrame full = back(SendFrame{.operation = kOperation,
                                        .sequence = kSequence,
                                        .bytes = 10,
                                        .packing = Packing::kRanges,
                                        .lengths = kLengths,
                                        .notify = NotifyText{"name", "text!"}},
                              all_but(16 + 24 + 4 + 5));
  EXPECT_EQ(full.packing, Packing::kRanges);
  EXPECT_TRUE(same(full.lengths, kLengths));
  ASSERT_TRUE(full.notify.has_value());
  EXPECT_EQ(full.notify->name, "name");
  EXPECT_EQ(full.notify->text, "text!");
}

TEST(WireFrames, SendData) {
  const SendDataFrame read =
      back(SendDataFrame{.operation = kOperation, .sequence = kSequence, .notify = NotifyText{"", ""}, .data = kTen},
           all_but(16 + 10));
  EXPECT_EQ(read.sequence, kSequence);
  EXPECT_TRUE(read.notify.has_value()) << "one of two empty texts is one";
  EXPECT_TRUE(same(read.data, kTen));
  EXPECT_TRUE(back(SendDataFrame{.operation = kOperation}).data.empty());
}

TEST(WireFrames, Write) {
  const WriteFrame read = back(WriteFrame{.operation = kOperation,
                                          .bytes = 10,
                                          .packing = Packing::kPacked,
                                          .ranges = kSomeRanges,
                                          .notify = NotifyText{"n", "t"}},
                               all_but(16 + 48 + 2));
  EXPECT_EQ(read.bytes, 10u);
  EXPECT_EQ(read.packing, Packing::kPacked);
  EXPECT_TRUE(same(read.ranges, kSomeRanges));
  ASSERT_TRUE(read.notify.has_value());
  EXPECT_EQ(read.notify->name, "n");
  EXPECT_EQ(read.notify->text, "t");
}

TEST(WireFrames, WriteData) {
  const WriteDataFrame read =
      back(WriteDataFrame{.operation = kOperation, .ranges = kSomeRanges, .data = kTen}, all_but(16 + 48 + 10));
  EXPECT_TRUE(same(read.ranges, kSomeRanges));
  EXPECT_FALSE(read.notify.has_value());
  EXPECT_TRUE(same(read.data, kTen));
}

TEST(WireFrames, Read) {
  const ReadFrame read = back(ReadFrame{.operation = kOperation, .bytes = 10, .ranges = kSomeRanges}, all_but(16 + 48));
  EXPECT_EQ(read.bytes, 10u);
  EXPECT_EQ(read.ranges[1].slot, 12u);
  EXPECT_TRUE(same(read.ranges, kSomeRanges));
}

TEST(WireFrames, ReadData) {
  EXPECT_TRUE(same(back(ReadDataFrame{.operation = kOperation, .data = kTen}, all_but(10)).data, kTen));
}

TEST(WireFrames, ReadyAndGo) {
  EXPECT_EQ(back(ReadyFrame{.operation = kOperation, .packing = Packing::kRanges}).packing, Packing::kRanges);
  for (const bool of_read : {false, true}) {
    const GoFrame read = back(GoFrame{.operation = kOperation, .of_read = of_read, .packing = Packing::kPacked});
    EXPECT_EQ(read.of_read, of_read);
    EXPECT_EQ(read.packing, Packing::kPacked);
  }
}

TEST(WireFrames, Done) {
  EXPECT_TRUE(back(DoneFrame{.operation = kOperation}).status.is_ok());
  const DoneFrame refused = back(DoneFrame{.operation = kOperation, .status = Status(Code::kTimeout, "op", "why")});
  EXPECT_EQ(refused.status.to_string(), "TCPX_E_TIMEOUT: peer reported: op: why");
}

TEST(WireFrames, CancelAndCredit) {
  for (const bool announced : {false, true}) {
    const CancelFrame read = back(CancelFrame{.operation = kOperation, .sequence = kSequence, .announced = announced});
    EXPECT_EQ(read.sequence, kSequence);
    EXPECT_EQ(read.announced, announced);
  }
  for (const Window window : {Window::kSends, Window::kRest, Window::kSendOffers, Window::kRestOffers}) {
    const CreditFrame read = back(CreditFrame{.window = window, .bytes = kSequence});
    EXPECT_EQ(read.window, window);
    EXPECT_EQ(read.bytes, kSequence);
  }
  CreditFrame read{.window = Window::kRest, .bytes = 7};
  EXPECT_EQ(decode(make_header(ControlType::kCredit, kWindows, 0, 1), {}, read).code(), Code::kProtocol) << "no such window";
  EXPECT_EQ(read.bytes, 7u);
}

TEST(WireFrames, Notify) {
  const NotifyFrame read = back(NotifyFrame{.notify = {"name", "text"}}, [](size_t bytes) { return bytes < 4 + 4; });
  EXPECT_EQ(read.notify.name, "name");
  EXPECT_EQ(read.notify.text, "text");
}

TEST(WireFrames, Peer) {
  const PeerFrame read = back(PeerFrame{.flow = 3, .type = FrameType::kGrant, .message = kTen});
  EXPECT_EQ(read.flow, 3u);
  EXPECT_EQ(read.type, FrameType::kGrant);
  EXPECT_TRUE(same(read.message, kTen));
  for (const uint64_t type : {uint64_t{0}, static_cast<uint64_t>(FrameType::kSubmitted) + 1, ~uint64_t{0}}) {
    PeerFrame untouched;
    EXPECT_EQ(decode(make_header(ControlType::kPeer, 3, type), kTen, untouched).code(), Code::kProtocol) << type;
    EXPECT_EQ(untouched.flow, 0u);
  }
}

TEST(WireFrames, Bye) {
  (void)back(ByeFrame{}, [](size_t) { return false; });  // a text behind it is not read
}

}  // namespace
}  // namespace tcpx::testing
