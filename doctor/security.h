// Group "security": who may connect to endpoints of this machine, and whether what proves it can be used.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/machine.h"
#include "secure/certificate.h"
#include "secure/settings.h"

namespace tcpx::doctor {

struct SecurityFacts {
  Status settings_read;  ///< not ok: nothing below means anything
  SecuritySettings settings;
  std::string checksums = "off";  ///< as UCCL_TCPX_CHECKSUM says
  Status credential_read;
  CertificateFacts certificate;     ///< with Credential::kCertificate, where it could be read
  std::vector<std::string> places;  ///< addresses at which an endpoint with defaults takes clients
  std::chrono::system_clock::time_point now;
};
/// As this process is configured.
SecurityFacts security_facts(const Machine& machine);

Findings check_security(const SecurityFacts& facts);

}  // namespace tcpx::doctor
