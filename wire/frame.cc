#include "wire/frame.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <iterator>

#include "base/byte_sum.h"
#include "base/text.h"
#include "wire/messages.h"

namespace tcpx {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are copied to and from memory as they are");

constexpr const char* kReadFrame = "read frame";

Status bad_frame(std::string detail) {
  return Status(Code::kProtocol, kReadFrame, std::move(detail));
}

Status not_a_frame(std::span<const std::byte> bytes) {
  return bad_frame(concat("not a frame: it begins with \"", printable(bytes, 32), '"'));
}

struct TypeRow {
  std::string_view name;
  uint32_t longest_payload;
};
// Names and longest payloads, in the order of FrameType, from kHello on.
constexpr TypeRow kTypes[] = {{"hello", kMaxSetUpPayloadBytes},
                              {"parameters", kMaxSetUpPayloadBytes},
                              {"handles", kMaxSetUpPayloadBytes},
                              {"barrier", 0},
                              {"finish", kMaxStatusTextBytes},
                              {"send", kMaxPayloadBytes},
                              {"send with data", kMaxPayloadBytes},
                              {"write", kMaxPayloadBytes},
                              {"write with data", kMaxPayloadBytes},
                              {"read", kMaxPayloadBytes},
                              {"read data", kMaxInlineBytes},
                              {"ready", kMaxOfferBytes},
                              {"go", 0},
                              {"posted", 0},
                              {"begin", 0},
                              {"done", kMaxStatusTextBytes},
                              {"cancel", 0},
                              {"credit", 0},
                              {"notify", sizeof(uint32_t) + kMaxNotifyNameBytes + kMaxNotifyTextBytes},
                              {"lane message", kMaxLaneFrameBytes},
                              {"bye", kMaxStatusTextBytes}};
static_assert(std::size(kTypes) == kLastFrameType);

// Builds with a version below 8 begin a connection with these bytes.
constexpr std::string_view kOldMagic = "TCPXBOOT";

}  // namespace

std::string_view name_of(FrameType type) {
  const auto number = static_cast<size_t>(type);
  return number >= 1 && number <= kLastFrameType ? kTypes[number - 1].name : "unknown";
}

FrameHeader header_of(FrameType type) {
  FrameHeader header{};
  header.magic = kFrameMagic;
  header.version = kProtocolVersion;
  header.type = static_cast<uint8_t>(type);
  return header;
}

Status check_magic(std::span<const std::byte> begin) {
  const auto magic = std::as_bytes(std::span(&kFrameMagic, 1));
  const size_t come = std::min(begin.size(), magic.size());
  return std::equal(begin.begin(), begin.begin() + static_cast<ptrdiff_t>(come), magic.begin()) ? Status::ok() : not_a_frame(begin);
}

Status check_header(const FrameHeader& header) {
  const auto begin = std::as_bytes(std::span(&header, 1));
  TCPX_RETURN_IF_ERROR(check_magic(begin));
  if (header.version != kProtocolVersion) {
    const bool is_old = std::memcmp(begin.data(), kOldMagic.data(), kOldMagic.size()) == 0;
    return Status(Code::kUnsupported, kReadFrame,
                  concat("the peer speaks version ", is_old ? std::string("7 or older") : std::to_string(header.version),
                         " of the protocol, this build speaks ", kProtocolVersion));
  }
  if (header.type == 0 || header.type > kLastFrameType) return bad_frame(concat("type ", header.type));
  if (header.packing > static_cast<uint8_t>(Packing::kPacked)) return bad_frame(concat("packing ", header.packing));
  if (header.way >= kMaxWays) return bad_frame(concat("way ", header.way));
  const TypeRow& type = kTypes[header.type - 1];
  if (header.payload_bytes > type.longest_payload)
    return bad_frame(concat("a ", type.name, " frame with a payload of ", header.payload_bytes, " bytes"));
  return Status::ok();
}

uint32_t data_bytes_of(const FrameHeader& header) {
  switch (static_cast<FrameType>(header.type)) {
    case FrameType::kSendData:
    case FrameType::kWriteData:
    case FrameType::kReadData:
      return static_cast<uint32_t>(std::min<uint64_t>(header.bytes, header.payload_bytes));
    default:
      return 0;
  }
}

