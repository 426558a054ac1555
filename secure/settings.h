// How the connections of endpoints are protected, as the environment says. The only reader of these variables.
#pragma once

#include <string>
#include <string_view>

#include "secure/certificate.h"
#include "tcpx/status.h"

namespace tcpx {

/// In the order of UCCL_TCPX_SECURITY. With kEncrypt nothing leaves the host in clear.
enum class Protection { kOff, kAuth, kEncrypt };
/// With what an end proves who it is.
enum class Credential { kNone, kSecret, kCertificate };

struct SecuritySettings {
  Protection protection = Protection::kOff;
  Credential credential = Credential::kNone;
  bool chosen = false;           ///< UCCL_TCPX_SECURITY is set; else the protection follows from the credential
  std::string secret_file = {};  ///< with Credential::kSecret

  CertificateFiles certificate = {};  ///< with Credential::kCertificate
  PeerNames peers = {};               ///< with Credential::kCertificate

  /// Reads no file. @return kBadConfig: a protection that needs a credential, and there is none; half a certificate; two credentials
  static Result<SecuritySettings> from_environment();
};

/// As in UCCL_TCPX_SECURITY.
std::string_view name_of(Protection protection);
/// Variables that give a credential, for sentences; kNone: any.
std::string name_of_variables(Credential credential);
/// Why two ends do not meet of which only `has` authenticates. Neither may know what the other is configured with, so any will do.
std::string one_sided(std::string_view has, std::string_view has_not);

}  // namespace tcpx
