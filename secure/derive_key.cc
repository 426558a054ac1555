#include "secure/derive_key.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "secure/openssl.h"

namespace tcpx {
namespace {

// To be copied for each use, because OpenSSL's look-up by name takes longer than the sum. Never freed. Null: no memory.
const EVP_MAC_CTX* hmac_sha256(const OpenSsl& library) {
  static const EVP_MAC_CTX* const made = [&]() -> EVP_MAC_CTX* {
    EVP_MAC* const mac = library.EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    EVP_MAC_CTX* const context = library.EVP_MAC_CTX_new(mac);
    library.EVP_MAC_free(mac);
    char digest[] = "SHA256";
    const OSSL_PARAM parameters[] = {OSSL_PARAM_utf8_string("digest", digest, sizeof digest - 1), OSSL_PARAM_END};
    constexpr unsigned char kAnyKey[kHmacBytes] = {};
    if (context == nullptr || library.EVP_MAC_init(context, kAnyKey, sizeof kAnyKey, parameters) == 1) return context;
    library.EVP_MAC_CTX_free(context);
    return nullptr;
  }();
  return made;
}

}  // namespace

bool hmac(const OpenSsl& library, std::span<const std::byte> key, std::span<const std::byte> data,
          std::span<std::byte, kHmacBytes> out) {
  const EVP_MAC_CTX* const any = hmac_sha256(library);
  EVP_MAC_CTX* const context = any == nullptr ? nullptr : library.EVP_MAC_CTX_dup(any);
  size_t size = 0;
  const bool done = context != nullptr &&
                    library.EVP_MAC_init(context, reinterpret_cast<const unsigned char*>(key.data()), key.size(), nullptr) == 1 &&
                    library.EVP_MAC_update(context, reinterpret_cast<const unsigned char*>(data.data()), data.size()) == 1 &&
                    library.EVP_MAC_final(context, reinterpret_cast<unsigned char*>(out.data()), &size, out.size()) == 1;
  library.EVP_MAC_CTX_free(context);
  return done && size == out.size();
}

bool derive_key(const OpenSsl& library, std::span<const std::byte> secret, std::string_view label,
                std::span<std::byte, kHmacBytes> key) {
  constexpr std::byte kNoSalt[kHmacBytes] = {};
  std::byte extracted[kHmacBytes], info[64];
  label.copy(reinterpret_cast<char*>(info), sizeof info - 1);
  info[label.size()] = std::byte{1};
  const bool done =
      hmac(library, kNoSalt, secret, extracted) && hmac(library, extracted, std::span(info).first(label.size() + 1), key);
  ::explicit_bzero(extracted, sizeof extracted);
  return done;
}

bool expand_label(const OpenSsl& library, std::span<const std::byte> secret, std::string_view label, std::span<std::byte> out) {
  constexpr std::string_view kPrefix = "tls13 ";
  std::vector<std::byte> info{std::byte{0}, static_cast<std::byte>(out.size()),
                              static_cast<std::byte>(kPrefix.size() + label.size())};
  for (const std::string_view part : {kPrefix, label})
    for (const char each : part) info.push_back(static_cast<std::byte>(each));
  info.push_back(std::byte{0});  // no context
  info.push_back(std::byte{1});  // the first block
  std::byte block[kHmacBytes];
  const bool done = hmac(library, secret, info, block);
  if (done) std::copy_n(block, out.size(), out.begin());
  ::explicit_bzero(block, sizeof block);
  return done;
}

}  // namespace tcpx
