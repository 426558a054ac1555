#include "secure/proof.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "secure/derive_key.h"
#include "secure/openssl.h"
#include "secure/settings.h"

namespace tcpx {
namespace {

constexpr std::string_view kProofLabel = "tcpx-p2p proof of sockets 1";

Status no_memory() {
  return Status(Code::kExhausted, "prove", "OpenSSL makes no HMAC");
}

}  // namespace

bool same_mac(const Mac& a, const Mac& b) {
  volatile unsigned char differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ = static_cast<unsigned char>(differ | std::to_integer<unsigned char>(a[i] ^ b[i]));
  return differ == 0;
}

Result<std::unique_ptr<Prover>> Prover::from_environment() {
  TCPX_ASSIGN_OR_RETURN(const auto settings, SecuritySettings::from_environment());
  if (settings.protection == Protection::kOff) return std::unique_ptr<Prover>();
  TCPX_ASSIGN_OR_RETURN(const Secret secret, settings.credential == Credential::kSecret ? Secret::read_file(settings.secret_file)
                                                                                       : Secret::zeros(Secret::kFewestBytes));
  TCPX_ASSIGN_OR_RETURN(Prover made, create(secret));
  return std::make_unique<Prover>(std::move(made));
}

Result<Prover> Prover::create(const Secret& secret) {
  TCPX_ASSIGN_OR_RETURN(const OpenSsl* const library, OpenSsl::of_process());
  TCPX_ASSIGN_OR_RETURN(Secret key, Secret::zeros(kHmacBytes));
  if (!derive_key(*library, secret.bytes(), kProofLabel, key.room().first<kHmacBytes>())) return no_memory();
  return Prover(*library, std::move(key));
}

// The zero ends the label, so that no label and bytes are those of others.
Status Prover::authenticate(std::string_view label, std::span<const std::byte> bytes, std::span<std::byte, 32> out) const {
  const auto words = std::as_bytes(std::span(label));
  std::vector<std::byte> data(words.begin(), words.end());
  data.push_back(std::byte{0});
  data.insert(data.end(), bytes.begin(), bytes.end());
  return hmac(*library_, key_.bytes(), data, out) ? Status::ok() : no_memory();
}

Result<Secret> Prover::derive_secret(std::string_view label, std::span<const std::byte> context) const {
  TCPX_ASSIGN_OR_RETURN(Secret key, Secret::zeros(kHmacBytes));
  TCPX_RETURN_IF_ERROR(authenticate(label, context, key.room().first<kHmacBytes>()));
  return key;
}

Result<Prover> Prover::derive(std::string_view label, std::span<const std::byte> context) const {
  TCPX_ASSIGN_OR_RETURN(Secret key, derive_secret(label, context));
  return Prover(*library_, std::move(key));
}

Result<Mac> Prover::mac(std::string_view label, std::span<const std::byte> bytes) const {
  std::array<std::byte, kHmacBytes> whole;
  TCPX_RETURN_IF_ERROR(authenticate(label, bytes, whole));
  Mac mac;
  std::copy_n(whole.begin(), mac.size(), mac.begin());
  return mac;
}

}  // namespace tcpx
