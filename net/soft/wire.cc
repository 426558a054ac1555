#include "net/soft/wire.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <random>
#include <type_traits>

#include "base/text.h"

namespace tcpx::soft {
namespace {

constexpr uint32_t kHandleMagic = 0x48535854;  // "TXSH"
constexpr uint32_t kHelloMagic = 0x31535854;   // "TXS1"
constexpr uint32_t kAnswerMagic = 0x32535854;  // "TXS2"
constexpr uint32_t kChunkMagic = 0x33535854;   // "TXS3"
constexpr uint32_t kChoiceMagic = 0x34535854;  // "TXS4"
constexpr uint16_t kProves = 1, kEncrypts = 2, kHeadersApart = 4;  // flags of the handle
constexpr uint16_t kEncrypted = 1, kApart = 2;                     // flags of the hello

struct AddressWire {
  uint16_t family;  // 4 or 6; 0: none
  uint16_t port;
  uint8_t bytes[16];
};
using AddressesWire = std::array<AddressWire, kHandleAddresses>;  // those that are there come first

struct HandleWire {
  uint32_t magic;
  uint16_t version;
  uint16_t flags;
  uint32_t data_sockets;
  uint32_t chunk_bytes;
  uint64_t cookie[2];
  uint64_t attempt;
  AddressesWire addresses;
  AddressesWire control;  // none: those of the data sockets
  uint16_t host_ports[kHandleAddresses];
  uint32_t check;
};
static_assert(sizeof(HandleWire) == kHandleBytes && std::is_trivially_copyable_v<HandleWire>);

struct HelloWire {
  uint32_t magic;
  uint16_t version;
  uint16_t flags;
  uint64_t connection;
  uint32_t socket_index;
  uint32_t data_sockets;
  uint32_t device_sockets;
  uint8_t reserved[16];
  Mac proof;
  uint32_t check;
};
static_assert(offsetof(HelloWire, proof) == kHelloProvedBytes);
static_assert(sizeof(HelloWire) == kHelloBytes && std::is_trivially_copyable_v<HelloWire>);

struct AnswerWire {
  uint32_t magic;
  uint16_t version;
  uint16_t accepted;
  uint64_t connection;
  uint8_t reserved[12];
  Mac proof;
  uint32_t check;
};
static_assert(offsetof(AnswerWire, proof) == kHelloAnswerProvedBytes);
static_assert(sizeof(AnswerWire) == kHelloAnswerBytes && std::is_trivially_copyable_v<AnswerWire>);

struct ChunkWire {
  uint32_t magic;
  uint16_t version;
  uint16_t socket;
  uint64_t sequence;
  uint32_t total;
  uint32_t offset;
  uint32_t bytes;
  int32_t tag;
  uint64_t payload_check;  // room for an end-to-end checksum; zero in this version
  uint32_t cut;
  uint32_t check;
};
static_assert(sizeof(ChunkWire) == kChunkHeaderBytes && std::is_trivially_copyable_v<ChunkWire>);

struct ChoiceWire {
  uint32_t magic;
  uint16_t version;
  uint16_t device;
  uint64_t sequence;
  uint8_t reserved[4];
  uint32_t check;
};
static_assert(sizeof(ChoiceWire) == kChoiceBytes && std::is_trivially_copyable_v<ChoiceWire>);

// FNV-1a, 32 bits (Fowler, Noll, Vo). Every step is a bijection of the state, so a change confined to one byte always changes the
// result. No more is needed here: authentication is done by the proof.
uint32_t check_value(const void* data, size_t bytes) {
  uint32_t hash = 0x811c9dc5u;
  for (const auto* p = static_cast<const unsigned char*>(data); bytes > 0; --bytes) hash = (hash ^ *p++) * 0x01000193u;
  return hash;
}

template <class Wire>
void store(Wire wire, uint32_t magic, std::byte* out) {
  wire.magic = magic;
  wire.version = kWireVersion;
  wire.check = check_value(&wire, offsetof(Wire, check));
  std::memcpy(out, &wire, sizeof wire);
}

template <class Wire>
Status load(const std::byte* in, uint32_t magic, const char* what, Wire& wire) {
  std::memcpy(&wire, in, sizeof wire);
  if (wire.magic != magic)
    return Status(Code::kProtocol, what, concat("wrong magic ", Hex{wire.magic}, ", not a tcpx-soft record"));
  if (wire.check != check_value(&wire, offsetof(Wire, check)))
    return Status(Code::kProtocol, what, "check value does not match: damaged");
  if (wire.version != kWireVersion) {
    return Status(Code::kProtocol, what, concat("version ", wire.version, ", this build speaks ", kWireVersion));
  }
  return Status::ok();
}

Status bad(const char* what, std::string detail) {
  return Status(Code::kProtocol, what, std::move(detail));
}

AddressWire to_wire(const SocketAddress& address) {
  AddressWire wire{};
  wire.port = address.port();
  if (address.family() == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address.get());
    wire.family = 6;
    std::memcpy(wire.bytes, &v6->sin6_addr, 16);
  } else {
    wire.family = 4;
    std::memcpy(wire.bytes, &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, 4);
  }
  return wire;
}

Result<SocketAddress> from_wire(const AddressWire& wire, const char* what) {
  if (wire.port == 0) return bad(what, "port 0");
  if (wire.family == 6) {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    std::memcpy(&v6.sin6_addr, wire.bytes, 16);
    return SocketAddress::from(reinterpret_cast<const sockaddr*>(&v6), sizeof v6)->with_port(wire.port);
  }
  if (wire.family == 4) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, wire.bytes, 4);
    return SocketAddress::from(reinterpret_cast<const sockaddr*>(&v4), sizeof v4)->with_port(wire.port);
  }
  return bad(what, concat("address family ", wire.family));
}

