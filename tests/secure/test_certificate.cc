// Two ends with certificates: who is taken, who is not, what both are told of it, and files that change.
#include "secure/certificate.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/environment.h"
#include "tests/support/certificates.h"
#include "tests/support/expect_log.h"
#include "tests/support/ok.h"
#include "tests/support/tls_ends.h"
#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

std::unique_ptr<TlsContext> context_of(const EndFiles& files, const std::string& peers = "") {
  auto made = TlsContext::create(files.paths(), PeerNames::parse(peers).value());
  EXPECT_TRUE(made.is_ok()) << made.status().to_string();
  return std::move(*made);
}

/// The client has finished before the server has judged it, so it hears of that when it reads.
Status end_of_client(Pair& ends) {
  ends.shake_hands();
  Bytes ignored;
  return ends.client.status.is_ok() ? ends.client.read_all(ignored) : ends.client.status;
}

void expect_mismatch(const Status& status, const std::string& words) {
  EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
  EXPECT_NE(status.detail().find(words), std::string::npos) << status.to_string();
}

std::string name_seen(const TlsContext& of_client, const TlsContext& of_server) {
  Pair ends(of_client, of_server);
  ends.shake_hands();
  EXPECT_TRUE(ends.established()) << ends.client.status.to_string() << ends.server.status.to_string();
  return std::string(ends.client.session->peer_name());
}

/// A client of OpenSSL's own, which has no certificate and trusts any.
struct AnyClient {
  explicit AnyClient(const End& server) {
    ::SSL_set_fd(ssl.get(), server.wire());
    ::SSL_set_connect_state(ssl.get());
  }
  const std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)> context{::SSL_CTX_new(::TLS_method()), &::SSL_CTX_free};
  const std::unique_ptr<SSL, decltype(&::SSL_free)> ssl{::SSL_new(context.get()), &::SSL_free};
};

class Certificates : public ::testing::Test {
 protected:
  /// Client and server in both roles: the one with `bad` is refused by the other.
  void expect_refused(const TlsContext& bad, const std::string& at_good, const std::string& at_bad) {
    {
      Pair ends(bad, *good_);
      const Status client = end_of_client(ends);
      expect_mismatch(ends.server.status, at_good);
      expect_mismatch(client, at_bad);
      EXPECT_FALSE(ends.server.session->is_established());
    }
    Pair ends(*good_, bad);
    expect_mismatch(end_of_client(ends), at_good);
    expect_mismatch(ends.server.status, at_bad);
    EXPECT_FALSE(ends.client.session->is_established());
  }

  const Authority authority_;
  const EndFiles files_{authority_, {.common_name = "ignored", .dns = "head.svc,w-0.trainer.svc"}};
  const std::unique_ptr<TlsContext> good_ = context_of(files_, "head.svc,*.trainer.svc");
};

TEST_F(Certificates, TwoOfOneAuthorityTalkAndKnowEachOther) {
  const EndFiles files(authority_, {.dns = "other,w-1.trainer.svc"});
  const auto context = context_of(files);
  Pair ends(*context, *good_);
  ends.shake_hands();
  ASSERT_TRUE(ends.established()) << ends.client.status.to_string() << ends.server.status.to_string();
  EXPECT_EQ(ends.server.session->peer_name(), "w-1.trainer.svc") << "the name for which it was taken";
  EXPECT_EQ(ends.client.session->peer_name(), "head.svc");
  const Bytes said = bytes_of("hello");
  put(ends.server.wire(), ends.client.say(said));
  Bytes heard;
  EXPECT_TRUE(ends.server.read_all(heard).is_ok());
  EXPECT_EQ(heard, said);
}

TEST_F(Certificates, WithoutPatternsWhoeverIsSignedMayCome) {
  const EndFiles common(authority_, {.common_name = "by-common-name"}), nameless(authority_, {.common_name = ""});
  const auto any = context_of(files_);
  EXPECT_EQ(name_seen(*any, *context_of(common)), "by-common-name");
  EXPECT_EQ(name_seen(*any, *context_of(nameless)), "a certificate without a name");
}

TEST_F(Certificates, AnotherNameIsRefused) {
  for (const Subject& subject :
       {Subject{.dns = "trainer.svc"}, Subject{.dns = "a.b.trainer.svc"}, Subject{.common_name = "head.svc", .dns = "tail.svc"},
        Subject{.common_name = ""}, Subject{.common_name = "x-head.svc"}}) {
    const EndFiles files(authority_, subject);
    expect_refused(*context_of(files), "is refused: not one of UCCL_TCPX_TLS_PEERS",
                   "its name is not one of the peer's UCCL_TCPX_TLS_PEERS");
  }
}

TEST_F(Certificates, DatesCount) {
  const EndFiles old(authority_, {.dns = "head.svc", .begins = -7200, .ends = -3600});
  expect_refused(*context_of(old), "head.svc, is refused: certificate has expired", "it has expired");
  const EndFiles early(authority_, {.dns = "head.svc", .begins = 3600, .ends = 7200});
  expect_refused(*context_of(early), "head.svc, is refused: certificate is not yet valid", "it is not valid, or not yet");
}

