// Endpoints with a secret (UCCL_TCPX_SECRET_FILE): they meet each other over TLS, and nobody else; the others learn why, and strangers
// keep nobody out.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <future>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/socket_io.h"
#include "secure/tls.h"
#include "tests/support/certificates.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/expect_log.h"
#include "tests/support/ok.h"
#include "tests/support/secret_file.h"
#include "tests/support/socket_pair.h"
#include "tests/support/wait_until.h"
#include "transfer/bootstrap.h"
#include "wire/bootstrap_channel.h"
#include "wire/set_up_messages.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;

/// An endpoint with this secret; nullptr: with none.
std::unique_ptr<Endpoint> endpoint_with(const SecretFile* secret, bool same_host = false) {
  EXPECT_TRUE(environment_set(Variable::kSecretFile, secret != nullptr ? secret->path() : "").is_ok());
  EndpointConfig config = loopback_config();
  config.same_host = same_host;
  auto made = make_endpoint(config);
  EXPECT_TRUE(environment_set(Variable::kSecretFile, "").is_ok());
  return made;
}

class EndpointSecret : public ::testing::Test {
 protected:
  /// The client's error after the server has refused it. The server has logged a line with `said`.
  static Status refusal(Endpoint& server, Endpoint& client, const std::string& said) {
    for (const char* const line : {"bootstrap: dropped", "a connection was not made", "accepts has thrown"}) allow_log(line);
    EXPECT_TRUE(server.start_accepting().is_ok());
    const Status status = client.connect("127.0.0.1", 0, port_of(server), kCallTime).status();
    EXPECT_TRUE(wait_until([&] { return logged(said); })) << said;
    EXPECT_TRUE(server.stats().connections.empty());
    return status;
  }

  const SecretFile secret_{"one secret, which both ends of it have\n"}, other_{"another secret, which only one end has"};
};

TEST_F(EndpointSecret, TwoThatHaveItWriteReadSendAndNotify) {
  for (const bool same_host : {false, true}) {
    const auto a = endpoint_with(&secret_, same_host), b = endpoint_with(&secret_, same_host);
    const auto [at_a, at_b] = connect_pair(*a, *b);
    constexpr size_t kBytes = 3'000'000;
    EXPECT_TRUE(moves(*a, at_a, *b, at_b, kBytes));
    EXPECT_TRUE(moves(*b, at_b, *a, at_a, 8));
    Memory here(*a, kBytes), there(*b, kBytes);
    here.fill(3);
    const RemoteSlot slot = b->advertise(there.whole()).value();
    const auto written = a->write_async(at_a, here.whole(), {slot});
    ASSERT_TRUE(written.is_ok() && a->wait(*written).is_ok());
    EXPECT_EQ(here.bytes(), there.bytes());
    there.fill(4);
    const auto read = a->read_async(at_a, here.whole(), {slot});
    ASSERT_TRUE(read.is_ok() && a->wait(*read).is_ok());
    EXPECT_EQ(here.bytes(), there.bytes());
    const std::string text(1u << 20, 't');  // many records of TLS
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(a->notify(at_a, {.name = "long", .msg = text}).is_ok());
    size_t come = 0;
    EXPECT_TRUE(wait_until([&] {
      for (const NotifyMsg& message : b->get_notifs()) come += message.msg == text ? 1 : 0;
      return come == 3;
    }));
  }
}

// TLS takes more time for a long frame than the sockets in clear take for its bytes.
TEST_F(EndpointSecret, BetweenHostsLessGoesInlineWhereOnlyTheStreamEncrypts) {
  ASSERT_TRUE(environment_set(Variable::kInlineBytes, "65536").is_ok());
  const auto most_inline = [&](const SecretFile* secret, const char* security) {
    EXPECT_TRUE(environment_set(Variable::kSecurity, security).is_ok());
    const auto a = endpoint_with(secret), b = endpoint_with(secret);
    EXPECT_TRUE(environment_set(Variable::kSecurity, "").is_ok());
    const auto [at_a, at_b] = connect_pair(*a, *b);
    EXPECT_TRUE(moves(*a, at_a, *b, at_b, 65536) && moves(*b, at_b, *a, at_a, 65536));
    const std::string path = stats_of(*a, at_a).path, before = "inline up to ";
    return std::stoul(path.substr(path.find(before) + before.size()));
  };
  EXPECT_EQ(most_inline(nullptr, "off"), 65536u);
  EXPECT_EQ(most_inline(&secret_, "auth"), 32768u);
  EXPECT_TRUE(environment_set(Variable::kInlineBytes, "").is_ok());
}

