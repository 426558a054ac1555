// The frames of two endpoints whose connection is set up: everything that they send each other, except the bulk data of the
// lanes. Pure: no socket, no clock.
//
// Each type has a struct below; the table shows where its fields are in a frame (frame.h). The end that starts an operation
// chooses its number. It may start a write or read once more under the same number, when both ends have found its bytes corrupt.
// For each direction one end alone decides the order of the transfers, so that the two ends never wait for
// different ones. This is the data receiver, by the order of its Gos, or on an eager link the data sender, by the order in which
// it begins transfers. The data receiver finally decides how a transfer is packed.
//
//   header:          operation  value     bytes      packing   payload
//   SendFrame        operation  sequence  bytes      packing   OperationCounts, lengths, offers, notification
//   SendDataFrame    operation  sequence  of data    -         OperationCounts, notification, data
//   WriteFrame       operation  -         bytes      packing   OperationCounts, ranges, offers, notification
//   WriteDataFrame   operation  -         of data    -         OperationCounts, ranges, notification, data
//   ReadFrame        operation  -         bytes      packing   OperationCounts, ranges
//   ReadDataFrame    operation  -         of data    -         data
//   ReadyFrame       operation  -         bytes      packing   offers
//   GoFrame          operation  of_read   -          packing   -            (and `way`)
//   BeginFrame       operation  of_read   -          -         -
//   PostedFrame      -          sequence  bytes      packing   -
//   DoneFrame        operation  code      -          -         text of the status; none when it is ok
//   CancelFrame      operation  sequence  what       -         -
//   CreditFrame      window     size      bytes      -         -
//   NotifyFrame      -          -         -          -         u32 bytes of the name, the name, the text
//   LaneFrame        number     what      to_sender  -         words        (and `way`)
//   ByeFrame         -          -         -          -         -  (a text is allowed and ignored)
//
// "-" is sent as 0 and ignored. Frames that begin an operation, and their answers:
//
//   data sender                         data receiver
//   Send        ->  the n-th send, to meet the n-th receive;   <- Go when they have met
//   SendData    ->  a send with its data;                      no answer
//   Write       ->  names advertised ranges;                   <- Go, and Done when all is in place
//   WriteData   ->  a write with its data;                     <- Done
//               <-  Read, names advertised ranges;             ReadData ->, or Ready -> and Go <-
//
// Done with an error refuses a Send, Write or Read.
//
// On an eager link (LinkParts::eager) a transfer can begin without a Go: a Write, a Ready, or a Send for which a Posted has come
// says that its bytes are already on their way. The receiver takes the bytes and sends no Go. If it cannot use them, it receives
// and discards them, and then refuses the operation. Or, for a write that it needs later or packed differently, it sends a Go,
// and the writer starts that write again. A begun send is done when it has left, so it is refused only if its receive was given
// up in the meantime. A transfer that was not begun starts with a Begin after its Go.
//
// Between two endpoints of one host a Send, Write or Ready also offers other ways, each with words that only the lanes of that
// way understand. The Go names the way that the data receiver has chosen. With kPull the receiver has already copied the bytes
// when it sends the Go, so the Go ends a Send or a Read; a Write ends with Done as usual.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tcpx/endpoint.h"
#include "tcpx/status.h"
#include "wire/frame.h"
#include "wire/credit_windows.h"

