// The payload of the frames that begin an operation: OperationCounts, then the items they count.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "wire/messages.h"

namespace tcpx {

inline void append(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}
inline void append(std::vector<std::byte>& out, std::string_view text) {
  append(out, std::as_bytes(std::span(text)));
}
inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A view, in the order in which it travels.
struct OperationFields {
  WireArray<uint64_t> lengths;
  WireArray<WireRange> ranges;
  WireArray<WireSource> sources;
  std::optional<NotifyText> notify;
  std::span<const std::byte> data;
};

/// The caller keeps the bounds of wire.h.
void append_payload(const OperationFields& fields, std::vector<std::byte>& out);
/// Bounds every count before it is used; every byte is accounted for. Lengths are there exactly for a kSend with kRanges, ranges
/// for kWrite, kWriteData and kRead (one of them for a kWrite with kWhole), sources at most for kSend and kWrite, a notification
/// at most for sends and writes. No range's end wraps, nor does a sum of lengths, ranges or sources, which equals `header.bytes`.
/// Data is there for kSendData and kWriteData: `header.bytes` of it, at most kMaxInlineBytes.
/// @param header of one of these five types
/// @param result written only on success
/// @return kProtocol naming what is wrong
Status decode_payload(const ControlHeader& header, std::span<const std::byte> payload, OperationFields& result);

/// None, or such that none is empty or wraps, `header.bytes` together. @return kProtocol naming what is wrong
Status check_sources(const ControlHeader& header, const WireArray<WireSource>& sources);

}  // namespace tcpx
