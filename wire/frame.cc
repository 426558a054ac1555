#include "wire/frame.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <iterator>

#include "base/text.h"

namespace tcpx {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are copied to and from memory as they are");

constexpr const char* kReadFrame = "read bootstrap frame";

Status bad_frame(std::string detail) {
  return Status(Code::kProtocol, kReadFrame, std::move(detail));
}

uint64_t fnv1a(uint64_t state, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) state = (state ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
  return state;
}

bool is_known(uint16_t type) {
  return type >= static_cast<uint16_t>(FrameType::kHello) && type <= static_cast<uint16_t>(FrameType::kDetach);
}

}  // namespace

std::string_view name_of(FrameType type) {
  constexpr std::string_view kNames[] = {"hello",   "parameters",   "handles",  "barrier",   "finish", "grant",
                                         "regrant", "channel down", "received", "submitted", "delivered", "detach"};
  static_assert(std::size(kNames) == static_cast<size_t>(FrameType::kDetach));
  return is_known(static_cast<uint16_t>(type)) ? kNames[static_cast<size_t>(type) - 1] : "unknown";
}

uint64_t frame_check(const FrameHeader& header, std::span<const std::byte> payload) {
  constexpr uint64_t kFnvOffsetBasis = 0xcbf29ce484222325u;
  const auto front = std::as_bytes(std::span(&header, 1)).first(offsetof(FrameHeader, check));
  return fnv1a(fnv1a(kFnvOffsetBasis, front), payload);
}

std::vector<std::byte> encode_frame(const Frame& frame) {
  std::vector<std::byte> bytes;
  bytes.reserve(sizeof(FrameHeader) + frame.payload.size());
  append_frame(bytes, frame.type, frame.payload, {});
  return bytes;
}

void append_frame(std::vector<std::byte>& out, FrameType type, std::span<const std::byte> front,
                  std::span<const std::byte> rest) {
  assert(front.size() + rest.size() <= kMaxFramePayloadBytes);
  const size_t begin = out.size();
  out.resize(begin + sizeof(FrameHeader));
  out.insert(out.end(), front.begin(), front.end());
  out.insert(out.end(), rest.begin(), rest.end());
  FrameHeader header{};
  header.magic = kFrameMagic;
  header.version = kFrameVersion;
  header.type = static_cast<uint16_t>(type);
  header.payload_bytes = static_cast<uint32_t>(front.size() + rest.size());
  header.check = frame_check(header, std::span(out).subspan(begin + sizeof header));
  std::memcpy(out.data() + begin, &header, sizeof header);
}

FrameAssembler::FrameAssembler() : bytes_(sizeof(FrameHeader)) {}

std::span<std::byte> FrameAssembler::wanted() {
  return std::span(bytes_).subspan(filled_);
}

bool FrameAssembler::whole() const {
  return filled_ >= sizeof(FrameHeader) && filled_ == bytes_.size();
}

Status FrameAssembler::filled(size_t count) {
  assert(count <= bytes_.size() - filled_);
  const bool had_header = filled_ >= sizeof(FrameHeader);
  filled_ += count;
  // The magic is compared as far as it has come, so that a short foreign greeting is refused and not waited on.
  const size_t magic_bytes = std::min(filled_, kFrameMagic.size());
  if (std::memcmp(bytes_.data(), kFrameMagic.data(), magic_bytes) != 0) {
    return bad_frame(concat("not a bootstrap frame: it begins with \"", printable({bytes_.data(), filled_}, 32), '"'));
  }
  if (!had_header && filled_ == sizeof(FrameHeader)) TCPX_RETURN_IF_ERROR(check_header());
  if (whole()) {
    FrameHeader header;
    std::memcpy(&header, bytes_.data(), sizeof header);
    const uint64_t check = frame_check(header, std::span(bytes_).subspan(sizeof header));
    if (header.check != check) return bad_frame(concat("check value ", Hex{header.check}, ", computed ", Hex{check}));
  }
  return Status::ok();
}

Status FrameAssembler::check_header() {
  FrameHeader header;
  std::memcpy(&header, bytes_.data(), sizeof header);
  if (header.version == 0) return bad_frame("version 0");
  if (header.version > kFrameVersion) {
    return Status(Code::kUnsupported, kReadFrame,
                  concat("the peer speaks bootstrap version ", header.version, ", this build speaks ", kFrameVersion));
  }
  if ((header.flags & kMustKnowFlags) != 0) {
    return Status(Code::kUnsupported, kReadFrame,
                  concat("flags ", Hex{header.flags & kMustKnowFlags}, " are unknown to this build"));
  }
  if (!is_known(header.type)) return bad_frame(concat("unknown frame type ", header.type));
  if (header.payload_bytes > kMaxFramePayloadBytes) {
    return bad_frame(concat("payload of ", header.payload_bytes, " bytes, the limit is ", kMaxFramePayloadBytes));
  }
  bytes_.resize(sizeof header + header.payload_bytes);
  return Status::ok();
}

FrameType FrameAssembler::type() const {
  assert(whole());
  FrameHeader header;
  std::memcpy(&header, bytes_.data(), sizeof header);
  return static_cast<FrameType>(header.type);
}

std::span<const std::byte> FrameAssembler::payload() const {
  assert(whole());
  return std::span(bytes_).subspan(sizeof(FrameHeader));
}

void FrameAssembler::begin_next() {
  assert(whole());
  bytes_.assign(sizeof(FrameHeader), std::byte{});
  filled_ = 0;
}

Frame FrameAssembler::take() {
  const auto bytes = payload();
  Frame frame{.type = type(), .payload = {bytes.begin(), bytes.end()}};
  begin_next();
  return frame;
}

std::string printable(std::span<const std::byte> bytes, size_t limit) {
  std::string text;
  for (const std::byte byte : bytes.first(std::min(bytes.size(), limit))) {
    const char c = static_cast<char>(byte);
    text.push_back(c >= ' ' && c <= '~' ? c : '.');
  }
  return text;
}

}  // namespace tcpx