AddressesWire to_wire(const std::vector<SocketAddress>& addresses) {
  assert(addresses.size() <= kHandleAddresses);
  AddressesWire wire{};
  std::transform(addresses.begin(), addresses.end(), wire.begin(), [](const SocketAddress& address) { return to_wire(address); });
  return wire;
}

Result<std::vector<SocketAddress>> from_wire(const AddressesWire& wire, const char* what) {
  std::vector<SocketAddress> addresses;
  for (const AddressWire& each : wire) {
    if (each.family == 0) break;
    TCPX_ASSIGN_OR_RETURN(const auto address, from_wire(each, what));
    if (!addresses.empty() && addresses.front().family() == address.family())
      return bad(what, concat("two addresses of family ", each.family));
    addresses.push_back(address);
  }
  return addresses;
}

}  // namespace

Handle encode_handle(const HandleInfo& info) {
  HandleWire wire{};
  wire.addresses = to_wire(info.addresses);
  wire.control = to_wire(info.control_addresses);
  for (const SocketAddress& address : info.host_addresses) {
    for (size_t i = 0; i < info.addresses.size(); ++i)
      if (info.addresses[i].host() == address.host()) wire.host_ports[i] = address.port();
  }
  wire.data_sockets = info.data_sockets;
  wire.chunk_bytes = info.chunk_bytes;
  wire.attempt = info.attempt;
  if (info.proves) wire.flags |= kProves;
  if (info.encrypts) wire.flags |= kEncrypts;
  if (info.headers_apart) wire.flags |= kHeadersApart;
  std::memcpy(wire.cookie, info.cookie.words, sizeof wire.cookie);
  Handle handle;
  store(wire, kHandleMagic, handle.bytes.data());
  return handle;
}

