#include "endpoint/wire.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/text.h"
#include "transfer/bootstrap_frame.h"
#include "transfer/peer_messages.h"

namespace tcpx {
namespace {

Status bad(std::string detail) {
  return Status(Code::kProtocol, "read control frame", std::move(detail));
}

template <class T>
T load(std::span<const std::byte> bytes, size_t index = 0) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

void append(std::vector<std::byte>& out, const void* data, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  out.insert(out.end(), begin, begin + bytes);
}

bool has_data(ControlType type) {
  return type == ControlType::kSendData || type == ControlType::kWriteData || type == ControlType::kReadData;
}
bool has_ranges(ControlType type) {
  return type == ControlType::kWrite || type == ControlType::kWriteData || type == ControlType::kRead;
}
bool may_notify(ControlType type) {
  return type == ControlType::kSend || type == ControlType::kSendData || type == ControlType::kWrite ||
         type == ControlType::kWriteData;
}

uint32_t longest_payload(ControlType type) {
  switch (type) {
    case ControlType::kSend:
    case ControlType::kSendData:
    case ControlType::kWrite:
    case ControlType::kWriteData:
    case ControlType::kRead:
      return kMaxControlPayloadBytes;
    case ControlType::kReadData:
      return kMaxInlineBytes;
    case ControlType::kDone:
    case ControlType::kBye:
      return kMaxStatusTextBytes;
    case ControlType::kNotify:
      return sizeof(uint32_t) + kMaxNotifyNameBytes + kMaxNotifyTextBytes;
    case ControlType::kPeer:
      return kMaxPeerMessageBytes;
    case ControlType::kReady:
    case ControlType::kGo:
    case ControlType::kCancel:
    case ControlType::kCredit:
      return 0;
  }
  return 0;
}

// The bytes behind the counts, cut as they say.
struct Parts {
  std::span<const std::byte> lengths, ranges, name, text, data;
};

// Counts are bounded, so the sum of what they ask for cannot wrap.
Status cut(ControlType type, const OperationCounts& counts, std::span<const std::byte> rest, Parts& parts) {
  if (counts.lengths > kMaxWireRanges || counts.ranges > kMaxWireRanges)
    return bad(concat("a ", name_of(type), " of ", counts.lengths, " lengths and ", counts.ranges, " ranges"));
  if (counts.notify_count > 1 || counts.notify_name_bytes > kMaxNotifyNameBytes || counts.notify_text_bytes > kMaxNotifyTextBytes)
    return bad(concat(counts.notify_count, " notifications, ", counts.notify_name_bytes, " and ", counts.notify_text_bytes,
                      " bytes long"));
  const size_t lengths_bytes = size_t{counts.lengths} * sizeof(uint64_t);
  const size_t ranges_bytes = size_t{counts.ranges} * sizeof(WireRange);
  const size_t wanted = lengths_bytes + ranges_bytes + counts.notify_name_bytes + counts.notify_text_bytes;
  if (wanted > rest.size()) return bad(concat("a ", name_of(type), " of ", rest.size(), " bytes where ", wanted, " belong"));
  const auto take = [&rest](size_t bytes) {
    const auto front = rest.first(bytes);
    rest = rest.subspan(bytes);
    return front;
  };
  parts.lengths = take(lengths_bytes);
  parts.ranges = take(ranges_bytes);
  parts.name = take(counts.notify_name_bytes);
  parts.text = take(counts.notify_text_bytes);
  parts.data = rest;
  return Status::ok();
}

Status check_parts(const ControlHeader& header, const OperationCounts& counts, const Parts& parts) {
  const auto type = static_cast<ControlType>(header.type);
  const auto packing = static_cast<Packing>(header.packing);
  const bool wants_lengths = type == ControlType::kSend && packing == Packing::kRanges;
  if (wants_lengths != (counts.lengths > 0)) return bad(concat("a ", name_of(type), " of ", counts.lengths, " lengths"));
  if (!has_ranges(type) && counts.ranges > 0) return bad(concat("a ", name_of(type), " of ", counts.ranges, " ranges"));
  if (type == ControlType::kWrite && packing == Packing::kWhole && counts.ranges != 1)
    return bad(concat("one whole write of ", counts.ranges, " ranges"));
  if (counts.notify_count > 0 && !may_notify(type)) return bad(concat("a ", name_of(type), " with a notification"));
  if (counts.notify_count == 0 && parts.name.size() + parts.text.size() > 0) return bad("text of no notification");
  uint64_t sum = 0;
  for (uint32_t i = 0; i < counts.lengths; ++i) {
    if (__builtin_add_overflow(sum, load<uint64_t>(parts.lengths, i), &sum)) return bad("lengths whose sum wraps around");
  }
  for (uint32_t i = 0; i < counts.ranges; ++i) {
    const auto range = load<WireRange>(parts.ranges, i);
    uint64_t end = 0;
    if (__builtin_add_overflow(range.offset, range.bytes, &end) || __builtin_add_overflow(sum, range.bytes, &sum))
      return bad(concat("range ", i, " at ", range.offset, " of ", range.bytes, " bytes wraps around"));
  }
  if ((wants_lengths || has_ranges(type)) && sum != header.bytes)
    return bad(concat("a ", name_of(type), " of ", header.bytes, " bytes in parts of ", sum));
  const size_t data_bytes = has_data(type) ? header.bytes : 0;
  if (data_bytes > kMaxInlineBytes || parts.data.size() != data_bytes)
    return bad(concat(parts.data.size(), " bytes behind a ", name_of(type), " of ", header.bytes));
  return Status::ok();
}

void assign(std::string& text, std::span<const std::byte> bytes) {
  text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

template <class T>
void assign(std::vector<T>& values, std::span<const std::byte> bytes) {
  values.resize(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
}

}  // namespace

std::string_view name_of(ControlType type) {
  switch (type) {
    case ControlType::kSend:
      return "send";
    case ControlType::kSendData:
      return "send with data";
    case ControlType::kWrite:
      return "write";
    case ControlType::kWriteData:
      return "write with data";
    case ControlType::kRead:
      return "read";
    case ControlType::kReadData:
      return "read data";
    case ControlType::kReady:
      return "ready";
    case ControlType::kGo:
      return "go";
    case ControlType::kDone:
      return "done";
    case ControlType::kCancel:
      return "cancel";
    case ControlType::kCredit:
      return "credit";
    case ControlType::kNotify:
      return "notify";
    case ControlType::kPeer:
      return "peer message";
    case ControlType::kBye:
      return "bye";
  }
  return "unknown";
}

ControlHeader make_header(ControlType type, uint64_t operation, uint64_t value, uint64_t bytes, Packing packing) {
  return {.magic = kControlMagic,
          .version = kControlVersion,
          .type = static_cast<uint8_t>(type),
          .packing = static_cast<uint8_t>(packing),
          .reserved_a = 0,
          .flags = 0,
          .payload_bytes = 0,
          .checksum = 0,
          .operation = operation,
          .value = value,
          .bytes = bytes};
}

Status check_header(const ControlHeader& header) {
  if (header.magic != kControlMagic) return bad(concat("it begins with ", Hex{header.magic}));
  if (header.version > kControlVersion) {
    return Status(Code::kUnsupported, "read control frame",
                  concat("the peer speaks control version ", header.version, ", this build speaks ", kControlVersion));
  }
  if (header.version == 0) return bad("version 0");
  if (header.type == 0 || header.type > kLastControlType) return bad(concat("type ", header.type));
  if (header.packing > static_cast<uint8_t>(Packing::kPacked)) return bad(concat("packing ", header.packing));
  const auto type = static_cast<ControlType>(header.type);
  if (header.payload_bytes > longest_payload(type))
    return bad(concat("a ", name_of(type), " frame with a payload of ", header.payload_bytes, " bytes"));
  return Status::ok();
}

void append_operation_payload(std::vector<std::byte>& out, const OperationPayload& payload) {
  assert(payload.lengths.size() <= kMaxWireRanges && payload.ranges.size() <= kMaxWireRanges);
  assert(payload.notify_name.size() <= kMaxNotifyNameBytes && payload.notify_text.size() <= kMaxNotifyTextBytes);
  const std::string_view name = payload.has_notify ? std::string_view(payload.notify_name) : std::string_view();
  const std::string_view text = payload.has_notify ? std::string_view(payload.notify_text) : std::string_view();
  const OperationCounts counts{.lengths = static_cast<uint32_t>(payload.lengths.size()),
                               .ranges = static_cast<uint32_t>(payload.ranges.size()),
                               .notify_count = static_cast<uint16_t>(payload.has_notify ? 1 : 0),
                               .notify_name_bytes = static_cast<uint16_t>(name.size()),
                               .notify_text_bytes = static_cast<uint16_t>(text.size()),
                               .reserved = 0};
  append(out, &counts, sizeof counts);
  append(out, payload.lengths.data(), payload.lengths.size() * sizeof(uint64_t));
  append(out, payload.ranges.data(), payload.ranges.size() * sizeof(WireRange));
  append(out, name.data(), name.size());
  append(out, text.data(), text.size());
  append(out, payload.data.data(), payload.data.size());
}

Status decode_operation_payload(const ControlHeader& header, std::span<const std::byte> payload, OperationPayload& result) {
  const auto type = static_cast<ControlType>(header.type);
  OperationCounts counts{};
  Parts parts;
  if (type == ControlType::kReadData) {
    parts.data = payload;
  } else {
    if (!may_notify(type) && type != ControlType::kRead) return bad(concat("a ", name_of(type), " frame starts no operation"));
    if (payload.size() < sizeof counts) return bad(concat("a ", name_of(type), " with a payload of ", payload.size(), " bytes"));
    counts = load<OperationCounts>(payload);
    TCPX_RETURN_IF_ERROR(cut(type, counts, payload.subspan(sizeof counts), parts));
  }
  TCPX_RETURN_IF_ERROR(check_parts(header, counts, parts));
  assign(result.lengths, parts.lengths);
  assign(result.ranges, parts.ranges);
  result.has_notify = counts.notify_count > 0;
  assign(result.notify_name, parts.name);
  assign(result.notify_text, parts.text);
  result.data = parts.data;
  return Status::ok();
}

std::vector<std::byte> encode_status(const Status& status) {
  std::vector<std::byte> out;
  if (status.is_ok()) return out;
  const std::string text = concat(status.operation(), ": ", status.detail());
  append(out, text.data(), std::min<size_t>(text.size(), kMaxStatusTextBytes));
  return out;
}

Status decode_status(uint64_t code, std::span<const std::byte> payload) {
  if (code == static_cast<uint64_t>(Code::kOk)) return Status::ok();
  const bool known = code <= static_cast<uint64_t>(kLastCode);
  std::string text = printable(payload, kMaxStatusTextBytes);
  if (!known) text = concat("unknown code ", code, ": ", text);
  return Status(known ? static_cast<Code>(code) : Code::kProtocol, "peer reported", std::move(text));
}

std::vector<std::byte> encode_notify(std::string_view name, std::string_view text) {
  assert(name.size() <= kMaxNotifyNameBytes && text.size() <= kMaxNotifyTextBytes);
  const auto name_bytes = static_cast<uint32_t>(name.size());
  std::vector<std::byte> out(sizeof name_bytes + name.size() + text.size());
  std::memcpy(out.data(), &name_bytes, sizeof name_bytes);
  std::copy(text.begin(), text.end(),
            std::copy(name.begin(), name.end(), reinterpret_cast<char*>(out.data()) + sizeof name_bytes));
  return out;
}

Status decode_notify(std::span<const std::byte> payload, std::string& name, std::string& text) {
  if (payload.size() < sizeof(uint32_t)) return bad(concat("a notification of ", payload.size(), " bytes"));
  const auto name_bytes = load<uint32_t>(payload);
  const auto rest = payload.subspan(sizeof name_bytes);
  if (name_bytes > kMaxNotifyNameBytes || name_bytes > rest.size() || rest.size() - name_bytes > kMaxNotifyTextBytes)
    return bad(concat("a notification of ", rest.size(), " bytes with a name of ", name_bytes));
  assign(name, rest.first(name_bytes));
  assign(text, rest.subspan(name_bytes));
  return Status::ok();
}

}  // namespace tcpx
