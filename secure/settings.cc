#include "secure/settings.h"

#include "base/environment.h"
#include "base/text.h"

namespace tcpx {

std::string_view name_of(Protection protection) {
  switch (protection) {
    case Protection::kOff:
      return "off";
    case Protection::kAuth:
      return "auth";
    case Protection::kEncrypt:
      return "encrypt";
  }
  return "";
}

std::string name_of_variables(Credential credential) {
  switch (credential) {
    case Credential::kNone:
      break;
    case Credential::kSecret:
      return environment_info(Variable::kSecretFile).name;
    case Credential::kCertificate:
      return environment_info(Variable::kTlsCert).name;
  }
  return concat(name_of_variables(Credential::kSecret), " or ", name_of_variables(Credential::kCertificate));
}

std::string one_sided(std::string_view has, std::string_view has_not) {
  return concat("authentication is on at the ", has, " and off at the ", has_not, ": set ", name_of_variables(Credential::kNone),
                " at both or neither");
}

namespace {

// All files of a certificate or none; other settings mean nothing without them.
Status read_certificate_settings(SecuritySettings& settings) {
  settings.certificate = {.certificate = environment_text(Variable::kTlsCert),
                          .key = environment_text(Variable::kTlsKey),
                          .ca = environment_text(Variable::kTlsCa)};
  const std::string peers = environment_text(Variable::kTlsPeers);
  std::string there, missing;
  for (const Variable variable : {Variable::kTlsCert, Variable::kTlsKey, Variable::kTlsCa, Variable::kTlsPeers}) {
    const bool is_set = environment_is_set(variable);
    if (!is_set && variable == Variable::kTlsPeers) continue;
    std::string& names = is_set ? there : missing;
    names = concat(names, names.empty() ? "" : " and ", environment_info(variable).name);
  }
  if (there.empty()) return Status::ok();
  if (!missing.empty())
    return Status(Code::kBadConfig, "read environment", concat(there, " without ", missing, ": set all of them"));
  settings.credential = Credential::kCertificate;
  TCPX_ASSIGN_OR_RETURN(settings.peers, PeerNames::parse(peers));
  return Status::ok();
}

}  // namespace

Result<SecuritySettings> SecuritySettings::from_environment() {
  SecuritySettings settings{.chosen = environment_is_set(Variable::kSecurity)};
  TCPX_ASSIGN_OR_RETURN(const auto choice, environment_choice(Variable::kSecurity));
  settings.protection = static_cast<Protection>(choice);
  if (settings.chosen && settings.protection == Protection::kOff) return settings;
  TCPX_RETURN_IF_ERROR(read_certificate_settings(settings));
  settings.secret_file = environment_text(Variable::kSecretFile);
  if (!settings.secret_file.empty()) {
    if (settings.credential != Credential::kNone)
      return Status(Code::kBadConfig, "read environment",
                    concat(name_of_variables(Credential::kSecret), " and ", name_of_variables(Credential::kCertificate),
                           " are both set: an endpoint has one credential, so unset one"));
    settings.credential = Credential::kSecret;
  }
  if (settings.credential == Credential::kNone && settings.chosen)
    return Status(Code::kBadConfig, "read environment",
                  concat(environment_info(Variable::kSecurity).name, "=", environment_text(Variable::kSecurity), " needs ",
                         name_of_variables(Credential::kNone)));
  if (settings.credential != Credential::kNone && !settings.chosen) settings.protection = Protection::kAuth;
  return settings;
}

}  // namespace tcpx
