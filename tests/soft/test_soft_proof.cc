// The software plugin's handshake where a secret is configured: who has it is served, and an attacker who has heard, changes, repeats,
// moves, reflects and cuts what others say is not.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "net/soft/hello_proofs.h"
#include "tests/support/expect_log.h"
#include "tests/support/hex_text.h"
#include "tests/support/prover.h"
#include "tests/support/secret_file.h"
#include "tests/support/soft_wire.h"
#include "tests/support/table_harness.h"

namespace tcpx::testing {
namespace {

using namespace soft;
using std::chrono::milliseconds;
using HelloRecord = std::array<std::byte, kHelloBytes>;
using AnswerRecord = std::array<std::byte, kHelloAnswerBytes>;

constexpr const char* kWrongProof = "wrong proof";
constexpr const char* kOfListenerOnly =
    "on at the listener and off at the connector: set UCCL_TCPX_SECRET_FILE or UCCL_TCPX_TLS_CERT";
constexpr const char* kOfConnectorOnly =
    "on at the connector and off at the listener: set UCCL_TCPX_SECRET_FILE or UCCL_TCPX_TLS_CERT";

// An attacker needs no secret for the check value of a record, which is FNV-1a.
template <size_t N>
std::array<std::byte, N> with_check_value(std::array<std::byte, N> record) {
  uint32_t check = 0x811c9dc5;
  for (size_t i = 0; i < N - 4; ++i) check = (check ^ static_cast<uint32_t>(record[i])) * 0x01000193;
  std::memcpy(record.data() + N - 4, &check, 4);
  return record;
}

std::string hex(std::span<const std::byte> bytes) {
  return to_hex_text(bytes.data(), bytes.size());
}

UniqueFd next_of(int listener) {
  EXPECT_OK(wait_for(listener, POLLIN, soon()));
  return UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

class SoftProof : public ::testing::Test {
 protected:
  void SetUp() override {
    allow_log("dropped during the handshake");
    listener_ = listen(&secret_);
    info_ = info_of(*listener_);
  }
  std::unique_ptr<SoftListener> listen(const Prover* secret, const ListenerLimits& limits = {}) const {
    const HandleInfo info = {.addresses = {SocketAddress::loopback(0)}, .data_sockets = 1, .chunk_bytes = 4096};
    return must(SoftListener::create(info, io_, limits, secret));
  }
  static HandleInfo info_of(const SoftListener& listener) { return must(decode_handle(listener.handle())); }
  static Result<ConnectedSockets> connect(const HandleInfo& info, const Prover* secret) {
    return connect_to_listener(info, {SocketAddress::loopback(0)}, soon(), {}, "", secret);
  }
  HelloRecord hello(uint64_t connection, uint32_t socket_index) const {
    HelloRecord record;
    EXPECT_OK(must(HelloProofs::create(info_.cookie, &secret_))
                  .write({.connection = connection, .socket_index = socket_index, .data_sockets = 1}, record));
    return record;
  }
  static UniqueFd say(const HandleInfo& to, std::span<const std::byte> bytes) {
    UniqueFd fd = must(connect_tcp(to.addresses.front(), soon()));
    send_bytes(fd, bytes);
    return fd;
  }
  static bool is_answered(const UniqueFd& fd) {
    AnswerRecord answer;
    return recv_all(fd.get(), answer, soon()).is_ok();
  }
  /// A whole connection whose hellos an attacker has heard; it stays open while `sockets` is kept.
  void complete(uint64_t connection, std::vector<UniqueFd>& sockets) {
    for (uint32_t i = 0; i < 2; ++i) {
      sockets.push_back(say(info_, hello(connection, i)));
      ASSERT_TRUE(is_answered(sockets.back())) << i;
    }
  }
  void expect_dropped(const HandleInfo& listener, const HelloRecord& record, const char* why) {
    EXPECT_TRUE(is_dropped(say(listener, record))) << why;
    EXPECT_TRUE(wait_until([&] { return logged(why); })) << why;
  }

  const std::shared_ptr<IoPool> io_ = must(IoPool::create(1));
  const Prover secret_ = prover_of('s'), other_ = prover_of('t');
  std::unique_ptr<SoftListener> listener_;
  HandleInfo info_;
};

TEST_F(SoftProof, TwoEndsWithOneSecretConnect) {
  const Prover same = prover_of('s');
  EXPECT_TRUE(info_.proves);
  for (int i = 0; i < 3; ++i) {
    const ConnectedSockets ours = must(connect(info_, &same)), theirs = accept_softly(*listener_);
    ASSERT_EQ(ours.data.size(), 1u);
    send_bytes(ours.data[0], pattern_bytes(100, 1));
    std::vector<std::byte> heard(100);
    ASSERT_OK(recv_all(theirs.data[0].get(), heard, soon()));
    EXPECT_EQ(heard, pattern_bytes(100, 1));
  }
}

TEST_F(SoftProof, WhoHasAnotherSecretIsNotServed) {
  const auto of_other = listen(&other_);
  for (const auto& [info, secret] : {std::pair(info_, &other_), std::pair(info_of(*of_other), &secret_)}) {
    const Status status = connect(info, secret).status();
    ASSERT_EQ(status.code(), Code::kPeerGone) << status.to_string();
    EXPECT_NE(status.detail().find("do both ends have the same UCCL_TCPX_SECRET_FILE or UCCL_TCPX_TLS_CERT?"), std::string::npos)
        << status.to_string();
    EXPECT_TRUE(wait_until([] { return logged(kWrongProof); }));
  }
  EXPECT_FALSE(listener_->has_peer() || of_other->has_peer());
}

TEST_F(SoftProof, ASecretAtOneEndAloneIsToldWithBoth) {
  const auto in_clear = listen(nullptr);
  const Status ours = connect(info_, nullptr).status(), theirs = connect(info_of(*in_clear), &secret_).status();
  EXPECT_EQ(ours.code(), Code::kMismatch);
  EXPECT_NE(ours.detail().find(kOfListenerOnly), std::string::npos) << ours.to_string();
  EXPECT_EQ(theirs.code(), Code::kMismatch);
  EXPECT_NE(theirs.detail().find(kOfConnectorOnly), std::string::npos) << theirs.to_string();
}

// An attacker who changes the handle on its way brings nobody to say, or to take, a cookie.
TEST_F(SoftProof, AHandleThatSaysOtherwiseOpensNothing) {
  HandleInfo changed = info_;
  changed.proves = false;
  EXPECT_EQ(connect(changed, &secret_).status().code(), Code::kMismatch) << "it has not said anything";
  EXPECT_EQ(connect(changed, nullptr).status().code(), Code::kPeerGone);
  EXPECT_TRUE(wait_until([] { return logged(kWrongProof); })) << "the cookie is no proof";
  const auto in_clear = listen(nullptr);
  changed = info_of(*in_clear);
  changed.proves = true;
  EXPECT_EQ(connect(changed, &secret_).status().code(), Code::kPeerGone);
  EXPECT_TRUE(wait_until([] { return logged("wrong cookie"); }));
  EXPECT_FALSE(listener_->has_peer() || in_clear->has_peer());
}

TEST_F(SoftProof, ARepeatedHelloIsRefused) {
  const HelloRecord first = hello(7, 0);
  std::vector<UniqueFd> sockets;
  sockets.push_back(say(info_, first));
  ASSERT_TRUE(is_answered(sockets.back()));
  expect_dropped(info_, first, "socket 0 twice");
  sockets.push_back(say(info_, hello(7, 1)));
  ASSERT_TRUE(is_answered(sockets.back()));
  expect_dropped(info_, first, "a repetition");
  { const ConnectedSockets taken = accept_softly(*listener_); }
  EXPECT_TRUE(is_dropped(say(info_, first))) << "after its end";
  EXPECT_TRUE(is_dropped(say(info_, hello(7, 1))));
  EXPECT_TRUE(is_answered(say(info_, hello(8, 0)))) << "another connection";
}

TEST_F(SoftProof, AHelloOfAConnectionThatWasGivenUpIsRefused) {
  listener_ = listen(&secret_, {.group_timeout = milliseconds(100)});
  info_ = info_of(*listener_);
  const UniqueFd half = say(info_, hello(7, 0));
  ASSERT_TRUE(is_answered(half));
  EXPECT_TRUE(is_dropped(half));
  expect_dropped(info_, hello(7, 0), "a repetition");
  EXPECT_TRUE(is_dropped(say(info_, hello(7, 1)))) << "the socket that stayed away";
}

TEST_F(SoftProof, AListenerRemembersABoundedNumberOfConnections) {
  listener_ = listen(&secret_, {.remembered = 2});
  info_ = info_of(*listener_);
  std::vector<UniqueFd> sockets;
  complete(1, sockets);
  complete(2, sockets);
  expect_dropped(info_, hello(3, 0), "more than 2 connections");
  EXPECT_TRUE(is_dropped(say(info_, hello(1, 0))));
}

TEST_F(SoftProof, AHelloServesNoOtherSocketConnectionOrListener) {
  const HelloProofs proofs = must(HelloProofs::create(info_.cookie, &secret_));
  const Hello said = must(proofs.read(hello(7, 0)));
  for (auto change : {+[](Hello& to) { to.socket_index = 1; }, +[](Hello& to) { to.connection = 8; }}) {
    Hello moved = said;
    change(moved);
    HelloRecord record;
    encode_hello(moved, record);
    expect_dropped(info_, record, kWrongProof);
  }
  const auto another = listen(&secret_);
  EXPECT_TRUE(is_dropped(say(info_of(*another), hello(7, 0))));
  EXPECT_TRUE(is_answered(say(info_, hello(7, 0)))) << "where it was meant for";
}

TEST_F(SoftProof, AFlippedBitAnywhereInAHelloIsRefused) {
  const HelloProofs proofs = must(HelloProofs::create(info_.cookie, &secret_));
  const HelloRecord good = hello(7, 0);
  ASSERT_OK(proofs.read(good));
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    HelloRecord bad = good;
    bad[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_EQ(proofs.read(bad).status().code(), Code::kProtocol) << bit;
    if (bit >= 8 * (good.size() - 4)) continue;  // the check value itself
    EXPECT_EQ(proofs.read(with_check_value(bad)).status().code(), Code::kProtocol) << bit;
  }
}

TEST_F(SoftProof, AFlippedBitAnywhereInAnAnswerOrItsHelloIsRefused) {
  const HelloProofs proofs = must(HelloProofs::create(info_.cookie, &secret_));
  const HelloRecord said = hello(7, 0);
  AnswerRecord good;
  ASSERT_OK(proofs.write({.connection = 7, .accepted = true}, said, good));
  ASSERT_OK(proofs.read(good, said));
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    AnswerRecord bad = good;
    bad[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_EQ(proofs.read(bad, said).status().code(), Code::kProtocol) << bit;
    if (bit >= 8 * (good.size() - 4)) continue;
    EXPECT_EQ(proofs.read(with_check_value(bad), said).status().code(), Code::kProtocol) << bit;
  }
  for (size_t bit = 0; bit < 8 * said.size(); ++bit) {
    HelloRecord other = said;
    other[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_EQ(proofs.read(good, other).status().code(), Code::kProtocol) << bit;
  }
}

TEST_F(SoftProof, ATruncatedHelloIsNone) {
  const HelloRecord whole = hello(7, 0);
  for (size_t size = 0; size < whole.size(); ++size) {
    const UniqueFd fd = say(info_, std::span(whole).first(size));
    ::shutdown(fd.get(), SHUT_WR);
    EXPECT_TRUE(is_dropped(fd)) << size;
  }
  EXPECT_TRUE(is_answered(say(info_, whole)));
}

// Somebody at the address of a handle, who hears the first hello of a connection and answers with anything.
class SoftProofImpostor : public SoftProof {
 protected:
  void SetUp() override {
    SoftProof::SetUp();
    info_.addresses = {must(local_address(fd_.get()))};
  }
  template <class Answer>
  Status connect_to_impostor(Answer answer) {
    auto impostor = std::async(std::launch::async, [&] {
      UniqueFd first = next_of(fd_.get());
      UniqueFd second = next_of(fd_.get());
      HelloRecord said{};
      EXPECT_OK(recv_all(first.get(), said, soon()));
      const auto bytes = answer(said);
      EXPECT_OK(send_all(first.get(), std::as_bytes(std::span(bytes)), soon()));
      for (const UniqueFd* each : {&first, &second}) ::shutdown(each->get(), SHUT_WR);
      // Closed before the answer is read, they would reset the connection: the second one has bytes that nobody has read.
      return std::pair(std::move(first), std::move(second));
    });
    const Status status = connect(info_, &secret_).status();
    impostor.get();
    return status;
  }
  void expect_refused(const Status& status) {
    EXPECT_EQ(status.code(), Code::kProtocol) << status.to_string();
    EXPECT_NE(status.detail().find(kWrongProof), std::string::npos) << status.to_string();
  }
  AnswerRecord answer_of(const HelloProofs& proofs, const HelloRecord& said) {
    AnswerRecord record;
    EXPECT_OK(proofs.write({.connection = must(decode_hello(said)).connection, .accepted = true}, said, record));
    return record;
  }
  const UniqueFd fd_ = must(listen_tcp(SocketAddress::loopback(0), 8));
};

TEST_F(SoftProofImpostor, WhoDoesNotKnowSecretAndCookieIsNoListener) {
  const HelloProofs of_other = must(HelloProofs::create(info_.cookie, &other_)),
                    in_clear = must(HelloProofs::create(info_.cookie, nullptr));
  const HelloProofs elsewhere = must(HelloProofs::create({{1, 2}}, &secret_));
  for (const HelloProofs* proofs : {&of_other, &in_clear, &elsewhere})
    expect_refused(connect_to_impostor([&](const HelloRecord& said) { return answer_of(*proofs, said); }));
}

TEST_F(SoftProofImpostor, AReflectedHelloIsNoAnswer) {
  const Status as_it_is = connect_to_impostor([](const HelloRecord& said) { return said; });
  EXPECT_EQ(as_it_is.code(), Code::kProtocol) << as_it_is.to_string();
  expect_refused(connect_to_impostor([](const HelloRecord& said) {
    const Hello hello = must(decode_hello(said));
    AnswerRecord record;
    encode_hello_answer({.connection = hello.connection, .accepted = true, .proof = hello.proof}, record);
    return record;
  }));
}

TEST_F(SoftProofImpostor, AnAnswerToAnotherHelloIsRefused) {
  const HelloProofs proofs = must(HelloProofs::create(info_.cookie, &secret_));
  expect_refused(connect_to_impostor([&](const HelloRecord& said) {
    Hello of_control = must(decode_hello(said));
    of_control.socket_index = 1;
    HelloRecord other;
    EXPECT_OK(proofs.write(of_control, other));
    return answer_of(proofs, other);
  }));
}

TEST_F(SoftProofImpostor, ATruncatedAnswerIsNone) {
  const HelloProofs proofs = must(HelloProofs::create(info_.cookie, &secret_));
  for (size_t size = 0; size < kHelloAnswerBytes; ++size) {
    const Status status = connect_to_impostor([&](const HelloRecord& said) {
      const AnswerRecord whole = answer_of(proofs, said);
      return std::vector<std::byte>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    });
    EXPECT_EQ(status.code(), Code::kPeerGone) << size << status.to_string();
  }
}

// The test sits between the two ends and hears all that they say.
TEST_F(SoftProofImpostor, CookieAndSecretAreNeverOnTheWire) {
  const HandleInfo real = info_of(*listener_);
  std::vector<std::byte> heard;
  auto relay = std::async(std::launch::async, [&] {
    std::vector<UniqueFd> open;
    for (int i = 0; i < 2; ++i) {
      UniqueFd near = next_of(fd_.get());
      HelloRecord said;
      EXPECT_OK(recv_all(near.get(), said, soon()));
      UniqueFd far = say(real, said);
      AnswerRecord answer;
      EXPECT_OK(recv_all(far.get(), answer, soon()));
      send_bytes(near, answer);
      heard.insert(heard.end(), said.begin(), said.end());
      heard.insert(heard.end(), answer.begin(), answer.end());
      open.push_back(std::move(near));
      open.push_back(std::move(far));
    }
    return open;
  });
  EXPECT_OK(connect(info_, &secret_));
  const auto open = relay.get();
  ASSERT_EQ(heard.size(), 2 * (kHelloBytes + kHelloAnswerBytes));
  const auto cookie = std::as_bytes(std::span(real.cookie.words));
  for (size_t half : {0, 8})
    EXPECT_TRUE(std::search(heard.begin(), heard.end(), cookie.begin() + half, cookie.begin() + half + 8) == heard.end());
  const std::vector<std::byte> of_secret(4, std::byte{'s'});
  EXPECT_TRUE(std::search(heard.begin(), heard.end(), of_secret.begin(), of_secret.end()) == heard.end());
}

// By Python's hmac, from the layouts at the head of net/soft/wire.h: with h(k, m) = HMAC-SHA256,
//   key = h(h(h(bytes(32), b's' * 32), b'tcpx-p2p proof of sockets 1\x01'), b'tcpx-soft listener\0' + cookie)
//   h(key, b'tcpx-soft hello\0' + hello[:44])[:16] and h(key, b'tcpx-soft answer\0' + hello + answer[:28])[:16]
TEST(SoftProofRecords, AreThoseThatAnotherProgramMakes) {
  const Prover secret = prover_of('s');
  const HelloProofs proofs = must(HelloProofs::create({{1, 2}}, &secret));
  HelloRecord hello;
  ASSERT_OK(proofs.write({.connection = 0x0807060504030201, .socket_index = 3, .data_sockets = 4}, hello));
  EXPECT_EQ(hex(hello),
            "5458533108000000010203040506070803000000040000000000000000000000000000000000000000000000"
            "6b490882f1afc98016d0bb1c9122ed7c5e748843");
  AnswerRecord answer;
  ASSERT_OK(proofs.write({.connection = 0x0807060504030201, .accepted = true}, hello, answer));
  EXPECT_EQ(hex(answer),
            "54585332080001000102030405060708000000000000000000000000"
            "0cef51adce271d9e38750725e643d738a9001c45");
}

// The library file has a state of its own, so its settings are read here and not with those of the linked table.
TEST(SoftProofPlugin, TheSecretOfTheEnvironmentIsReadByInitAndProved) {
  allow_log("UCCL_TCPX_SECRET_FILE");
  const abi::NetTable_v7 &with = *file_table(), &without = *linked_table();
  ASSERT_EQ(without.init(nullptr), abi::kNcclSuccess);
  const char* const kName = "UCCL_TCPX_SECRET_FILE";
  const SecretFile open(std::string(32, 's'), 0644), good(std::string(32, 's'));
  ::setenv(kName, open.path().c_str(), 1);
  EXPECT_EQ(with.init(nullptr), abi::kNcclInternalError) << "others can read it";
  ::setenv(kName, good.path().c_str(), 1);
  ASSERT_EQ(with.init(nullptr), abi::kNcclSuccess);
  ::unsetenv(kName);
  TablePair proved(with), in_clear(without);
  EXPECT_TRUE(must(decode_handle(proved.handle)).proves);
  EXPECT_FALSE(must(decode_handle(in_clear.handle)).proves);
  void* comm = nullptr;
  EXPECT_EQ(without.connect(0, proved.handle.bytes.data(), &comm, nullptr), abi::kNcclInternalError);
  EXPECT_TRUE(logged(kOfListenerOnly));
  EXPECT_EQ(with.connect(0, in_clear.handle.bytes.data(), &comm, nullptr), abi::kNcclInternalError);
  EXPECT_EQ(comm, nullptr);
}

}  // namespace
}  // namespace tcpx::testing
