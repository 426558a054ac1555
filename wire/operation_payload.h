// Encodes and decodes the payload of the frames that begin an operation (messages.h): OperationCounts, then the items they count. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "wire/messages.h"

namespace tcpx {

inline void append(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  if (!bytes.empty()) out.insert(out.end(), bytes.begin(), bytes.end());
}
inline void append(std::vector<std::byte>& out, std::string_view text) {
  append(out, std::as_bytes(std::span(text)));
}
inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The parts of a payload in wire order. A view.
struct OperationFields {
  WireArray<uint64_t> lengths;
  WireArray<WireRange> ranges;
  WireOffers offers;
  std::optional<NotifyText> notify;
  std::span<const std::byte> data;
};

/// Appends all but the data, which comes last. The caller keeps the bounds of messages.h.
void append_payload(const OperationFields& fields, std::vector<std::byte>& out);
/// Bounds every count before it is used, and accounts for every byte. On success:
///  - lengths: present exactly for kSend with kRanges
///  - ranges: only in kWrite, kWriteData and kRead; exactly one in a kWrite with kWhole
///  - offers: only in kSend and kWrite; notification: only in sends and writes
///  - data: only in kSendData and kWriteData, `header.bytes` long, at most kMaxInlineBytes
///  - no range's end and no sum wraps; lengths and ranges each add up to `header.bytes`
/// @param header of one of these five types
/// @param result written only on success
/// @return kProtocol naming what is wrong
Status decode_payload(const FrameHeader& header, std::span<const std::byte> payload, OperationFields& result);

}  // namespace tcpx
