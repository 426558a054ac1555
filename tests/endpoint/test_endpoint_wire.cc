// Frames that begin an operation: encoded ones come back, inconsistent ones do not.
#include "wire/messages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>

#include "base/text.h"
#include "tests/support/raw_frame.h"

namespace tcpx {
namespace {

using namespace testing;  // NOLINT: a test's own helpers

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

struct Sample {
  FrameHeader header;
  OperationPayload payload;
};

const Bytes& inline_data() {
  static const Bytes data = bytes_of("0123456789");
  return data;
}

Sample sample(FrameType type, Packing packing = Packing::kWhole) {
  Sample made{.header = make_header(type, 7, 3, 10, packing), .payload = {}};
  if (type == FrameType::kSend && packing == Packing::kRanges) made.payload.lengths = {3, 0, 7};
  if (type == FrameType::kWrite || type == FrameType::kWriteData || type == FrameType::kRead) {
    made.payload.ranges = {{.slot = {10, 11}, .offset = 5, .bytes = 10}};
    if (packing != Packing::kWhole) made.payload.ranges = {{{10, 11}, 5, 4}, {{kHuge, kHuge}, kHuge - 6, 6}};
  }
  if (type != FrameType::kRead && type != FrameType::kReadData) {
    made.payload.has_notify = true;
    made.payload.notify_name = "layer";
    made.payload.notify_text = std::string("is\0ready", 8);
  }
  if (type == FrameType::kSendData || type == FrameType::kWriteData || type == FrameType::kReadData)
    made.payload.data = inline_data();
  return made;
}

std::vector<Sample> samples() {
  std::vector<Sample> all;
  for (const FrameType type : {FrameType::kSend, FrameType::kSendData, FrameType::kWrite, FrameType::kWriteData,
                                 FrameType::kRead, FrameType::kReadData}) {
    for (const Packing packing : {Packing::kWhole, Packing::kRanges, Packing::kPacked}) all.push_back(sample(type, packing));
  }
  Sample quiet = sample(FrameType::kWrite);
  quiet.payload.has_notify = false;
  quiet.payload.notify_name = quiet.payload.notify_text = "";
  all.push_back(quiet);
  Sample empty_notification = quiet;
  empty_notification.payload.has_notify = true;
  all.push_back(empty_notification);
  return all;
}

Bytes encode(const Sample& from) {
  Bytes out;
  if (from.header.type == static_cast<uint8_t>(FrameType::kReadData)) {
    out.assign(from.payload.data.begin(), from.payload.data.end());
  } else {
    append_operation_payload(out, from.payload);
  }
  return out;
}

std::string describe(const FrameHeader& header) {
  return concat(name_of(static_cast<FrameType>(header.type)), ", packing ", header.packing);
}

/// Refused, with nothing written.
void expect_refused(const FrameHeader& header, const Bytes& payload, const std::string& what) {
  OperationPayload result;
  result.lengths = {42};
  result.notify_name = "untouched";
  const Status status = decode_operation_payload(header, payload, result);
  EXPECT_EQ(status.code(), Code::kProtocol) << describe(header) << ": " << what;
  EXPECT_FALSE(status.is_ok() || status.detail().empty()) << what;
  EXPECT_EQ(result.lengths, std::vector<uint64_t>{42}) << what;
  EXPECT_EQ(result.notify_name, "untouched") << what;
}

void expect_refused(const Sample& from, const std::string& what) {
  expect_refused(from.header, encode(from), what);
}

/// The sample's frame with changed counts.
void expect_counts_refused(const Sample& from, const std::function<void(OperationCounts&)>& change, const std::string& what) {
  Bytes payload = encode(from);
  OperationCounts counts;
  std::memcpy(&counts, payload.data(), sizeof counts);
  change(counts);
  std::memcpy(payload.data(), &counts, sizeof counts);
  expect_refused(from.header, payload, what);
}

TEST(EndpointWire, AsMuchAsIsAllowedComesBack) {
  Sample from = sample(FrameType::kWriteData);
  const Bytes data(kMaxInlineBytes);
  from.header.bytes = data.size();
  from.payload.ranges.assign(kMaxWireRanges, WireRange{.slot = {0, 1}, .offset = 0, .bytes = data.size() / kMaxWireRanges});
  from.payload.notify_name.assign(kMaxNotifyNameBytes, 'n');
  from.payload.notify_text.assign(kMaxNotifyTextBytes, 't');
  from.payload.data = data;
  Bytes payload = encode(from);
  EXPECT_LE(payload.size(), kMaxPayloadBytes);
  OperationPayload result;
  const Status status = decode_operation_payload(from.header, payload, result);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(result.ranges.size(), size_t{kMaxWireRanges});
  EXPECT_EQ(result.data.size(), data.size());

  Sample sends = sample(FrameType::kSend, Packing::kRanges);
  sends.payload.lengths.assign(kMaxWireRanges, 1);
  sends.header.bytes = kMaxWireRanges;
  payload = encode(sends);
  ASSERT_TRUE(decode_operation_payload(sends.header, payload, result).is_ok());
  EXPECT_EQ(result.lengths.size(), size_t{kMaxWireRanges});
}

// Nothing is copied, and so nothing allocated, until somebody keeps it.
TEST(EndpointWire, ADecodedFrameLiesInItsPayload) {
  const Sample from = sample(FrameType::kWriteData);
  const Bytes payload = encode(from);
  WriteDataFrame frame;
  ASSERT_TRUE(decode(from.header, payload, frame).is_ok());
  EXPECT_EQ(frame.ranges.raw().data(), payload.data() + sizeof(OperationCounts));
  EXPECT_EQ(frame.data.data() + frame.data.size(), payload.data() + payload.size());
}

TEST(EndpointWire, AnOperationCutAnywhereIsRefused) {
  for (const Sample& from : samples()) {
    const Bytes whole = encode(from);
    for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(bytes));
      expect_refused(from.header, cut, concat("cut after ", bytes, " bytes"));
    }
    Bytes longer = whole;
    longer.push_back(std::byte{0});
    expect_refused(from.header, longer, "one byte more");
  }
}

