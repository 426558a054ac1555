// Frames of the bootstrap protocol. Their payloads are in bootstrap_message.h. Pure: no socket, no clock, no log.
//
// A frame is a 48-byte header and a payload of at most 64 KiB, in little-endian order:
//
//    0  magic "TCPXBOOT"        16  flags, u32           24  reserved, 16 bytes: zero when sent, ignored when received
//    8  version, u16 = 1        20  payload bytes, u32   40  check value, u64
//   10  type, u16
//   12  reserved, u32
//
// Later versions may use reserved bytes and high flag bits freely, because this one ignores them; set a low flag bit
// (kMustKnowFlags) for what may not be ignored, which this one refuses by name; or raise the version when neither is enough.
//
// The check value is FNV-1a (64 bits) over the header without it, then the payload. TCP has guarded the bytes in transit already;
// this catches a stream that is out of step or a foreign sender, for which any well-mixed value will do, and FNV-1a needs no
// table and no library. It proves nothing about who sent the frame: authentication is not part of this version.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tcpx/status.h"

namespace tcpx {

inline constexpr std::array<char, 8> kFrameMagic = {'T', 'C', 'P', 'X', 'B', 'O', 'O', 'T'};
inline constexpr uint16_t kFrameVersion = 1;
inline constexpr uint32_t kMaxFramePayloadBytes = 64 * 1024;
/// Flags of which a receiver must know every one that is set. Version 1 knows none.
inline constexpr uint32_t kMustKnowFlags = 0x0000ffff;

enum class FrameType : uint16_t {
  kHello = 1,       ///< text: version of the sender's build. First frame of each side, the client's first
  kParameters = 2,  ///< program parameters that the two ends compare
  kHandles = 3,     ///< connection handles
  kBarrier = 4,     ///< u64: how many barriers the sender has entered
  kFinish = 5,      ///< final status; the sender's last frame
  // Of the pipelines that use this channel (peer_messages.h).
  kGrant = 6,
  kRegrant = 7,
  kChannelDown = 8,
  kReceived = 9,
  kSubmitted = 10,
  kDelivered = 11,
  kDetach = 12,  ///< the sender's last frame; bytes after it on the socket are no bootstrap frame
};
std::string_view name_of(FrameType type);
/// True for the frames of peer_messages.h.
constexpr bool is_peer_message(FrameType type) {
  return type >= FrameType::kGrant && type <= FrameType::kDelivered;
}

struct FrameHeader {
  std::array<char, 8> magic;
  uint16_t version;
  uint16_t type;
  uint32_t reserved_a;
  uint32_t flags;
  uint32_t payload_bytes;
  uint64_t reserved_b[2];
  uint64_t check;
};
static_assert(sizeof(FrameHeader) == 48 && offsetof(FrameHeader, version) == 8 && offsetof(FrameHeader, type) == 10 &&
              offsetof(FrameHeader, flags) == 16 && offsetof(FrameHeader, payload_bytes) == 20 &&
              offsetof(FrameHeader, check) == 40);

struct Frame {
  FrameType type = FrameType::kHello;
  std::vector<std::byte> payload;
};

/// Header and payload, ready to send. The payload must be within kMaxFramePayloadBytes.
std::vector<std::byte> encode_frame(const Frame& frame);
/// Appends the frame whose payload is `front` and then `rest`. Allocates only when `out` must grow.
void append_frame(std::vector<std::byte>& out, FrameType type, std::span<const std::byte> front, std::span<const std::byte> rest);
/// The check value of a header and its payload; `header.check` is not part of it.
uint64_t frame_check(const FrameHeader& header, std::span<const std::byte> payload);

/// Builds one frame from bytes that arrive in pieces, and refuses them at the first byte that no frame has there. It never asks
/// for a byte beyond its frame, nor for memory before the header has been checked.
class FrameAssembler {
 public:
  FrameAssembler();
  /// Room for the next bytes; empty when the frame is whole.
  std::span<std::byte> wanted();
  /// The first `count` bytes of wanted() have been filled.
  /// @return kProtocol: these bytes are no frame; kUnsupported: a frame of a newer version or with unknown flags. Final.
  Status filled(size_t count);
  bool whole() const;
  size_t size() const { return filled_; }
  /// The whole frame; the assembler begins anew.
  Frame take();
  /// The same without a copy: type and payload of the whole frame, valid until `begin_next`.
  FrameType type() const;
  std::span<const std::byte> payload() const;
  void begin_next();

 private:
  Status check_header();
  std::vector<std::byte> bytes_;
  size_t filled_ = 0;
};

/// At most `limit` characters of foreign bytes, with '.' for what is not printable: fit for a log line.
std::string printable(std::span<const std::byte> bytes, size_t limit);

}  // namespace tcpx
