// One frame for all that two ends tell each other over their connection, from the hello to the bye. Pure: no socket, no clock.
//
// A frame is a header of 40 bytes and a payload, little-endian. The frames with which a connection is set up are in
// set_up_messages.h, those of an endpoint that follow them in messages.h. All of them have one version, the protocol's: two ends of
// different versions do not talk, and each names the other's.
//
// A frame proves nothing about who has sent it: there is no authentication in this version.
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
/// Of the frames, and of all else that an end takes for granted about its peer.
inline constexpr uint8_t kProtocolVersion = 8;

enum class FrameType : uint8_t {
  // Of the set-up.
  kHello = 1,
  kParameters,
  kHandles,
  kBarrier,
  kFinish,
  // After it.
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

/// Bytes of the payload of any frame, and of one of the set-up.
inline constexpr uint32_t kMaxPayloadBytes = 2u << 20;
inline constexpr uint32_t kMaxSetUpPayloadBytes = 64 * 1024;

/// Bytes of the text of a status in a frame.
inline constexpr uint32_t kMaxStatusTextBytes = 1024;

/// The tables in set_up_messages.h and messages.h give the meaning of the fields for each type.
struct FrameHeader {
  uint32_t magic;
  uint8_t version;
  uint8_t type;
  uint8_t packing;
  uint8_t way;
  uint32_t payload_bytes;
  uint16_t flags;  ///< kBegunFlag, or 0; others are ignored
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
/// Checks magic, version, type, packing, way, and the longest payload of this type. Reserved fields are ignored.
/// @return kProtocol naming what is wrong; kUnsupported naming both versions if the version is not kProtocolVersion
Status check_header(const FrameHeader& header);

/// A frame that has its payload.
struct Frame {
  FrameType type = FrameType::kHello;
  std::vector<std::byte> payload = {};
  uint64_t value = 0;
};
/// Header and payload, ready to send.
std::vector<std::byte> encode_frame(const Frame& frame);

/// Builds one frame of the set-up from bytes that arrive in pieces, and refuses them at the first byte that no frame has there. It
/// never asks for a byte beyond its frame, nor for memory before the header has been checked. At the header of a frame that is not of
/// the set-up it stops.
class FrameAssembler {
 public:
  FrameAssembler();
  /// Room for the next bytes; empty when the frame is whole, and when it is not of the set-up.
  std::span<std::byte> wanted();
  /// The first `count` bytes of wanted() have been filled. @return errors of `check_header`. Final.
  Status filled(size_t count);
  bool whole() const { return has_header_ && !ends_set_up() && filled_ == bytes_.size(); }
  /// True when the header of a frame that is not of the set-up has come.
  bool ends_set_up() const { return has_header_ && !goes_on_ && !is_of_set_up(type()); }
  /// Takes the payload of such a frame, too.
  void go_on();
  size_t size() const { return filled_; }
  /// The whole frame; the assembler begins anew.
  Frame take();
  /// They need the header, and the whole frame.
  FrameType type() const { return static_cast<FrameType>(header().type); }
  FrameHeader header() const;
  std::span<const std::byte> payload() const;
  /// The bytes that have come; the assembler begins anew.
  std::vector<std::byte> take_bytes();

 private:
  std::vector<std::byte> bytes_;
  size_t filled_ = 0;
  bool has_header_ = false;  // and it is checked
  bool goes_on_ = false;
};

/// The text of a status that is told to the peer beside its code: operation and detail, at most kMaxStatusTextBytes; "" of ok.
std::string text_for_peer(const Status& status);
/// The status that a peer has told: its operation is "peer reported", its text bounded and printable; kProtocol for an unknown code.
Status status_of_peer(uint64_t code, std::span<const std::byte> text);

/// At most `limit` characters of foreign bytes, with '.' for what is not printable: fit for a log line.
std::string printable(std::span<const std::byte> bytes, size_t limit);

}  // namespace tcpx
