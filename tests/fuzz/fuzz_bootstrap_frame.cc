// Any bytes on the bootstrap port: in any pieces the assembler gives the same answer, never asks for bytes
// past its frame, and what the decoders accept means the same when it is encoded again.
//
// Input: u8 flags (1: put the right magic, version and checks into the frames, so that the fuzzer gets past them), u8 piece size, then
// the bytes of the stream.
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "wire/set_up_messages.h"

namespace {

using tcpx::Code;
using tcpx::Frame;
using tcpx::FrameAssembler;
using tcpx::FrameHeader;
using tcpx::FrameType;
using tcpx::Status;

struct Answer {
  std::vector<Frame> frames;
  Code end = Code::kOk;
};

Answer assemble(std::span<const std::byte> stream, size_t piece) {
  Answer answer;
  FrameAssembler assembler;
  while (!stream.empty()) {
    const auto wanted = assembler.wanted();
    FUZZ_REQUIRE(!wanted.empty() &&
                 wanted.size() <= sizeof(FrameHeader) + tcpx::kMaxSetUpPayloadBytes + sizeof(tcpx::FrameCheck));
    const size_t n = std::min({piece, stream.size(), wanted.size()});
    std::memcpy(wanted.data(), stream.data(), n);
    stream = stream.subspan(n);
    const Status status = assembler.filled(n);
    if (!status.is_ok()) {
      FUZZ_REQUIRE(status.code() == Code::kProtocol || status.code() == Code::kUnsupported || status.code() == Code::kCorrupt);
      answer.end = status.code();
      return answer;
    }
    if (assembler.ends_set_up()) return answer;
    if (assembler.whole()) answer.frames.push_back(assembler.take());
  }
  return answer;
}

void decode(const Frame& frame) {
  if (const auto handles = tcpx::decode_handles(frame, tcpx::kMaxHandlesPerFrame); handles.is_ok()) {
    FUZZ_REQUIRE(frame.type == FrameType::kHandles && tcpx::encode_handles(*handles)->payload == frame.payload);
  }
  if (const auto parameters = tcpx::decode_parameters(frame); parameters.is_ok()) {
    FUZZ_REQUIRE(frame.type == FrameType::kParameters);
    const auto again = tcpx::encode_parameters(*parameters);
    FUZZ_REQUIRE(again.is_ok() && *tcpx::decode_parameters(*again) == *parameters);
  }
  if (const auto number = tcpx::decode_barrier(frame); number.is_ok()) {
    FUZZ_REQUIRE(frame.type == FrameType::kBarrier && tcpx::encode_barrier(*number).value == frame.value);
  }
  if (const auto build = tcpx::decode_hello(frame); build.is_ok()) {
    FUZZ_REQUIRE(frame.type == FrameType::kHello && *tcpx::decode_hello(tcpx::encode_hello(*build)) == *build);
  }
  Status reported(Code::kInternal, "untouched", "");
  if (tcpx::decode_finish(frame, reported).is_ok()) {
    FUZZ_REQUIRE(frame.type == FrameType::kFinish);
    for (const char c : reported.detail()) FUZZ_REQUIRE(c >= ' ' && c <= '~');
  } else {
    FUZZ_REQUIRE(reported.operation() == "untouched");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tcpx::fuzz::FuzzInput input(data, size);
  const auto flags = input.take<uint8_t>();
  const size_t piece = size_t{input.take<uint8_t>()} + 1;
  std::vector<std::byte> stream(input.rest().begin(), input.rest().end());
  for (size_t at = 0; (flags & 1) != 0 && stream.size() - at >= sizeof(FrameHeader) + sizeof(tcpx::FrameCheck);) {
    FrameHeader header;
    std::memcpy(&header, stream.data() + at, sizeof header);
    header.magic = tcpx::kFrameMagic;
    header.version = tcpx::kProtocolVersion;
    std::memcpy(stream.data() + at, &header, sizeof header);
    const size_t rest = stream.size() - at - sizeof header - sizeof(tcpx::FrameCheck);
    if (header.payload_bytes > rest) break;
    const auto frame = std::span(stream).subspan(at, sizeof header + header.payload_bytes);
    const tcpx::FrameCheck check = tcpx::check_of_whole(frame);
    std::memcpy(frame.data() + frame.size(), &check, sizeof check);
    at += frame.size() + sizeof check;
  }
  const Answer answer = assemble(stream, piece);
  const Answer at_once = assemble(stream, stream.size() + 1);
  FUZZ_REQUIRE(answer.end == at_once.end && answer.frames.size() == at_once.frames.size());
  for (size_t i = 0; i < answer.frames.size(); ++i) {
    FUZZ_REQUIRE(answer.frames[i].type == at_once.frames[i].type && answer.frames[i].payload == at_once.frames[i].payload);
    decode(answer.frames[i]);
  }
  return 0;
}
