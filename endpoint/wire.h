// Frames of a control connection: what two endpoints tell each other besides payload of the pipeline. Pure: no socket, no clock.
//
//   data sender                         data receiver
//   kSend     operation, sequence, bytes ->            the n-th send, to meet the n-th receive
//   kSendData the same, with the bytes behind it ->    inline
//   kWrite    operation, ranges ->                     checked against what was advertised
//   kWriteData the same, with the bytes behind it ->   inline
//             <- kRead  operation, ranges              checked against what was advertised
//   kReadData operation, bytes ->                      inline answer
//   kReady    operation ->                             the answer to kRead that is not inline: the target can serve it
//             <- kGo    operation                      both ends give the transfer to the pipeline in the order of these
//             <- kDone  operation, status              a write is in place; or a send, write was refused
//   kDone     operation, status ->                     a read was refused
//   kCancel   operation ->  <-                         its starter has given it up
//   kCredit   window, bytes                            of what the peer has said nothing is held any more (link_rules.h)
//   kNotify   notification
//   kPeer     flow, type: a message between the halves of a pipeline (transfer/peer_messages.h)
//   kBye      status: the sender closes
//
// A frame is a 40-byte header and a payload, little-endian. `operation` is the starter's number for it. The data receiver alone
// decides the order in which transfers enter the pipeline, so neither end can wait for the other in another order.
//
// Payloads:
//
//   kSend, kSendData, kWrite, kWriteData, kRead   OperationCounts, then as it says: lengths (u64 each), ranges (WireRange each),
//                                                 name and text of the notification; kSendData, kWriteData: then the data
//   kReadData      the data
//   kDone, kBye    text of the status; none when it is ok
//   kNotify        u32 bytes of the name, the name, the text
//   kPeer          the peer message
//   others         none
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tcpx/endpoint.h"
#include "tcpx/status.h"

