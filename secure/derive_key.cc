#include "secure/derive_key.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "secure/openssl.h"

namespace tcpx {

bool hmac(const OpenSsl& library, std::span<const std::byte> key, std::span<const std::byte> data,
          std::span<std::byte, kHmacBytes> out) {
  unsigned int size = 0;
  return library.HMAC(library.EVP_sha256(), key.data(), static_cast<int>(key.size()),
                      reinterpret_cast<const unsigned char*>(data.data()), data.size(),
                      reinterpret_cast<unsigned char*>(out.data()), &size) != nullptr &&
         size == out.size();
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
