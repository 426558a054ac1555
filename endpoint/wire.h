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
//   kCredit   bytes                                    inline payload taken in, of which a window may be under way
//   kNotify   notification
//   kPeer     flow, type: a message between the halves of a pipeline (transfer/peer_messages.h)
//   kBye      status: the sender closes
//
// A frame is a 40-byte header and a payload, little-endian. `operation` is the starter's number for it. The data receiver alone
// decides the order in which transfers enter the pipeline, so neither end can wait for the other in another order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tcpx/endpoint.h"
#include "tcpx/status.h"

namespace tcpx {

inline constexpr uint16_t kControlMagic = 0x4358;  // "XC"
inline constexpr uint8_t kControlVersion = 1;
inline constexpr uint32_t kMaxInlineBytes = 65536;
inline constexpr uint32_t kMaxNotifyNameBytes = 256;
inline constexpr uint32_t kMaxNotifyTextBytes = 4096;
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
static_assert(sizeof(ControlHeader) == 40);

/// A range of a write or read, by advertisement.
struct WireRange {
  uint64_t slot;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(WireRange) == 24);

/// What the payload of an operation's frame holds, in this order: counts, lengths or ranges, notification, inline bytes.
struct OperationPayload {
  std::vector<uint64_t> lengths;  ///< kSend with kRanges: bytes of each
  std::vector<WireRange> ranges;  ///< kWrite, kWriteData, kRead
  bool has_notify = false;
  std::string notify_name, notify_text;
  std::span<const std::byte> data;  ///< kSendData, kWriteData, kReadData: `header.bytes` bytes
};

ControlHeader make_header(ControlType type, uint64_t operation = 0, uint64_t value = 0, uint64_t bytes = 0,
                          Packing packing = Packing::kWhole);
/// Magic, version, type, packing and payload length. @return kProtocol naming what is wrong; kUnsupported for a newer version
Status check_header(const ControlHeader& header);

/// Appends the payload of an operation's frame to `out`. `data` is appended as it stands in `payload`.
void append_operation_payload(std::vector<std::byte>& out, const OperationPayload& payload);
/// Bounds every count before it is used; counts, lengths and `header.bytes` must agree. Ranges' and lengths' sums must not wrap
/// and must equal `header.bytes`; for frames with data, `data.size() == header.bytes <= kMaxInlineBytes`.
/// @param payload must stay while `result.data` is used. Vectors of `result` are reused.
Status decode_operation_payload(const ControlHeader& header, std::span<const std::byte> payload, OperationPayload& result);

/// Text of a status for kDone and kBye, whose code travels in `value`.
std::vector<std::byte> encode_status(const Status& status);
/// @param code from the wire; an unknown one becomes kProtocol. The text is bounded and made printable.
Status decode_status(uint64_t code, std::span<const std::byte> payload);

/// `name` and `msg` are bounded by the caller when sending.
std::vector<std::byte> encode_notify(std::string_view name, std::string_view text);
Status decode_notify(std::span<const std::byte> payload, std::string& name, std::string& text);

}  // namespace tcpx
