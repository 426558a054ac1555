// The frame in which two ends send everything over their connection, from the hello to the bye. Pure: no socket, no clock.
//
// A frame is a header of 40 bytes, a payload, and a check of 8 bytes, little-endian. The frames that set up a connection are in
// set_up_messages.h; the frames of an endpoint, which follow them, are in messages.h. All frames carry one version, that of the
// protocol: two ends with different versions do not talk, and each reports the other's version.
//
// The check shows bits that changed on the way. It proves nothing about the sender: that is for TLS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tcpx/status.h"

namespace tcpx {

inline constexpr uint32_t kFrameMagic = 0x58504354;  // "TCPX"
/// Version of the frames, and of everything else that an end assumes about its peer.
inline constexpr uint8_t kProtocolVersion = 14;

enum class FrameType : uint8_t {
  // Frames of the set-up.
  kHello = 1,
  kParameters,
  kHandles,
  kBarrier,
  kFinish,
  // Frames after it.
  kSend,
  kSendData,
  kWrite,
  kWriteData,
  kRead,
  kReadData,
  kReady,
  kGo,
  kPosted,
  kBegin,
  kDone,
  kCancel,
  kCredit,
  kNotify,
  kLane,
  kBye,
};
inline constexpr uint8_t kLastFrameType = static_cast<uint8_t>(FrameType::kBye);
std::string_view name_of(FrameType type);
constexpr bool is_of_set_up(FrameType type) {
  return type >= FrameType::kHello && type <= FrameType::kFinish;
}

/// Most bytes of the payload of any frame, and of a frame of the set-up.
inline constexpr uint32_t kMaxPayloadBytes = 2u << 20;
inline constexpr uint32_t kMaxSetUpPayloadBytes = 64 * 1024;

/// Most bytes of the text of a status in a frame.
inline constexpr uint32_t kMaxStatusTextBytes = 1024;

/// The tables in set_up_messages.h and messages.h give the meaning of the fields for each type.
struct FrameHeader {
  uint32_t magic;
  uint8_t version;
  uint8_t type;
  uint8_t packing;
  uint8_t way;
  uint32_t payload_bytes;
  uint16_t flags;  ///< kBegunFlag or 0; other bits are ignored
  uint16_t reserved;
  uint64_t operation;
  uint64_t value;
  uint64_t bytes;
};
static_assert(sizeof(FrameHeader) == 40 && std::is_trivially_copyable_v<FrameHeader> && offsetof(FrameHeader, version) == 4 &&
              offsetof(FrameHeader, payload_bytes) == 8 && offsetof(FrameHeader, operation) == 16 &&
              offsetof(FrameHeader, value) == 24 && offsetof(FrameHeader, bytes) == 32);
/// A header with magic and version; the other fields are 0.
FrameHeader header_of(FrameType type);
/// Checks the magic, or as much of it as has come, so that a short greeting of another protocol is refused at once.
/// @param begin bytes of a frame from its first. @return kProtocol naming them
Status check_magic(std::span<const std::byte> begin);
/// Checks magic, version, type, packing, way, and the longest payload of this type. Reserved fields are ignored.
/// @return kProtocol naming what is wrong; kUnsupported naming both versions if the version is not kProtocolVersion
Status check_header(const FrameHeader& header);
/// Bytes at the end of the payload that are the user's data; bounded by the payload.
uint32_t data_bytes_of(const FrameHeader& header);

/// The check of a frame: a byte sum (base/byte_sum.h) of all before it, with a multiplier that everybody knows. The data of SendData,
/// WriteData and ReadData does not count.
using FrameCheck = uint64_t;
/// @param frame without its data
FrameCheck check_of(std::span<const std::byte> frame);
/// @param frame whole but for its check
FrameCheck check_of_whole(std::span<const std::byte> frame);
/// Appends the check of the frame that is in `out` from `begin` on.
void append_check(std::vector<std::byte>& out, size_t begin);
/// @param checked a whole frame with its check. @return kCorrupt: the check is that of another one
Status verify_check(std::span<const std::byte> checked);

/// A frame of the set-up with its payload.
struct Frame {
  FrameType type = FrameType::kHello;
  std::vector<std::byte> payload = {};
  uint64_t value = 0;
};
/// Appends header and payload to `out`.
void encode(const Frame& frame, std::vector<std::byte>& out);
/// Header, payload and check, ready to send.
std::vector<std::byte> encode_frame(const Frame& frame);

/// Builds one frame of the set-up from bytes that arrive in pieces. It refuses them at the first byte that cannot belong to a
/// frame, never asks for a byte beyond its frame, and takes no memory for the payload before the header has been checked. It
/// stops at the header of a frame that is not of the set-up.
class FrameAssembler {
 public:
  FrameAssembler();
  /// Room for the next bytes; empty when the frame is whole or is not of the set-up.
  std::span<std::byte> wanted();
  /// Call when the first `count` bytes of wanted() have been filled. @return errors of `check_header`, and kCorrupt: the check is of
  /// another frame; both are final
  Status filled(size_t count);
  bool whole() const { return has_header_ && !ends_set_up() && filled_ == bytes_.size(); }
  /// True when the header of a frame that is not of the set-up has come.
  bool ends_set_up() const { return has_header_ && !is_of_set_up(type()); }
  /// Number of bytes of the frame that have come.
  size_t size() const { return filled_; }
  /// Takes the whole frame out; the assembler begins a new one.
  Frame take();
  /// Needs a complete header.
  FrameType type() const { return static_cast<FrameType>(header().type); }

 private:
  FrameHeader header() const;

  std::vector<std::byte> bytes_;
  size_t filled_ = 0;
  bool has_header_ = false;  // the header has come and has been checked
};

/// The text of a status that is sent to the peer with its code: operation and detail, at most kMaxStatusTextBytes; "" for ok.
std::string text_for_peer(const Status& status);
/// The status that a peer has sent. Its operation is "peer reported", and its text is bounded and printable. kProtocol for an
/// unknown code.
Status status_of_peer(uint64_t code, std::span<const std::byte> text);

/// At most `limit` characters of bytes from a peer, with '.' for every byte that is not printable, so that they can be logged.
std::string printable(std::span<const std::byte> bytes, size_t limit);

}  // namespace tcpx
