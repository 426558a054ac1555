// Records as TLS 1.3 protects application data (RFC 8446, section 5): AES-128-GCM, and keys by HKDF with SHA-256. There is no handshake
// here: both ends have one secret for each socket and direction, from TLS's handshake (secure/tls.h) or derived (secure/proof.h), so that
// each record is good for one place of one stream alone.
//
//     0    3  17 03 03
//     3    2  bytes that follow, big-endian: content + 17
//     5    n  content, from 1 to 16384 bytes, encrypted
//   5+n    1  17 for application data, 15 for an alert; encrypted
//   6+n   16  tag: authenticates all of the above, and by the nonce the number of the record
//
// The nonce is the key's IV, XORed with the number of the record under this key. After a fixed number of records both ends derive the
// next secret from the present one ("traffic upd") and count from 0 again: nothing is said about it, unlike in TLS.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "secure/secret.h"
#include "tcpx/status.h"

struct evp_cipher_ctx_st;

namespace tcpx {

struct OpenSsl;

/// One end of one direction of a connection. One thread at a time. After an error it is of no further use.
class RecordCipher {
 public:
  enum class Work { kSeals, kOpens };
  /// TLS's content types.
  enum class Type : uint8_t { kAlert = 21, kData = 23 };
  struct Opened {
    Type type;
    std::span<std::byte> content;
  };
  static constexpr size_t kContentBytes = 16384;  ///< most of a record
  static constexpr size_t kHeadBytes = 5, kOverheadBytes = kHeadBytes + 1 + 16;
  static constexpr size_t kMostBytes = kContentBytes + kOverheadBytes;
  /// A key encrypts at most so many records (RFC 8446, 5.5, allows 24 million of full length).
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 22;

  /// @param secret 32 bytes, which no other cipher of the same work has. @param records_per_key the same at both ends
  /// @return kUnsupported: there is no OpenSSL; kExhausted
  static Result<std::unique_ptr<RecordCipher>> create(Secret secret, Work work, uint64_t records_per_key = kRecordsPerKey);

  /// Makes the next record. @param content 1 to kContentBytes bytes in all; they may be anywhere, and may be missing
  /// @param record room for kOverheadBytes more. @return kSystem with EFAULT: memory is missing
  Status seal(std::span<const iovec> content, std::byte* record, Type type = Type::kData);

  /// Length of the record that begins so. @return kProtocol: none of ours begins so
  static Result<size_t> size_of(std::span<const std::byte, kHeadBytes> head);
  /// Decrypts the next record in its place. @param record as long as size_of says
  /// @return kProtocol: it is not the peer's next record as the peer has sealed it
  Result<Opened> open(std::span<std::byte> record);

 private:
  struct Free {
    const OpenSsl* library;
    void operator()(evp_cipher_ctx_st* context) const;
  };
  RecordCipher(const OpenSsl& library, evp_cipher_ctx_st* context, Secret secret, Work work, uint64_t records_per_key)
      : library_(library),
        context_(context, Free{&library}),
        secret_(std::move(secret)),
        work_(work),
        records_per_key_(records_per_key) {}
  /// Has the context use the key of the present secret.
  Status take_key();
  /// Begins with the next record, which has this head.
  Status begin(std::span<const std::byte, kHeadBytes> head);
  bool update(std::byte* out, const std::byte* in, size_t bytes);

  const OpenSsl& library_;
  const std::unique_ptr<evp_cipher_ctx_st, Free> context_;
  Secret secret_;  // the present one, and behind it the IV
  const Work work_;
  const uint64_t records_per_key_;
  uint64_t records_ = 0;  // of the present key
};

}  // namespace tcpx
