// Any bytes on a data port of the software plugin before anybody has proved anything: the hello as the listener reads it, the proof page
// behind it, and the answer as the connector does; and after it a chunk header, choices of sockets and a handle, which a peer may have made
// up. Nobody without the cookie, or the secret, gets past hello and answer, and what the decoders accept is written alike.
//
// Input: u8 flags (1: the ends have a secret; 2: records that can be read are proved anew, so that the fuzzer gets past the proof; 4: all
// records get this version and right check values; 8: the proof page is the right one), a hello of 64 bytes, an answer of 48, a chunk header
// of 48, a choice of 24, a handle of 128, then u16 number and u8 pieces of the choices, u16 place and u8 value of a byte of the page, and to
// the end choices.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "net/soft/hello_proofs.h"
#include "net/soft/socket_choices.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using namespace tcpx::soft;
using tcpx::Code;
using tcpx::Handle;
using tcpx::kHandleBytes;
using tcpx::kPageBytes;

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

// Version and check value: a record that comes before the present version would end there.
void repair(std::span<std::byte> record) {
  std::memcpy(record.data() + sizeof(uint32_t), &kWireVersion, sizeof kWireVersion);
  uint32_t check = 0x811c9dc5;
  const auto checked = record.first(record.size() - sizeof check);
  for (const std::byte byte : checked) check = (check ^ std::to_integer<uint32_t>(byte)) * 0x01000193;
  std::memcpy(record.data() + checked.size(), &check, sizeof check);
}

// The page as it was sent, but for a byte.
void look_at_page(const Hello& hello, bool right, size_t place, std::byte value) {
  std::array<std::byte, kPageBytes> page{};
  if (right) page = proof_page(hello);
  page[place % page.size()] ^= value;
  const bool as_sent = page == proof_page(hello);
  for (const size_t in_pool : {size_t{0}, page.size() / 2, page.size()})
    FUZZ_REQUIRE(what_is_unproven(hello, page, in_pool).empty() == (as_sent && in_pool > 0));
  FUZZ_REQUIRE(what_is_unproven(hello, {}, 0).empty());
}

// Choices come in any pieces. Those that are taken grow, and none is of a message that cannot be posted yet.
void hear_choices(std::span<const std::byte> bytes, uint64_t posted, size_t piece) {
  HeardChoices heard, at_once;
  const bool taken = at_once.take(bytes, posted).is_ok();
  bool well = true;
  for (auto rest = bytes; !rest.empty() && well; rest = rest.subspan(std::min(piece, rest.size())))
    well = heard.take(rest.first(std::min(piece, rest.size())), posted).is_ok();
  FUZZ_REQUIRE(well == taken);
  if (!taken) return;
  std::vector<SocketChoice> choices;
  for (auto rest = bytes; rest.size() >= kChoiceBytes; rest = rest.subspan(kChoiceBytes)) {
    choices.push_back(decode_choice(rest.first<kChoiceBytes>()).value());
    FUZZ_REQUIRE(choices.size() == 1 || choices.back().sequence > choices[choices.size() - 2].sequence);
  }
  std::optional<bool> expected;
  const uint64_t last = choices.empty() ? posted : choices.back().sequence;
  for (uint64_t number = posted, steps = 0; number <= last && steps < 1000; ++number, ++steps) {
    for (const SocketChoice& choice : choices)
      if (choice.sequence <= number) expected = choice.device;
    const auto device = heard.device_for(number);
    FUZZ_REQUIRE(device == expected && device == at_once.device_for(number));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tcpx::fuzz::FuzzInput input(data, size);
  const auto flags = input.take<uint8_t>();
  const HelloProofs& listener = proofs((flags & 1) != 0);
  auto hello = record_of<kHelloBytes>(input);
  auto answer = record_of<kHelloAnswerBytes>(input);
  auto chunk = record_of<kChunkHeaderBytes>(input);
  auto choice = record_of<kChoiceBytes>(input);
  Handle handle{record_of<kHandleBytes>(input)};
  if ((flags & 4) != 0) {
    for (const std::span<std::byte> record :
         {std::span<std::byte>(hello), std::span<std::byte>(answer), std::span<std::byte>(chunk), std::span<std::byte>(choice),
          std::span<std::byte>(handle.bytes)})
      repair(record);
  }
  const uint64_t posted = input.take<uint16_t>();
  const size_t piece = size_t{input.take<uint8_t>()} + 1;
  const size_t place = input.take<uint16_t>();
  const auto value = input.take<std::byte>();
  std::vector<std::byte> choices(input.rest().begin(), input.rest().end());
  for (size_t at = 0; (flags & 4) != 0 && choices.size() - at >= kChoiceBytes; at += kChoiceBytes)
    repair(std::span(choices).subspan(at, kChoiceBytes));
  hear_choices(choices, posted, piece);
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
    look_at_page(*said, (flags & 8) != 0, place, value);
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
  if (const auto header = decode_chunk_header(chunk, kMostBytes); header.is_ok()) {
    FUZZ_REQUIRE(header->cut > 0 && header->cut <= kMostBytes && header->bytes <= header->cut);
    FUZZ_REQUIRE(header->offset <= header->total && header->bytes <= header->total - header->offset);
    std::array<std::byte, kChunkHeaderBytes> again{};
    encode_chunk_header(*header, again);
    const auto twice = decode_chunk_header(again, kMostBytes);
    FUZZ_REQUIRE(twice.is_ok() && twice->socket == header->socket && twice->sequence == header->sequence);
  }
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
