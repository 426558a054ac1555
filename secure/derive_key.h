// Keys from the secret: HMAC and HKDF (RFC 2104, RFC 5869) with SHA-256, by OpenSSL.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace tcpx {

struct OpenSsl;

inline constexpr size_t kHmacBytes = 32;

/// @return false: no memory
bool hmac(const OpenSsl& library, std::span<const std::byte> key, std::span<const std::byte> data,
          std::span<std::byte, kHmacBytes> out);

/// HKDF without salt, and with one block of output. Keys of different labels tell nothing about each other.
/// @param label at most 63 bytes. @return false: no memory
bool derive_key(const OpenSsl& library, std::span<const std::byte> secret, std::string_view label,
                std::span<std::byte, kHmacBytes> key);

/// TLS 1.3's derivation (RFC 8446, 7.1: HKDF-Expand-Label without context), with at most one block of output.
/// @param label at most 32 bytes. @return false: no memory
bool expand_label(const OpenSsl& library, std::span<const std::byte> secret, std::string_view label, std::span<std::byte> out);

}  // namespace tcpx