TEST_F(EndpointSecret, ItIsReadWhenTheEndpointIsMade) {
  const SecretFile open_to_all("one secret, which both ends of it have", 0644);
  ASSERT_TRUE(environment_set(Variable::kSecretFile, open_to_all.path()).is_ok());
  const Status status = Endpoint::create(loopback_config()).status();
  EXPECT_TRUE(environment_set(Variable::kSecretFile, "").is_ok());
  EXPECT_EQ(status.code(), Code::kBadConfig);
  EXPECT_NE(status.detail().find("group or others"), std::string::npos) << status.to_string();
}

TEST_F(EndpointSecret, SwitchedOffTheEndpointSpeaksInClear) {
  ASSERT_TRUE(environment_set(Variable::kSecurity, "off").is_ok());
  const auto a = endpoint_with(&secret_);
  EXPECT_TRUE(environment_set(Variable::kSecurity, "").is_ok());
  const auto b = endpoint_with(nullptr);
  const auto [at_a, at_b] = connect_pair(*a, *b);
  EXPECT_TRUE(moves(*a, at_a, *b, at_b, 8));
}

TEST_F(EndpointSecret, WithoutItTheDefaultPlacesAreTheNics) {
  const auto of_nics = [](const char* security) {
    EXPECT_TRUE(environment_set(Variable::kSecurity, security).is_ok());
    const auto parts = make_default_parts({});
    EXPECT_TRUE(environment_set(Variable::kSecurity, "").is_ok());
    return parts.value().only_at;
  };
  const auto parts = make_default_parts({});
  const auto places = of_nics("").value();
  for (const SocketAddress& address : parts.value().addresses)
    EXPECT_EQ(std::count(places.begin(), places.end(), address.host()), 1) << address.host();
  EXPECT_FALSE(of_nics("off")) << "as chosen";
  ASSERT_TRUE(environment_set(Variable::kSecretFile, secret_.path()).is_ok());
  EXPECT_FALSE(of_nics(""));
  EXPECT_TRUE(environment_set(Variable::kSecretFile, "").is_ok());
}

TEST_F(EndpointSecret, AClientWithoutItIsRefusedAndToldWhy) {
  const auto server = endpoint_with(&secret_), client = endpoint_with(nullptr);
  const std::string why = "authentication is on at the server and off at the client";
  const Status status = refusal(*server, *client, why);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.detail().find(why), std::string::npos) << status.to_string();
}

TEST_F(EndpointSecret, AClientThatHasItDoesNotGoOnWithAServerWithout) {
  const auto server = endpoint_with(nullptr), client = endpoint_with(&secret_);
  const std::string why = "authentication is on at the client and off at the server";
  const Status status = refusal(*server, *client, why);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.detail().find(why), std::string::npos) << status.to_string();
}

/// Makes endpoints while the environment names this certificate, and peers with names of the pattern.
void with_certificate(const EndFiles& files, const std::string& peers, const std::function<void()>& make) {
  const std::pair<Variable, std::string> values[] = {{Variable::kTlsCert, files.certificate.path()},
                                                     {Variable::kTlsKey, files.key.path()},
                                                     {Variable::kTlsCa, files.ca.path()},
                                                     {Variable::kTlsPeers, peers}};
  for (const auto& [variable, value] : values) EXPECT_TRUE(environment_set(variable, value).is_ok());
  make();
  for (const auto& [variable, value] : values) EXPECT_TRUE(environment_set(variable, "").is_ok());
}

std::unique_ptr<Endpoint> endpoint_with(const EndFiles& files, const std::string& peers) {
  std::unique_ptr<Endpoint> made;
  with_certificate(files, peers, [&] { made = endpoint_with(nullptr); });
  return made;
}

TEST_F(EndpointSecret, TwoWithCertificatesMeet) {
  const Authority authority;
  const EndFiles files(authority, {.dns = "w.svc"}), others(authority, {.dns = "head.svc"});
  const auto a = endpoint_with(files, "head.svc"), b = endpoint_with(others, "*.svc");
  const auto [at_a, at_b] = connect_pair(*a, *b);
  EXPECT_TRUE(moves(*a, at_a, *b, at_b, 3'000'000));
  EXPECT_EQ(stats_of(*a, at_a).name, "head.svc");
  EXPECT_EQ(stats_of(*b, at_b).name, "w.svc");
  auto third = std::async(std::launch::async, [&] { return b->accept(kCallTime); });
  EXPECT_TRUE(a->connect("127.0.0.1", 0, port_of(*b), kCallTime).is_ok());
  EXPECT_EQ(third.get().value().name, "w.svc");
}

