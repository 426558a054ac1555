// Any bytes on a control connection: whatever arrives in whatever pieces, the stream hands over the same frames and ends the same
// way, and what the decoders accept is bounded and means the same when it is encoded again.
//
// Input: u8 piece size, then steps of a stream: u8 what (low bit 0: raw bytes, u8 length and as many; 1: a frame with a header of
// the right form: u8 type, u8 packing, u8 operation, u16 value, u16 bytes, u16 length and as many bytes of payload).
#include <sys/socket.h>

#include <vector>

#include "endpoint/control_stream.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using namespace tcpx;  // NOLINT: a program, not a header

using Bytes = std::vector<std::byte>;

// One stream takes it all; socket buffers hold it without anybody who reads.
constexpr size_t kMaxStream = 32 * 1024;

struct ControlFrame {
  ControlHeader header;
  Bytes payload;
  bool operator==(const ControlFrame& other) const {
    return std::memcmp(&header, &other.header, sizeof header) == 0 && payload == other.payload;
  }
};

struct Recorder final : ControlSink, PeerMessageSink {
  std::vector<ControlFrame> frames;
  size_t peer_messages = 0;
  Status on_frame(const ControlHeader& header, std::span<const std::byte> payload) override {
    FUZZ_REQUIRE(check_header(header).is_ok() && header.payload_bytes == payload.size());
    FUZZ_REQUIRE(header.type != static_cast<uint8_t>(ControlType::kPeer));
    frames.push_back({header, Bytes(payload.begin(), payload.end())});
    return Status::ok();
  }
  void on_peer_message(FrameType type, std::span<const std::byte> payload) override {
    FUZZ_REQUIRE(is_peer_message(type) && name_of(type) != "unknown" && payload.size() <= 512);
    ++peer_messages;
  }
};

struct Answer {
  Recorder recorder;
  std::string end;
};

Answer receive(std::span<const std::byte> bytes, size_t piece) {
  int fds[2];
  FUZZ_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  UniqueFd writer(fds[0]);
  Answer answer;
  ControlStream stream;
  stream.attach(UniqueFd(fds[1]));
  const auto flow = stream.open_flow();
  flow->deliver_to(&answer.recorder);
  while (!bytes.empty() && stream.status().is_ok()) {
    const size_t n = std::min(piece, bytes.size());
    FUZZ_REQUIRE(::send(writer.get(), bytes.data(), n, MSG_NOSIGNAL) == static_cast<ssize_t>(n));
    bytes = bytes.subspan(n);
    while (stream.receive(answer.recorder)) continue;
    FUZZ_REQUIRE(stream.buffer_bytes() <= sizeof(ControlHeader) + kMaxControlPayloadBytes);
  }
  writer.reset();
  while (stream.receive(answer.recorder)) continue;
  FUZZ_REQUIRE(stream.status().code() == Code::kProtocol || stream.status().code() == Code::kUnsupported ||
               stream.status().code() == Code::kPeerGone);
  answer.end = stream.status().to_string();
  return answer;
}

void decode_operation(const ControlFrame& frame) {
  OperationPayload read;
  read.notify_name = "untouched";
  if (!decode_operation_payload(frame.header, frame.payload, read).is_ok()) {
    FUZZ_REQUIRE(read.notify_name == "untouched");
    return;
  }
  uint64_t sum = 0;
  for (const uint64_t length : read.lengths) {
    FUZZ_REQUIRE(sum + length >= sum);
    sum += length;
  }
  for (const WireRange& range : read.ranges) {
    FUZZ_REQUIRE(range.offset + range.bytes >= range.offset && sum + range.bytes >= sum);
    sum += range.bytes;
  }
  const bool in_parts = !read.lengths.empty() || !read.ranges.empty();
  FUZZ_REQUIRE(!in_parts || sum == frame.header.bytes);
  FUZZ_REQUIRE(read.data.empty() || read.data.size() == frame.header.bytes);
  FUZZ_REQUIRE(read.has_notify || read.notify_name.empty());
  if (frame.header.type == static_cast<uint8_t>(ControlType::kReadData)) return;
  Bytes again;
  append_operation_payload(again, read);
  Bytes first = frame.payload;
  std::memset(first.data() + offsetof(OperationCounts, reserved), 0, sizeof(OperationCounts::reserved));
  FUZZ_REQUIRE(again == first);
}

void decode(const ControlFrame& frame) {
  decode_operation(frame);
  const Status status = decode_status(frame.header.value, frame.payload);
  for (const char c : status.detail()) FUZZ_REQUIRE(c >= ' ' && c <= '~');
  std::string name, text;
  if (decode_notify(frame.payload, name, text).is_ok()) FUZZ_REQUIRE(encode_notify(name, text) == frame.payload);
}

Bytes make_stream(fuzz::FuzzInput& in) {
  Bytes stream;
  while (!in.empty() && stream.size() < kMaxStream) {
    if (in.take<uint8_t>() % 2 == 0) {
      const auto raw = in.take_bytes(in.take<uint8_t>());
      stream.insert(stream.end(), raw.begin(), raw.end());
      continue;
    }
    const auto type = static_cast<ControlType>(in.take<uint8_t>() % (kLastControlType + 1));
    const auto packing = static_cast<Packing>(in.take<uint8_t>() % 4);
    const uint64_t operation = in.take<uint8_t>(), value = in.take<uint16_t>(), bytes = in.take<uint16_t>();
    const auto payload = in.take_bytes(in.take<uint16_t>());
    ControlHeader header = make_header(type, operation, value, bytes, packing);
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    const auto front = std::as_bytes(std::span(&header, 1));
    stream.insert(stream.end(), front.begin(), front.end());
    stream.insert(stream.end(), payload.begin(), payload.end());
  }
  if (stream.size() > kMaxStream) stream.resize(kMaxStream);
  return stream;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::FuzzInput in(data, size);
  const size_t piece = size_t{in.take<uint8_t>()} + 1;
  const Bytes stream = make_stream(in);
  const Answer in_pieces = receive(stream, piece), at_once = receive(stream, kMaxStream);
  FUZZ_REQUIRE(in_pieces.recorder.frames == at_once.recorder.frames && in_pieces.end == at_once.end);
  FUZZ_REQUIRE(in_pieces.recorder.peer_messages == at_once.recorder.peer_messages);
  for (const ControlFrame& frame : at_once.recorder.frames) decode(frame);
  return 0;
}