Result<HandleInfo> decode_handle(const Handle& handle) {
  constexpr const char* kWhat = "read connection handle";
  HandleWire wire;
  TCPX_RETURN_IF_ERROR(load(handle.bytes.data(), kHandleMagic, kWhat, wire));
  HandleInfo info;
  TCPX_ASSIGN_OR_RETURN(info.addresses, from_wire(wire.addresses, kWhat));
  TCPX_ASSIGN_OR_RETURN(info.control_addresses, from_wire(wire.control, kWhat));
  if (info.addresses.empty()) return bad(kWhat, "no address");
  if (wire.data_sockets < 1 || wire.data_sockets > kMaxDataSockets) return bad(kWhat, concat(wire.data_sockets, " data sockets"));
  if (wire.chunk_bytes == 0 || wire.chunk_bytes % kPageBytes != 0 || wire.chunk_bytes > kMaxChunkBytes) {
    return bad(kWhat, concat("chunk size ", wire.chunk_bytes));
  }
  for (size_t i = 0; i < info.addresses.size(); ++i)
    if (wire.host_ports[i] != 0) info.host_addresses.push_back(info.addresses[i].with_port(wire.host_ports[i]));
  info.data_sockets = wire.data_sockets;
  info.chunk_bytes = wire.chunk_bytes;
  info.attempt = wire.attempt;
  info.proves = (wire.flags & kProves) != 0;
  info.encrypts = (wire.flags & kEncrypts) != 0;
  info.headers_apart = (wire.flags & kHeadersApart) != 0;
  if (info.encrypts && info.headers_apart) return bad(kWhat, "encrypted data with headers apart: they would not be encrypted");
  if (!info.host_addresses.empty() && !info.headers_apart) return bad(kWhat, "ports for host memory without headers apart");
  std::memcpy(info.cookie.words, wire.cookie, sizeof wire.cookie);
  return info;
}

void answer_in_steps(Handle& handle) {
  auto info = decode_handle(handle);
  if (!info.is_ok() || info->attempt != 0) return;
  info->attempt = kInSteps;
  handle = encode_handle(*info);
}

void encode_hello(const Hello& hello, std::span<std::byte, kHelloBytes> out) {
  HelloWire wire{};
  wire.connection = hello.connection;
  wire.socket_index = hello.socket_index;
  wire.data_sockets = hello.data_sockets;
  wire.device_sockets = hello.device_sockets;
  if (hello.encrypts) wire.flags |= kEncrypted;
  if (hello.headers_apart) wire.flags |= kApart;
  wire.proof = hello.proof;
  store(wire, kHelloMagic, out.data());
}

Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> in) {
  constexpr const char* kWhat = "read hello";
  HelloWire wire;
  TCPX_RETURN_IF_ERROR(load(in.data(), kHelloMagic, kWhat, wire));
  if (wire.data_sockets < 1 || wire.data_sockets > 2 * kMaxDataSockets || wire.socket_index > wire.data_sockets) {
    return bad(kWhat, concat("socket ", wire.socket_index, " of ", wire.data_sockets));
  }
  if (wire.device_sockets > wire.data_sockets)
    return bad(kWhat, concat(wire.device_sockets, " device sockets of ", wire.data_sockets));
  Hello hello;
  hello.connection = wire.connection;
  hello.socket_index = wire.socket_index;
  hello.data_sockets = wire.data_sockets;
  hello.device_sockets = wire.device_sockets;
  hello.encrypts = (wire.flags & kEncrypted) != 0;
  hello.headers_apart = (wire.flags & kApart) != 0;
  hello.proof = wire.proof;
  return hello;
}

std::array<std::byte, kPageBytes> proof_page(const Hello& hello) {
  std::array<std::byte, kPageBytes> page;
  std::mt19937_64 words(hello.connection + hello.socket_index);
  for (size_t at = 0; at < page.size(); at += sizeof(uint64_t)) {
    const uint64_t word = words();
    std::memcpy(page.data() + at, &word, sizeof word);
  }
  return page;
}

std::string what_is_unproven(const Hello& hello, std::span<const std::byte> page, size_t in_pool) {
  if (page.empty()) return {};
  const auto sent = proof_page(hello);
  const auto differs = std::mismatch(page.begin(), page.end(), sent.begin()).first;
  if (differs != page.end()) return concat("byte ", differs - page.begin(), " of its proof page did not come as it was sent");
  // A packet or two in host memory may be the NIC's way with short ones.
  if (in_pool >= page.size() / 2) return {};
  return concat(page.size() - in_pool, " of the ", page.size(),
                " bytes of its proof page came in host memory: header split or flow steering does not work");
}

