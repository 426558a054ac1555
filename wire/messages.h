// Frames of a control connection: messages between two endpoints besides the payload of the pipeline. Pure: no socket, no
// clock.
//
// A frame is a header of 40 bytes and a payload, little-endian. Each type has a struct below; `encode` and `decode` say where its
// fields travel. Numbers of operations are their starter's. One end alone decides the order in which transfers enter the pipeline of
// a direction, so neither can wait for the other in another order: the data receiver by its Go, or, on an eager link, the data
// sender by what it begins. The data receiver has the last word on how they are packed.
//
//   header:          operation  value     bytes      packing   payload
//   SendFrame        operation  sequence  bytes      packing   OperationCounts, lengths, sources, notification
//   SendDataFrame    operation  sequence  of data    -         OperationCounts, notification, data
//   WriteFrame       operation  -         bytes      packing   OperationCounts, ranges, sources, notification
//   WriteDataFrame   operation  -         of data    -         OperationCounts, ranges, notification, data
//   ReadFrame        operation  -         bytes      packing   OperationCounts, ranges
//   ReadDataFrame    operation  -         of data    -         data
//   ReadyFrame       operation  -         bytes      packing   sources
//   GoFrame          operation  of_read   -          packing   -
//   BeginFrame       operation  of_read   -          -         -
//   PostedFrame      -          sequence  bytes      packing   -
//   DoneFrame        operation  code      -          -         text of the status; none when it is ok
//   CancelFrame      operation  sequence  what       -         -
//   CreditFrame      window     size      bytes      -         -
//   NotifyFrame      -          -         -          -         u32 bytes of the name, the name, the text
//   PeerFrame        flow       type      -          -         message
//   ShareFrame       share      -         -          -         MemoryShare
//   UnshareFrame     share      -         gone       -         -
//   ByeFrame         -          -         -          -         -  (a text is let through and not read)
//
// "-" is sent as 0 and not looked at. Frames that begin an operation:
//
//   data sender                         data receiver
//   Send        ->  the n-th send, to meet the n-th receive;   <- Go when they have met
//   SendData    ->  the same with its data: no answer
//   Write       ->  ranges that were advertised;               <- Go, and Done when all is in place
//   WriteData   ->  the same with its data;                    <- Done
//               <-  Read, ranges that were advertised;         ReadData ->, or Ready -> and Go <-
//
// Done with an error refuses a Send, Write or Read instead.
//
// On an eager link (LinkParts::eager) a Write, a Ready, and a Send of which a Posted has come, may say that their transfer has begun.
// The receiver then says no Go: it takes the bytes; or it lets them go by unused, and refuses the operation, or says Go to a write that
// it needs packed in another way or later, which the writer begins anew. A send that has begun is done when it has left, so only
// who has given its receive up meanwhile refuses it. Of what has not begun, a Begin follows the Go.
//
// Between two endpoints of one host a Send, Write or Ready may say where its bytes lie: its sources. The data receiver may then
// copy them itself, and says Go with kPulled when it has, which ends a Send and a Read; a Write ends with Done as ever. Where it
// may not, host memory goes through a ring that both share, after a Go with kShared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/memory_ops.h"
#include "tcpx/endpoint.h"
#include "tcpx/status.h"
#include "transfer/bootstrap_frame.h"
#include "wire/credit_windows.h"

namespace tcpx {

inline constexpr uint16_t kControlMagic = 0x4358;  // "XC"
inline constexpr uint8_t kControlVersion = 5;
inline constexpr uint32_t kMaxInlineBytes = 65536;
inline constexpr uint32_t kMaxNotifyNameBytes = NotifyMsg::kMaxNameBytes;
inline constexpr uint32_t kMaxNotifyTextBytes = NotifyMsg::kMaxTextBytes;
inline constexpr uint32_t kMaxStatusTextBytes = 1024;
inline constexpr uint32_t kMaxWireRanges = Endpoint::kMaxRanges;
/// Room for kMaxWireRanges ranges of a write, their sources, a notification and inline bytes.
inline constexpr uint32_t kMaxControlPayloadBytes = 2u << 20;

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
  kShare,
  kUnshare,
  kBegin,
  kPosted,
};
inline constexpr uint8_t kLastControlType = static_cast<uint8_t>(ControlType::kPosted);
std::string_view name_of(ControlType type);