/// An endpoint that asks `accepts` about its clients.
std::unique_ptr<Endpoint> endpoint_that_asks(std::function<bool(const PeerInfo&)> accepts) {
  EndpointConfig config = loopback_config();
  config.accepts = std::move(accepts);
  return make_endpoint(config);
}

TEST_F(EndpointSecret, TheApplicationAcceptsByTheProvedName) {
  const Authority authority;
  const EndFiles files(authority, {.dns = "head.svc"}), good(authority, {.dns = "w.svc"}), bad(authority, {.dns = "x.svc"});
  std::unique_ptr<Endpoint> server;
  with_certificate(files, "", [&] { server = endpoint_that_asks([](const PeerInfo& peer) { return peer.name == "w.svc"; }); });
  const auto stranger = endpoint_with(bad, ""), client = endpoint_with(good, "");
  const Status status = refusal(*server, *stranger, "does not accept x.svc at 127.0.0.1");
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.detail().find("the application that listens does not accept x.svc at 127.0.0.1"), std::string::npos)
      << status.to_string();
  EXPECT_TRUE(client->connect("127.0.0.1", 0, port_of(*server), kCallTime).is_ok());
}

TEST_F(EndpointSecret, TheApplicationAcceptsByTheAddress) {
  std::string ip = "127.0.0.1";
  const auto server = endpoint_that_asks([&](const PeerInfo& peer) { return peer.ip == ip && peer.name.empty(); });
  const auto client = endpoint_with(nullptr), other = endpoint_with(nullptr);
  const auto [at_client, at_server] = connect_pair(*client, *server);
  EXPECT_TRUE(moves(*client, at_client, *server, at_server, 8));
  ASSERT_TRUE(client->remove_connection(at_client).is_ok());
  ASSERT_TRUE(server->remove_connection(at_server).is_ok());
  ASSERT_TRUE(wait_until([&] { return server->stats().connections.empty(); })) << "a removed one is counted until it has closed";
  ip = "192.0.2.1";
  const Status status = refusal(*server, *other, "does not accept 127.0.0.1");
  EXPECT_EQ(status.code(), Code::kMismatch);
}

TEST_F(EndpointSecret, AnApplicationThatThrowsAcceptsNobody) {
  const auto client = endpoint_with(nullptr);
  for (const bool standard : {true, false}) {
    const auto server = endpoint_that_asks([standard](const PeerInfo&) -> bool {
      if (standard) throw std::runtime_error("what the client must not hear");
      throw 1;
    });
    const Status status =
        refusal(*server, *client, standard ? "has thrown: what the client must not hear" : "accepts has thrown");
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_EQ(status.detail().find("must not hear"), std::string::npos) << status.to_string();
  }
}

TEST_F(EndpointSecret, AnApplicationThatThinksLongHoldsUpNobodyElse) {
  std::atomic<int> asked{0};
  std::atomic<bool> answers{false};
  const auto server = endpoint_that_asks([&](const PeerInfo&) {
    if (asked++ == 0) return wait_until([&] { return answers.load(); });
    return true;
  });
  ASSERT_TRUE(server->start_accepting().is_ok());
  const auto slow = endpoint_with(nullptr), quick = endpoint_with(nullptr);
  const int port = port_of(*server);
  auto waits = std::async(std::launch::async, [&] { return slow->connect("127.0.0.1", 0, port, kCallTime).status(); });
  ASSERT_TRUE(wait_until([&] { return asked == 1; }));
  EXPECT_TRUE(quick->connect("127.0.0.1", 0, port, kCallTime).is_ok());
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(answers.exchange(true));
  EXPECT_TRUE(waits.get().is_ok());
}

// The client has said its first words before it hears of that.
TEST_F(EndpointSecret, ACertificateThatIsNotTakenIsToldAtBothEnds) {
  const Authority authority;
  const EndFiles files(authority, {.dns = "w.svc"});
  for (int i = 0; i < 20; ++i) {
    const auto server = endpoint_with(files, "head.svc"), client = endpoint_with(files, "w.svc");
    const Status status = refusal(*server, *client, "the certificate of the client, w.svc, is refused: not one of");
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.detail().find("its name is not one of the peer's UCCL_TCPX_TLS_PEERS"), std::string::npos)
        << status.to_string();
  }
}