std::string encrypts_at_one_end(bool at_listener) {
  return concat(kEncryptSetting, " at the ", at_listener ? "listener" : "connector", " and not at the ",
                at_listener ? "connector" : "listener", ": set it alike at both");
}

void encode_hello_answer(const HelloAnswer& answer, std::span<std::byte, kHelloAnswerBytes> out) {
  AnswerWire wire{};
  wire.connection = answer.connection;
  wire.accepted = answer.accepted ? 1 : 0;
  wire.proof = answer.proof;
  store(wire, kAnswerMagic, out.data());
}

Result<HelloAnswer> decode_hello_answer(std::span<const std::byte, kHelloAnswerBytes> in) {
  constexpr const char* kWhat = "read answer to hello";
  AnswerWire wire;
  TCPX_RETURN_IF_ERROR(load(in.data(), kAnswerMagic, kWhat, wire));
  if (wire.accepted > 1) return bad(kWhat, concat("answer ", wire.accepted));
  return HelloAnswer{.connection = wire.connection, .accepted = wire.accepted == 1, .proof = wire.proof};
}

void encode_chunk_header(const ChunkHeader& header, std::span<std::byte, kChunkHeaderBytes> out) {
  ChunkWire wire{};
  wire.sequence = header.sequence;
  wire.total = header.total;
  wire.offset = header.offset;
  wire.bytes = header.bytes;
  wire.tag = header.tag;
  wire.cut = header.cut;
  wire.socket = header.socket;
  store(wire, kChunkMagic, out.data());
}

Result<ChunkHeader> decode_chunk_header(std::span<const std::byte, kChunkHeaderBytes> in, uint32_t most_bytes) {
  constexpr const char* kWhat = "read chunk header";
  ChunkWire wire;
  TCPX_RETURN_IF_ERROR(load(in.data(), kChunkMagic, kWhat, wire));
  if (wire.total > static_cast<uint32_t>(INT32_MAX)) return bad(kWhat, concat("message of ", wire.total, " bytes"));
  if (wire.cut == 0 || wire.cut % kPageBytes != 0 || wire.cut > most_bytes) {
    return bad(kWhat, concat("message cut every ", wire.cut, " bytes, at most ", most_bytes, " were agreed"));
  }
  const bool first_of_empty = wire.total == 0 && wire.offset == 0;
  if (wire.offset % wire.cut != 0 || (wire.offset >= wire.total && !first_of_empty) ||
      wire.bytes != std::min(wire.cut, wire.total - wire.offset)) {
    return bad(kWhat, concat("chunk of ", wire.bytes, " bytes at ", wire.offset, " of ", wire.total, " cut every ", wire.cut));
  }
  return ChunkHeader{.sequence = wire.sequence,
                     .total = wire.total,
                     .offset = wire.offset,
                     .bytes = wire.bytes,
                     .tag = wire.tag,
                     .cut = wire.cut,
                     .socket = wire.socket};
}

void encode_choice(const SocketChoice& choice, std::span<std::byte, kChoiceBytes> out) {
  ChoiceWire wire{};
  wire.device = choice.device ? 1 : 0;
  wire.sequence = choice.sequence;
  store(wire, kChoiceMagic, out.data());
}

Result<SocketChoice> decode_choice(std::span<const std::byte, kChoiceBytes> in) {
  ChoiceWire wire;
  TCPX_RETURN_IF_ERROR(load(in.data(), kChoiceMagic, "read choice of sockets", wire));
  if (wire.device > 1) return bad("read choice of sockets", concat("kind ", wire.device));
  return SocketChoice{.sequence = wire.sequence, .device = wire.device == 1};
}

}  // namespace tcpx::soft
