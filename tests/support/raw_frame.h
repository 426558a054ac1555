// Frames of a control connection as a peer may write them that keeps to nothing: any numbers in the header, any payload behind
// it. Frames of our own endpoints are in wire/messages.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lanes/pull/sources.h"
#include "wire/messages.h"

namespace tcpx::testing {

struct RawFrame {
  FrameHeader header;  ///< but for `payload_bytes`
  std::span<const std::byte> payload = {};
};

inline void append_raw(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

/// A ControlStream sends it as it does the frames of wire/messages.h.
inline void encode(const RawFrame& frame, std::vector<std::byte>& out) {
  FrameHeader header = frame.header;
  header.payload_bytes = static_cast<uint32_t>(frame.payload.size());
  append_raw(out, std::as_bytes(std::span(&header, 1)));
  append_raw(out, frame.payload);
}

inline FrameHeader make_header(FrameType type, uint64_t operation = 0, uint64_t value = 0, uint64_t bytes = 0,
                                 Packing packing = Packing::kWhole, Way way = Way::kNetwork) {
  FrameHeader header = header_of(type);
  header.packing = static_cast<uint8_t>(packing);
  header.way = static_cast<uint8_t>(way);
  header.operation = operation;
  header.value = value;
  header.bytes = bytes;
  return header;
}

/// Payload of a frame that begins an operation, with permitted and forbidden contents.
struct OperationPayload {
  std::vector<uint64_t> lengths;
  std::vector<WireRange> ranges;
  std::vector<WireSource> sources;  ///< empty: no offer of a pull
  bool ring = false;                ///< an offer of the ring
  bool has_notify = false;
  std::string notify_name, notify_text;
  std::span<const std::byte> data;
};

/// The offers of a peer of the same host.
inline std::vector<std::byte> offers_of(const std::vector<WireSource>& sources, bool ring = true) {
  std::vector<std::byte> offers;
  if (!sources.empty()) append_offer(Way::kPull, std::as_bytes(std::span(sources)), offers);
  if (ring) append_offer(Way::kRing, {}, offers);
  return offers;
}

inline void append_operation_payload(std::vector<std::byte>& out, const OperationPayload& payload) {
  const std::string_view name = payload.has_notify ? payload.notify_name : std::string_view();
  const std::string_view text = payload.has_notify ? payload.notify_text : std::string_view();
  const std::vector<std::byte> offers = offers_of(payload.sources, payload.ring);
  const OperationCounts counts{.lengths = static_cast<uint32_t>(payload.lengths.size()),
                               .ranges = static_cast<uint32_t>(payload.ranges.size()),
                               .offers = static_cast<uint32_t>(offers.size()),
                               .notify_count = static_cast<uint16_t>(payload.has_notify ? 1 : 0),
                               .notify_name_bytes = static_cast<uint16_t>(name.size()),
                               .notify_text_bytes = static_cast<uint32_t>(text.size())};
  append_raw(out, std::as_bytes(std::span(&counts, 1)));
  append_raw(out, std::as_bytes(std::span(payload.lengths)));
  append_raw(out, std::as_bytes(std::span(payload.ranges)));
  append_raw(out, offers);
  append_raw(out, std::as_bytes(std::span(name)));
  append_raw(out, std::as_bytes(std::span(text)));
  append_raw(out, payload.data);
}

/// Decodes a frame, whichever it is, and gives it to `take`. @return what `decode` says
template <class Take>
Status decode_any(const FrameHeader& header, std::span<const std::byte> payload, Take take) {
  const auto one = [&]<class Frame>(Frame frame) {
    Status status = decode(header, payload, frame);
    if (status.is_ok()) take(frame);
    return status;
  };
  switch (static_cast<FrameType>(header.type)) {
    case FrameType::kSend:
      return one(SendFrame{});
    case FrameType::kSendData:
      return one(SendDataFrame{});
    case FrameType::kWrite:
      return one(WriteFrame{});
    case FrameType::kWriteData:
      return one(WriteDataFrame{});
    case FrameType::kRead:
      return one(ReadFrame{});
    case FrameType::kReadData:
      return one(ReadDataFrame{});
    case FrameType::kReady:
      return one(ReadyFrame{});
    case FrameType::kGo:
      return one(GoFrame{});
    case FrameType::kDone:
      return one(DoneFrame{});
    case FrameType::kCancel:
      return one(CancelFrame{});
    case FrameType::kCredit:
      return one(CreditFrame{});
    case FrameType::kNotify:
      return one(NotifyFrame{});
    case FrameType::kLane:
      return one(LaneFrame{});
    case FrameType::kBye:
      return one(ByeFrame{});
    case FrameType::kBegin:
      return one(BeginFrame{});
    case FrameType::kPosted:
      return one(PostedFrame{});
    case FrameType::kHello:
    case FrameType::kParameters:
    case FrameType::kHandles:
    case FrameType::kBarrier:
    case FrameType::kFinish:
      break;
  }
  return Status(Code::kProtocol, "test", "no frame of ours");
}

/// What `decode` finds behind the header of a frame that begins an operation or answers a read; empty for others.
inline Status decode_operation_payload(const FrameHeader& header, std::span<const std::byte> payload,
                                       OperationPayload& result) {
  return decode_any(header, payload, [&](const auto& frame) {
    result = {};
    if constexpr (requires { frame.lengths; }) result.lengths = frame.lengths.to_vector();
    if constexpr (requires { frame.ranges; }) result.ranges = frame.ranges.to_vector();
    if constexpr (requires { frame.offers; }) {
      if (const auto words = frame.offers.find(Way::kPull)) result.sources = WireArray<WireSource>(*words).to_vector();
      result.ring = frame.offers.find(Way::kRing).has_value();
    }
    if constexpr (requires { frame.notify->name; }) {
      result.has_notify = frame.notify.has_value();
      if (frame.notify) result.notify_name = frame.notify->name, result.notify_text = frame.notify->text;
    }
    if constexpr (requires { frame.data; }) result.data = frame.data;
  });
}

/// The payload of a frame of ours.
template <class Frame>
std::vector<std::byte> payload_of(const Frame& frame) {
  std::vector<std::byte> whole;
  encode(frame, whole);
  return {whole.begin() + sizeof(FrameHeader), whole.end()};
}

}  // namespace tcpx::testing
