// Wire format between two software plugins: the connection handle (out of band), the hello and its answer (first bytes of every
// socket), and the chunk header in front of every piece of a message, or apart from it. Pure encode and decode, fuzzed.
//
// All integers are little-endian; only little-endian hosts are supported (checked at compile time). Every record starts with a
// magic and a version and ends with a check value (FNV-1a, 32 bits) over the bytes before it, so a flipped byte, a stranger or
// another version is refused. Flags and reserved bytes are written as zero and not looked at, unless this says otherwise. Each line has
// the offset and the bytes of a field.
//
// connection handle, 128 bytes, made by listen, travels out of band:
//     0    4  magic TXSH
//     4    2  version
//     6    2  flags: 1: the listener has a secret; 2: it takes encrypted data and no other; 4: chunk headers go apart; not 2 and 4
//     8    4  data sockets, 1 to 16
//    12    4  largest wire chunk: multiple of 4096, at most 1 GiB
//    16   16  cookie: random, one per listener
//    32    8  attempt: 0
//    40   40  two addresses, the preferred one first: where the listener is reached, at least one and one of each family
//    80   40  the same for control sockets; none: they go where the data sockets go
//   120    4  two ports, of the two addresses: where connections come to host memory; 0: none. Only with flag 4
//   124    4  check value
//
// address, 20 bytes:
//     0    2  family: 4 or 6; 0: none
//     2    2  port, not 0
//     4   16  address; IPv4 in the first 4 bytes
//
// hello, 64 bytes, connector to listener, first record on every socket:
//     0    4  magic TXS1
//     4    2  version
//     6    2  flags: 1: what follows on the data sockets is encrypted; 2: chunk headers go apart
//     8    8  connection: random, chosen by the connector, equal on all its sockets
//    16    4  socket index; the one equal to "data sockets" is the control socket
//    20    4  data sockets
//    24    4  of these, the device sockets: the first ones, none or as many as the handle says
//    28   16  reserved
//    44   16  proof, of all bytes before it: the cookie, or with a secret a code of authentication (net/soft/hello_proofs.h)
//    60    4  check value
//
// proof page, 4096 bytes, connector to listener, behind the hello of a device socket: the first words of
// MT19937-64 (Matsumoto, Nishimura 2000; std::mt19937_64) with the seed connection + socket index.
//
// answer, 48 bytes, listener to connector:
//     0    4  magic TXS2
//     4    2  version
//     6    2  accepted: 1. 0: the proof page did not come as it should: no device sockets. Other refusals are told by closing
//     8    8  connection
//    16   12  reserved
//    28   16  proof, of the hello and of all bytes before it: likewise
//    44    4  check value
//
// chunk header, 48 bytes, in front of every wire chunk on a data socket:
//     0    4  magic TXS3
//     4    2  version
//     6    2  data socket that the chunk is on, if headers go apart
//     8    8  sequence: number of the message on this comm, from 0; never decreases on one socket
//    16    4  bytes of the whole message, below 2^31
//    20    4  offset of this wire chunk: a multiple of the cut
//    24    4  bytes that follow: min(cut, total - offset)
//    28    4  tag, for diagnosis
//    32    8  payload check: room for an end-to-end checksum, zero in this version
//    40    4  cut: bytes of every wire chunk of this message but the last; a multiple of 4096, from 4096 to what the handle says
//    44    4  check value
//
// Headers that go apart are on the control socket, and the data sockets have payload alone, whatever memory it lands in. A header is
// sent before its chunk, headers of one data socket in the order of their chunks, and all of them in the order of messages: behind a
// chunk that cannot land yet there is no header that an earlier message needs. Without that flag the control socket carries nothing.
//
// A listener whose NIC puts what comes to its addresses into device memory tells ports for host memory as well. A connection has then
// twice the data sockets of the handle: device sockets, and as many ordinary ones. Each message goes by those of one kind. Which one the
// receiver says on the control socket; a message for which it has not said so goes by the kind of memory that it comes from.
//
// choice, 24 bytes, receiver to sender, on the control socket of a connection with device sockets:
//     0    4  magic TXS4
//     4    2  version
//     6    2  1: by device sockets; 0: by ordinary ones
//     8    8  sequence of the first message that this is said of; grows
//    16    4  reserved
//    20    4  check value
//
// With encryption all that follows the answer on a data socket are records (secure/record_cipher.h), and the chunks are their content.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/socket_address.h"
#include "secure/proof.h"
#include "tcpx/status.h"
#include "tcpx/types.h"