FrameCheck check_of(std::span<const std::byte> frame) {
  static const ByteSumKey key(0);
  ByteSumPart sum(key, 0);
  sum.add(frame);
  return sum.value(frame.size());
}

FrameCheck check_of_whole(std::span<const std::byte> frame) {
  FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof header);
  return check_of(frame.first(frame.size() - data_bytes_of(header)));
}

void append_check(std::vector<std::byte>& out, size_t begin) {
  const FrameCheck check = check_of_whole(std::span(out).subspan(begin));
  const auto bytes = std::as_bytes(std::span(&check, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

Status verify_check(std::span<const std::byte> checked) {
  const auto frame = checked.first(checked.size() - sizeof(FrameCheck));
  FrameCheck check;
  std::memcpy(&check, frame.data() + frame.size(), sizeof check);
  if (check == check_of_whole(frame)) return Status::ok();
  FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof header);
  return Status(
      Code::kCorrupt, kReadFrame,
      concat("a ", name_of(static_cast<FrameType>(header.type)), " frame has changed on its way: its check is another"));
}

void encode(const Frame& frame, std::vector<std::byte>& out) {
  FrameHeader header = header_of(frame.type);
  header.payload_bytes = static_cast<uint32_t>(frame.payload.size());
  header.value = frame.value;
  const size_t at = out.size();
  out.resize(at + sizeof header + frame.payload.size());
  std::memcpy(out.data() + at, &header, sizeof header);
  std::copy(frame.payload.begin(), frame.payload.end(), out.begin() + static_cast<ptrdiff_t>(at + sizeof header));
}

std::vector<std::byte> encode_frame(const Frame& frame) {
  std::vector<std::byte> bytes;
  encode(frame, bytes);
  append_check(bytes, 0);
  return bytes;
}

FrameAssembler::FrameAssembler() : bytes_(sizeof(FrameHeader)) {}

std::span<std::byte> FrameAssembler::wanted() {
  return std::span(bytes_).subspan(filled_);
}

Status FrameAssembler::filled(size_t count) {
  assert(count <= bytes_.size() - filled_);
  filled_ += count;
  TCPX_RETURN_IF_ERROR(check_magic({bytes_.data(), filled_}));
  if (!has_header_ && filled_ >= sizeof(FrameHeader)) {
    TCPX_RETURN_IF_ERROR(check_header(header()));
    has_header_ = true;
    if (!ends_set_up()) bytes_.resize(sizeof(FrameHeader) + header().payload_bytes + sizeof(FrameCheck));
  }
  return whole() ? verify_check(bytes_) : Status::ok();
}

FrameHeader FrameAssembler::header() const {
  assert(filled_ >= sizeof(FrameHeader));
  FrameHeader header;
  std::memcpy(&header, bytes_.data(), sizeof header);
  return header;
}

Frame FrameAssembler::take() {
  assert(whole());
  const auto payload = std::span(bytes_).subspan(sizeof(FrameHeader), header().payload_bytes);
  Frame frame{.type = type(), .payload = {payload.begin(), payload.end()}, .value = header().value};
  bytes_.assign(sizeof(FrameHeader), std::byte{});
  filled_ = 0;
  has_header_ = false;
  return frame;
}

std::string text_for_peer(const Status& status) {
  if (status.is_ok()) return {};
  // A native code means nothing to another machine, but something to its user, so it is sent within the text.
  return status.to_string().substr(name_of(status.code()).size() + 2, kMaxStatusTextBytes);
}

Status status_of_peer(uint64_t code, std::span<const std::byte> bytes) {
  if (code == static_cast<uint64_t>(Code::kOk)) return Status::ok();
  const bool known = code <= static_cast<uint64_t>(kLastCode);
  std::string text = printable(bytes, kMaxStatusTextBytes);
  if (!known) text = concat("unknown code ", code, ": ", text);
  return Status(known ? static_cast<Code>(code) : Code::kProtocol, "peer reported", std::move(text));
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
