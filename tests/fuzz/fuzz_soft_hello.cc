// Any bytes on a data port of the software plugin before anybody has proved anything: the hello as the listener reads it, and the answer as
// the connector does, and after it a chunk header and a handle, which a peer may have made up. Nobody without the cookie, or the secret, gets past the first two, and what the decoders accept is written alike.
//
// Input: u8 flags (1: the ends have a secret; 2: records that can be read are proved anew, so that the fuzzer gets past the proof;
// 4: so are check values of the others), then a hello of 64 bytes, an answer of 48, a chunk header of 48 and a handle of 128.
#include <algorithm>
#include <array>
#include <cstring>

#include "net/soft/hello_proofs.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using namespace tcpx::soft;
using tcpx::Code;
using tcpx::Handle;
using tcpx::kHandleBytes;

constexpr uint32_t kMostBytes = 1 << 20;
constexpr Cookie kCookie{{0x0706050403020100, 0x0f0e0d0c0b0a0908}};

const HelloProofs& proofs(bool with_key) {
  static const HelloProofs clear = HelloProofs::create(kCookie, nullptr).value();
  static const HelloProofs keyed = [] {
    const auto prover = tcpx::Prover::create(tcpx::Secret::zeros(tcpx::Secret::kFewestBytes).value()).value();
    return HelloProofs::create(kCookie, &prover).value();
  }();
  return with_key ? keyed : clear;
}

template <size_t kSize>
std::array<std::byte, kSize> record_of(tcpx::fuzz::FuzzInput& input) {
  std::array<std::byte, kSize> record{};
  const auto bytes = input.take_bytes(kSize);
  std::copy(bytes.begin(), bytes.end(), record.begin());
  return record;
}

template <size_t kSize>
void repair_check(std::array<std::byte, kSize>& record) {
  uint32_t check = 0x811c9dc5;
  for (size_t i = 0; i < kSize - sizeof check; ++i) check = (check ^ std::to_integer<uint32_t>(record[i])) * 0x01000193;
  std::memcpy(record.data() + kSize - sizeof check, &check, sizeof check);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tcpx::fuzz::FuzzInput input(data, size);
  const auto flags = input.take<uint8_t>();
  const HelloProofs& listener = proofs((flags & 1) != 0);
  auto hello = record_of<kHelloBytes>(input);
  auto answer = record_of<kHelloAnswerBytes>(input);
  if (const auto said = decode_hello(hello); said.is_ok()) {
    FUZZ_REQUIRE(said->data_sockets >= 1 && said->data_sockets <= 2 * kMaxDataSockets &&
                 said->socket_index <= said->data_sockets);
    FUZZ_REQUIRE(said->device_sockets <= said->data_sockets);
    std::array<std::byte, kHelloBytes> again{};
    encode_hello(*said, again);
    const auto twice = decode_hello(again);
    FUZZ_REQUIRE(twice.is_ok() && twice->connection == said->connection && twice->socket_index == said->socket_index);
    FUZZ_REQUIRE(twice->encrypts == said->encrypts && twice->headers_apart == said->headers_apart);
    FUZZ_REQUIRE(twice->data_sockets == said->data_sockets && twice->device_sockets == said->device_sockets);
    if ((flags & 2) != 0) {
      FUZZ_REQUIRE(listener.write(*said, hello).is_ok());
      FUZZ_REQUIRE(listener.read(hello).is_ok());
    }
  }
  const auto heard = listener.read(hello);
  FUZZ_REQUIRE(heard.is_ok() || heard.status().code() != Code::kInternal);
  if (const auto said = decode_hello_answer(answer); said.is_ok() && (flags & 2) != 0) {
    FUZZ_REQUIRE(listener.write(*said, hello, answer).is_ok());
    FUZZ_REQUIRE(listener.read(answer, hello).is_ok());
    hello[8] ^= std::byte{1};
    FUZZ_REQUIRE((flags & 1) == 0 || !listener.read(answer, hello).is_ok());
    hello[8] ^= std::byte{1};
  }
  (void)listener.read(answer, hello);
  auto chunk = record_of<kChunkHeaderBytes>(input);
  Handle handle{record_of<kHandleBytes>(input)};
  if ((flags & 4) != 0) {
    repair_check(chunk);
    repair_check(handle.bytes);
  }
  if (const auto header = decode_chunk_header(chunk, kMostBytes); header.is_ok()) {
    FUZZ_REQUIRE(header->cut > 0 && header->cut <= kMostBytes && header->bytes <= header->cut);
    FUZZ_REQUIRE(header->offset <= header->total && header->bytes <= header->total - header->offset);
    std::array<std::byte, kChunkHeaderBytes> again{};
    encode_chunk_header(*header, again);
    const auto twice = decode_chunk_header(again, kMostBytes);
    FUZZ_REQUIRE(twice.is_ok() && twice->socket == header->socket && twice->sequence == header->sequence);
  }
  auto choice = record_of<kChoiceBytes>(input);
  if ((flags & 4) != 0) repair_check(choice);
  if (const auto chosen = decode_choice(choice); chosen.is_ok()) {
    std::array<std::byte, kChoiceBytes> again{};
    encode_choice(*chosen, again);
    const auto twice = decode_choice(again);
    FUZZ_REQUIRE(twice.is_ok() && twice->sequence == chosen->sequence && twice->device == chosen->device);
  }
  if (const auto info = decode_handle(handle); info.is_ok()) {
    FUZZ_REQUIRE(!info->encrypts || !info->headers_apart);
    const auto twice = decode_handle(encode_handle(*info));
    FUZZ_REQUIRE(twice.is_ok() && twice->encrypts == info->encrypts && twice->headers_apart == info->headers_apart);
    FUZZ_REQUIRE(twice->host_addresses.size() == info->host_addresses.size());
  }
  return 0;
}