namespace tcpx {

inline constexpr uint32_t kMaxInlineBytes = 65536;
inline constexpr uint32_t kMaxNotifyNameBytes = NotifyMsg::kMaxNameBytes;
inline constexpr uint32_t kMaxNotifyTextBytes = NotifyMsg::kMaxTextBytes;
inline constexpr uint32_t kMaxWireRanges = Endpoint::kMaxRanges;

/// A way for bulk data. Each way is one folder of lanes/.
enum class Way : uint8_t {
  kNetwork = 0,
  kPull = 1,  ///< the data receiver copies out of the sender's memory
  kRing = 2,  ///< through a ring that both share
};
/// Ways have numbers below this.
inline constexpr uint8_t kMaxWays = 32;
std::string name_of(Way way);
/// A bit for each way.
using WaySet = uint32_t;
constexpr WaySet bit(Way way) {
  return WaySet{1} << static_cast<uint8_t>(way);
}

/// How the bytes of a transfer are cut for the network.
enum class Packing : uint8_t {
  kWhole = 0,   ///< one range at both ends: one pipeline transfer
  kRanges = 1,  ///< one pipeline transfer for each range (long ones, equal at both ends)
  kPacked = 2,  ///< in parcels of kParcelBytes, gathered and scattered
};

/// Flag of a Send, Write or Ready: its transfer has begun (OperationFrame::begun).
inline constexpr uint16_t kBegunFlag = 1;

/// A range of advertised memory that a write or read names.
struct WireRange {
  SlotId slot;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(WireRange) == 32 && std::is_trivially_copyable_v<WireRange>);

/// The start of an offer; `words` bytes of words follow.
struct OfferHeader {
  uint8_t way;  ///< not kNetwork, which is always offered
  uint8_t reserved[3];
  uint32_t words;
};
static_assert(sizeof(OfferHeader) == 8 && std::is_trivially_copyable_v<OfferHeader>);
/// Most bytes of all offers of an operation: room for 24 bytes of words for each range.
inline constexpr uint32_t kMaxOfferBytes = kMaxWireRanges * 24 + kMaxWays * sizeof(OfferHeader);
/// Most bytes of words in a LaneFrame.
inline constexpr uint32_t kMaxLaneFrameBytes = 4096;

/// The start of an operation's payload: how many of each item follow. The rest of the payload is data.
struct OperationCounts {
  uint32_t lengths;            ///< at most kMaxWireRanges
  uint32_t ranges;             ///< at most kMaxWireRanges
  uint32_t offers;             ///< bytes, at most kMaxOfferBytes
  uint16_t notify_count;       ///< 0 or 1
  uint16_t notify_name_bytes;  ///< at most kMaxNotifyNameBytes
  uint32_t notify_text_bytes;  ///< at most kMaxNotifyTextBytes
};
static_assert(sizeof(OperationCounts) == 20 && std::is_trivially_copyable_v<OperationCounts> &&
              offsetof(OperationCounts, notify_count) == 12 && offsetof(OperationCounts, notify_text_bytes) == 16);
static_assert(sizeof(OperationCounts) + kMaxWireRanges * sizeof(WireRange) + kMaxOfferBytes + kMaxNotifyNameBytes + kMaxNotifyTextBytes + kMaxInlineBytes <=
              kMaxPayloadBytes);

/// View of values in a frame, at any alignment.
template <class T>
class WireArray {
 public:
  WireArray() = default;
  WireArray(const std::vector<T>& values) : bytes_(std::as_bytes(std::span(values))) {}  // NOLINT: as span does
  /// @param bytes a multiple of sizeof(T)
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

/// A view of the offers of ways besides the network.
class WireOffers {
 public:
  WireOffers() = default;
  WireOffers(const std::vector<std::byte>& bytes) : bytes_(bytes) {}  // NOLINT: as span does
  /// @param bytes for which `check_offers` is ok, or empty
  explicit WireOffers(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  /// The words of the offer of `way`; nullopt: it is not offered.
  std::optional<std::span<const std::byte>> find(Way way) const;
  std::span<const std::byte> raw() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};
/// Appends an offer.
void append_offer(Way way, std::span<const std::byte> words, std::vector<std::byte>& offers);
/// Checks the bounds of every offer, and that no way is offered twice. @return kProtocol naming what is wrong
Status check_offers(std::span<const std::byte> bytes);

/// A notification: a name of at most kMaxNotifyNameBytes and a text of at most kMaxNotifyTextBytes.
struct NotifyText {
  std::string_view name, text;
};

// The frames. All are views: a decoded one is valid as long as the payload it was decoded from. There are at most kMaxWireRanges
// lengths and ranges, and at most kMaxInlineBytes of data.

/// A frame that begins an operation. Fields that the table above does not give to this type stay empty.
template <FrameType type>
struct OperationFrame {
  static constexpr FrameType kType = type;
  uint64_t operation = 0;
  uint64_t sequence = 0;              ///< the n-th send of the connection, from 0
  uint64_t bytes = 0;                 ///< of the transfer; with data, `encode` uses the size of `data` instead
  Packing packing = Packing::kWhole;  ///< the starter's wish; a write with kWhole has one range
  bool begun = false;                 ///< send or write: its bytes are already on their way, packed as `packing` says
  WireArray<uint64_t> lengths;        ///< only with kRanges: bytes of each range, adding up to `bytes`
  WireArray<WireRange> ranges;        ///< adding up to `bytes`
  WireOffers offers;                  ///< send or write
  std::optional<NotifyText> notify;   ///< delivered when the data is in place
  std::span<const std::byte> data;
};
using SendFrame = OperationFrame<FrameType::kSend>;            ///< data sender: offers a send that a lane will move
using SendDataFrame = OperationFrame<FrameType::kSendData>;    ///< data sender: an inline send, done when it has left
using WriteFrame = OperationFrame<FrameType::kWrite>;          ///< data sender: offers a write that a lane will move
using WriteDataFrame = OperationFrame<FrameType::kWriteData>;  ///< data sender: an inline write
using ReadFrame = OperationFrame<FrameType::kRead>;            ///< data receiver: asks for a read
/// Data sender: answers a short read with its data.
struct ReadDataFrame {
  static constexpr FrameType kType = FrameType::kReadData;
  uint64_t operation = 0;
  std::span<const std::byte> data;
};
/// Data sender: offers the bytes of a long read.
struct ReadyFrame {
  static constexpr FrameType kType = FrameType::kReady;
  uint64_t operation = 0;
  uint64_t bytes = 0;                 ///< of the read
  Packing packing = Packing::kWhole;  ///< kPacked: no other is possible; else the receiver uses preferred_packing of its ranges
  bool begun = false;                 ///< its bytes are already on their way, packed as `packing` says
  WireOffers offers;
};
/// Data receiver: names the way. Both ends give their transfers to the lanes of that way in the order of the Gos; with kPull the
/// receiver already has all bytes. On an eager link the network takes transfers in the order in which the data sender begins
/// them.
struct GoFrame {
  static constexpr FrameType kType = FrameType::kGo;
  uint64_t operation = 0;
  bool of_read = false;               ///< a read of this frame's sender; else a send or write of its receiver
  Way way = Way::kNetwork;
  Packing packing = Packing::kWhole;  ///< used only over the network
};
/// Data sender on an eager link: a transfer that got a Go is now the next in the pipeline.
struct BeginFrame {
  static constexpr FrameType kType = FrameType::kBegin;
  uint64_t operation = 0;
  bool of_read = false;  ///< a read of this frame's receiver; else a send or write of its sender
};
/// Data receiver on an eager link: the receive for that send is posted, so the send may begin without a Go. 0 bytes: the receive was
/// given up.
struct PostedFrame {
  static constexpr FrameType kType = FrameType::kPosted;
  uint64_t sequence = 0;
  uint64_t bytes = 0;
  Packing packing = Packing::kWhole;  ///< kWhole (the receive has one range) or kPacked
};
/// Data receiver: a write is in place, or a send or write is refused. Data sender: a read is refused.
struct DoneFrame {
  static constexpr FrameType kType = FrameType::kDone;
  uint64_t operation = 0;
  Status status;  ///< decoded: as of `status_of_peer`
};
/// The starter of an operation gives it up.
struct CancelFrame {
  static constexpr FrameType kType = FrameType::kCancel;
  enum class What : uint8_t {
    kReadOrUntold,  ///< a read that got a Ready; else a send that was not announced, whose place in the order stays empty
    kSend,          ///< a send that was announced: the peer answers
    kWrite,         ///< a write that was announced: refused if it has not begun, otherwise it goes on
    kGone,          ///< a begun write that has ended: the peer's Go for it gets no Begin
  };
  uint64_t operation = 0;
  uint64_t sequence = 0;  ///< of a send
  What what = What::kReadOrUntold;
};
/// Gives back `bytes` of a window: they are held no longer (credit_windows.h). With 0 bytes and size 0 it is an ask: the sender of
/// this frame has no room in that window of its peer and wants a larger one.
struct CreditFrame {
  static constexpr FrameType kType = FrameType::kCredit;
  Window window = Window::kSends;
  uint64_t bytes = 0;
  uint64_t size = 0;  ///< of the window from now on; 0: unchanged
};
/// A notification that belongs to no operation.
struct NotifyFrame {
  static constexpr FrameType kType = FrameType::kNotify;
  NotifyText notify;
};
/// A message from the lane at one end to the lane at the other. Only the lanes understand its words.
struct LaneFrame {
  static constexpr FrameType kType = FrameType::kLane;
  Way way{};
  bool to_sender = false;  ///< for the lane that sends; else for the one that receives
  uint64_t what = 0;
  uint64_t number = 0;
  std::span<const std::byte> words;  ///< at most kMaxLaneFrameBytes
};
/// The sender of this frame closes the connection.
struct ByeFrame {
  static constexpr FrameType kType = FrameType::kBye;
};

/// Appends the frame to `out`. The caller keeps the bounds stated above.
template <FrameType type>
void encode(const OperationFrame<type>& frame, std::vector<std::byte>& out);
void encode(const ReadDataFrame& frame, std::vector<std::byte>& out);
/// Appends the frame without its `data`, which must follow: the frame ends with it.
template <FrameType type>
void encode_head(const OperationFrame<type>& frame, std::vector<std::byte>& out);
void encode_head(const ReadDataFrame& frame, std::vector<std::byte>& out);
void encode(const ReadyFrame& frame, std::vector<std::byte>& out);
void encode(const GoFrame& frame, std::vector<std::byte>& out);
void encode(const BeginFrame& frame, std::vector<std::byte>& out);
void encode(const PostedFrame& frame, std::vector<std::byte>& out);
void encode(const DoneFrame& frame, std::vector<std::byte>& out);  ///< the text is cut to kMaxStatusTextBytes
void encode(const CancelFrame& frame, std::vector<std::byte>& out);
void encode(const CreditFrame& frame, std::vector<std::byte>& out);
void encode(const NotifyFrame& frame, std::vector<std::byte>& out);
void encode(const LaneFrame& frame, std::vector<std::byte>& out);
void encode(const ByeFrame& frame, std::vector<std::byte>& out);

/// Bounds every count before it is used, accounts for every byte, and checks everything stated above about lengths, ranges and
/// bytes. No range's end and no sum wraps.
/// @param header checked (check_header). @param payload `header.payload_bytes` bytes. @param frame written only on success
/// @return kProtocol naming what is wrong, also for a header of another type
template <FrameType type>
Status decode(const FrameHeader& header, std::span<const std::byte> payload, OperationFrame<type>& frame);
Status decode(const FrameHeader& header, std::span<const std::byte> payload, ReadDataFrame& frame);
Status decode(const FrameHeader& header, std::span<const std::byte> payload, ReadyFrame& frame);
Status decode(const FrameHeader& header, std::span<const std::byte> payload, GoFrame& frame);
Status decode(const FrameHeader& header, std::span<const std::byte> payload, BeginFrame& frame);
Status decode(const FrameHeader& header, std::span<const std::byte> payload, PostedFrame& frame);
Status decode(const FrameHeader& header, std::span<const std::byte> payload, DoneFrame& frame);
Status decode(const FrameHeader& header, std::span<const std::byte> payload, CancelFrame& frame);
Status decode(const FrameHeader& header, std::span<const std::byte> payload, CreditFrame& frame);
Status decode(const FrameHeader& header, std::span<const std::byte> payload, NotifyFrame& frame);
Status decode(const FrameHeader& header, std::span<const std::byte> payload, LaneFrame& frame);
Status decode(const FrameHeader& header, std::span<const std::byte> payload, ByeFrame& frame);

inline constexpr std::string_view kNotOffered = "its bytes were not offered that way";
inline constexpr std::string_view kNotEager = "it has begun, on a link that is not eager";
inline constexpr std::string_view kNoWholeVector = "a vector cannot travel as a whole";
/// The error for a frame that a correct peer would not send in this state.
Status unexpected(FrameType type, uint64_t operation, std::string_view why);
template <class Frame>
Status unexpected(const Frame& frame, std::string_view why) {
  return unexpected(Frame::kType, frame.operation, why);
}

}  // namespace tcpx
