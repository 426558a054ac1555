// Endpoints with UCCL_TCPX_SECURITY=encrypt. The software plugin reads that once in a process, so these cases have a program of their own.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/environment.h"
#include "tests/support/certificates.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/expect_log.h"
#include "tests/support/secret_file.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

class EndpointEncrypted : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto first = with("encrypt", secret_);  // it starts the plugin
    ASSERT_NE(first, nullptr);
  }
  static std::unique_ptr<Endpoint> with(const char* security, const SecretFile& secret, bool same_host = false) {
    EndpointConfig config = loopback_config();
    config.same_host = same_host;
    auto made = created(security, secret.path(), config);
    EXPECT_TRUE(made.is_ok()) << made.status().to_string();
    return made.is_ok() ? std::move(*made) : nullptr;
  }
  static Result<std::unique_ptr<Endpoint>> created(const char* security, const std::string& secret,
                                                   const EndpointConfig& config) {
    EXPECT_TRUE(environment_set(Variable::kSecurity, security).is_ok());
    EXPECT_TRUE(environment_set(Variable::kSecretFile, secret).is_ok());
    auto made = Endpoint::create(config);
    EXPECT_TRUE(environment_set(Variable::kSecurity, "").is_ok());
    EXPECT_TRUE(environment_set(Variable::kSecretFile, "").is_ok());
    return made;
  }

  const SecretFile secret_{"one secret, which both ends of it have\n"};
};

TEST_F(EndpointEncrypted, TwoMoveMessagesOfAllLengthsOverTcpAndOnOneHost) {
  for (const bool same_host : {false, true}) {
    const auto a = with("encrypt", secret_, same_host), b = with("encrypt", secret_, same_host);
    const auto [at_a, at_b] = connect_pair(*a, *b);
    for (const size_t bytes : {size_t{1}, size_t{100'000}, size_t{3'000'000}, size_t{20'000'001}}) {
      EXPECT_TRUE(moves(*a, at_a, *b, at_b, bytes)) << bytes;
      EXPECT_TRUE(moves(*b, at_b, *a, at_a, bytes)) << bytes;
    }
    const std::string path = stats_of(*a, at_a).path;
    EXPECT_NE(path.find(", encrypted, "), std::string::npos) << path;
    EXPECT_TRUE(same_host || path.find("inline up to 65536 bytes") != std::string::npos) << path << ": all ways encrypt";
  }
}

TEST_F(EndpointEncrypted, ACertificateServesAsWell) {
  const Authority authority;
  const EndFiles files(authority, {.dns = "w.svc"});
  const std::pair<Variable, std::string> values[] = {
      {Variable::kTlsCert, files.certificate.path()}, {Variable::kTlsKey, files.key.path()}, {Variable::kTlsCa, files.ca.path()}};
  for (const auto& [variable, value] : values) EXPECT_TRUE(environment_set(variable, value).is_ok());
  auto a = created("encrypt", "", loopback_config()), b = created("encrypt", "", loopback_config());
  for (const auto& [variable, value] : values) EXPECT_TRUE(environment_set(variable, "").is_ok());
  ASSERT_TRUE(a.is_ok() && b.is_ok()) << a.status().to_string();
  const auto [at_a, at_b] = connect_pair(**a, **b);
  EXPECT_TRUE(moves(**a, at_a, **b, at_b, 3'000'000));
}

TEST_F(EndpointEncrypted, OneEndThatOnlyAuthenticatesIsToldBothSettings) {
  for (const bool client_encrypts : {true, false}) {
    allow_log("a connection was not made");
    const auto server = with(client_encrypts ? "auth" : "encrypt", secret_),
               client = with(client_encrypts ? "encrypt" : "auth", secret_);
    const std::string why = client_encrypts ? "UCCL_TCPX_SECURITY is encrypt at the connecting end and auth at the accepting one"
                                            : "UCCL_TCPX_SECURITY is auth at the connecting end and encrypt at the accepting one";
    ASSERT_TRUE(server->start_accepting().is_ok());
    const Status status = client->connect("127.0.0.1", 0, port_of(*server), kCallTime).status();
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.detail().find(why), std::string::npos) << status.to_string();
    EXPECT_TRUE(wait_until([&] { return logged("a connection was not made: TCPX_E_MISMATCH: set up link: " + why); }));
    EXPECT_TRUE(server->stats().connections.empty());
  }
}

TEST_F(EndpointEncrypted, WithoutACredentialThereIsNoEndpoint) {
  const Status status = created("encrypt", "", loopback_config()).status();
  EXPECT_EQ(status.code(), Code::kBadConfig);
  EXPECT_NE(status.detail().find("UCCL_TCPX_SECURITY=encrypt needs UCCL_TCPX_SECRET_FILE"), std::string::npos)
      << status.to_string();
}

// Another library, also one with the software plugin, may be of any version: its name does not say whether it encrypts.
TEST_F(EndpointEncrypted, APluginThatDoesNotSayThatItEncryptsIsRefused) {
  EndpointConfig config = loopback_config();
  config.plugin_path = TCPX_SOFT_PLUGIN;
  const Status status = created("encrypt", secret_.path(), config).status();
  EXPECT_EQ(status.code(), Code::kUnsupported) << status.to_string();
  EXPECT_NE(status.detail().find(" does not say that it encrypts: set UCCL_TCPX_PLUGIN_PATH=embedded for the software plugin of "
                                 "this build, or let IPsec, PSP or WireGuard encrypt, and set UCCL_TCPX_SECURITY=auth"),
            std::string::npos)
      << status.to_string();
}

// As over the vendor's plugin, whose sockets know of no credential.
TEST_F(EndpointEncrypted, OverAnotherPluginThePathSaysWhatIsNotProtected) {
  const std::string unprotected = ", control stream protected, payload neither encrypted nor authenticated by tcpx, ";
  EndpointConfig config = loopback_config();
  for (const char* plugin : {TCPX_SOFT_PLUGIN, "embedded"}) {
    for (const char* security : {"auth", "off"}) {
      config.plugin_path = plugin;
      auto a = created(security, secret_.path(), config), b = created(security, secret_.path(), config);
      ASSERT_TRUE(a.is_ok() && b.is_ok()) << a.status().to_string();
      const auto [at_a, at_b] = connect_pair(**a, **b);
      const std::string path = stats_of(**a, at_a).path;
      const bool told = path.find(unprotected) != std::string::npos;
      EXPECT_EQ(told, security == std::string("auth") && plugin == std::string(TCPX_SOFT_PLUGIN)) << path;
    }
  }
}

}  // namespace
}  // namespace tcpx::testing