TEST_F(Certificates, AnotherAuthorityIsRefused) {
  for (const char* name : {"test CA", "another CA"}) {
    const Authority other(name);
    const EndFiles files(other.sign({.dns = "head.svc"}), authority_.certificate());  // which trusts the good one
    expect_refused(*context_of(files), "head.svc, is refused: its CA is not in UCCL_TCPX_TLS_CA (",
                   "its CA is not in the peer's UCCL_TCPX_TLS_CA");
  }
}

TEST_F(Certificates, UsageForOneRoleAloneIsRefusedInTheOther) {
  const EndFiles files(authority_, {.dns = "head.svc", .usage = "serverAuth"});
  const auto context = context_of(files);
  Pair ends(*context, *good_);
  expect_mismatch(end_of_client(ends), "it is not good for both servers and clients");
  expect_mismatch(ends.server.status, "head.svc, is refused: ");
  EXPECT_EQ(name_seen(*good_, *context_of(files)), "head.svc");
}

TEST_F(Certificates, AClientWithoutOneIsRefused) {
  End server(*good_, TlsRole::kServer);
  const AnyClient stranger(server);
  for (int i = 0; i < 4; ++i) {
    (void)::SSL_do_handshake(stranger.ssl.get());
    if (server.status.is_ok()) server.status = server.session->handshake().status();
  }
  expect_mismatch(server.status, "the client has no certificate");
}

// Each certificate costs the peer 0.4 ms of a handshake, and it has the CA.
TEST_F(Certificates, TheCaIsNotSent) {
  End server(*good_, TlsRole::kServer);
  const AnyClient client(server);
  for (int i = 0; i < 2; ++i) {
    (void)::SSL_do_handshake(client.ssl.get());
    (void)server.session->handshake();  // which finds in the end that the client has none
  }
  EXPECT_EQ(::sk_X509_num(::SSL_get_peer_cert_chain(client.ssl.get())), 1);
}

// OpenSSL itself at the other end: its records are read and ours are taken, from the first to the goodbye of each.
TEST_F(Certificates, RecordsAreThoseOfOpenSsl) {
  const CertificateFiles paths = files_.paths();
  SSL_CTX* const context = ::SSL_CTX_new(::TLS_method());
  ASSERT_EQ(::SSL_CTX_use_certificate_chain_file(context, paths.certificate.c_str()), 1);
  ASSERT_EQ(::SSL_CTX_use_PrivateKey_file(context, paths.key.c_str(), SSL_FILETYPE_PEM), 1);
  ASSERT_EQ(::SSL_CTX_load_verify_locations(context, paths.ca.c_str(), nullptr), 1);
  ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  ::SSL_CTX_set_num_tickets(context, 0);
  Bytes data(100'000), heard(data.size());
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const TlsRole role : {TlsRole::kClient, TlsRole::kServer}) {
    End end(*good_, role);
    SSL* const peer = ::SSL_new(context);
    ::SSL_set_fd(peer, end.wire());
    role == TlsRole::kClient ? ::SSL_set_accept_state(peer) : ::SSL_set_connect_state(peer);
    for (int i = 0; i < 4; ++i) {
      if (end.status.is_ok()) end.status = end.session->handshake().status();
      (void)::SSL_do_handshake(peer);
    }
    ASSERT_TRUE(end.session->is_established()) << end.status.to_string();

    for (const size_t size : {size_t{1}, size_t{16384}, data.size()}) {
      const auto part = std::span(data).first(size);
      EXPECT_EQ(must(end.session->write(part)), size);
      size_t come = 0;
      while (come < size) {
        const int n = ::SSL_read(peer, heard.data() + come, static_cast<int>(size - come));
        ASSERT_GT(n, 0) << size;
        come += static_cast<size_t>(n);
      }
      EXPECT_TRUE(std::equal(part.begin(), part.end(), heard.begin())) << size;

      ASSERT_EQ(::SSL_write(peer, data.data(), static_cast<int>(size)), static_cast<int>(size));
      Bytes all;
      EXPECT_TRUE(end.read_all(all).is_ok());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin(), all.end())) << size;
    }

    end.session->say_goodbye();
    std::byte none{};
    EXPECT_EQ(::SSL_get_error(peer, ::SSL_read(peer, &none, 1)), SSL_ERROR_ZERO_RETURN);
    EXPECT_EQ(::SSL_shutdown(peer), 1);
    const Status status = end.read_all(heard);
    EXPECT_EQ(status.code(), Code::kPeerGone) << status.to_string();
    EXPECT_EQ(status.domain(), Domain::kNone) << status.to_string();
    ::SSL_free(peer);
  }
  ::SSL_CTX_free(context);
}

