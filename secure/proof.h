// Proofs that an end has the secret, for connections that are too many or too fast for TLS: codes of authentication (HMAC-SHA256) over what
// the end says. The key is derived from the secret, and then from what is known to the two ends alone.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "secure/secret.h"
#include "tcpx/status.h"

namespace tcpx {

struct OpenSsl;

/// The first 128 bits of an HMAC-SHA256.
using Mac = std::array<std::byte, 16>;

/// How long it takes tells nothing about where the two differ.
bool same_mac(const Mac& a, const Mac& b);

/// A key. Any thread.
class Prover {
 public:
  /// With the secret of SecuritySettings. Ends with certificates share none: what they prove to know is then only what each derives
  /// this key for, which must have come over TLS. @return null: no protection; errors of SecuritySettings, Secret::read_file, `create`
  static Result<std::unique_ptr<Prover>> from_environment();
  /// @param secret is not needed later. @return kUnsupported: there is no OpenSSL; kExhausted
  static Result<Prover> create(const Secret& secret);

  /// A key for `context` alone, which tells nothing about this one. @return kExhausted
  Result<Prover> derive(std::string_view label, std::span<const std::byte> context) const;
  /// The same for another use: 32 bytes.
  Result<Secret> derive_secret(std::string_view label, std::span<const std::byte> context) const;
  /// @param label says who speaks, and of what kind `bytes` are; it has no zero. @return kExhausted
  Result<Mac> mac(std::string_view label, std::span<const std::byte> bytes) const;

 private:
  Prover(const OpenSsl& library, Secret key) : library_(&library), key_(std::move(key)) {}
  Status authenticate(std::string_view label, std::span<const std::byte> bytes, std::span<std::byte, 32> out) const;

  const OpenSsl* library_;  // the process's
  Secret key_;
};

}  // namespace tcpx
