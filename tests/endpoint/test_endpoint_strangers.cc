// A crowd of strangers at the port of an endpoint that authenticates. Each attacks another step of the handshake, and comes again as soon as
// the endpoint has dropped it. Good clients connect meanwhile, one after another.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/socket_io.h"
#include "secure/tls.h"
#include "tests/support/certificates.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/expect_log.h"
#include "tests/support/ok.h"
#include "tests/support/secret_file.h"
#include "tests/support/tls_ends.h"
#include "tests/support/wait_until.h"

namespace {
std::atomic<bool> is_slow{false};
}

// A host that is slow to take connections.
extern "C" int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  static const auto real = reinterpret_cast<decltype(&::accept4)>(::dlsym(RTLD_NEXT, "accept4"));
  if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return real(fd, address, length, flags);
}

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// The step of the handshake that a stranger attacks, and how.
enum class Attack { kSilence, kGarbage, kGarbageInTls, kHalfAHello, kTruncation, kWrongKey, kReplay, kReflection, kSlowness };
constexpr size_t kAttacks = 9;

/// First words of TLS clients.
struct Hellos {
  Bytes good, wrong_key;
};

/// Many connections of one address, all at once, for as long as the object lives.
class Crowd {
 public:
  Crowd(uint16_t port, size_t size, Hellos hellos) : to_(SocketAddress::loopback(port)), hellos_(std::move(hellos)), all_(size) {
    thread_ = std::thread([this] { run(); });
    EXPECT_TRUE(wait_until([&] { return connected_ == all_.size(); }));
  }
  ~Crowd() {
    stop_ = true;
    thread_.join();
  }
  /// Times that a stranger has been dropped, and has come again.
  size_t came_again() const { return came_again_; }

 private:
  static constexpr milliseconds kBetweenBytes{50};
  struct Stranger {
    UniqueFd socket;
    size_t said = 0;  // bytes of the hello of one who is slow
  };