// By the time that it says more, the server's end of the connection may be gone.
TEST_F(EndpointSecret, WhyACertificateIsNotTakenIsToldThoughNothingCanBeSaid) {
  const Authority authority;
  const EndFiles files(authority, {.dns = "w.svc"});
  const auto server = TlsContext::create(files.paths(), PeerNames::parse("head.svc").value()).value();
  const auto client = TlsContext::create(files.paths(), PeerNames::parse("w.svc").value()).value();
  Sockets sockets = tcp_pair();
  auto at_server = server->session(sockets.b.get(), TlsRole::kServer).value();
  auto at_client = client->session(sockets.a.get(), TlsRole::kClient).value();
  EXPECT_TRUE(wait_until([&] {
    EXPECT_OK(at_client->handshake().status());
    return !at_server->handshake().is_ok();
  }));
  EXPECT_TRUE(at_client->is_established());
  const SocketAddress peer = peer_address(sockets.a.get()).value();
  sockets.b.reset();
  BootstrapChannel channel(std::move(sockets.a), peer, "", nullptr, std::nullopt, std::move(at_client));
  Status status;
  EXPECT_TRUE(wait_until([&] {
    status = channel.say_hello(soon());  // what comes to the server's host is answered with a reset
    return !status.is_ok();
  }));
  EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
}

TEST_F(EndpointSecret, ASecretAndACertificateAreToldApartAtBothEnds) {
  const Authority authority;
  const EndFiles files(authority, {});
  for (const bool secret_connects : {true, false}) {
    const auto by_secret = endpoint_with(&secret_), by_certificate = endpoint_with(files, "");
    const Status status = secret_connects
                              ? refusal(*by_certificate, *by_secret, "and the client a secret (UCCL_TCPX_SECRET_FILE)")
                              : refusal(*by_secret, *by_certificate, "a certificate (UCCL_TCPX_TLS_CERT): give both");
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_NE(status.detail().find("a secret (UCCL_TCPX_SECRET_FILE)"), std::string::npos) << status.to_string();
    EXPECT_NE(status.detail().find("a certificate (UCCL_TCPX_TLS_CERT)"), std::string::npos) << status.to_string();
  }
}

TEST_F(EndpointSecret, AnotherSecretIsRefusedAtBothEnds) {
  const auto server = endpoint_with(&secret_), client = endpoint_with(&other_);
  const Status status = refusal(*server, *client, "the secrets differ");
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_NE(status.detail().find("the secrets differ"), std::string::npos) << status.to_string();
}

// One in between that answers in clear, as a server without a secret would, gets not even the client's hello.
TEST_F(EndpointSecret, ClearWordsConnectNobody) {
  const UniqueFd listener = listen_tcp(SocketAddress::loopback(0), 4).value();
  const auto client = endpoint_with(&secret_);
  auto connected = std::async(std::launch::async, [&] {
    return client->connect("127.0.0.1", 0, local_address(listener.get())->port(), kCallTime).status();
  });
  UniqueFd peer;
  ASSERT_TRUE(wait_until([&] { return static_cast<bool>(peer = accept_tcp(listener.get())); }));
  ASSERT_TRUE(send_all(peer.get(), encode_frame(encode_hello("downgrade")), Deadline::after(kTestDeadline)).is_ok());
  EXPECT_EQ(connected.get().code(), Code::kUnsupported);
  std::vector<std::byte> heard(1u << 16);
  const ssize_t n = ::recv(peer.get(), heard.data(), heard.size(), MSG_DONTWAIT);
  EXPECT_TRUE(n <= 0 || heard[0] == std::byte{0x16}) << "said in clear";
}

// Some say nothing, some the beginning of a handshake, some what they like.
TEST_F(EndpointSecret, StrangersKeepNoGoodClientOut) {
  allow_log("bootstrap: dropped");
  const auto server = endpoint_with(&secret_), client = endpoint_with(&secret_);
  ASSERT_TRUE(server->start_accepting().is_ok());
  std::vector<UniqueFd> strangers;
  const std::string beginnings[] = {"", std::string("\x16\x03\x01\x02", 4), "GET / HTTP/1.1\r\n\r\n", "tcpx",
                                    std::string("\x16\x03\x01\x00\x05garbage", 12)};
  for (size_t i = 0; i < 300; ++i) {
    auto fd = connect_tcp(SocketAddress::loopback(port_of(*server)), Deadline::after(kTestDeadline));
    ASSERT_TRUE(fd.is_ok()) << fd.status().to_string();
    const std::string& words = beginnings[i % std::size(beginnings)];
    (void)::send(fd->get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    strangers.push_back(std::move(*fd));
  }
  const auto conn = client->connect("127.0.0.1", 0, port_of(*server), kCallTime);
  ASSERT_TRUE(conn.is_ok()) << conn.status().to_string();
  EXPECT_TRUE(wait_until([&] { return server->stats().connections.size() == 1; }));
}

}  // namespace
}  // namespace tcpx::testing
