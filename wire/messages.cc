#include "wire/messages.h"

#include <cassert>
#include <cstring>

#include "base/text.h"
#include "wire/operation_payload.h"

namespace tcpx {
namespace {

Status bad(std::string detail) {
  return Status(Code::kProtocol, "read frame", std::move(detail));
}

Status check_type(FrameType type, const FrameHeader& header) {
  if (header.type == static_cast<uint8_t>(type)) return Status::ok();
  return bad(concat("a ", name_of(static_cast<FrameType>(header.type)), " where a ", name_of(type), " belongs"));
}

Packing packing_of(const FrameHeader& header) {
  return static_cast<Packing>(header.packing);
}

bool has_begun(const FrameHeader& header) {
  return (header.flags & kBegunFlag) != 0;
}

struct HeaderFields {
  uint64_t operation = 0, value = 0, bytes = 0;
  Packing packing = Packing::kWhole;
  Way way = Way::kNetwork;
  bool begun = false;
};

// @param append_payload appends the payload to `out`, without the `data` that the caller will append
template <class AppendPayload>
void append_frame(std::vector<std::byte>& out, FrameType type, const HeaderFields& fields, AppendPayload append_payload,
                  std::span<const std::byte> data = {}) {
  FrameHeader header = header_of(type);
  header.packing = static_cast<uint8_t>(fields.packing);
  header.way = static_cast<uint8_t>(fields.way);
  header.flags = fields.begun ? kBegunFlag : uint16_t{0};
  header.operation = fields.operation;
  header.value = fields.value;
  header.bytes = fields.bytes;
  const size_t begin = out.size();
  append(out, std::as_bytes(std::span(&header, 1)));
  append_payload();
  const size_t payload = out.size() - begin - sizeof header + data.size();
  assert(payload <= kMaxPayloadBytes);
  const auto payload_bytes = static_cast<uint32_t>(payload);
  std::memcpy(out.data() + begin + offsetof(FrameHeader, payload_bytes), &payload_bytes, sizeof payload_bytes);
}

void append_frame(std::vector<std::byte>& out, FrameType type, const HeaderFields& fields) {
  append_frame(out, type, fields, [] {});
}

}  // namespace

std::string name_of(Way way) {
  switch (way) {
    case Way::kNetwork:
      return "network";
    case Way::kPull:
      return "pull";
    case Way::kRing:
      return "ring";
  }
  return concat("way ", static_cast<unsigned>(way));
}

template <FrameType type>
void encode_head(const OperationFrame<type>& frame, std::vector<std::byte>& out) {
  constexpr bool kHasData = type == FrameType::kSendData || type == FrameType::kWriteData;
  append_frame(
      out, type,
      {.operation = frame.operation,
       .value = frame.sequence,
       .bytes = kHasData ? frame.data.size() : frame.bytes,
       .packing = frame.packing,
       .begun = frame.begun},
      [&] {
        append_payload({.lengths = frame.lengths, .ranges = frame.ranges, .offers = frame.offers, .notify = frame.notify}, out);
      },
      frame.data);
}

template <FrameType type>
void encode(const OperationFrame<type>& frame, std::vector<std::byte>& out) {
  encode_head(frame, out);
  append(out, frame.data);
}

template <FrameType type>
Status decode(const FrameHeader& header, std::span<const std::byte> payload, OperationFrame<type>& frame) {
  TCPX_RETURN_IF_ERROR(check_type(type, header));
  OperationFields fields;
  TCPX_RETURN_IF_ERROR(decode_payload(header, payload, fields));
  frame = {.operation = header.operation,
           .sequence = header.value,
           .bytes = header.bytes,
           .packing = packing_of(header),
           .begun = has_begun(header),
           .lengths = fields.lengths,
           .ranges = fields.ranges,
           .offers = fields.offers,
           .notify = fields.notify,
           .data = fields.data};
  return Status::ok();
}

template void encode_head(const SendFrame&, std::vector<std::byte>&);
template void encode(const SendFrame&, std::vector<std::byte>&);
template void encode_head(const SendDataFrame&, std::vector<std::byte>&);
template void encode(const SendDataFrame&, std::vector<std::byte>&);
template void encode_head(const WriteFrame&, std::vector<std::byte>&);
template void encode(const WriteFrame&, std::vector<std::byte>&);
template void encode_head(const WriteDataFrame&, std::vector<std::byte>&);
template void encode(const WriteDataFrame&, std::vector<std::byte>&);
template void encode_head(const ReadFrame&, std::vector<std::byte>&);
template void encode(const ReadFrame&, std::vector<std::byte>&);
template Status decode(const FrameHeader&, std::span<const std::byte>, SendFrame&);
template Status decode(const FrameHeader&, std::span<const std::byte>, SendDataFrame&);
template Status decode(const FrameHeader&, std::span<const std::byte>, WriteFrame&);
template Status decode(const FrameHeader&, std::span<const std::byte>, WriteDataFrame&);
template Status decode(const FrameHeader&, std::span<const std::byte>, ReadFrame&);

void encode_head(const ReadDataFrame& frame, std::vector<std::byte>& out) {
  append_frame(
      out, frame.kType, {.operation = frame.operation, .bytes = frame.data.size()}, [] {}, frame.data);
}

void encode(const ReadDataFrame& frame, std::vector<std::byte>& out) {
  encode_head(frame, out);
  append(out, frame.data);
}

Status decode(const FrameHeader& header, std::span<const std::byte> payload, ReadDataFrame& frame) {
  TCPX_RETURN_IF_ERROR(check_type(frame.kType, header));
  if (header.bytes > kMaxInlineBytes || payload.size() != header.bytes)
    return bad(concat(payload.size(), " bytes of data for a read of ", header.bytes));
  frame = {.operation = header.operation, .data = payload};
  return Status::ok();
}

void encode(const ReadyFrame& frame, std::vector<std::byte>& out) {
  append_frame(out, frame.kType,
               {.operation = frame.operation, .bytes = frame.bytes, .packing = frame.packing, .begun = frame.begun},
               [&] { append(out, frame.offers.raw()); });
}

Status decode(const FrameHeader& header, std::span<const std::byte> payload, ReadyFrame& frame) {
  TCPX_RETURN_IF_ERROR(check_type(frame.kType, header));
  TCPX_RETURN_IF_ERROR(check_offers(payload));
  frame = {.operation = header.operation,
           .bytes = header.bytes,
           .packing = packing_of(header),
           .begun = has_begun(header),
           .offers = WireOffers(payload)};
  return Status::ok();
}

void encode(const GoFrame& frame, std::vector<std::byte>& out) {
  append_frame(out, frame.kType,
               {.operation = frame.operation,
                .value = frame.of_read ? uint64_t{1} : 0,
                .packing = frame.packing,
                .way = frame.way});
}

Status decode(const FrameHeader& header, std::span<const std::byte> /*payload*/, GoFrame& frame) {
  TCPX_RETURN_IF_ERROR(check_type(frame.kType, header));
  frame = {.operation = header.operation,
           .of_read = header.value == 1,
           .way = static_cast<Way>(header.way),
           .packing = packing_of(header)};
  return Status::ok();
}

void encode(const BeginFrame& frame, std::vector<std::byte>& out) {
  append_frame(out, frame.kType, {.operation = frame.operation, .value = frame.of_read ? uint64_t{1} : 0});
}

Status decode(const FrameHeader& header, std::span<const std::byte> /*payload*/, BeginFrame& frame) {
  TCPX_RETURN_IF_ERROR(check_type(frame.kType, header));
  frame = {.operation = header.operation, .of_read = header.value == 1};
  return Status::ok();
}

void encode(const PostedFrame& frame, std::vector<std::byte>& out) {
  append_frame(out, frame.kType, {.value = frame.sequence, .bytes = frame.bytes, .packing = frame.packing});
}

Status decode(const FrameHeader& header, std::span<const std::byte> /*payload*/, PostedFrame& frame) {
  TCPX_RETURN_IF_ERROR(check_type(frame.kType, header));
  frame = {.sequence = header.value, .bytes = header.bytes, .packing = packing_of(header)};
  return Status::ok();
}

void encode(const DoneFrame& frame, std::vector<std::byte>& out) {
  append_frame(out, frame.kType, {.operation = frame.operation, .value = static_cast<uint64_t>(frame.status.code())},
               [&] { append(out, text_for_peer(frame.status)); });
}

Status decode(const FrameHeader& header, std::span<const std::byte> payload, DoneFrame& frame) {
  TCPX_RETURN_IF_ERROR(check_type(frame.kType, header));
  frame = {.operation = header.operation, .status = status_of_peer(header.value, payload)};
  return Status::ok();
}

void encode(const CancelFrame& frame, std::vector<std::byte>& out) {
  append_frame(out, frame.kType,
               {.operation = frame.operation, .value = frame.sequence, .bytes = static_cast<uint64_t>(frame.what)});
}

Status decode(const FrameHeader& header, std::span<const std::byte> /*payload*/, CancelFrame& frame) {
  TCPX_RETURN_IF_ERROR(check_type(frame.kType, header));
  if (header.bytes > static_cast<uint64_t>(CancelFrame::What::kGone)) return bad(concat("cancels ", header.bytes));
  frame = {.operation = header.operation, .sequence = header.value, .what = static_cast<CancelFrame::What>(header.bytes)};
  return Status::ok();
}

void encode(const CreditFrame& frame, std::vector<std::byte>& out) {
  append_frame(out, frame.kType, {.operation = static_cast<uint64_t>(frame.window), .value = frame.size, .bytes = frame.bytes});
}

Status decode(const FrameHeader& header, std::span<const std::byte> /*payload*/, CreditFrame& frame) {
  TCPX_RETURN_IF_ERROR(check_type(frame.kType, header));
  if (header.operation >= kWindows) return bad(concat("credit for window ", header.operation));
  frame = {.window = static_cast<Window>(header.operation), .bytes = header.bytes, .size = header.value};
  return Status::ok();
}

void encode(const NotifyFrame& frame, std::vector<std::byte>& out) {
  const auto [name, text] = frame.notify;
  assert(name.size() <= kMaxNotifyNameBytes && text.size() <= kMaxNotifyTextBytes);
  append_frame(out, frame.kType, {}, [&, name = name, text = text] {
    const auto name_bytes = static_cast<uint32_t>(name.size());
    append(out, std::as_bytes(std::span(&name_bytes, 1)));
    append(out, name);
    append(out, text);
  });
}

Status decode(const FrameHeader& header, std::span<const std::byte> payload, NotifyFrame& frame) {
  TCPX_RETURN_IF_ERROR(check_type(frame.kType, header));
  if (payload.size() < sizeof(uint32_t)) return bad(concat("a notification of ", payload.size(), " bytes"));
  const auto name_bytes = WireArray<uint32_t>(payload.first(sizeof(uint32_t)))[0];
  const auto rest = payload.subspan(sizeof name_bytes);
  if (name_bytes > kMaxNotifyNameBytes || name_bytes > rest.size() || rest.size() - name_bytes > kMaxNotifyTextBytes)
    return bad(concat("a notification of ", rest.size(), " bytes with a name of ", name_bytes));
  frame.notify.name = text_of(rest.first(name_bytes));
  frame.notify.text = text_of(rest.subspan(name_bytes));
  return Status::ok();
}

void encode(const LaneFrame& frame, std::vector<std::byte>& out) {
  assert(frame.words.size() <= kMaxLaneFrameBytes);
  append_frame(out, frame.kType,
               {.operation = frame.number, .value = frame.what, .bytes = frame.to_sender ? uint64_t{1} : 0, .way = frame.way},
               [&] { append(out, frame.words); });
}

Status decode(const FrameHeader& header, std::span<const std::byte> payload, LaneFrame& frame) {
  TCPX_RETURN_IF_ERROR(check_type(frame.kType, header));
  frame = {.way = static_cast<Way>(header.way),
           .to_sender = header.bytes == 1,
           .what = header.value,
           .number = header.operation,
           .words = payload};
  return Status::ok();
}

void encode(const ByeFrame& frame, std::vector<std::byte>& out) {
  append_frame(out, frame.kType, {});
}

Status decode(const FrameHeader& header, std::span<const std::byte> /*payload*/, ByeFrame& frame) {
  return check_type(frame.kType, header);
}

Status unexpected(FrameType type, uint64_t operation, std::string_view why) {
  return Status(Code::kProtocol, concat("read \"", name_of(type), '"'), concat("operation ", operation, ": ", why));
}

}  // namespace tcpx
