// Every frame of the control connection as literal bytes, written down once from wire/messages.h and transfer/peer_messages.h and
// not made by the encoder: a change alike at both ends of a build shows here and nowhere else. A change of a line here is
// another protocol and raises kProtocolVersion. The type alone says which frame it is.
#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "lanes/net/net_lane.h"
#include "tests/support/hex_text.h"
#include "tests/support/stream_pair.h"
#include "transfer/peer_messages.h"
#include "wire/credit_windows.h"
#include "wire/frame.h"

namespace tcpx::testing {
namespace {

/// Digits in pairs; everything between two '|' is a remark, blanks mean nothing.
Bytes from_text(std::string_view text) {
  std::string digits;
  bool remark = false;
  for (const char c : text) {
    if (c == '|') remark = !remark;
    if (!remark && std::isxdigit(static_cast<unsigned char>(c)) != 0) digits += c;
  }
  const std::vector<uint8_t> bytes = from_hex_text(digits);
  const auto raw = std::as_bytes(std::span(bytes));
  return {raw.begin(), raw.end()};
}

std::string hex(const Bytes& bytes) {
  return to_hex_text(bytes.data(), bytes.size());
}

/// With the check behind it, which test_bootstrap_frame.cc holds against another program's.
Bytes checked(Bytes frame) {
  append_check(frame, 0);
  return frame;
}

std::string without_check(const Bytes& frame) {
  EXPECT_TRUE(verify_check(frame).is_ok());
  return hex(frame).substr(0, 2 * (frame.size() - sizeof(FrameCheck)));
}

/// The frame that a stream reads from the literal bytes.
Recorder::Frame read(const Bytes& bytes) {
  OneStream one;
  write_raw(one.peer.get(), checked(bytes));
  one.receive();
  EXPECT_TRUE(one.stream.status().is_ok()) << one.stream.status().to_string();
  EXPECT_EQ(one.recorder.frames.size(), 1u);
  return one.recorder.frames.empty() ? Recorder::Frame{} : one.recorder.frames.front();
}

/// Written by this build it is `literal`, and what this build reads there is the same again; frames of other types are not read
/// there.
template <class Frame>
void expect_golden(const char* literal, const Frame& frame) {
  const Bytes golden = from_text(literal);
  EXPECT_EQ(hex(wire_bytes([&](ControlStream& stream) { stream.send(frame); })), hex(checked(golden))) << name_of(Frame::kType);
  const Recorder::Frame got = read(golden);
  Frame again{};
  const Status status = decode(got.header, got.payload, again);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  if constexpr (!std::is_same_v<Frame, DoneFrame>) {  // whose status then says who reported it
    EXPECT_EQ(hex(wire_bytes([&](ControlStream& stream) { stream.send(again); })), hex(checked(golden))) << name_of(Frame::kType);
  }
  for (uint8_t type = 1; type <= kLastFrameType; ++type) {
    FrameHeader other = got.header;
    other.type = type;
    Frame untouched{};
    EXPECT_EQ(decode(other, got.payload, untouched).is_ok(), type == got.header.type)
        << name_of(Frame::kType) << " " << int{type};
  }
}

// Numbers whose bytes all differ, so that no two of them, and no half of one, can change places.
constexpr uint64_t kOperation = 0x0102030405060708, kValue = 0x1112131415161718, kBytes = 0x2122232425262728;

TEST(EndpointGolden, Send) {
  const std::vector<uint64_t> lengths = {0x21222324, 0x2122232400000000, 0x0000000004040404};
  expect_golden(
      "|magic| 54 43 50 58 |version| 0e |type| 06 |packing| 01 |way| 00 |payload bytes| 2c 00 00 00 |flags| 00 00"
      "|reserved| 00 00 |operation| 08 07 06 05 04 03 02 01 |sequence| 18 17 16 15 14 13 12 11"
      "|bytes| 28 27 26 25 24 23 22 21"
      "|lengths| 03 00 00 00 |ranges| 00 00 00 00 |offers| 00 00 00 00 |notifications| 00 00 |name| 00 00 |text| 00 00 00 00"
      "|length 0| 24 23 22 21 00 00 00 00 |length 1| 00 00 00 00 24 23 22 21 |length 2| 04 04 04 04 00 00 00 00",
      SendFrame{.operation = kOperation, .sequence = kValue, .bytes = kBytes, .packing = Packing::kRanges, .lengths = lengths});
}

TEST(EndpointGolden, SendWithNotification) {
  expect_golden(
      "54 43 50 58 0e 06 |packed| 02 00 |payload bytes| 19 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 18 17 16 15 14 13 12 "
      "11 28 27 26 25 24 23 22 21 |counts| 00 00 00 00 00 00 00 00 00 00 00 00 |notifications| 01 00 |name| 03 00 |text| 02 "
      "00 00 00 |name| 61 62 63 |text| 64 65",
      SendFrame{.operation = kOperation,
                .sequence = kValue,
                .bytes = kBytes,
                .packing = Packing::kPacked,
                .notify = NotifyText{"abc", "de"}});
}

// Its length takes more than 16 bits, in the counts of an operation and in the header of a notification alone.
TEST(EndpointGolden, LongNotifications) {
  const std::string text(0x10203, 'x');
  const std::string text_hex = hex(Bytes(text.size(), std::byte{'x'}));
  const Bytes send = wire_bytes([&](ControlStream& stream) {
    stream.send(SendFrame{.operation = kOperation, .sequence = kValue, .bytes = kBytes, .notify = NotifyText{"n", text}});
  });
  EXPECT_EQ(
      without_check(send),
      hex(from_text("54 43 50 58 0e 06 00 00 |payload bytes| 18 02 01 00 00 00 00 00 08 07 06 05 04 03 02 01 18 17 16 15 14 "
                    "13 12 11 28 27 26 25 24 23 22 21 |counts| 00 00 00 00 00 00 00 00 00 00 00 00 |notifications| 01 00 "
                    "|name| 01 00 |text| 03 02 01 00 |name| 6e")) +
          text_hex);
  const Bytes notify = wire_bytes([&](ControlStream& stream) { stream.send(NotifyFrame{.notify = {"n", text}}); });
  EXPECT_EQ(without_check(notify),
            hex(from_text("54 43 50 58 0e |type| 13 00 00 |payload bytes| 08 02 01 00 00 00 00 00 00 00 00 00 00 "
                          "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 |name| 01 00 00 00 6e")) +
                text_hex);
}

TEST(EndpointGolden, SendWithData) {
  const Bytes data = from_text("c0 c1 c2 c3");
  expect_golden(
      "54 43 50 58 0e |type| 07 00 00 |payload bytes| 1c 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 18 17 16 15 14 13 12 11 "
      "|bytes| 04 00 00 00 00 00 00 00 |counts| 00 00 00 00 00 00 00 00 00 00 00 00 01 00 01 00 03 00 00 00 |name| 6e "
      "|text| 78 79 7a |data| c0 c1 c2 c3",
      SendDataFrame{.operation = kOperation, .sequence = kValue, .notify = NotifyText{"n", "xyz"}, .data = data});
}

TEST(EndpointGolden, Write) {
  const std::vector<WireRange> ranges = {
      {.slot = {0x2122232425262728, 0x3132333435363738}, .offset = 0x4142434445464748, .bytes = 0x0000000000010002},
      {.slot = {0x2222232425262728, 0x5152535455565758}, .offset = 0x6162636465666768, .bytes = 0x0000000000030004}};
  expect_golden(
      "54 43 50 58 0e |type| 08 02 00 |payload bytes| 5a 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 |unused| 00 00 00 00 00 "
      "00 00 00 |bytes| 06 00 04 00 00 00 00 00 |lengths| 00 00 00 00 |ranges| 02 00 00 00 |offers| 00 00 00 00 "
      "|notifications| 01 00 |name| 05 00 |text| 01 00 00 00 |slot| 28 27 26 25 24 23 22 21 38 37 36 35 34 33 32 31 "
      "|offset| 48 47 46 45 44 43 42 41 |bytes| 02 00 01 00 00 00 00 00 |slot| 28 27 26 25 24 23 22 22 58 57 56 55 54 53 52 "
      "51 |offset| 68 67 66 65 64 63 62 61 |bytes| 04 00 03 00 00 00 00 00 |name| 6c 61 79 65 72 |text| 37",
      WriteFrame{.operation = kOperation,
                 .bytes = 0x40006,
                 .packing = Packing::kPacked,
                 .ranges = ranges,
                 .notify = NotifyText{"layer", "7"}});
}

TEST(EndpointGolden, WriteWithData) {
  const Bytes data = from_text("d0 d1 d2");
  const std::vector<WireRange> ranges = {
      {.slot = {0x2122232425262728, 0x3132333435363738}, .offset = 0x4142434445464748, .bytes = 3}};
  expect_golden(
      "54 43 50 58 0e |type| 09 00 00 |payload bytes| 39 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 00 00 00 00 00 00 00 00 "
      "|bytes| 03 00 00 00 00 00 00 00 |counts| 00 00 00 00 01 00 00 00 00 00 00 00 01 00 01 00 01 00 00 00 |slot| 28 27 26 "
      "25 24 23 22 21 38 37 36 35 34 33 32 31 |offset| 48 47 46 45 44 43 42 41 |bytes| 03 00 00 00 00 00 00 00 |name| 6e "
      "|text| 74 |data| d0 d1 d2",
      WriteDataFrame{.operation = kOperation, .ranges = ranges, .notify = NotifyText{"n", "t"}, .data = data});
}

TEST(EndpointGolden, Read) {
  const std::vector<WireRange> ranges = {
      {.slot = {0x2122232425262728, 0x3132333435363738}, .offset = 0x4142434445464748, .bytes = 0x0506}};
  expect_golden(
      "54 43 50 58 0e |type| 0a 00 00 |payload bytes| 34 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 00 00 00 00 00 00 00 00 "
      "|bytes| 06 05 00 00 00 00 00 00 |counts| 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 |slot| 28 27 26 "
      "25 24 23 22 21 38 37 36 35 34 33 32 31 |offset| 48 47 46 45 44 43 42 41 |bytes| 06 05 00 00 00 00 00 00",
      ReadFrame{.operation = kOperation, .bytes = 0x0506, .ranges = ranges});
}

// Of a peer of the same host.
TEST(EndpointGolden, Offers) {
  const std::vector<WireSource> sources = {{.share = 0x7172737475767778, .address = 0x4142434445464748, .bytes = 0x0506},
                                           {.share = 0, .address = 0x5152535455565758, .bytes = 0x0100}};
  Bytes offers;
  append_offer(Way::kPull, std::as_bytes(std::span(sources)), offers);
  append_offer(Way::kRing, {}, offers);
  const char* const items =
      "|by pull| 01 000000 |words| 30 00 00 00"
      "|share| 78 77 76 75 74 73 72 71 |address| 48 47 46 45 44 43 42 41 |bytes| 06 05 00 00 00 00 00 00"
      "|share| 00 00 00 00 00 00 00 00 |address| 58 57 56 55 54 53 52 51 |bytes| 00 01 00 00 00 00 00 00"
      "|by ring| 02 000000 |words| 00 00 00 00";
  expect_golden(
      ("54 43 50 58 0e 06 |packed| 02 00 |payload bytes| 54 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 18 17 16 15 14 13 12 "
       "11 |bytes| 06 06 00 00 00 00 00 00 |counts| 00 00 00 00 00 00 00 00 40 00 00 00 00 00 00 00 00 00 00 00" +
       std::string(items))
          .c_str(),
      SendFrame{.operation = kOperation, .sequence = kValue, .bytes = 0x0606, .packing = Packing::kPacked, .offers = offers});
  expect_golden(("54 43 50 58 0e |ready| 0c 02 00 |payload bytes| 40 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 00 00 00 00 "
                 "00 00 00 00 |bytes| 06 06 00 00 00 00 00 00" +
                 std::string(items))
                    .c_str(),
                ReadyFrame{.operation = kOperation, .bytes = 0x0606, .packing = Packing::kPacked, .offers = offers});
}

// What the lanes of a pull tell each other.
TEST(EndpointGolden, Shares) {
  MemoryShare memory{.kind = ShareKind::kFabric, .base = 0x2122232425262728, .bytes = 0x3132333435363738, .identity = 0x0908};
  memory.handle[0] = std::byte{0xa1};
  memory.handle[63] = std::byte{0xa2};
  expect_golden(("54 43 50 58 0e |lane| 14 00 |pull| 01 |payload bytes| 60 00 00 00 00 00 00 00 |number| 08 07 06 05 04 03 02 "
                 "01 |share| 00 00 00 00 00 00 00 00 |to receiver| 00 00 00 00 00 00 00 00 |kind| 03 00 00 00 00 00 00 00 "
                 "|base| 28 27 26 25 24 23 22 21 |bytes| 38 37 36 35 34 33 32 31 |identity| 08 09 00 00 00 00 00 00 "
                 "|handle| a1" +
                 std::string(2 * 62, '0') + "a2")
                    .c_str(),
                talk(PullTalk::kShare, kOperation, std::as_bytes(std::span(&memory, 1))));
  expect_golden(
      "54 43 50 58 0e |lane| 14 00 01 00 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 |unshare| 01 00 00 00 00 00 "
      "00 00 00 00 00 00 00 00 00 00",
      talk(PullTalk::kUnshare, kOperation));
  expect_golden(
      "54 43 50 58 0e |lane| 14 00 01 00 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 |unshared| 02 00 00 00 00 00 00 00 "
      "|to sender| 01 00 00 00 00 00 00 00",
      talk(PullTalk::kUnshared, kOperation));
}

TEST(EndpointGolden, ReadData) {
  const Bytes data = from_text("e0 e1 e2 e3 e4");
  const char* const literal =
      "54 43 50 58 0e |type| 0b 00 00 |payload bytes| 05 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 00 00 00 00 00 00 00 00 "
      "|bytes| 05 00 00 00 00 00 00 00 |data alone| e0 e1 e2 e3 e4";
  expect_golden(literal, ReadDataFrame{.operation = kOperation, .data = data});
}

TEST(EndpointGolden, FramesWithoutPayload) {
  expect_golden(
      "54 43 50 58 0e |ready| 0c 00 00 00 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 00 00 00 00 00 00 00 00 00 00 00 00 00 "
      "00 00 00",
      ReadyFrame{.operation = kOperation});
  expect_golden(
      "54 43 50 58 0e |go| 0d 00 |pull| 01 00 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 00 00 00 00 00 00 00 00 "
      "00 00 00 00 00 00 00 00",
      GoFrame{.operation = kOperation, .way = Way::kPull});
  expect_golden(
      "54 43 50 58 0e |go| 0d 02 00 00 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 01 00 00 00 00 00 00 00 00 00 "
      "00 00 00 00 00 00",
      GoFrame{.operation = kOperation, .of_read = true, .packing = Packing::kPacked});
  expect_golden(
      "54 43 50 58 0e |cancel| 11 00 00 00 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 18 17 16 15 14 13 12 11 01 00 00 00 "
      "00 00 00 00",
      CancelFrame{.operation = kOperation, .sequence = kValue, .what = CancelFrame::What::kSend});
  expect_golden(
      "54 43 50 58 0e |credit| 12 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 04 00 "
      "00 00 00 00",
      CreditFrame{.window = Window::kRest, .bytes = 0x40000});
  expect_golden(
      "54 43 50 58 0e |credit| 12 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 00 10 00 00 00 00 00 00 00 04 00 "
      "00 00 00 00",
      CreditFrame{.window = Window::kRest, .bytes = 0x40000, .size = 0x100000});
  for (uint64_t window = 0; window <= kWindows; ++window) {
    CreditFrame credit{.window = Window::kRest, .bytes = 7};
    EXPECT_EQ(decode(make_header(FrameType::kCredit, window, 0, 1), {}, credit).is_ok(), window < kWindows) << window;
    EXPECT_EQ(credit.bytes, window < kWindows ? 1u : 7u);
  }
}

TEST(EndpointGolden, Begun) {
  expect_golden(
      "54 43 50 58 0e |begin| 0f 00 00 00 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 00 00 00 00 00 00 00 00 00 00 00 00 00 "
      "00 00 00",
      BeginFrame{.operation = kOperation});
  expect_golden(
      "54 43 50 58 0e |begin| 0f 00 00 00 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 |of read| 01 00 00 00 00 00 00 00 00 "
      "00 00 00 00 00 00 00",
      BeginFrame{.operation = kOperation, .of_read = true});
  expect_golden(
      "54 43 50 58 0e |posted| 0e |packed| 02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 18 17 16 15 14 13 12 11 28 "
      "27 26 25 24 23 22 21",
      PostedFrame{.sequence = kValue, .bytes = kBytes, .packing = Packing::kPacked});
  expect_golden(
      "54 43 50 58 0e |ready| 0c 00 00 00 00 00 00 |begun| 01 00 00 00 08 07 06 05 04 03 02 01 00 00 00 00 00 00 00 00 28 27 "
      "26 25 24 23 22 21",
      ReadyFrame{.operation = kOperation, .bytes = kBytes, .begun = true});
  expect_golden(
      "54 43 50 58 0e |send| 06 00 00 |payload bytes| 14 00 00 00 |begun| 01 00 00 00 08 07 06 05 04 03 02 01 18 17 16 15 14 "
      "13 12 11 28 27 26 25 24 23 22 21 |lengths| 00 00 00 00 |ranges| 00 00 00 00 |offers| 00 00 00 00 |notify| 00 00 00 00 "
      "00 00 00 00",
      SendFrame{.operation = kOperation, .sequence = kValue, .bytes = kBytes, .begun = true});
}

TEST(EndpointGolden, Done) {
  const Status refused(Code::kMismatch, "op", "why");
  const char* const literal =
      "54 43 50 58 0e |done| 10 00 00 |payload bytes| 07 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 |TCPX_E_MISMATCH| 0c 00 "
      "00 00 00 00 00 00 00 00 00 00 00 00 00 00 |text| 6f 70 3a 20 77 68 79";
  expect_golden(literal, DoneFrame{.operation = kOperation, .status = refused});
  const Recorder::Frame got = read(from_text(literal));
  DoneFrame done;
  ASSERT_TRUE(decode(got.header, got.payload, done).is_ok());
  EXPECT_EQ(done.operation, kOperation);
  EXPECT_EQ(done.status.to_string(), "TCPX_E_MISMATCH: peer reported: op: why");
  expect_golden(
      "54 43 50 58 0e |done| 10 00 00 00 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01 |ok| 00 00 00 00 00 00 00 00 "
      "00 00 00 00 00 00 00 00",
      DoneFrame{.operation = kOperation});
}

TEST(EndpointGolden, Bye) {
  expect_golden(
      "54 43 50 58 0e |bye| 15 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
      "00 00 00 00 00 00",
      ByeFrame{});
}

// A name and a text that changed places at both ends would come back all the same.
TEST(EndpointGolden, Notify) {
  const char* const literal =
      "54 43 50 58 0e |notify| 13 00 00 |payload bytes| 0b 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
      "00 00 00 00 00 00 00 00 00 |name| 02 00 00 00 61 62 |text| 76 77 78 79 7a";
  expect_golden(literal, NotifyFrame{.notify = {"ab", "vwxyz"}});
  const Recorder::Frame got = read(from_text(literal));
  NotifyFrame frame;
  ASSERT_TRUE(decode(got.header, got.payload, frame).is_ok());
  EXPECT_EQ(frame.notify.name, "ab");
  EXPECT_EQ(frame.notify.text, "vwxyz");
}

/// A message for the peer's sending half, as a stream writes and reads it. @return the payload that was read
Bytes expect_golden_message(const char* literal, PeerMessage type, const Bytes& payload) {
  const Bytes golden = from_text(literal);
  EXPECT_EQ(hex(wire_bytes([&](ControlStream& stream) { EXPECT_TRUE(stream.mailbox_to(true)->post(type, payload).is_ok()); })),
            hex(checked(golden)));
  const Recorder::Frame got = read(golden);
  LaneFrame frame;
  EXPECT_TRUE(decode(got.header, got.payload, frame).is_ok());
  EXPECT_EQ(frame.way, Way::kNetwork);
  EXPECT_TRUE(frame.to_sender);
  EXPECT_EQ(static_cast<PeerMessage>(frame.what), type);
  return got.payload;
}

Bytes copy_of(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

TEST(EndpointGolden, PeerMessages) {
  std::array<std::byte, kMaxPeerMessageBytes> room;
  const std::array<uint8_t, 3> channels = {2, 0, 1};
  const GrantHeader header{
      .transfer = kOperation, .transfer_bytes = kBytes, .first_chunk = 0x3132333435363738, .count = 3, .reserved = 0};
  const Bytes granted = expect_golden_message(
      "54 43 50 58 0e |lane| 14 00 00 23 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 |grant| 01 00 00 00 00 00 00 00 |to_sender| 01 00 00 00 00 00 00 00 |transfer| 08 07 06 05 04 03 02 01 |its bytes| 28 27 26 25 24 23 22 21 |first chunk| "
      "38 37 36 35 34 33 32 31 |count| 03 00 00 00 00 00 00 00 |channels| 02 00 01",
      PeerMessage::kGrant, copy_of(encode_grant(room, {.header = header, .channels = channels})));
  const auto grant = decode_grant(granted, 3);
  ASSERT_TRUE(grant.is_ok());
  EXPECT_EQ(grant->header.transfer, kOperation);
  EXPECT_EQ(grant->header.transfer_bytes, kBytes);
  EXPECT_EQ(grant->header.first_chunk, 0x3132333435363738u);
  EXPECT_EQ(grant->channels[0], 2);

  const Bytes again = expect_golden_message(
      "54 43 50 58 0e |lane| 14 00 00 20 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 |regrant| 02 00 00 00 00 00 00 00 |to_sender| 01 00 00 00 00 00 00 00 |transfer| 08 07 06 05 04 03 02 01 |its bytes| 28 27 26 25 24 23 22 21 |chunk| 38 "
      "37 36 35 34 33 32 31 |channel| 02 00 00 00 00 00 00 00",
      PeerMessage::kRegrant,
      copy_of(encode_regrant(
          room, {.transfer = kOperation, .transfer_bytes = kBytes, .chunk = 0x3132333435363738, .channel = 2, .reserved = 0})));
  const auto regrant = decode_regrant(again, 3);
  ASSERT_TRUE(regrant.is_ok());
  EXPECT_EQ(regrant->transfer, kOperation);
  EXPECT_EQ(regrant->transfer_bytes, kBytes);
  EXPECT_EQ(regrant->chunk, 0x3132333435363738u);
  EXPECT_EQ(regrant->channel, 2u);

  const Bytes lost = expect_golden_message(
      "54 43 50 58 0e |lane| 14 00 00 17 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 |channel down| 03 00 00 00 00 00 00 00 "
      "|to_sender| 01 00 00 00 00 00 00 00 |channel| 02 00 00 00 |TCPX_E_TIMEOUT| 05 00 00 00 |text bytes| 07 00 00 00 00 "
      "00 00 00 6f 70 3a 20 77 68 79",
      PeerMessage::kChannelDown,
      copy_of(encode_channel_down(room, {.channel = 2, .reason = Status(Code::kTimeout, "op", "why")})));
  const auto down = decode_channel_down(lost, 3);
  ASSERT_TRUE(down.is_ok());
  EXPECT_EQ(down->channel, 2u);
  EXPECT_EQ(down->reason.to_string(), "TCPX_E_TIMEOUT: peer reported: op: why");

  EXPECT_EQ(
      *decode_transfer_number(expect_golden_message(
          "54 43 50 58 0e |lane| 14 00 00 08 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 |received| 04 00 00 00 00 00 00 00 |to_sender| 01 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01",
          PeerMessage::kReceived, copy_of(encode_transfer_number(room, kOperation)))),
      kOperation);
  EXPECT_EQ(
      *decode_transfer_number(expect_golden_message(
          "54 43 50 58 0e |lane| 14 00 00 08 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 |submitted| 05 00 00 00 00 00 00 00 |to_sender| 01 00 00 00 00 00 00 00 08 07 06 05 04 03 02 01",
          PeerMessage::kSubmitted, copy_of(encode_transfer_number(room, kOperation)))),
      kOperation);
}

// A number of this table is what a peer of another build understands by it.
TEST(EndpointGolden, StatusCodes) {
  const std::vector<std::pair<uint64_t, Code>> table = {
      {0, Code::kOk},      {1, Code::kInvalidArgument}, {2, Code::kNotFound},  {3, Code::kUnsupported}, {4, Code::kBadConfig},
      {5, Code::kTimeout}, {6, Code::kPeerGone},        {7, Code::kProtocol},  {8, Code::kPlugin},      {9, Code::kCuda},
      {10, Code::kSystem}, {11, Code::kExhausted},      {12, Code::kMismatch}, {13, Code::kInternal},   {14, Code::kCancelled},
  };
  for (const auto& [number, code] : table) {
    EXPECT_EQ(static_cast<uint64_t>(code), number);
    DoneFrame done;
    EXPECT_TRUE(decode(make_header(FrameType::kDone, kOperation, number), {}, done).is_ok());
    EXPECT_EQ(done.status.code(), code);
  }
}

// Both ends count the same window, cut the same pieces and choose alike: numbers that are part of the protocol too.
TEST(EndpointGolden, Numbers) {
  EXPECT_EQ(kFrameMagic, 0x58504354u);
  EXPECT_EQ(kProtocolVersion, 14);
  EXPECT_EQ(kMaxInlineBytes, 65536u);
  EXPECT_EQ(kMaxWireRanges, 16384u);
  EXPECT_EQ(kMaxNotifyNameBytes, 256u);
  EXPECT_EQ(kMaxNotifyTextBytes, 1048576u);
  EXPECT_EQ(kInlineWindowBytes, 4194304u);
  EXPECT_EQ(window_cost(0), 64u);
  EXPECT_EQ(window_cost(1000), 1064u);
  EXPECT_EQ(kOfferWindowBytes, 16777216u);
  EXPECT_EQ(credit_step(Window::kRest), 262144u);
  EXPECT_EQ(credit_step(Window::kRestOffers), 4194304u);
  EXPECT_EQ(kSmallWindowBytes, 262144u);
  EXPECT_EQ(credit_step(Window::kRest, kSmallWindowBytes), 16384u);
  EXPECT_EQ(credit_step(Window::kRestOffers, kSmallWindowBytes), 65536u);
  EXPECT_EQ(window_cost(Window::kRest, 1000, 0, 2, 30), 64u + 1000 + 2 * 32 + 30);
  EXPECT_EQ(window_cost(Window::kSendOffers, 0, 3, 0, 30), 256u + 3 * 8 + 30);
  EXPECT_EQ(window_cost(Window::kRestOffers, 0, 0, 2, 30, 50), 256u + 2 * 32 + 50 + 30);
  EXPECT_EQ(kParcelBytes, 1048576u);
  EXPECT_EQ(kDirectRangeBytes, 262144u);
}

}  // namespace
}  // namespace tcpx::testing
