#include "secure/settings.h"

#include "base/environment.h"
#include "base/text.h"

namespace tcpx {

std::string name_of_variables(Credential credential) {
  switch (credential) {
    case Credential::kNone:
      break;
    case Credential::kSecret:
      return environment_info(Variable::kSecretFile).name;
  }
  return name_of_variables(Credential::kSecret);
}

Result<SecuritySettings> SecuritySettings::from_environment() {
  SecuritySettings settings{.chosen = environment_is_set(Variable::kSecurity)};
  TCPX_ASSIGN_OR_RETURN(const auto choice, environment_choice(Variable::kSecurity));
  settings.protection = static_cast<Protection>(choice);
  if (settings.chosen && settings.protection == Protection::kOff) return settings;
  settings.secret_file = environment_text(Variable::kSecretFile);
  if (!settings.secret_file.empty()) settings.credential = Credential::kSecret;
  if (settings.credential == Credential::kNone && settings.chosen)
    return Status(Code::kBadConfig, "read environment",
                  concat(environment_info(Variable::kSecurity).name, "=", environment_text(Variable::kSecurity), " needs ",
                         name_of_variables(Credential::kNone)));
  if (settings.credential != Credential::kNone && !settings.chosen) settings.protection = Protection::kAuth;
  return settings;
}

}  // namespace tcpx
