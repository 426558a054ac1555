// What the environment says of protection, and which of its variables do not go together.
#include "secure/settings.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "base/environment.h"

namespace tcpx::testing {
namespace {

using Values = std::initializer_list<std::pair<Variable, const char*>>;

Result<SecuritySettings> settings_of(Values values) {
  for (const auto& [variable, value] : values) EXPECT_TRUE(environment_set(variable, value).is_ok()) << value;
  auto read = SecuritySettings::from_environment();
  for (const auto& [variable, value] : values) EXPECT_TRUE(environment_set(variable, "").is_ok());
  return read;
}

constexpr Variable kSecurity = Variable::kSecurity, kSecretFile = Variable::kSecretFile, kTlsCert = Variable::kTlsCert,
                   kTlsKey = Variable::kTlsKey, kTlsCa = Variable::kTlsCa, kTlsPeers = Variable::kTlsPeers;

TEST(SecuritySettings, OffWhileThereIsNoCredential) {
  const auto settings = settings_of({}).value();
  EXPECT_EQ(settings.protection, Protection::kOff);
  EXPECT_EQ(settings.credential, Credential::kNone);
  EXPECT_FALSE(settings.chosen);
}

TEST(SecuritySettings, ASecretTurnsAuthenticationOn) {
  for (const char* security : {"", "auth"}) {
    const auto settings = settings_of({{kSecurity, security}, {kSecretFile, "/secret"}}).value();
    EXPECT_EQ(settings.protection, Protection::kAuth);
    EXPECT_EQ(settings.credential, Credential::kSecret);
    EXPECT_EQ(settings.secret_file, "/secret");
  }
}

TEST(SecuritySettings, OffIsOffWhateverIsConfigured) {
  const auto settings = settings_of({{kSecurity, "off"}, {kSecretFile, "/secret"}}).value();
  EXPECT_EQ(settings.protection, Protection::kOff);
  EXPECT_EQ(settings.credential, Credential::kNone);
  EXPECT_TRUE(settings.chosen);
}

TEST(SecuritySettings, EncryptionIsChosen) {
  for (const Values& values : {Values{{kSecurity, "encrypt"}, {kSecretFile, "/secret"}},
                               Values{{kSecurity, "encrypt"}, {kTlsCert, "/c"}, {kTlsKey, "/k"}, {kTlsCa, "/a"}}})
    EXPECT_EQ(settings_of(values).value().protection, Protection::kEncrypt);
  for (const Protection each : {Protection::kOff, Protection::kAuth, Protection::kEncrypt}) {
    const std::string name(name_of(each));
    EXPECT_EQ(settings_of({{kSecurity, name.c_str()}, {kSecretFile, "/secret"}}).value().protection, each);
  }
}

TEST(SecuritySettings, ProtectionWithNothingSaysWhatToSet) {
  for (const char* security : {"auth", "encrypt"}) {
    const Status status = settings_of({{kSecurity, security}}).status();
    EXPECT_EQ(status.code(), Code::kBadConfig);
    EXPECT_NE(status.detail().find(std::string("UCCL_TCPX_SECURITY=") + security + " needs UCCL_TCPX_SECRET_FILE"),
              std::string::npos)
        << status.to_string();
  }
}

TEST(SecuritySettings, ACertificateHasThreeFiles) {
  const auto settings = settings_of({{kTlsCert, "/c"}, {kTlsKey, "/k"}, {kTlsCa, "/a"}, {kTlsPeers, "*.svc"}}).value();
  EXPECT_EQ(settings.protection, Protection::kAuth);
  EXPECT_EQ(settings.credential, Credential::kCertificate);
  EXPECT_EQ(settings.certificate.certificate + settings.certificate.key + settings.certificate.ca, "/c/k/a");
  EXPECT_FALSE(settings.peers.any());
  const auto why = [](Values values) { return settings_of(values).status().to_string(); };
  EXPECT_NE(why({{kTlsCert, "/c"}, {kTlsCa, "/a"}}).find("UCCL_TCPX_TLS_CERT and UCCL_TCPX_TLS_CA without UCCL_TCPX_TLS_KEY"),
            std::string::npos);
  EXPECT_NE(why({{kTlsPeers, "*.svc"}}).find("UCCL_TCPX_TLS_PEERS without UCCL_TCPX_TLS_CERT and"), std::string::npos);
}

TEST(SecuritySettings, TwoCredentialsAreRefused) {
  const Status status = settings_of({{kTlsCert, "/c"}, {kTlsKey, "/k"}, {kTlsCa, "/a"}, {kSecretFile, "/s"}}).status();
  EXPECT_EQ(status.code(), Code::kBadConfig);
  EXPECT_NE(status.detail().find("UCCL_TCPX_SECRET_FILE and UCCL_TCPX_TLS_CERT are both set"), std::string::npos)
      << status.to_string();
}

TEST(SecuritySettings, OtherValuesAreRefused) {
  for (const char* value : {"on", "AUTH", "of"})
    EXPECT_EQ(environment_check(environment_info(kSecurity), value).code(), Code::kBadConfig) << value;
}

}  // namespace
}  // namespace tcpx::testing
