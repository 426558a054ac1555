// Frames of the control connection besides those that begin an operation: headers, statuses, notifications.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "wire/messages.h"
#include "tests/support/raw_frame.h"

namespace tcpx {
namespace {

using namespace testing;  // NOLINT: a test's own helpers

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

using Bytes = std::vector<std::byte>;

Bytes text_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(EndpointFrames, HeadersAreChecked) {
  for (uint8_t type = 1; type <= kLastFrameType; ++type) {
    EXPECT_TRUE(check_header(make_header(static_cast<FrameType>(type))).is_ok());
    EXPECT_NE(name_of(static_cast<FrameType>(type)), "unknown");
  }
  const auto code_with = [](const std::function<void(FrameHeader&)>& change) {
    FrameHeader header = make_header(FrameType::kSend, 1, 2, 3, Packing::kPacked);
    change(header);
    return check_header(header).code();
  };
  EXPECT_EQ(code_with([](FrameHeader&) {}), Code::kOk);
  EXPECT_EQ(code_with([](FrameHeader& h) { h.magic = 0x4359; }), Code::kProtocol);
  EXPECT_EQ(code_with([](FrameHeader& h) { h.type = 0; }), Code::kProtocol);
  EXPECT_EQ(code_with([](FrameHeader& h) { h.type = kLastFrameType + 1; }), Code::kProtocol);
  EXPECT_EQ(code_with([](FrameHeader& h) { h.type = 255; }), Code::kProtocol);
  EXPECT_EQ(code_with([](FrameHeader& h) { h.packing = 3; }), Code::kProtocol);
  EXPECT_EQ(code_with([](FrameHeader& h) { h.way = 31; }), Code::kOk);
  EXPECT_EQ(code_with([](FrameHeader& h) { h.way = 32; }), Code::kProtocol);
  EXPECT_EQ(code_with([](FrameHeader& h) { h.flags = 0xffff, h.reserved = 9; }), Code::kOk);
  EXPECT_EQ(code_with([](FrameHeader& h) { h.operation = h.value = h.bytes = kMost; }), Code::kOk);
}

TEST(EndpointFrames, OtherVersionsAreNamed) {
  for (const int version : {0, 1, kProtocolVersion - 1, kProtocolVersion + 1, 255}) {
    FrameHeader header = make_header(FrameType::kSend);
    header.version = static_cast<uint8_t>(version);
    const Status status = check_header(header);
    EXPECT_EQ(status.code(), Code::kUnsupported) << version;
    EXPECT_EQ(status.detail(), concat("the peer speaks version ", version, " of the protocol, this build speaks 14"));
  }
}

TEST(EndpointFrames, OffersAreCheckedAndFound) {
  Bytes offers;
  append_offer(Way::kRing, {}, offers);
  append_offer(Way{31}, text_bytes("abc"), offers);
  append_offer(Way::kPull, text_bytes("words"), offers);
  ASSERT_TRUE(check_offers(offers).is_ok());
  const auto words = [&](Way way) {
    const auto found = WireOffers(offers).find(way);
    return found ? std::string(reinterpret_cast<const char*>(found->data()), found->size()) : "none";
  };
  EXPECT_EQ(words(Way::kPull), "words");
  EXPECT_EQ(words(Way{31}), "abc");
  EXPECT_EQ(words(Way::kRing), "");
  EXPECT_EQ(words(Way{30}), "none");
  for (size_t bytes = 1; bytes < offers.size(); ++bytes) {
    const bool whole = bytes == 8 || bytes == 19;
    EXPECT_EQ(check_offers(std::span(offers).first(bytes)).is_ok(), whole) << bytes;
  }
  for (const Way again : {Way::kPull, Way{31}, Way::kNetwork, Way{32}, Way{255}}) {
    Bytes more = offers;
    append_offer(again, {}, more);
    EXPECT_EQ(check_offers(more).code(), Code::kProtocol) << name_of(again);
  }
}

TEST(EndpointFrames, PayloadsAreNoLongerThanTheirType) {
  const std::vector<std::pair<FrameType, uint32_t>> longest = {
      {FrameType::kSend, 2097152},     {FrameType::kSendData, 2097152},
      {FrameType::kWrite, 2097152},    {FrameType::kWriteData, 2097152},
      {FrameType::kRead, 2097152},     {FrameType::kReadData, 65536},
      {FrameType::kReady, 393472},     {FrameType::kGo, 0},
      {FrameType::kDone, 1024},        {FrameType::kCancel, 0},
      {FrameType::kCredit, 0},         {FrameType::kNotify, 4 + 256 + 1048576},
      {FrameType::kBye, 1024},         {FrameType::kHello, 65536},
      {FrameType::kParameters, 65536}, {FrameType::kHandles, 65536},
      {FrameType::kBarrier, 0},        {FrameType::kFinish, 1024},
      {FrameType::kLane, 4096},        {FrameType::kBegin, 0},
      {FrameType::kPosted, 0},
  };
  EXPECT_EQ(longest.size(), size_t{kLastFrameType});
  for (const auto& [type, bytes] : longest) {
    FrameHeader header = make_header(type);
    header.payload_bytes = bytes;
    EXPECT_TRUE(check_header(header).is_ok()) << name_of(type);
    for (const uint32_t more : {bytes + 1, 0xffffffffu}) {
      header.payload_bytes = more;
      EXPECT_EQ(check_header(header).code(), Code::kProtocol) << name_of(type);
    }
  }
}

Status read_done(uint64_t code, const Bytes& text) {
  DoneFrame frame;
  EXPECT_TRUE(decode(make_header(FrameType::kDone, 7, code), text, frame).is_ok());
  EXPECT_EQ(frame.operation, 7u);
  return frame.status;
}

TEST(EndpointFrames, ForeignStatusesAreBounded) {
  for (const uint64_t code : {static_cast<uint64_t>(kLastCode) + 1, uint64_t{1} << 32, kMost}) {
    const Status status = read_done(code, text_bytes("from later"));
    EXPECT_EQ(status.code(), Code::kProtocol);
    EXPECT_EQ(status.detail(), concat("unknown code ", code, ": from later"));
  }
  EXPECT_EQ(read_done(1, text_bytes("a\nb\x1b[31m\xff")).detail(), "a.b.[31m.");
  EXPECT_EQ(read_done(1, Bytes(100'000, std::byte{'x'})).detail().size(), kMaxStatusTextBytes);
  const Status longest(Code::kSystem, "op", std::string(100'000, 'x'));
  EXPECT_EQ(payload_of(DoneFrame{.status = longest}).size(), kMaxStatusTextBytes);
}

TEST(EndpointFrames, NotificationsComeBack) {
  const std::string longest_name(kMaxNotifyNameBytes, 'n'), longest_text(kMaxNotifyTextBytes, '\0');
  for (const auto& [name, text] : std::vector<std::pair<std::string, std::string>>{
           {"a", "b"}, {"", ""}, {"name", ""}, {"", "text"}, {longest_name, longest_text}}) {
    const Bytes payload = payload_of(NotifyFrame{.notify = {name, text}});
    NotifyFrame read{.notify = {"before", "before"}};
    ASSERT_TRUE(decode(make_header(FrameType::kNotify), payload, read).is_ok());
    EXPECT_EQ(read.notify.name, name);
    EXPECT_EQ(read.notify.text, text);
  }
}

TEST(EndpointFrames, NotificationsThatDoNotAddUpAreRefused) {
  const auto refused = [](const Bytes& payload) {
    NotifyFrame frame{.notify = {"before", "before"}};
    return decode(make_header(FrameType::kNotify), payload, frame).code() == Code::kProtocol && frame.notify.name == "before" &&
           frame.notify.text == "before";
  };
  const Bytes whole = payload_of(NotifyFrame{.notify = {"name", ""}});
  for (size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_TRUE(refused(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes)))) << bytes;
  for (const uint32_t claimed : {5u, kMaxNotifyNameBytes + 1, 0xffffffffu}) {
    Bytes payload = whole;
    std::memcpy(payload.data(), &claimed, sizeof claimed);
    EXPECT_TRUE(refused(payload)) << claimed;
  }
  Bytes long_name(4 + 1000), long_text(4 + kMaxNotifyTextBytes + 1);
  const uint32_t bytes = kMaxNotifyNameBytes + 1;
  std::memcpy(long_name.data(), &bytes, sizeof bytes);
  EXPECT_TRUE(refused(long_name));
  EXPECT_TRUE(refused(long_text));
}

}  // namespace
}  // namespace tcpx