/// Ways to cut the bytes of a transfer for the pipeline.
enum class Packing : uint8_t {
  kWhole = 0,   ///< one range at both ends: one pipeline transfer
  kRanges = 1,  ///< range by range (long ones, equal at both ends)
  kPacked = 2,  ///< the stream of bytes in parcels of kParcelBytes, gathered and scattered
  kPulled = 3,  ///< of a Go alone: the data receiver has copied it from its sources
  kShared = 4,  ///< of a Go alone: through the shared bulk ring, range after range
};

/// Meaning of `operation`, `value`, `bytes` and `packing`: by type, in the table above.
struct ControlHeader {
  uint16_t magic;
  uint8_t version;
  uint8_t type;
  uint8_t packing;
  uint8_t reserved_a;
  uint16_t flags;  ///< kBegunFlag, or 0; others are ignored
  uint32_t payload_bytes;
  uint32_t checksum;  ///< reserved: 0
  uint64_t operation;
  uint64_t value;
  uint64_t bytes;
};
static_assert(sizeof(ControlHeader) == 40 && std::is_trivially_copyable_v<ControlHeader> &&
              offsetof(ControlHeader, payload_bytes) == 8 && offsetof(ControlHeader, operation) == 16 &&
              offsetof(ControlHeader, value) == 24 && offsetof(ControlHeader, bytes) == 32);
/// Magic, version, type, packing, and that the payload is no longer than one of this type can be. Reserved fields are ignored.
/// @return kProtocol naming what is wrong; kUnsupported naming both versions when it is another than kControlVersion
Status check_header(const ControlHeader& header);

/// Flag of a Send, Write or Ready: its transfer has begun (OperationFrame::begun).
inline constexpr uint16_t kBegunFlag = 1;

/// A range of a write or read, by advertisement.
struct WireRange {
  SlotId slot;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(WireRange) == 32 && std::is_trivially_copyable_v<WireRange>);

/// The place of a stretch of an operation's bytes in the memory of the data sender, for a peer of the same host.
struct WireSource {
  uint64_t share;    ///< kHostMemory, the number of a ShareFrame, or kHiddenMemory
  uint64_t address;  ///< in the sender's process; 0 for kHiddenMemory
  uint64_t bytes;    ///< at least 1
};
static_assert(sizeof(WireSource) == 24 && std::is_trivially_copyable_v<WireSource>);
inline constexpr uint64_t kHostMemory = 0;
/// Memory that the receiver gets at in no way of its own: the sender can put it into the shared bulk ring. Such a source is the only one.
inline constexpr uint64_t kHiddenMemory = UINT64_MAX;
inline constexpr uint32_t kMaxWireSources = kMaxWireRanges;
/// Shares that one end may have at once.
inline constexpr size_t kMaxShares = 4096;

/// Front of an operation's payload: how much of what follows. The data has what is left.
struct OperationCounts {
  uint32_t lengths;            ///< at most kMaxWireRanges
  uint32_t ranges;             ///< at most kMaxWireRanges
  uint32_t sources;            ///< at most kMaxWireSources
  uint16_t notify_count;       ///< 0 or 1
  uint16_t notify_name_bytes;  ///< at most kMaxNotifyNameBytes
  uint32_t notify_text_bytes;  ///< at most kMaxNotifyTextBytes
};
static_assert(sizeof(OperationCounts) == 20 && std::is_trivially_copyable_v<OperationCounts> &&
              offsetof(OperationCounts, notify_count) == 12 && offsetof(OperationCounts, notify_text_bytes) == 16);
static_assert(sizeof(OperationCounts) + kMaxWireRanges * sizeof(WireRange) + kMaxWireSources * sizeof(WireSource) +
                  kMaxNotifyNameBytes + kMaxNotifyTextBytes + kMaxInlineBytes <=
              kMaxControlPayloadBytes);

