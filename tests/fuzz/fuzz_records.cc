// Any bytes where a peer's encrypted records should be, as one in between may put there: no byte of them reaches the reader's room that the
// peer has not sealed, in this order, and what the peer has sealed arrives whole in pieces of any size.
//
// Input: u8 flags (1: an alert ends the peer's stream), u8 records for each key, u8 size of the pieces in which the socket has them, u8 size
// of the room, u16 place where the stream is changed, u8 how (0: not at all; 1: a bit; 2: cut off; 3: the rest comes twice; 4: the rest of the
// input comes there), u8 value, u8 number of records, u16 length of each, and the rest.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "secure/record_reader.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using namespace tcpx;  // NOLINT: a program, not a header
using Bytes = std::vector<std::byte>;

constexpr size_t kMostRecords = 8, kMostSteps = 200;

std::unique_ptr<RecordCipher> cipher_for(RecordCipher::Work work, uint64_t records_per_key) {
  return std::move(RecordCipher::create(Secret::zeros(Secret::kFewestBytes).value(), work, records_per_key)).value();
}

void seal(RecordCipher& cipher, std::span<std::byte> content, RecordCipher::Type type, Bytes& wire) {
  const iovec piece{content.data(), content.size()};
  wire.resize(wire.size() + content.size() + RecordCipher::kOverheadBytes);
  FUZZ_REQUIRE(cipher.seal({&piece, 1}, wire.data() + wire.size() - content.size() - RecordCipher::kOverheadBytes, type).is_ok());
}

void change(Bytes& wire, size_t at, int how, std::byte value, std::span<const std::byte> others) {
  const auto place = wire.begin() + static_cast<ptrdiff_t>(at);
  const Bytes rest(place, wire.end());
  if (how == 1) *place ^= value;
  if (how == 2) wire.erase(place, wire.end());
  if (how == 3) wire.insert(wire.end(), rest.begin(), rest.end());
  if (how == 4) wire.insert(place, others.begin(), others.end());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::FuzzInput input(data, size);
  const auto flags = input.take<uint8_t>();
  const uint64_t records_per_key = uint64_t{input.take<uint8_t>()} + 1;
  size_t piece_bytes = size_t{input.take<uint8_t>()} * 16 + 1, room_bytes = size_t{input.take<uint8_t>()} * 64 + 1;
  const size_t where = input.take<uint16_t>();
  const int how = input.take<uint8_t>() % 5;
  const auto value = input.take<std::byte>();
  const size_t records = input.take<uint8_t>() % kMostRecords;
  const auto sealer = cipher_for(RecordCipher::Work::kSeals, records_per_key);
  Bytes wire, said;
  for (size_t i = 0; i < records; ++i) {
    Bytes content(1 + input.take<uint16_t>() % RecordCipher::kContentBytes);
    for (size_t at = 0; at < content.size(); ++at) content[at] = static_cast<std::byte>(at * 7 + i);
    seal(*sealer, content, RecordCipher::Type::kData, wire);
    said.insert(said.end(), content.begin(), content.end());
  }
  const bool ends = (flags & 1) != 0;
  std::array<std::byte, 2> goodbye{std::byte{1}, std::byte{0}};
  if (ends) seal(*sealer, goodbye, RecordCipher::Type::kAlert, wire);
  if (input.rest().size() >= RecordCipher::kHeadBytes) {
    const auto length = RecordCipher::size_of(input.rest().first<RecordCipher::kHeadBytes>());
    FUZZ_REQUIRE(!length.is_ok() || (*length > RecordCipher::kOverheadBytes && *length <= RecordCipher::kMostBytes));
  }
  const Bytes genuine = wire;
  if (wire.empty() && how != 4) return 0;
  change(wire, wire.empty() ? 0 : where % wire.size(), how, value, input.rest());

  piece_bytes = std::max(piece_bytes, wire.size() / kMostSteps);
  room_bytes = std::max(room_bytes, wire.size() / kMostSteps);

  int fds[2];
  FUZZ_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  RecordReader reader(fds[1], cipher_for(RecordCipher::Work::kOpens, records_per_key), 1 + flags / 64);
  Bytes heard, room(room_bytes);
  Status status;
  std::optional<size_t> come;
  const auto read = [&] {
    do {
      const iovec piece{room.data(), room.size()};
      const auto got = reader.read({&piece, 1});
      status = got.status();
      come = got.is_ok() ? *got : std::nullopt;
      FUZZ_REQUIRE(come.value_or(0) <= room.size());
      heard.insert(heard.end(), room.begin(), room.begin() + static_cast<ptrdiff_t>(come.value_or(0)));
    } while (come.value_or(0) > 0);
    FUZZ_REQUIRE(status.is_ok() || status.code() == Code::kProtocol);
  };
  for (size_t at = 0; at < wire.size() && status.is_ok() && !reader.alert();) {
    const ssize_t n = ::send(fds[0], wire.data() + at, std::min(piece_bytes, wire.size() - at), MSG_NOSIGNAL);
    FUZZ_REQUIRE(n > 0);
    at += static_cast<size_t>(n);
    read();
  }
  ::close(fds[0]);
  if (status.is_ok()) read();
  ::close(fds[1]);

  FUZZ_REQUIRE(heard.size() <= said.size() && std::equal(heard.begin(), heard.end(), said.begin()));
  FUZZ_REQUIRE(!reader.alert() || (ends && heard.size() == said.size()));
  if (wire == genuine) FUZZ_REQUIRE(status.is_ok() && heard == said && reader.alert().has_value() == ends && reader.held() == 0);
  // A change is noticed, unless it is behind the goodbye, or what is missing is for the caller to see.
  if (how == 1 && value != std::byte{}) FUZZ_REQUIRE(!status.is_ok() || (!reader.alert() && reader.held() > 0));
  return 0;
}