TEST_F(Certificates, AnEndWithASecretIsToldSoInBothRoles) {
  Secret secret = Secret::zeros(Secret::kFewestBytes).value();
  const auto by_secret = TlsContext::create(secret).value();
  for (const bool secret_is_client : {true, false}) {
    Pair ends(secret_is_client ? *by_secret : *good_, secret_is_client ? *good_ : *by_secret);
    const Status client = end_of_client(ends);
    for (const Status& status : {client, ends.server.status}) {
      expect_mismatch(status, "a secret (UCCL_TCPX_SECRET_FILE)");
      expect_mismatch(status, "a certificate (UCCL_TCPX_TLS_CERT)");
    }
  }
  Pair ends(*by_secret, *by_secret);
  ends.shake_hands();
  EXPECT_EQ(ends.client.session->peer_name(), "secret");
}

void write(const SecretFile& file, const std::string& text) {
  std::ofstream(file.path(), std::ios::binary | std::ios::trunc) << text;
}

TEST_F(Certificates, ChangedFilesAreReadAnewAndBrokenOnesAreNot) {
  const EndFiles files(authority_, {.dns = "first.svc"});
  const auto context = context_of(files), any = context_of(files_);
  EXPECT_EQ(name_seen(*any, *context), "first.svc");
  const Signed second = authority_.sign({.dns = "second.svc"});
  allow_log("the one from before stays");
  write(files.certificate, second.certificate);  // not of the key that is there
  EXPECT_TRUE(wait_until([&] {
    EXPECT_EQ(name_seen(*any, *context), "first.svc");
    return logged("the one from before stays");
  }));
  write(files.key, second.key);
  EXPECT_TRUE(wait_until([&] { return name_seen(*any, *context) == "second.svc"; }));
  std::filesystem::remove(files.key.path());
  const Signed third = authority_.sign({.dns = "third.svc"});
  write(files.certificate, third.certificate);
  const SecretFile renamed(third.key);
  std::filesystem::copy_file(renamed.path(), files.key.path());
  ASSERT_EQ(::chmod(files.key.path().c_str(), 0600), 0);
  EXPECT_TRUE(wait_until([&] { return name_seen(*any, *context) == "third.svc"; })) << "another inode";
}

TEST_F(Certificates, FilesThatCannotBeUsedAreNamed) {
  const auto why = [](const CertificateFiles& files) { return TlsContext::create(files, PeerNames()).status(); };
  const auto expect = [&](const CertificateFiles& files, Code code, const std::string& words) {
    const Status status = why(files);
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_NE(status.detail().find(words), std::string::npos) << status.to_string();
  };
  const EndFiles others(authority_, {});
  CertificateFiles files = files_.paths();
  files.key = others.paths().key;
  expect(files, Code::kBadConfig, "UCCL_TCPX_TLS_KEY=" + files.key);
  files = files_.paths();
  files.certificate = files.key;
  expect(files, Code::kBadConfig, "UCCL_TCPX_TLS_CERT=" + files.certificate + ": no certificate in PEM");
  files = files_.paths();
  files.ca = "/nowhere/ca.pem";
  expect(files, Code::kNotFound, "UCCL_TCPX_TLS_CA=/nowhere/ca.pem: No such file");
  const EndFiles open_key(authority_.sign({}), authority_.certificate(), 0640);
  expect(open_key.paths(), Code::kBadConfig, "UCCL_TCPX_TLS_KEY=" + open_key.paths().key + ": open to group or others");
}

TEST_F(Certificates, FactsForPeople) {
  const auto now = std::chrono::system_clock::now();
  const CertificateFacts facts = certificate_facts(files_.paths()).value();
  EXPECT_EQ(facts.names, (std::vector<std::string>{"head.svc", "w-0.trainer.svc"}));
  EXPECT_LT(facts.begins, now);
  EXPECT_NEAR(std::chrono::duration<double>(facts.ends - now).count(), 3600, 60);
  EXPECT_EQ(facts.distrusted, "");
  const EndFiles old(authority_, {.begins = -7200, .ends = -3600});
  EXPECT_EQ(certificate_facts(old.paths()).value().distrusted, "") << "dates are looked at apart";
  const EndFiles foreign(authority_.sign({}), Authority().certificate());
  EXPECT_NE(certificate_facts(foreign.paths()).value().distrusted, "");
}

TEST(PeerNames, APatternIsANameOrOneLabelInFront) {
  const auto takes = [](const char* patterns, const char* name) {
    return PeerNames::parse(patterns).value().find({name}) != nullptr;
  };
  EXPECT_TRUE(takes("a.svc,b.svc", "B.SVC"));
  EXPECT_TRUE(takes("*.svc", "a.svc"));
  EXPECT_FALSE(takes("*.svc", "svc"));
  EXPECT_FALSE(takes("*.svc", ".svc"));
  EXPECT_FALSE(takes("*.svc", "a.b.svc"));
  EXPECT_FALSE(takes("a.svc", "xa.svc"));
  for (const char* bad : {",", "a,", "*", "*.", "a.*.svc", "w*.svc", "a b", "*..svc", "https://a", "a, b"})
    EXPECT_EQ(PeerNames::parse(bad).status().code(), Code::kBadConfig) << bad;
}

}  // namespace
}  // namespace tcpx::testing