  Attack attack_of(size_t i) const { return static_cast<Attack>(i % kAttacks); }
  static void say(const Stranger& stranger, std::span<const std::byte> words) {
    (void)::send(stranger.socket.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void come(Stranger& stranger, Attack attack) {
    auto socket = connect_tcp(to_, Deadline::after(milliseconds(200)));
    if (!socket.is_ok()) return;
    stranger = {std::move(*socket)};
    const auto whole = std::span<const std::byte>(hellos_.good), half = whole.first(whole.size() / 2);
    switch (attack) {
      case Attack::kSilence:
      case Attack::kSlowness:
        break;
      case Attack::kGarbage:
        say(stranger, bytes_of("GET / HTTP/1.1\r\n\r\n"));
        break;
      case Attack::kGarbageInTls:
        say(stranger, bytes_of(std::string_view("\x16\x03\x01\x00\x05garbage", 12)));
        break;
      case Attack::kHalfAHello:
        say(stranger, half);
        break;
      case Attack::kTruncation:
        say(stranger, half);
        (void)::shutdown(stranger.socket.get(), SHUT_WR);
        break;
      case Attack::kWrongKey:
        say(stranger, hellos_.wrong_key);
        break;
      case Attack::kReplay:
      case Attack::kReflection:
        say(stranger, whole);
        break;
    }
  }
  /// @return false: the endpoint has dropped it
  bool hear(Stranger& stranger, Attack attack) {
    std::array<std::byte, 4096> words;
    const ssize_t n = ::recv(stranger.socket.get(), words.data(), words.size(), MSG_DONTWAIT);
    if (n <= 0) return n < 0 && errno == EAGAIN;
    if (attack == Attack::kReflection) say(stranger, std::span(words).first(static_cast<size_t>(n)));
    return true;
  }
  void run() {
    std::vector<pollfd> waits(all_.size());
    for (auto last = steady_clock::now(); !stop_;) {
      size_t connected = 0;
      for (size_t i = 0; i < all_.size() && !stop_; ++i) {
        if (!all_[i].socket) come(all_[i], attack_of(i));
        connected += all_[i].socket ? 1 : 0;
        waits[i] = {all_[i].socket.get(), POLLIN, 0};
      }
      connected_ = connected;
      (void)::poll(waits.data(), waits.size(), 10);
      const bool drips = steady_clock::now() - last >= kBetweenBytes;
      if (drips) last = steady_clock::now();
      for (size_t i = 0; i < all_.size(); ++i) {
        Stranger& stranger = all_[i];
        if (waits[i].revents != 0 && !hear(stranger, attack_of(i))) {
          stranger = {};
          ++came_again_;
        } else if (drips && attack_of(i) == Attack::kSlowness && stranger.said < hellos_.good.size()) {
          say(stranger, std::span(hellos_.good).subspan(stranger.said++, 1));
        }
      }
    }
  }

  const SocketAddress to_;
  const Hellos hellos_;
  std::vector<Stranger> all_;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> connected_{0}, came_again_{0};
  std::thread thread_;
};

class EndpointStrangers : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* const line : {"bootstrap: dropped", "a connection was not made"}) allow_log(line);
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit_), 0);
    rlimit raised = limit_;
    raised.rlim_cur = std::max(limit_.rlim_cur, std::min<rlim_t>(limit_.rlim_max, 4096));
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &raised), 0);
    strangers_ = raised.rlim_cur >= 2500 ? 1000 : 500;  // the endpoint watches 256 more, and its connections take some
  }
  void TearDown() override { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit_), 0); }

  /// Endpoints that these variables protect.
  using Settings = std::vector<std::pair<Variable, std::string>>;
  static std::unique_ptr<Endpoint> endpoint_with(const Settings& settings) {
    for (const auto& [variable, value] : settings) EXPECT_TRUE(environment_set(variable, value).is_ok());
    EndpointConfig config = loopback_config();
    config.same_host = false;
    auto made = make_endpoint(config);
    for (const auto& [variable, value] : settings) EXPECT_TRUE(environment_set(variable, "").is_ok());
    return made;
  }
  static Bytes hello_of(const TlsContext& context) { return End(context, TlsRole::kClient).go_on(); }

  /// The figures are printed and not compared: a busy machine is slower.
  void good_clients_connect(const Settings& settings, Hellos hellos, int count = 8) {
    const auto server = endpoint_with(settings), client = endpoint_with(settings);
    ASSERT_TRUE(server->start_accepting().is_ok());
    std::vector<double> took;  // milliseconds
    const Crowd crowd(port_of(*server), strangers_, std::move(hellos));
    for (int i = 0; i < count; ++i) {
      const auto began = steady_clock::now();
      const auto conn = client->connect("127.0.0.1", 0, port_of(*server), kGoodTime);
      took.push_back(std::chrono::duration<double, std::milli>(steady_clock::now() - began).count());
      ASSERT_TRUE(conn.is_ok()) << i << ": " << conn.status().to_string();
      ASSERT_TRUE(client->remove_connection(*conn).is_ok());
    }
    std::sort(took.begin(), took.end());
    std::printf(
        "[ CROWD    ] %zu strangers, who came again %zu times: good clients connected in %.0f ms (median), %.0f ms (most)\n",
        strangers_, crowd.came_again(), took[took.size() / 2], took.back());
    EXPECT_GT(crowd.came_again(), 0u) << "nobody was dropped";
  }

  static constexpr milliseconds kGoodTime = kTestDeadline;
  rlimit limit_{};
  size_t strangers_ = 0;
};

TEST_F(EndpointStrangers, AThousandWhoAttackEachStepOfTheHandshakeKeepNoGoodClientOut) {
  const SecretFile secret("one secret, which both ends of it have\n"), other("another secret, which only strangers have");
  const auto good = must(TlsContext::create(must(Secret::read_file(secret.path())))),
             wrong = must(TlsContext::create(must(Secret::read_file(other.path()))));
  good_clients_connect({{Variable::kSecretFile, secret.path()}}, {hello_of(*good), hello_of(*wrong)});
}

// It takes connections more slowly than the crowd comes.
TEST_F(EndpointStrangers, AThousandKeepNoGoodClientOutOfASlowHost) {
  const SecretFile secret("one secret, which both ends of it have\n");
  const Bytes hello = hello_of(*must(TlsContext::create(must(Secret::read_file(secret.path())))));
  is_slow = true;
  good_clients_connect({{Variable::kSecretFile, secret.path()}}, {hello, hello}, 2);
  is_slow = false;
}

// A server with a certificate signs an answer to each whole hello.
TEST_F(EndpointStrangers, AThousandKeepNoGoodClientOutWhereAnAnswerIsSigned) {
  const Authority authority, another;
  const EndFiles files(authority, {.dns = "w.svc"}), others(another, {.dns = "w.svc"});
  const auto good = must(TlsContext::create(files.paths(), PeerNames())),
             wrong = must(TlsContext::create(others.paths(), PeerNames()));
  good_clients_connect({{Variable::kTlsCert, files.certificate.path()},
                        {Variable::kTlsKey, files.key.path()},
                        {Variable::kTlsCa, files.ca.path()}},
                       {hello_of(*good), hello_of(*wrong)});
}

}  // namespace
}  // namespace tcpx::testing
