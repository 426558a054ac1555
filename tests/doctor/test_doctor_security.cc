// Verdicts on who may connect, and on what proves it.
#include <gtest/gtest.h>

#include <utility>

#include "doctor/security.h"
#include "tests/support/doctor_fixture.h"
#include "tests/support/secret_file.h"

namespace tcpx::doctor {
namespace {

using std::chrono::hours;
using std::chrono::system_clock;
using enum Verdict;

const testing::Checks<SecurityFacts> kSecurity{check_security};
const auto kNow = system_clock::from_time_t(1'800'000'000);  // 2027-01-15 08:00 UTC

SecurityFacts with_certificate(system_clock::duration until) {
  return {
      .settings = {.protection = Protection::kAuth, .credential = Credential::kCertificate, .certificate = {"/c", "/k", "/a"}},
      .certificate = {.names = {"w.svc"}, .begins = kNow - hours(1), .ends = kNow + until},
      .now = kNow};
}

TEST(DoctorSecurity, OffIsWellInPrivateNetworksAlone) {
  const SecurityFacts inside{.places = {"10.0.0.1", "172.31.0.1", "192.168.1.1", "100.64.0.1", "192.0.2.2", "127.0.0.1",
                                        "fd00::1", "fe80::1%eth0", "::1"}};
  EXPECT_EQ(kSecurity.worst(inside), kOk);
  EXPECT_NE(kSecurity.finding(inside, "protection").found.find("off: nothing sets UCCL_TCPX_SECRET_FILE"), std::string::npos);
  for (const char* place : {"8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:db8::1"}) {
    SecurityFacts facts{.places = {"10.0.0.1", place}};
    EXPECT_EQ(kSecurity.finding(facts, "listen").verdict, kWarn) << place;
    EXPECT_EQ(kSecurity.finding(facts, "listen").found, std::string("anybody may connect at ") + place);
    facts.settings = {.protection = Protection::kAuth, .credential = Credential::kSecret, .secret_file = "/s"};
    EXPECT_EQ(kSecurity.worst(facts), kOk) << place;
  }
}

TEST(DoctorSecurity, TheProtectionIsNamed) {
  for (const Protection each : {Protection::kAuth, Protection::kEncrypt}) {
    const SecurityFacts facts{.settings = {.protection = each, .credential = Credential::kSecret, .secret_file = "/s"}};
    EXPECT_EQ(kSecurity.finding(facts, "protection").found, std::string(name_of(each)) + ", by UCCL_TCPX_SECRET_FILE");
  }
}

TEST(DoctorSecurity, ChecksumsAreNamed) {
  for (const auto& [value, found] :
       {std::pair("", "off: nothing sets UCCL_TCPX_CHECKSUM"), std::pair("on", "on, by UCCL_TCPX_CHECKSUM"),
        std::pair("retry", "retry, by UCCL_TCPX_CHECKSUM")}) {
    EXPECT_TRUE(environment_set(Variable::kChecksum, value).is_ok());
    const SecurityFacts facts = security_facts({.files = FileTree(), .variables = {}});
    EXPECT_TRUE(environment_set(Variable::kChecksum, "").is_ok());
    EXPECT_EQ(kSecurity.finding(facts, "checksums").found, found);
    EXPECT_EQ(kSecurity.finding(facts, "checksums").verdict, kOk);
  }
}

TEST(DoctorSecurity, SettingsThatDoNotGoTogetherFail) {
  const SecurityFacts facts{.settings_read = Status(Code::kBadConfig, "read environment", "UCCL_TCPX_SECURITY=auth needs x")};
  EXPECT_EQ(kSecurity.finding(facts, "protection").verdict, kFail);
  EXPECT_EQ(kSecurity.finding(facts, "protection").found, "UCCL_TCPX_SECURITY=auth needs x");
}

TEST(DoctorSecurity, ASecretIsRead) {
  const testing::SecretFile secret(std::string(64, 'a')), open(std::string(64, 'a'), 0644);
  const auto facts_of = [](const std::string& path) {
    EXPECT_TRUE(environment_set(Variable::kSecretFile, path).is_ok());
    SecurityFacts facts = security_facts({.files = FileTree(), .variables = {}});
    EXPECT_TRUE(environment_set(Variable::kSecretFile, "").is_ok());
    return facts;
  };
  EXPECT_EQ(kSecurity.worst(facts_of(secret.path())), kOk);
  EXPECT_EQ(kSecurity.finding(facts_of(secret.path()), "protection").found, "auth, by UCCL_TCPX_SECRET_FILE");
  const Finding refused = kSecurity.finding(facts_of(open.path()), "secret");
  EXPECT_EQ(refused.verdict, kFail);
  EXPECT_EQ(refused.mend, "chmod 600 " + open.path());
  EXPECT_EQ(kSecurity.finding(facts_of("/nowhere/secret"), "secret").verdict, kFail);
}

TEST(DoctorSecurity, DatesOfACertificate) {
  const auto dates = [](system_clock::duration until) { return kSecurity.finding(with_certificate(until), "certificate_dates"); };
  EXPECT_EQ(dates(hours(24 * 15)).verdict, kOk);
  EXPECT_EQ(dates(hours(24 * 13)).verdict, kWarn);
  EXPECT_EQ(dates(hours(24 * 13)).found, "expires at 2027-01-28 08:00 UTC");
  EXPECT_EQ(dates(hours(-1)).verdict, kFail);
  EXPECT_EQ(dates(hours(-1)).found, "expired at 2027-01-15 07:00 UTC");
  SecurityFacts early = with_certificate(hours(24 * 30));
  early.certificate.begins = kNow + hours(1);
  EXPECT_EQ(kSecurity.finding(early, "certificate_dates").found, "valid from 2027-01-15 09:00 UTC on");
  EXPECT_EQ(kSecurity.finding(early, "certificate_dates").verdict, kFail);
}

TEST(DoctorSecurity, ACertificateOfAnotherAuthorityOrKeyFails) {
  SecurityFacts facts = with_certificate(hours(24 * 30));
  EXPECT_EQ(kSecurity.worst(facts), kOk);
  facts.certificate.distrusted = "unable to get local issuer certificate";
  EXPECT_EQ(kSecurity.finding(facts, "certificate_ca").verdict, kFail);
  facts.credential_read = Status(Code::kBadConfig, "read certificate", "UCCL_TCPX_TLS_KEY=/k: not the key of /c");
  EXPECT_EQ(kSecurity.finding(facts, "certificate").found, "UCCL_TCPX_TLS_KEY=/k: not the key of /c");
  EXPECT_EQ(kSecurity.finding(facts, "certificate").verdict, kFail);
}

}  // namespace
}  // namespace tcpx::doctor