TEST(EndpointWire, CountsOutOfRangeAreRefused) {
  const auto all = samples();
  for (const Sample& from : all) {
    if (from.header.type == static_cast<uint8_t>(FrameType::kReadData)) continue;
    for (const uint32_t count : {kMaxWireRanges + 1, 0x20000001u, 0x80000000u, 0xffffffffu}) {
      expect_counts_refused(
          from, [&](OperationCounts& counts) { counts.lengths = count; }, concat(count, " lengths"));
      expect_counts_refused(
          from, [&](OperationCounts& counts) { counts.ranges = count; }, concat(count, " ranges"));
    }
    expect_counts_refused(
        from, [](OperationCounts& counts) { ++counts.lengths; }, "a length more");
    expect_counts_refused(
        from, [](OperationCounts& counts) { ++counts.ranges; }, "a range more");
    expect_counts_refused(
        from, [](OperationCounts& counts) { counts.notify_count = 2; }, "two notifications");
    for (const uint16_t bytes : {uint16_t{kMaxNotifyNameBytes + 1}, uint16_t{0xffff}})
      expect_counts_refused(
          from, [&](OperationCounts& counts) { counts.notify_name_bytes = bytes; }, "a long name");
    for (const uint32_t bytes : {kMaxNotifyTextBytes + 1, 0x80000000u, 0xffffffffu})
      expect_counts_refused(
          from, [&](OperationCounts& counts) { counts.notify_text_bytes = bytes; }, "a long text");
  }
  // Too long or too many also where the bytes are there.
  for (const FrameType type : {FrameType::kSend, FrameType::kSendData, FrameType::kWrite, FrameType::kWriteData}) {
    Sample from = sample(type);
    from.payload.notify_text.assign(kMaxNotifyTextBytes + 1, 't');
    expect_refused(from, "a text too long by one byte");
  }
  Bytes payload(sizeof(OperationCounts) + (kMaxWireRanges + 1) * sizeof(uint64_t));
  OperationCounts counts{};
  counts.lengths = kMaxWireRanges + 1;
  std::memcpy(payload.data(), &counts, sizeof counts);
  expect_refused(make_header(FrameType::kSend, 1, 1, 0, Packing::kRanges), payload, "too many lengths");
  expect_counts_refused(
      sample(FrameType::kSend), [](OperationCounts& c) { c.notify_count = 0; }, "text of no notification");
}