namespace tcpx::soft {

static_assert(std::endian::native == std::endian::little, "wire records are copied to memory as they are");

inline constexpr uint16_t kWireVersion = 8;
/// Data sockets of one kind per connection. GPUDirect-TCPX has at most 8; a loopback gains up to 16.
inline constexpr uint32_t kMaxDataSockets = 16;
inline constexpr uint32_t kMaxChunkBytes = 1u << 30;

/// Identifies one listener; a client without it cannot join. Random, never logged. With a secret it is not sent.
struct Cookie {
  uint64_t words[2] = {};
  friend bool operator==(const Cookie&, const Cookie&) = default;
};

/// One of each family.
inline constexpr size_t kHandleAddresses = 2;
/// See HandleInfo::attempt.
inline constexpr uint64_t kInSteps = 1;

/// Content of the 128-byte connection handle.
struct HandleInfo {
  /// Where the listener is reached: from one to kHandleAddresses, each of another family, the preferred one first.
  std::vector<SocketAddress> addresses;
  uint32_t data_sockets = 1;  ///< of one kind: 1 ... kMaxDataSockets; the listener decides for both ends
  uint32_t chunk_bytes = 0;   ///< most bytes of a chunk: multiple of kPageBytes, at most kMaxChunkBytes; likewise
  Cookie cookie;
  /// Addresses for control sockets, likewise; none: those of the ordinary data sockets.
  std::vector<SocketAddress> control_addresses;
  /// Some of `addresses` with other ports, for ordinary sockets where those at `addresses` are device sockets; none: there are none of
  /// these. Only with `headers_apart`.
  std::vector<SocketAddress> host_addresses;
  /// Set by the connector. 0, as the listener leaves it: connect in one call; kInSteps: "not yet" is a valid answer; else,
  /// between two calls, the attempt in progress.
  uint64_t attempt = 0;
  bool proves = false;    ///< the listener has a secret, and takes nobody without it
  bool encrypts = false;  ///< the data sockets are encrypted; needs `proves`
  bool headers_apart = false;  ///< chunk headers are on the control socket; not with `encrypts`
};
Handle encode_handle(const HandleInfo& info);
Result<HandleInfo> decode_handle(const Handle& handle);
/// Makes `connect` answer "not yet" for this handle from now on. A foreign handle, or one with an attempt in progress, is left
/// unchanged.
void answer_in_steps(Handle& handle);

/// First record on a socket, connector to acceptor. Socket `data_sockets` is the control socket.
struct Hello {
  uint64_t connection = 0;  ///< chosen by the connector, the same on all sockets of one connection
  uint32_t socket_index = 0;
  uint32_t data_sockets = 1;
  uint32_t device_sockets = 0;  ///< of these, the first: a proof page follows the hello of each
  bool encrypts = false;        ///< the data sockets are encrypted
  bool headers_apart = false;   ///< chunk headers are on the control socket
  Mac proof{};
};
inline constexpr size_t kHelloBytes = 64;
inline constexpr size_t kHelloProvedBytes = 44;  ///< of these its proof is
void encode_hello(const Hello& hello, std::span<std::byte, kHelloBytes> out);
Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> in);

/// The proof page of a device socket: no two of a listener's are alike.
std::array<std::byte, kPageBytes> proof_page(const Hello& hello);
/// "" when the page has come as it was sent, and by the NIC; else why not. @param page what has come; none: no device socket's
/// @param in_pool bytes of it that came in device memory
std::string what_is_unproven(const Hello& hello, std::span<const std::byte> page, size_t in_pool);