namespace tcpx {

inline constexpr uint16_t kControlMagic = 0x4358;  // "XC"
inline constexpr uint8_t kControlVersion = 1;
inline constexpr uint32_t kMaxInlineBytes = 65536;
inline constexpr uint32_t kMaxNotifyNameBytes = 256;
inline constexpr uint32_t kMaxNotifyTextBytes = 4096;
inline constexpr uint32_t kMaxStatusTextBytes = 1024;
inline constexpr uint32_t kMaxWireRanges = Endpoint::kMaxRanges;
/// Room for the ranges of a write of Endpoint::kMaxRanges, a notification and inline bytes.
inline constexpr uint32_t kMaxControlPayloadBytes = 640 * 1024;

enum class ControlType : uint8_t {
  kSend = 1,
  kSendData,
  kWrite,
  kWriteData,
  kRead,
  kReadData,
  kReady,
  kGo,
  kDone,
  kCancel,
  kCredit,
  kNotify,
  kPeer,
  kBye,
};
inline constexpr uint8_t kLastControlType = static_cast<uint8_t>(ControlType::kBye);
std::string_view name_of(ControlType type);

/// How the bytes of a transfer are cut for the pipeline; the data sender says it.
enum class Packing : uint8_t {
  kWhole = 0,   ///< one range at both ends: one pipeline transfer
  kRanges = 1,  ///< range by range (long ones, equal at both ends)
  kPacked = 2,  ///< the stream of bytes in pieces of kPieceBytes, gathered and scattered
};

struct ControlHeader {
  uint16_t magic;
  uint8_t version;
  uint8_t type;
  uint8_t packing;  ///< kSend, kWrite, kReady
  uint8_t reserved_a;
  uint16_t flags;  ///< none known; ignored
  uint32_t payload_bytes;
  uint32_t checksum;   ///< reserved: 0
  uint64_t operation;  ///< kPeer: the flow
  uint64_t value;      ///< kSend(Data): sequence; kCredit: bytes; kDone: status code; kPeer: FrameType
  uint64_t bytes;      ///< of the transfer
};
static_assert(sizeof(ControlHeader) == 40 && std::is_trivially_copyable_v<ControlHeader> &&
              offsetof(ControlHeader, payload_bytes) == 8 && offsetof(ControlHeader, operation) == 16 &&
              offsetof(ControlHeader, value) == 24 && offsetof(ControlHeader, bytes) == 32);

/// A range of a write or read, by advertisement.
struct WireRange {
  uint64_t slot;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(WireRange) == 24 && std::is_trivially_copyable_v<WireRange>);

/// Front of an operation's payload: how much of what follows. The data has what is left.
struct OperationCounts {
  uint32_t lengths;            ///< at most kMaxWireRanges
  uint32_t ranges;             ///< at most kMaxWireRanges
  uint16_t notify_count;       ///< 0 or 1
  uint16_t notify_name_bytes;  ///< at most kMaxNotifyNameBytes
  uint16_t notify_text_bytes;  ///< at most kMaxNotifyTextBytes
  uint16_t reserved;
};
static_assert(sizeof(OperationCounts) == 16 && std::is_trivially_copyable_v<OperationCounts> &&
              offsetof(OperationCounts, notify_count) == 8 && offsetof(OperationCounts, notify_text_bytes) == 12);
static_assert(sizeof(OperationCounts) + kMaxWireRanges * sizeof(WireRange) + kMaxNotifyNameBytes + kMaxNotifyTextBytes +
                  kMaxInlineBytes <=
              kMaxControlPayloadBytes);

/// What the payload of an operation's frame holds.
struct OperationPayload {
  std::vector<uint64_t> lengths;  ///< kSend with kRanges, one or more: bytes of each
  std::vector<WireRange> ranges;  ///< kWrite, kWriteData, kRead
  bool has_notify = false;
  std::string notify_name, notify_text;
  std::span<const std::byte> data;  ///< kSendData, kWriteData, kReadData: `header.bytes` bytes
};

/// `payload_bytes` is 0: whoever appends the payload sets it (ControlStream does).
ControlHeader make_header(ControlType type, uint64_t operation = 0, uint64_t value = 0, uint64_t bytes = 0,
                          Packing packing = Packing::kWhole);
/// Magic, version, type, packing, and that the payload is no longer than one of this type can be. Reserved fields are ignored.
/// @return kProtocol naming what is wrong; kUnsupported for a newer version
Status check_header(const ControlHeader& header);

/// Appends the payload of an operation's frame to `out`, `data` as it stands in `payload`. For every type but kReadData, whose
/// payload is the data alone. The caller keeps the bounds of OperationCounts.
void append_operation_payload(std::vector<std::byte>& out, const OperationPayload& payload);
/// Bounds every count before it is used; every byte is accounted for. Lengths are there exactly for a kSend with kRanges, ranges
/// for kWrite, kWriteData and kRead (one of them for a kWrite with kWhole), a notification at most for sends and writes. No
/// range's end wraps, nor does a sum of lengths or ranges, which equals `header.bytes`. Data is there for kSendData, kWriteData
/// and kReadData: `header.bytes` of it, at most kMaxInlineBytes.
/// @param payload must stay while `result.data` is used.
/// @param result written only on success; its vectors and strings are reused.
/// @return kProtocol naming what is wrong, also for a type that is none of these
Status decode_operation_payload(const ControlHeader& header, std::span<const std::byte> payload, OperationPayload& result);

/// Text of a status for kDone and kBye, whose code travels in `value`; at most kMaxStatusTextBytes.
std::vector<std::byte> encode_status(const Status& status);
/// The status that the peer meant; its operation is "peer reported", its text is bounded and made printable.
/// @param code from the wire; an unknown one becomes kProtocol.
Status decode_status(uint64_t code, std::span<const std::byte> payload);

/// Payload of kNotify. The caller keeps the bounds kMaxNotifyNameBytes and kMaxNotifyTextBytes.
std::vector<std::byte> encode_notify(std::string_view name, std::string_view text);
/// The same bounds, of what came. @return kProtocol; `name` and `text` are written only on success
Status decode_notify(std::span<const std::byte> payload, std::string& name, std::string& text);

}  // namespace tcpx
