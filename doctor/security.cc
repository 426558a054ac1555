#include "doctor/security.h"

#include <arpa/inet.h>

#include <algorithm>
#include <ctime>

#include "base/text.h"
#include "base/words.h"
#include "net/soft/interfaces.h"
#include "secure/secret.h"

namespace tcpx::doctor {
namespace {

using std::chrono::system_clock;

constexpr auto kSoon = std::chrono::hours(24 * 14);

/// "2026-11-27 16:08 UTC"
std::string date_of(system_clock::time_point point) {
  const std::time_t seconds = system_clock::to_time_t(point);
  std::tm parts{};
  char text[32] = {};
  (void)::gmtime_r(&seconds, &parts);
  (void)std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

/// Not of a network that ends at a router: RFC 1918, 6598, 3927, 2544, 5737, 4193, loopback and link-local.
bool is_public(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    const uint32_t address = ntohl(v4.s_addr);
    const auto within = [&](uint32_t network, int prefix) { return address >> (32 - prefix) == network >> (32 - prefix); };
    return !(within(0x0a000000, 8) || within(0xac100000, 12) || within(0xc0a80000, 16) || within(0x64400000, 10) ||
             within(0xa9fe0000, 16) || within(0x7f000000, 8) || within(0xc6120000, 15) || within(0xc0000200, 24));
  }
  if (::inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  const auto* const bytes = v6.s6_addr;
  return (bytes[0] & 0xe0) == 0x20;  // global unicast, 2000::/3
}

std::string name_of(Variable variable) {
  return environment_info(variable).name;
}

Findings check_credential(const SecurityFacts& facts) {
  const SecuritySettings& settings = facts.settings;
  const bool by_secret = settings.credential == Credential::kSecret;
  const std::string check = by_secret ? "secret" : "certificate";
  const std::string found = by_secret ? concat(settings.secret_file, " is private, and long enough")
                                      : concat("the key is that of ", settings.certificate.certificate, ", of ",
                                               facts.certificate.names.empty() ? "nobody" : joined(facts.certificate.names));
  const std::string file = by_secret ? settings.secret_file : settings.certificate.key;
  const bool open_to_all = facts.credential_read.detail().find("run chmod 600") != std::string::npos;
  return judge(
      {{check, facts.credential_read.detail(), facts.credential_read.is_ok(), kFail, "No endpoint can be made.",
        open_to_all ? concat("chmod 600 ", file)
        : by_secret ? concat("tcpx secret new ", file, "   # into a file that is not there; then copy it to the other hosts")
                    : "give PEM files that belong together, the key without a password"},
       {check, found}});
}

Findings check_certificate(const SecurityFacts& facts) {
  const CertificateFacts& certificate = facts.certificate;
  const std::string again =
      concat("renew it, and put it at ", facts.settings.certificate.certificate, "; endpoints read it anew within a second");
  const char* const refused = "Peers refuse it.";
  return judge({{"certificate_dates", concat("valid from ", date_of(certificate.begins), " on"), facts.now >= certificate.begins,
                 kFail, refused, "set the clock of this machine, or wait"},
                {"certificate_dates", concat("expired at ", date_of(certificate.ends)), facts.now <= certificate.ends, kFail,
                 refused, again},
                {"certificate_dates", concat("expires at ", date_of(certificate.ends)), facts.now + kSoon <= certificate.ends,
                 kWarn, "New connections fail from then on.", again},
                {"certificate_dates", concat("valid until ", date_of(certificate.ends))},
                {"certificate_ca", certificate.distrusted, certificate.distrusted.empty(), kFail,
                 "Peers with the same CA refuse the certificate.",
                 concat("give ", name_of(Variable::kTlsCa), " the CA that has signed it, and ", name_of(Variable::kTlsCert),
                        " the certificates in between")},
                {"certificate_ca", concat(facts.settings.certificate.ca, " has signed it")}});
}

}  // namespace

SecurityFacts security_facts(const Machine& machine) {
  SecurityFacts facts{.now = system_clock::now()};
  auto settings = SecuritySettings::from_environment();
  facts.settings_read = settings.status();
  if (!settings.is_ok()) return facts;
  facts.settings = std::move(*settings);
  facts.checksums = environment_text(Variable::kChecksum);
  if (facts.settings.credential == Credential::kSecret) {
    facts.credential_read = Secret::read_file(facts.settings.secret_file).status();
  } else if (facts.settings.credential == Credential::kCertificate) {
    auto certificate = certificate_facts(facts.settings.certificate);
    facts.credential_read = certificate.status();
    if (certificate.is_ok()) facts.certificate = std::move(*certificate);
  }
  auto all = soft::list_addresses();
  if (!facts.settings.chosen)
    all = soft::choose_interfaces(all, machine.variables.text(Variable::kSocketIfname), soft::AddressFamily::kAny);
  for (const auto& each : all) facts.places.push_back(each.address.host());
  return facts;
}

Findings check_security(const SecurityFacts& facts) {
  const SecuritySettings& settings = facts.settings;
  const bool on = settings.protection != Protection::kOff;
  const bool sums = facts.checksums != environment_info(Variable::kChecksum).default_text;
  const std::string security = name_of(Variable::kSecurity);
  Findings findings =
      judge({{"protection", facts.settings_read.detail(), facts.settings_read.is_ok(), kFail, "No endpoint can be made.",
              concat("set what is missing, or unset ", security, " and what it names")},
             {"protection", on ? concat(name_of(settings.protection), ", by ", name_of_variables(settings.credential))
                            : settings.chosen ? concat("off, by ", security)
                                              : concat("off: nothing sets ", name_of_variables(Credential::kNone))},
             {"checksums", concat(facts.checksums, sums ? ", by " : ": nothing sets ", name_of(Variable::kChecksum))}});
  if (!facts.settings_read.is_ok()) return findings;
  if (settings.credential != Credential::kNone) append(findings, check_credential(facts));
  if (settings.credential == Credential::kCertificate && facts.credential_read.is_ok())
    append(findings, check_certificate(facts));
  std::vector<std::string> open;
  std::copy_if(facts.places.begin(), facts.places.end(), std::back_inserter(open), is_public);
  if (!on)
    append(findings, judge({{"listen", concat("anybody may connect at ", joined(open)), open.empty(), kWarn,
                             "These are addresses of the internet: whoever reaches them can use endpoints.",
                             concat("tcpx secret new secret && export ", name_of(Variable::kSecretFile), "=$PWD/secret")},
                            {"listen", "at addresses of private networks alone"}}));
  return findings;
}

}  // namespace tcpx::doctor
