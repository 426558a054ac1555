#include "wire/operation_payload.h"

#include <cassert>
#include <cstring>

#include "base/text.h"

namespace tcpx {
namespace {

Status bad_payload(std::string detail) {
  return Status(Code::kProtocol, "read control frame", std::move(detail));
}

bool has_data(FrameType type) {
  return type == FrameType::kSendData || type == FrameType::kWriteData;
}
bool has_ranges(FrameType type) {
  return type == FrameType::kWrite || type == FrameType::kWriteData || type == FrameType::kRead;
}
bool may_notify(FrameType type) {
  return type == FrameType::kSend || type == FrameType::kSendData || type == FrameType::kWrite ||
         type == FrameType::kWriteData;
}

// The payload after its counts, cut into parts.
struct Parts {
  WireArray<uint64_t> lengths;
  WireArray<WireRange> ranges;
  std::span<const std::byte> offers;
  std::span<const std::byte> name, text, data;
  bool has_notify = false;
};

// The counts are bounded first, so the sum of their sizes cannot wrap.
Status cut(FrameType type, const OperationCounts& counts, std::span<const std::byte> rest, Parts& parts) {
  if (counts.lengths > kMaxWireRanges || counts.ranges > kMaxWireRanges || counts.offers > kMaxOfferBytes)
    return bad_payload(concat("a ", name_of(type), " of ", counts.lengths, " lengths, ", counts.ranges, " ranges and ",
                              counts.offers, " bytes of offers"));
  if (counts.notify_count > 1 || counts.notify_name_bytes > kMaxNotifyNameBytes || counts.notify_text_bytes > kMaxNotifyTextBytes)
    return bad_payload(concat(counts.notify_count, " notifications, ", counts.notify_name_bytes, " and ",
                              counts.notify_text_bytes, " bytes long"));
  const size_t lengths_bytes = size_t{counts.lengths} * sizeof(uint64_t);
  const size_t ranges_bytes = size_t{counts.ranges} * sizeof(WireRange);
  const size_t wanted = lengths_bytes + ranges_bytes + counts.offers + counts.notify_name_bytes + counts.notify_text_bytes;
  if (wanted > rest.size())
    return bad_payload(concat("a ", name_of(type), " of ", rest.size(), " bytes where ", wanted, " belong"));
  const auto take = [&rest](size_t bytes) {
    const auto front = rest.first(bytes);
    rest = rest.subspan(bytes);
    return front;
  };
  parts.lengths = WireArray<uint64_t>(take(lengths_bytes));
  parts.ranges = WireArray<WireRange>(take(ranges_bytes));
  parts.offers = take(counts.offers);
  parts.has_notify = counts.notify_count > 0;
  parts.name = take(counts.notify_name_bytes);
  parts.text = take(counts.notify_text_bytes);
  parts.data = rest;
  return Status::ok();
}

Status check_parts(const FrameHeader& header, const Parts& parts) {
  const auto type = static_cast<FrameType>(header.type);
  const auto packing = static_cast<Packing>(header.packing);
  const bool wants_lengths = type == FrameType::kSend && packing == Packing::kRanges;
  if (wants_lengths == parts.lengths.empty())
    return bad_payload(concat("a ", name_of(type), " of ", parts.lengths.size(), " lengths"));
  if (!has_ranges(type) && !parts.ranges.empty())
    return bad_payload(concat("a ", name_of(type), " of ", parts.ranges.size(), " ranges"));
  if (type == FrameType::kWrite && packing == Packing::kWhole && parts.ranges.size() != 1)
    return bad_payload(concat("one whole write of ", parts.ranges.size(), " ranges"));
  if (parts.has_notify && !may_notify(type)) return bad_payload(concat("a ", name_of(type), " with a notification"));
  if (!parts.has_notify && parts.name.size() + parts.text.size() > 0) return bad_payload("text of no notification");
  uint64_t sum = 0;
  for (size_t i = 0; i < parts.lengths.size(); ++i) {
    if (__builtin_add_overflow(sum, parts.lengths[i], &sum)) return bad_payload("lengths whose sum wraps around");
  }
  for (size_t i = 0; i < parts.ranges.size(); ++i) {
    const WireRange range = parts.ranges[i];
    uint64_t end = 0;
    if (__builtin_add_overflow(range.offset, range.bytes, &end) || __builtin_add_overflow(sum, range.bytes, &sum))
      return bad_payload(concat("range ", i, " at ", range.offset, " of ", range.bytes, " bytes wraps around"));
  }
  if ((wants_lengths || has_ranges(type)) && sum != header.bytes)
    return bad_payload(concat("a ", name_of(type), " of ", header.bytes, " bytes in parts of ", sum));
  if (!parts.offers.empty() && type != FrameType::kSend && type != FrameType::kWrite)
    return bad_payload(concat("a ", name_of(type), " with offers"));
  TCPX_RETURN_IF_ERROR(check_offers(parts.offers));
  const size_t data_bytes = has_data(type) ? header.bytes : 0;
  if (data_bytes > kMaxInlineBytes || parts.data.size() != data_bytes)
    return bad_payload(concat(parts.data.size(), " bytes of data in a ", name_of(type), " of ", header.bytes));
  return Status::ok();
}

}  // namespace

void append_payload(const OperationFields& fields, std::vector<std::byte>& out) {
  const auto [name, text] = fields.notify.value_or(NotifyText{});
  assert(fields.lengths.size() <= kMaxWireRanges && fields.ranges.size() <= kMaxWireRanges);
  assert(fields.offers.raw().size() <= kMaxOfferBytes);
  assert(name.size() <= kMaxNotifyNameBytes && text.size() <= kMaxNotifyTextBytes);
  const OperationCounts counts{.lengths = static_cast<uint32_t>(fields.lengths.size()),
                               .ranges = static_cast<uint32_t>(fields.ranges.size()),
                               .offers = static_cast<uint32_t>(fields.offers.raw().size()),
                               .notify_count = static_cast<uint16_t>(fields.notify ? 1 : 0),
                               .notify_name_bytes = static_cast<uint16_t>(name.size()),
                               .notify_text_bytes = static_cast<uint32_t>(text.size())};
  append(out, std::as_bytes(std::span(&counts, 1)));
  append(out, fields.lengths.raw());
  append(out, fields.ranges.raw());
  append(out, fields.offers.raw());
  append(out, name);
  append(out, text);
}

std::optional<std::span<const std::byte>> WireOffers::find(Way way) const {
  for (auto rest = bytes_; !rest.empty();) {
    const auto header = WireArray<OfferHeader>(rest.first(sizeof(OfferHeader)))[0];
    rest = rest.subspan(sizeof header);
    if (header.way == static_cast<uint8_t>(way)) return rest.first(header.words);
    rest = rest.subspan(header.words);
  }
  return std::nullopt;
}

void append_offer(Way way, std::span<const std::byte> words, std::vector<std::byte>& offers) {
  const OfferHeader header{.way = static_cast<uint8_t>(way), .reserved = {}, .words = static_cast<uint32_t>(words.size())};
  append(offers, std::as_bytes(std::span(&header, 1)));
  append(offers, words);
}

Status check_offers(std::span<const std::byte> bytes) {
  WaySet offered = bit(Way::kNetwork);
  while (!bytes.empty()) {
    OfferHeader header;
    if (bytes.size() < sizeof header) return bad_payload(concat(bytes.size(), " bytes where an offer belongs"));
    std::memcpy(&header, bytes.data(), sizeof header);
    bytes = bytes.subspan(sizeof header);
    if (header.way >= kMaxWays || (offered & bit(static_cast<Way>(header.way))) != 0)
      return bad_payload(concat("an offer by way ", header.way, ", which may not be offered or has been"));
    if (header.words > bytes.size())
      return bad_payload(concat("an offer with ", bytes.size(), " bytes of words where ", header.words, " belong"));
    offered |= bit(static_cast<Way>(header.way));
    bytes = bytes.subspan(header.words);
  }
  return Status::ok();
}

Status decode_payload(const FrameHeader& header, std::span<const std::byte> payload, OperationFields& result) {
  const auto type = static_cast<FrameType>(header.type);
  OperationCounts counts;
  if (payload.size() < sizeof counts)
    return bad_payload(concat("a ", name_of(type), " with a payload of ", payload.size(), " bytes"));
  std::memcpy(&counts, payload.data(), sizeof counts);
  Parts parts;
  TCPX_RETURN_IF_ERROR(cut(type, counts, payload.subspan(sizeof counts), parts));
  TCPX_RETURN_IF_ERROR(check_parts(header, parts));
  result = {.lengths = parts.lengths, .ranges = parts.ranges, .offers = WireOffers(parts.offers), .notify = {}, .data = parts.data};
  if (parts.has_notify) result.notify = NotifyText{text_of(parts.name), text_of(parts.text)};
  return Status::ok();
}

}  // namespace tcpx