TEST(EndpointWire, OnlyTheTypeSaysWhatAFrameHas) {
  Sample from = sample(FrameType::kSend, Packing::kRanges);
  from.payload.lengths.clear();
  expect_refused(from, "ranges without lengths");
  for (const Packing packing : {Packing::kWhole, Packing::kPacked}) {
    from = sample(FrameType::kSend, packing);
    from.payload.lengths = {10};
    expect_refused(from, "lengths nobody asked for");
  }
  for (const FrameType type : {FrameType::kSendData, FrameType::kWrite, FrameType::kWriteData, FrameType::kRead}) {
    from = sample(type, Packing::kRanges);
    from.payload.lengths = {10};
    expect_refused(from, "lengths");
  }
  for (const FrameType type : {FrameType::kSend, FrameType::kSendData}) {
    from = sample(type);
    from.payload.ranges = {{{0, 1}, 0, 10}};
    expect_refused(from, "ranges");
  }
  from = sample(FrameType::kRead);
  from.payload.has_notify = true;
  expect_refused(from, "a read with a notification");
  from = sample(FrameType::kWrite);
  from.payload.ranges = {{{0, 1}, 0, 4}, {{0, 1}, 4, 6}};
  expect_refused(from, "a whole write of two ranges");
  from.payload.ranges.clear();
  from.header.bytes = 0;
  expect_refused(from, "a whole write of no range");
  for (const FrameType type : {FrameType::kSend, FrameType::kWrite, FrameType::kRead}) {
    from = sample(type);
    from.payload.data = inline_data();
    expect_refused(from, "data");
  }
}

TEST(EndpointWire, BytesThatDoNotAgreeAreRefused) {
  for (Sample from : samples()) {
    // Nothing in a send without lengths says how many bytes it has.
    const bool alone = from.header.type == static_cast<uint8_t>(FrameType::kSend) && from.payload.lengths.empty();
    if (alone) continue;
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{9}, uint64_t{11}, kHuge}) {
      from.header.bytes = bytes;
      expect_refused(from, concat(bytes, " bytes"));
    }
  }
  const Bytes data(kMaxInlineBytes + 1);
  for (const FrameType type : {FrameType::kSendData, FrameType::kWriteData, FrameType::kReadData}) {
    Sample from = sample(type);
    from.header.bytes = data.size();
    from.payload.data = data;
    if (type == FrameType::kWriteData) from.payload.ranges = {{{0, 1}, 0, data.size()}};
    expect_refused(from, "too much data");
  }
}

TEST(EndpointWire, SumsThatWrapAreRefused) {
  Sample sends = sample(FrameType::kSend, Packing::kRanges);
  sends.payload.lengths = {kHuge, 11};  // 10 when it wraps
  expect_refused(sends, "lengths that wrap");
  for (const FrameType type : {FrameType::kWrite, FrameType::kWriteData, FrameType::kRead}) {
    Sample from = sample(type, Packing::kPacked);
    from.payload.ranges = {{{0, 1}, 0, kHuge}, {{0, 1}, 0, 11}};
    expect_refused(from, "ranges that wrap");
    from.payload.ranges = {{{0, 1}, kHuge - 8, 10}};
    expect_refused(from, "a range whose end wraps");
    from.payload.ranges = {{{0, 1}, kHuge - 9, 9}, {{0, 1}, 0, 1}};
    const Bytes payload = encode(from);
    OperationPayload result;
    EXPECT_TRUE(decode_operation_payload(from.header, payload, result).is_ok()) << "an end that just does not wrap";
  }
}

}  // namespace
}  // namespace tcpx