/// Values as they lie in a frame, at any alignment. A view.
template <class T>
class WireArray {
 public:
  WireArray() = default;
  WireArray(const std::vector<T>& values) : bytes_(std::as_bytes(std::span(values))) {}  // NOLINT: as span does
  /// @param bytes a multiple of those of T
  explicit WireArray(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t size() const { return bytes_.size() / sizeof(T); }
  bool empty() const { return bytes_.empty(); }
  T operator[](size_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + index * sizeof value, sizeof value);
    return value;
  }
  std::vector<T> to_vector() const {
    std::vector<T> values(size());
    if (!empty()) std::memcpy(values.data(), bytes_.data(), bytes_.size());
    return values;
  }
  std::span<const std::byte> raw() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// Ways of one host.
inline bool is_on_host(Packing packing) {
  return packing == Packing::kPulled || packing == Packing::kShared;
}
/// The best of these for bytes with such sources. kWhole: none
inline Packing way_on_host(const WireArray<WireSource>& sources) {
  if (sources.empty()) return Packing::kWhole;
  return sources.size() == 1 && sources[0].share == kHiddenMemory ? Packing::kShared : Packing::kPulled;
}

/// A Go may name this way of one host for bytes of which that one is the best: what can be pulled can be sent through the ring.
inline bool is_offered(Packing way, Packing best) {
  return way == best || (way == Packing::kShared && best == Packing::kPulled);
}

/// At most kMaxNotifyNameBytes and kMaxNotifyTextBytes.
struct NotifyText {
  std::string_view name, text;
};

// The frames. All are views: a decoded one is valid as long as the payload it was decoded from. Lengths and ranges number at most
// kMaxWireRanges, data has at most kMaxInlineBytes.

/// A frame that begins an operation. A type has only the fields that the table above gives it; the others stay empty.
template <ControlType type>
struct OperationFrame {
  static constexpr ControlType kType = type;
  uint64_t operation = 0;
  uint64_t sequence = 0;              ///< the n-th send of the connection, from 0
  uint64_t bytes = 0;                 ///< of the transfer; `encode` takes those of `data` where there is some
  Packing packing = Packing::kWhole;  ///< as its starter would like it; a write with kWhole has one range
  bool begun = false;                 ///< of a send or write: its bytes are on their way already, packed so
  WireArray<uint64_t> lengths;        ///< with kRanges alone: bytes of each, `bytes` together
  WireArray<WireRange> ranges;        ///< `bytes` together
  WireArray<WireSource> sources;      ///< of a send or write: `bytes` together, or none: through the pipeline
  std::optional<NotifyText> notify;   ///< delivered when the data is in place
  std::span<const std::byte> data;
};
using SendFrame = OperationFrame<ControlType::kSend>;            ///< data sender: announces what goes through the pipeline
using SendDataFrame = OperationFrame<ControlType::kSendData>;    ///< data sender: done when it has left
using WriteFrame = OperationFrame<ControlType::kWrite>;          ///< data sender: announces what goes through the pipeline
using WriteDataFrame = OperationFrame<ControlType::kWriteData>;  ///< data sender
using ReadFrame = OperationFrame<ControlType::kRead>;            ///< data receiver: asks for a read
/// Data sender: a short read is answered with its data.
struct ReadDataFrame {
  static constexpr ControlType kType = ControlType::kReadData;
  uint64_t operation = 0;
  std::span<const std::byte> data;
};
/// Data sender: a read can be served through the pipeline.
struct ReadyFrame {
  static constexpr ControlType kType = ControlType::kReady;
  uint64_t operation = 0;
  uint64_t bytes = 0;                 ///< of the sources together
  Packing packing = Packing::kWhole;  ///< kPacked: it has to be; else the receiver asks preferred_packing of its own ranges
  bool begun = false;                 ///< its bytes are on their way already, packed so
  WireArray<WireSource> sources;      ///< none: through the pipeline
};
/// Data receiver: both ends give the transfer to the pipeline, or to the shared ring with kShared, in the order of these; or, with
/// kPulled, it has all of it. On an eager link the pipeline takes transfers in the order in which the data sender begins them.
struct GoFrame {
  static constexpr ControlType kType = ControlType::kGo;
  uint64_t operation = 0;
  bool of_read = false;               ///< a read of the one who says this; else a send or write of the one who hears it
  Packing packing = Packing::kWhole;  ///< as it will travel
};
/// Data sender on an eager link: the transfer of which a Go has come is the next of the pipeline.
struct BeginFrame {
  static constexpr ControlType kType = ControlType::kBegin;
  uint64_t operation = 0;
  bool of_read = false;  ///< a read of the one who hears this; else a send or write of the one who says it
};
/// Data receiver on an eager link: the receive for that send is posted, so that the send may begin without a Go; of 0 bytes: it was
/// given up.
struct PostedFrame {
  static constexpr ControlType kType = ControlType::kPosted;
  uint64_t sequence = 0;
  uint64_t bytes = 0;
  Packing packing = Packing::kWhole;  ///< kWhole: of one range; or kPacked
};
/// Data receiver: a write is in place, or a send, write or read is refused. Data sender: a read is refused.
struct DoneFrame {
  static constexpr ControlType kType = ControlType::kDone;
  uint64_t operation = 0;
  Status status;  ///< decoded: its operation is "peer reported", its text bounded and printable; kProtocol for an unknown code
};
/// Its starter has given up an operation.
struct CancelFrame {
  static constexpr ControlType kType = ControlType::kCancel;
  enum class What : uint8_t {
    kReadOrUntold,  ///< a read that was told to be ready; else a send that was not announced, whose place stays empty
    kSend,          ///< that was announced: the one who hears this knows of it and answers
    kWrite,         ///< that was announced: it is refused when it has not begun, and else goes on
    kGone,          ///< a write that had begun, and has ended: no Begin follows the Go of the one who hears this
  };
  uint64_t operation = 0;
  uint64_t sequence = 0;  ///< of a send
  What what = What::kReadOrUntold;
};
/// Nothing is held any more of so much of what the one who hears this has said (credit_windows.h). Of nothing, without a size: the
/// one who says this has no room in that window of the other's, and asks for a larger one.
struct CreditFrame {
  static constexpr ControlType kType = ControlType::kCredit;
  Window window = Window::kSends;
  uint64_t bytes = 0;
  uint64_t size = 0;  ///< of the window from now on; 0: as before
};
/// A notification that belongs to no operation.
struct NotifyFrame {
  static constexpr ControlType kType = ControlType::kNotify;
  NotifyText notify;
};
/// A message between the halves of a pipeline (transfer/peer_messages.h).
struct PeerFrame {
  static constexpr ControlType kType = ControlType::kPeer;
  uint64_t flow = 0;
  FrameType type{};  ///< one of peer messages
  std::span<const std::byte> message;
};
/// GPU memory of the one who says it, which sources name from now on; a descriptor that belongs to it lies in HostPeer::files.
struct ShareFrame {
  static constexpr ControlType kType = ControlType::kShare;
  uint64_t share = 0;  ///< between kHostMemory and kHiddenMemory, never used again
  MemoryShare memory{};
};
/// Nothing names it any more; and the answer to that.
struct UnshareFrame {
  static constexpr ControlType kType = ControlType::kUnshare;
  uint64_t share = 0;  ///< of the one who says this; `gone`: of the one who hears it
  bool gone = false;   ///< the one who says this does not map it any more
};
/// The one who says it closes.
struct ByeFrame {
  static constexpr ControlType kType = ControlType::kBye;
};

/// Appends the frame to `out`. The caller keeps the bounds that are stated above.
template <ControlType type>
void encode(const OperationFrame<type>& frame, std::vector<std::byte>& out);
void encode(const ReadDataFrame& frame, std::vector<std::byte>& out);
void encode(const ReadyFrame& frame, std::vector<std::byte>& out);
void encode(const GoFrame& frame, std::vector<std::byte>& out);
void encode(const BeginFrame& frame, std::vector<std::byte>& out);
void encode(const PostedFrame& frame, std::vector<std::byte>& out);
void encode(const DoneFrame& frame, std::vector<std::byte>& out);  ///< the text is cut to kMaxStatusTextBytes
void encode(const CancelFrame& frame, std::vector<std::byte>& out);
void encode(const CreditFrame& frame, std::vector<std::byte>& out);
void encode(const NotifyFrame& frame, std::vector<std::byte>& out);
void encode(const PeerFrame& frame, std::vector<std::byte>& out);
void encode(const ShareFrame& frame, std::vector<std::byte>& out);
void encode(const UnshareFrame& frame, std::vector<std::byte>& out);
void encode(const ByeFrame& frame, std::vector<std::byte>& out);

/// Bounds every count before it is used; every byte is accounted for, and every sentence above about lengths, ranges and bytes
/// holds. No range's end wraps, nor does a sum.
/// @param header checked (check_header). @param payload `header.payload_bytes` bytes. @param frame written only on success
/// @return kProtocol naming what is wrong, also for a header of another type
template <ControlType type>
Status decode(const ControlHeader& header, std::span<const std::byte> payload, OperationFrame<type>& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, ReadDataFrame& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, ReadyFrame& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, GoFrame& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, BeginFrame& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, PostedFrame& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, DoneFrame& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, CancelFrame& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, CreditFrame& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, NotifyFrame& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, PeerFrame& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, ShareFrame& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, UnshareFrame& frame);
Status decode(const ControlHeader& header, std::span<const std::byte> payload, ByeFrame& frame);

inline constexpr std::string_view kNotOffered = "its bytes were not offered that way";
inline constexpr std::string_view kNotEager = "it has begun, on a link that is not eager";
inline constexpr std::string_view kNoWholeVector = "a vector cannot travel as a whole";
/// Error of a frame that no peer of ours would say now.
Status unexpected(ControlType type, uint64_t operation, std::string_view why);
template <class Frame>
Status unexpected(const Frame& frame, std::string_view why) {
  return unexpected(Frame::kType, frame.operation, why);
}

}  // namespace tcpx