inline constexpr const char* kEncryptSetting = "UCCL_TCPX_SECURITY is encrypt";
/// Why two ends of which one alone encrypts do not meet.
std::string encrypts_at_one_end(bool at_listener);

/// Acceptor's answer.
struct HelloAnswer {
  uint64_t connection = 0;
  bool accepted = false;  ///< false: not with device sockets
  Mac proof{};
};
inline constexpr size_t kHelloAnswerBytes = 48;
inline constexpr size_t kHelloAnswerProvedBytes = 28;
void encode_hello_answer(const HelloAnswer& answer, std::span<std::byte, kHelloAnswerBytes> out);
Result<HelloAnswer> decode_hello_answer(std::span<const std::byte, kHelloAnswerBytes> in);

/// A sender's cut of its messages: every data socket gets a share of a message. Larger chunks cost less, so with more under way they grow
/// as long as each socket has two of them.
struct Chunking {
  static constexpr uint32_t kLeastChunkBytes = 64 * 1024;
  uint32_t most_bytes = 0;  ///< multiple of kPageBytes, at least one page
  uint32_t sockets = 1;     ///< that write at a time, from 1

  /// The cut of a message of `total` bytes, which is the length of all its chunks but the last: a multiple of kPageBytes, from
  /// min(kLeastChunkBytes, most_bytes) to most_bytes.
  /// @param under_way bytes that the threads which write have to send, this message's included
  uint32_t cut_for(uint32_t total, uint64_t under_way) const {
    const uint64_t a_page_each = uint64_t{sockets} * kPageBytes;
    const uint64_t pages = std::max((total + a_page_each - 1) / a_page_each, under_way / (2 * a_page_each));
    return static_cast<uint32_t>(std::clamp<uint64_t>(pages * kPageBytes, std::min(kLeastChunkBytes, most_bytes), most_bytes));
  }
};

/// Chunks of a message of `total` bytes. An empty message is one empty chunk.
constexpr uint32_t count_chunks(uint32_t total, uint32_t cut) {
  return total == 0 ? 1 : (total - 1) / cut + 1;
}

/// Precedes every chunk. It describes its message completely, so chunks may take any socket and arrive in
/// any order; on one socket `sequence` never decreases.
struct ChunkHeader {
  uint64_t sequence = 0;  ///< number of the message on this comm, from 0
  uint32_t total = 0;     ///< bytes of the whole message
  uint32_t offset = 0;    ///< of this chunk in the message, a multiple of `cut`
  uint32_t bytes = 0;     ///< min(cut, total - offset)
  int32_t tag = 0;        ///< for diagnosis only: messages pair in post order
  uint32_t cut = 0;       ///< length of every chunk of the message but the last: the sender's choice, multiple of kPageBytes
  uint16_t socket = 0;    ///< data socket of the chunk, unchecked; without meaning in front of the chunk
};
inline constexpr size_t kChunkHeaderBytes = 48;
void encode_chunk_header(const ChunkHeader& header, std::span<std::byte, kChunkHeaderBytes> out);
/// Checks the record, that the cut is at most `most_bytes`, and that offset and bytes are those of a chunk of a message of
/// `total` bytes with that cut.
Result<ChunkHeader> decode_chunk_header(std::span<const std::byte, kChunkHeaderBytes> in, uint32_t most_bytes);

/// Receiver to sender: by which sockets messages should go, from this one on.
struct SocketChoice {
  uint64_t sequence = 0;
  bool device = false;
};
inline constexpr size_t kChoiceBytes = 24;
void encode_choice(const SocketChoice& choice, std::span<std::byte, kChoiceBytes> out);
Result<SocketChoice> decode_choice(std::span<const std::byte, kChoiceBytes> in);

}  // namespace tcpx::soft
