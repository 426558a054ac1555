// Two ends of a TLS session over sockets, and an attacker between them who repeats, reflects, cuts, delays and changes bytes.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "secure/openssl.h"
#include "secure/tls.h"
#include "tests/support/prover.h"
#include "tests/support/tls_ends.h"

namespace {
std::function<void()> comes_after_a_look;
}

// A look at a socket finds nothing, and before the next call something comes.
extern "C" ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  static const auto real = reinterpret_cast<decltype(&::recv)>(::dlsym(RTLD_NEXT, "recv"));
  const ssize_t n = real(fd, data, bytes, flags);
  if (n < 0 && (flags & MSG_PEEK) != 0 && comes_after_a_look) {
    const int error = errno;
    std::exchange(comes_after_a_look, nullptr)();
    errno = error;
  }
  return n;
}

namespace tcpx::testing {
namespace {

std::unique_ptr<TlsContext> context_of(char letter) {
  return must(TlsContext::create(secret_of(letter)));
}

class Tls : public ::testing::Test {
 protected:
  const std::unique_ptr<TlsContext> context_ = context_of('s');
};

TEST_F(Tls, TwoEndsWithOneSecretTalk) {
  const auto same = context_of('s');
  Pair ends(*context_, *same);
  ends.shake_hands();
  ASSERT_TRUE(ends.established()) << ends.client.status.to_string() << ends.server.status.to_string();
  const Bytes question = bytes_of("who is there?");
  const Bytes sent = ends.client.say(question);
  EXPECT_EQ(std::search(sent.begin(), sent.end(), question.begin(), question.end()), sent.end()) << "in clear";
  put(ends.server.wire(), sent);
  Bytes heard;
  EXPECT_TRUE(ends.server.read_all(heard).is_ok());
  EXPECT_EQ(heard, question);
  EXPECT_FALSE(ends.server.session->may_have_more());
  ends.client.session->say_goodbye();
  put(ends.server.wire(), take(ends.client.wire()));
  const Status end = ends.server.read_all(heard);
  EXPECT_EQ(end.code(), Code::kPeerGone);
  EXPECT_EQ(end.domain(), Domain::kNone) << "an end with a goodbye is no reset";
}

// OpenSSL reads the handshake, and not a byte of what follows.
TEST_F(Tls, WhatComesRightBehindTheHandshakeIsRead) {
  Pair ends(*context_, *context_);
  Bytes to_server = ends.client.go_on(ends.server.go_on(ends.client.go_on()));
  const Bytes said = bytes_of("first"), record = ends.client.say(said);
  to_server.insert(to_server.end(), record.begin(), record.end());
  ends.server.go_on(to_server);
  Bytes heard;
  EXPECT_TRUE(ends.server.read_all(heard).is_ok());
  EXPECT_EQ(heard, said);
}

// Large writes that the socket takes piece by piece, from memory that moves.
TEST_F(Tls, APartlySentStreamArrivesWhole) {
  Sockets sockets = unix_pair();
  const auto client = context_->session(sockets.a.get(), TlsRole::kClient).value();
  const auto server = context_->session(sockets.b.get(), TlsRole::kServer).value();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client->handshake().is_ok() && server->handshake().is_ok());
  Bytes data(3u << 20), heard, room(100'000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 256);
  size_t sent = 0;
  while (heard.size() < data.size()) {
    const Bytes rest(data.begin() + static_cast<std::ptrdiff_t>(sent), data.end());
    sent += client->write(rest).value();
    const size_t come = server->read(room).value();
    ASSERT_GT(come, 0u);
    EXPECT_EQ(server->may_have_more(), come == room.size());
    heard.insert(heard.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(come));
  }
  EXPECT_EQ(heard, data);
}

TEST_F(Tls, DifferentSecretsAreToldAtBothEnds) {
  const auto another = context_of('t');
  Pair ends(*context_, *another);
  ends.shake_hands();
  EXPECT_FALSE(ends.established());
  for (const Status& status : {ends.client.status, ends.server.status}) {
    EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
    EXPECT_NE(status.detail().find("the secrets differ"), std::string::npos);
  }
}

/// An end that knows TLS 1.3 and not the secret. A server has a certificate, signed by itself.
struct Stranger {
  SSL_CTX* context = ::SSL_CTX_new(::TLS_method());
  SSL* ssl = nullptr;
  Stranger(int fd, TlsRole role) {
    EVP_PKEY* const key = ::EVP_EC_gen("P-256");
    X509* const certificate = ::X509_new();
    ::X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
    ::X509_gmtime_adj(X509_getm_notAfter(certificate), 1000);
    ::X509_set_pubkey(certificate, key);
    EXPECT_GT(::X509_sign(certificate, key, ::EVP_sha256()), 0);
    EXPECT_EQ(::SSL_CTX_use_certificate(context, certificate), 1);
    EXPECT_EQ(::SSL_CTX_use_PrivateKey(context, key), 1);
    ::X509_free(certificate);
    ::EVP_PKEY_free(key);
    ssl = ::SSL_new(context);
    ::SSL_set_fd(ssl, fd);
    role == TlsRole::kClient ? ::SSL_set_connect_state(ssl) : ::SSL_set_accept_state(ssl);
  }
  ~Stranger() {
    ::SSL_free(ssl);
    ::SSL_CTX_free(context);
  }
};

TEST_F(Tls, WhoHasACertificateInsteadOfTheSecretIsRefused) {
  for (const TlsRole role : {TlsRole::kClient, TlsRole::kServer}) {
    End end(*context_, role);
    const Stranger stranger(end.wire(), role == TlsRole::kClient ? TlsRole::kServer : TlsRole::kClient);
    for (int i = 0; i < 4; ++i) {
      if (end.status.is_ok()) end.status = end.session->handshake().status();
      (void)::SSL_do_handshake(stranger.ssl);
    }
    EXPECT_FALSE(end.session->is_established());
    EXPECT_EQ(end.status.code(), Code::kMismatch) << end.status.to_string();
  }
}

TEST_F(Tls, ARecordedClientMeansNothingToAnotherServer) {
  Pair ends(*context_, *context_);
  const Bytes hello = ends.client.go_on();
  const Bytes finished = ends.client.go_on(ends.server.go_on(hello));
  ends.server.go_on(finished);
  ASSERT_TRUE(ends.established());
  const Bytes said = ends.client.say(bytes_of("pay"));
  End again(*context_, TlsRole::kServer);
  again.go_on(hello);
  again.go_on(finished);
  again.go_on(said);
  EXPECT_FALSE(again.session->is_established());
  EXPECT_EQ(again.status.code(), Code::kProtocol) << again.status.to_string();
  // Nor does a record that is repeated within its own session.
  Bytes heard;
  put(ends.server.wire(), said);
  put(ends.server.wire(), said);
  EXPECT_EQ(ends.server.read_all(heard).code(), Code::kProtocol);
  EXPECT_EQ(heard, bytes_of("pay"));
}

TEST_F(Tls, ReflectedBytesProveNothing) {
  End client(*context_, TlsRole::kClient), other(*context_, TlsRole::kClient);
  const Bytes hello = client.go_on();
  client.go_on(hello);  // its own
  EXPECT_EQ(client.status.code(), Code::kProtocol) << client.status.to_string();
  const Bytes others = other.go_on();
  other.go_on(End(*context_, TlsRole::kClient).go_on());  // another client's
  EXPECT_EQ(other.status.code(), Code::kProtocol) << other.status.to_string();
  End server(*context_, TlsRole::kServer);
  const Bytes answer = server.go_on(others);
  ASSERT_FALSE(answer.empty());
  server.go_on(answer);
  EXPECT_FALSE(server.session->is_established());
  EXPECT_EQ(server.status.code(), Code::kProtocol) << server.status.to_string();
}

// Each end is cut off after each number of bytes of the handshake; the last byte of all makes the difference.
TEST_F(Tls, ATruncatedHandshakeIsNoneAtEveryByte) {
  Pair whole(*context_, *context_);
  const size_t of_hello = whole.client.go_on().size();
  for (size_t size = 0; size < of_hello; ++size) {
    Pair ends(*context_, *context_);
    Bytes hello = ends.client.go_on();
    hello.resize(size);
    ends.server.go_on(hello);
    ASSERT_TRUE(ends.server.status.is_ok()) << size;
    ends.server.sockets.b.reset();
    const auto step = ends.server.session->handshake();
    ASSERT_EQ(step.status().code(), Code::kPeerGone) << size;
    ASSERT_EQ(step.status().domain(), size == 0 ? Domain::kNone : Domain::kErrno) << size;
  }
  for (const bool of_client : {false, true}) {
    for (size_t size = 0;; ++size) {
      Pair ends(*context_, *context_);
      Bytes last = ends.server.go_on(ends.client.go_on());
      if (of_client) last = ends.client.go_on(last);
      if (size == last.size()) break;
      last.resize(size);
      auto& hearer = of_client ? ends.server : ends.client;
      hearer.go_on(last);
      ASSERT_FALSE(hearer.session->is_established()) << of_client << size;
      hearer.sockets.b.reset();
      ASSERT_EQ(hearer.session->handshake().status().code(), Code::kPeerGone) << of_client << size;
    }
  }
}

// However the answer and the client's own first step cross.
TEST_F(Tls, AnAnswerInClearIsLeftInTheSocket) {
  for (const bool at_once : {true, false}) {
    End client(*context_, TlsRole::kClient);
    if (!at_once) client.go_on();
    put(client.wire(), bytes_of("no TLS here"));
    EXPECT_EQ(client.session->handshake().value(), Step::kInClear);
    EXPECT_EQ(take(client.sockets.a.get()), bytes_of("no TLS here"));
  }
}

TEST_F(Tls, AnAnswerThatComesRightAfterALookIsNoneInClear) {
  Pair ends(*context_, *context_);
  const Bytes answer = ends.server.go_on(ends.client.go_on());
  comes_after_a_look = [&] { put(ends.client.wire(), answer); };
  EXPECT_EQ(ends.client.session->handshake().value(), Step::kWantsToRead);
  EXPECT_EQ(comes_after_a_look, nullptr) << "it has looked";
  ends.server.go_on(ends.client.go_on());
  EXPECT_TRUE(ends.established()) << ends.client.status.to_string();
}

TEST_F(Tls, AStreamThatEndsWithoutAGoodbyeWasCutOff) {
  Pair ends(*context_, *context_);
  ends.shake_hands();
  ASSERT_TRUE(ends.established());
  put(ends.server.wire(), ends.client.say(bytes_of("half")));
  ends.server.sockets.b.reset();
  Bytes heard;
  const Status status = ends.server.read_all(heard);
  EXPECT_EQ(heard, bytes_of("half")) << "what came before is delivered";
  EXPECT_EQ(status.code(), Code::kPeerGone);
  EXPECT_EQ(status.native(), ECONNRESET) << status.to_string();
}

TEST_F(Tls, ByteByByteTheHandshakeEnds) {
  Pair ends(*context_, *context_);
  const auto drip = [](End& to, const Bytes& bytes) {
    Bytes answer;
    for (const std::byte& byte : bytes) {
      const Bytes more = to.go_on({&byte, 1});
      answer.insert(answer.end(), more.begin(), more.end());
    }
    return answer;
  };
  (void)drip(ends.server, drip(ends.client, drip(ends.server, ends.client.go_on())));
  ASSERT_TRUE(ends.established()) << ends.client.status.to_string() << ends.server.status.to_string();
  Bytes heard;
  for (const std::byte& byte : ends.client.say(bytes_of("slow"))) {
    put(ends.server.wire(), {&byte, 1});
    ASSERT_TRUE(ends.server.read_all(heard).is_ok());
  }
  EXPECT_EQ(heard, bytes_of("slow"));
}

// A length that has grown makes the server wait for more bytes, so more follow.
TEST_F(Tls, AFlippedBitAnywhereInARecordIsNoticed) {
  const Bytes said = bytes_of("0123456789");
  size_t bits = 1;
  for (size_t bit = 0; bit < bits; ++bit) {
    Pair ends(*context_, *context_);
    ends.shake_hands();
    ASSERT_TRUE(ends.established());
    Bytes record = ends.client.say(said);
    bits = 8 * record.size();
    record[bit / 8] ^= std::byte{1} << bit % 8;
    put(ends.server.wire(), record);
    put(ends.server.wire(), ends.client.say(Bytes(1u << 16)));  // what it may wait for
    Bytes heard;
    ASSERT_EQ(ends.server.read_all(heard).code(), Code::kProtocol) << "bit " << bit;
    ASSERT_TRUE(heard.empty()) << "bit " << bit;
  }
}

TEST(TlsLibrary, WithoutOpenSslTheReasonNamesThePackage) {
  const Status status = OpenSsl::load("libssl-of-nobody.so.3", "libcrypto.so.3").status();
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.detail().find("package libssl3"), std::string::npos) << status.to_string();
  EXPECT_NE(status.detail().find("libssl-of-nobody"), std::string::npos) << status.to_string();
}

}  // namespace
}  // namespace tcpx::testing
