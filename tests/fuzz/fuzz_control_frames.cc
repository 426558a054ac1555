// Any bytes on a control connection: in any pieces the stream hands over the same frames and ends the same
// way, and what the decoders accept is bounded and means the same when it is encoded again.
//
// Input: u8 piece size, then steps of a stream: u8 what (low bit 0: raw bytes, u8 length and as many; 1: a frame with a header of
// the right form: u8 type, u8 packing and way, u8 operation, u16 value, u16 bytes, u16 length and as many bytes of payload; the next bit: it
// says that its transfer has begun; the next: its check is missing).
#include <sys/socket.h>

#include <cstring>
#include <type_traits>
#include <vector>

#include "wire/control_stream.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/raw_frame.h"

namespace {

using namespace tcpx;  // NOLINT: a program, not a header

using Bytes = std::vector<std::byte>;

// One stream takes it all; socket buffers hold it without anybody who reads.
constexpr size_t kMaxStream = 32 * 1024;

struct ControlFrame {
  FrameHeader header;
  Bytes payload;
  bool operator==(const ControlFrame& other) const {
    return std::memcmp(&header, &other.header, sizeof header) == 0 && payload == other.payload;
  }
};

struct Recorder final : ControlSink {
  std::vector<ControlFrame> frames;
  Status on_frame(const FrameHeader& header, std::span<const std::byte> payload) override {
    FUZZ_REQUIRE(check_header(header).is_ok() && header.payload_bytes == payload.size());
    frames.push_back({header, Bytes(payload.begin(), payload.end())});
    return Status::ok();
  }
};

struct Answer {
  Recorder recorder;
  Code end{};  // the text quotes as much of what is no frame as had come
};

Answer receive(std::span<const std::byte> bytes, size_t piece) {
  int fds[2];
  FUZZ_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
  UniqueFd writer(fds[0]);
  Answer answer;
  ControlStream stream;
  stream.attach(UniqueFd(fds[1]));
  while (!bytes.empty() && stream.status().is_ok()) {
    const size_t n = std::min(piece, bytes.size());
    FUZZ_REQUIRE(::send(writer.get(), bytes.data(), n, MSG_NOSIGNAL) == static_cast<ssize_t>(n));
    bytes = bytes.subspan(n);
    while (stream.receive(answer.recorder)) continue;
    FUZZ_REQUIRE(stream.buffer_bytes() <= sizeof(FrameHeader) + kMaxPayloadBytes + sizeof(FrameCheck));
  }
  writer.reset();
  while (stream.receive(answer.recorder)) continue;
  FUZZ_REQUIRE(stream.status().code() == Code::kProtocol || stream.status().code() == Code::kUnsupported ||
               stream.status().code() == Code::kPeerGone || stream.status().code() == Code::kCorrupt);
  answer.end = stream.status().code();
  return answer;
}

template <class T>
bool adds_up(const WireArray<T>& parts, uint64_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if constexpr (std::is_same_v<T, WireRange>) {
      FUZZ_REQUIRE(parts[i].offset + parts[i].bytes >= parts[i].offset && sum + parts[i].bytes >= sum);
      sum += parts[i].bytes;
    } else {
      FUZZ_REQUIRE(sum + parts[i] >= sum);
      sum += parts[i];
    }
  }
  return parts.empty() || sum == bytes;
}

// An accepted frame is bounded, and means the same when it is encoded again.
void decode(const ControlFrame& received) {
  (void)testing::decode_any(received.header, received.payload, [&](const auto& frame) {
    using Frame = std::decay_t<decltype(frame)>;
    const uint64_t bytes = received.header.bytes;
    if constexpr (requires { frame.begun; }) FUZZ_REQUIRE(frame.begun == ((received.header.flags & kBegunFlag) != 0));
    if constexpr (requires { frame.lengths; }) FUZZ_REQUIRE(adds_up(frame.lengths, bytes));
    if constexpr (requires { frame.ranges; }) FUZZ_REQUIRE(adds_up(frame.ranges, bytes));
    if constexpr (requires { frame.offers; }) {
      size_t found = 0;
      for (uint8_t way = 0; way < kMaxWays; ++way) {
        if (const auto words = frame.offers.find(Way{way})) found += sizeof(OfferHeader) + words->size();
      }
      FUZZ_REQUIRE(found == frame.offers.raw().size() && !frame.offers.find(Way::kNetwork));
    }
    constexpr bool has_data = Frame::kType == FrameType::kSendData || Frame::kType == FrameType::kWriteData ||
                              Frame::kType == FrameType::kReadData;
    if constexpr (requires { frame.data; })
      FUZZ_REQUIRE(has_data ? frame.data.size() == bytes && bytes <= kMaxInlineBytes : frame.data.empty());
    if constexpr (std::is_same_v<Frame, CreditFrame>) FUZZ_REQUIRE(static_cast<size_t>(frame.window) < kWindows);
    if constexpr (std::is_same_v<Frame, DoneFrame>) {
      for (const char c : frame.status.detail()) FUZZ_REQUIRE(c >= ' ' && c <= '~');
    } else if constexpr (!std::is_same_v<Frame, ByeFrame>) {  // whose text nobody reads
      FUZZ_REQUIRE(testing::payload_of(frame) == received.payload);
    }
  });
}

Bytes make_stream(fuzz::FuzzInput& in) {
  Bytes stream;
  while (!in.empty() && stream.size() < kMaxStream) {
    const auto what = in.take<uint8_t>();
    if (what % 2 == 0) {
      const auto raw = in.take_bytes(in.take<uint8_t>());
      stream.insert(stream.end(), raw.begin(), raw.end());
      continue;
    }
    const auto type = static_cast<FrameType>(in.take<uint8_t>() % (kLastFrameType + 1));
    const auto packed = in.take<uint8_t>();
    const auto packing = static_cast<Packing>(packed % 4);
    const auto way = static_cast<Way>(packed / 4);
    const uint64_t operation = in.take<uint8_t>(), value = in.take<uint16_t>(), bytes = in.take<uint16_t>();
    const auto payload = in.take_bytes(in.take<uint16_t>());
    FrameHeader header = testing::make_header(type, operation, value, bytes, packing, way);
    if ((what & 2) != 0) header.flags = kBegunFlag;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    const size_t begin = stream.size();
    const auto front = std::as_bytes(std::span(&header, 1));
    stream.insert(stream.end(), front.begin(), front.end());
    stream.insert(stream.end(), payload.begin(), payload.end());
    if ((what & 4) == 0) append_check(stream, begin);
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
  for (const ControlFrame& frame : at_once.recorder.frames) decode(frame);
  return 0;
}
