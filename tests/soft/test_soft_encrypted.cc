// Encrypted data sockets of the software plugin: two ends that both encrypt move messages, and who sits between them reads nothing and
// changes nothing unnoticed.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "measure/pattern.h"
#include "net/soft/hello_proofs.h"
#include "net/soft/recv_comm.h"
#include "net/soft/send_comm.h"
#include "tests/support/expect_log.h"
#include "tests/support/hex_text.h"
#include "tests/support/prover.h"
#include "tests/support/soft_wire.h"
#include "tests/support/table_harness.h"

namespace tcpx::testing {
namespace {

using namespace soft;

constexpr uint32_t kLongest = 512 * 1024;
constexpr const char* kOfListenerAlone = "UCCL_TCPX_SECURITY is encrypt at the listener and not at the connector";
constexpr const char* kOfConnectorAlone = "UCCL_TCPX_SECURITY is encrypt at the connector and not at the listener";

/// Hears what the connector says, and passes it on, changed where the test wants it.
class Relay {
 public:
  using Change = std::function<void(std::vector<std::byte>&, uint64_t at)>;
  Relay(const SocketAddress& to, size_t sockets, Change change = {}) : to_(to), change_(std::move(change)) {
    worker_ = std::thread([this, sockets] { run(sockets); });
  }
  ~Relay() {
    stop_ = true;
    worker_.join();
  }
  SocketAddress address() const { return must(local_address(listener_.get())); }
  /// After the connection's end.
  const std::vector<std::byte>& heard() {
    stop_ = true;
    if (worker_.joinable()) worker_.join();
    worker_ = std::thread([] {});
    return heard_;
  }

 private:
  struct Pair {
    UniqueFd near, far;
    uint64_t passed = 0;
  };
  void pass(const UniqueFd& from, const UniqueFd& to, uint64_t* at) {
    std::vector<std::byte> bytes(100'000);
    const ssize_t n = ::recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n == 0) ::shutdown(to.get(), SHUT_WR);
    if (n <= 0) return;
    bytes.resize(static_cast<size_t>(n));
    if (at != nullptr) {
      if (change_) change_(bytes, *at);
      *at += bytes.size();
      heard_.insert(heard_.end(), bytes.begin(), bytes.end());
    }
    (void)send_all(to.get(), bytes, soon());
  }
  void run(size_t sockets) {
    std::vector<Pair> pairs;
    while (!stop_) {
      std::vector<pollfd> waits{{listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs) {
        waits.push_back({pair.near.get(), POLLIN, 0});
        waits.push_back({pair.far.get(), POLLIN, 0});
      }
      (void)::poll(waits.data(), waits.size(), 20);
      if (pairs.size() < sockets && waits[0].revents != 0)
        pairs.push_back({UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)),
                         must(connect_tcp(to_, soon()))});
      for (Pair& pair : pairs) {
        pass(pair.near, pair.far, &pair.passed);
        pass(pair.far, pair.near, nullptr);
      }
    }
  }

  const UniqueFd listener_ = must(listen_tcp(SocketAddress::loopback(0), 8));
  const SocketAddress to_;
  const Change change_;
  std::vector<std::byte> heard_;
  std::atomic<bool> stop_{false};
  std::thread worker_;
};

class SoftEncrypted : public ::testing::Test {
 protected:
  void SetUp() override {
    allow_log("tcpx-soft");
    listen(true);
  }
  void listen(bool encrypts, uint32_t sockets = 2) {
    const HandleInfo info = {
        .addresses = {SocketAddress::loopback(0)}, .data_sockets = sockets, .chunk_bytes = kLongest, .encrypts = encrypts};
    listener_ = must(SoftListener::create(info, io_, {}, &secret_));
    info_ = must(decode_handle(listener_->handle()));
  }
  Result<ConnectedSockets> connect(const HandleInfo& info, bool encrypts) {
    return connect_to_listener(info, {SocketAddress::loopback(0)}, soon(), {}, "", &secret_, encrypts);
  }
  /// Both comms, the sender's by way of this relay.
  void make_comms(Relay* relay = nullptr) {
    HandleInfo info = info_;
    if (relay != nullptr) info.addresses = {relay->address()};
    auto ours = must(connect(info, true)), theirs = accept_softly(*listener_);
    make_comms(std::move(ours), std::move(theirs));
  }
  void make_comms(ConnectedSockets ours, ConnectedSockets theirs) {
    theirs.spare_copies = ours.spare_copies = true;  // as towards a NIC
    sender_ = must(SoftSendComm::create(*memory_, 0, io_, std::make_shared<StagingPool>(*memory_, 0), std::move(ours)));
    receiver_ = must(SoftRecvComm::create(*memory_, 0, io_, pool_, std::move(theirs)));
    source_ = *memory_->allocate_device(0, kRoom);
    target_ = *memory_->allocate_device(0, kRoom);
    fill_pattern({source_.host(), kRoom}, 1);
  }
  /// Both comms, with keys for so many records at each end, on four sockets.
  void make_comms_whose_keys_change(uint64_t after, uint64_t at_receiver_after) {
    listen(true, 4);
    auto ours = must(connect(info_, true)), theirs = accept_softly(*listener_);
    ASSERT_EQ(ours.ciphers.size(), 4u);
    for (size_t i = 0; i < ours.ciphers.size(); ++i) {
      const char letter = static_cast<char>('a' + i);
      ours.ciphers[i] = must(RecordCipher::create(secret_of(letter), RecordCipher::Work::kSeals, after));
      theirs.ciphers[i] = must(RecordCipher::create(secret_of(letter), RecordCipher::Work::kOpens, at_receiver_after));
    }
    make_comms(std::move(ours), std::move(theirs));
  }
  void forget_comms() {
    std::fill_n(from_, 4, nullptr);
    into_ = nullptr;
    receiver_.reset();
    sender_.reset();
  }
  abi::TcpxRequest* send(size_t at, size_t bytes, MemoryType type = MemoryType::kHost) {
    SoftRegion*& region = from_[static_cast<size_t>(type)];
    if (region == nullptr) region = must(sender_->register_region(source_.device(), kRoom, type));
    return must(sender_->isend(source_.device() + at, static_cast<int>(bytes), 0, region));
  }
  abi::TcpxRequest* receive(size_t at, size_t bytes) {
    if (into_ == nullptr) into_ = must(receiver_->register_region(target_.device(), kRoom, MemoryType::kHost));
    return must(receiver_->irecv(target_.device() + at, static_cast<int>(bytes), 0, into_));
  }
  bool has_arrived(size_t at, size_t bytes) const {
    return std::equal(source_.host() + at, source_.host() + at + bytes, target_.host() + at);
  }

  static constexpr size_t kRoom = 4 << 20;
  const std::unique_ptr<MemoryOps> memory_ = make_host_memory_ops();
  const std::shared_ptr<IoPool> io_ = must(IoPool::create(1));
  const std::shared_ptr<PagePool> pool_ = must(PagePool::create(*memory_, 0, uint64_t{64} * kPageBytes));
  const Prover secret_ = prover_of('s');
  std::unique_ptr<SoftListener> listener_;
  HandleInfo info_;
  MemoryBuffer source_, target_;
  std::unique_ptr<SoftSendComm> sender_;
  std::unique_ptr<SoftRecvComm> receiver_;
  SoftRegion *from_[4] = {}, *into_ = nullptr;
};

TEST_F(SoftEncrypted, MessagesOfAllLengthsArriveFromMemoryOfBothKinds) {
  make_comms();
  std::mt19937 random(5);
  const size_t lengths[] = {0, 1, 8, 1024, 4095, 16384 - kChunkHeaderBytes, 16384, 16385, kLongest, kLongest + 1, 3'000'000};
  for (const MemoryType type : {MemoryType::kHost, MemoryType::kCuda}) {
    for (int round = 0; round < 8; ++round) {
      std::fill_n(target_.host(), kRoom, std::byte{});
      std::vector<std::pair<size_t, size_t>> ranges;
      std::vector<abi::TcpxRequest*> sends, receives;
      for (size_t at = 0;;) {
        const size_t bytes = lengths[random() % std::size(lengths)];
        if (at + bytes > kRoom || ranges.size() == 20) break;
        ranges.emplace_back(at, bytes);
        at += bytes;
      }
      const bool early = round % 2 == 0;  // else the chunks wait for their receives
      if (early)
        for (const auto& [at, bytes] : ranges) receives.push_back(receive(at, bytes));
      for (const auto& [at, bytes] : ranges) sends.push_back(send(at, bytes, type));
      if (!early)
        for (const auto& [at, bytes] : ranges) receives.push_back(receive(at, bytes));
      for (size_t i = 0; i < ranges.size(); ++i) {
        ASSERT_TRUE(is_done(*receiver_, receives[i])) << i;
        ASSERT_TRUE(is_done(*sender_, sends[i])) << i;
        ASSERT_OK(receiver_->consumed(receives[i]));
        ASSERT_TRUE(has_arrived(ranges[i].first, ranges[i].second)) << ranges[i].second;
      }
    }
  }
}

// Dozens of keys on each socket, also within a chunk, and while the other sockets are at other records of theirs.
TEST_F(SoftEncrypted, PayloadCrossesManyChangesOfKeysOnSeveralSockets) {
  for (const uint64_t records : {1, 3, 7}) {
    make_comms_whose_keys_change(records, records);
    for (size_t round = 0; round < 4; ++round) {
      fill_pattern({source_.host(), kRoom}, round);
      std::fill_n(target_.host(), kRoom, std::byte{});
      constexpr size_t kMessages = 5, kBytes = kRoom / kMessages;
      std::vector<abi::TcpxRequest*> sends, receives;
      for (size_t i = 0; i < kMessages; ++i) {
        receives.push_back(receive(i * kBytes, kBytes));
        sends.push_back(send(i * kBytes, kBytes, round % 2 == 0 ? MemoryType::kHost : MemoryType::kCuda));
      }
      for (size_t i = 0; i < kMessages; ++i) {
        ASSERT_TRUE(is_done(*receiver_, receives[i]) && is_done(*sender_, sends[i])) << records << round << i;
        ASSERT_OK(receiver_->consumed(receives[i]));
      }
      ASSERT_TRUE(has_arrived(0, kMessages * kBytes)) << records << round;
    }
    forget_comms();
  }
}

TEST_F(SoftEncrypted, AReceiverThatKeepsAKeyLongerTakesNothingMore) {
  make_comms_whose_keys_change(3, 4);
  const abi::TcpxRequest* received = receive(0, kRoom);
  (void)send(0, kRoom);
  EXPECT_EQ(error_of(*receiver_, received).code(), Code::kPeerGone);
  EXPECT_TRUE(logged("an encrypted record is not the one that the peer sent here"));
}

TEST_F(SoftEncrypted, WhatASenderWasToldIsSentArrivesAfterItHasGone) {
  make_comms();
  const abi::TcpxRequest *received = receive(0, kRoom), *sent = send(0, kRoom);
  ASSERT_TRUE(is_done(*sender_, sent));
  sender_.reset();
  EXPECT_TRUE(is_done(*receiver_, received));
  EXPECT_TRUE(has_arrived(0, kRoom));
}

TEST_F(SoftEncrypted, NoPlaintextCrosses) {
  Relay relay(info_.addresses.front(), 3);
  make_comms(&relay);
  constexpr size_t kBytes = 2'000'000;
  const abi::TcpxRequest *received = receive(0, kBytes), *sent = send(0, kBytes);
  ASSERT_TRUE(is_done(*receiver_, received) && is_done(*sender_, sent));
  EXPECT_TRUE(has_arrived(0, kBytes));
  const auto& heard = relay.heard();
  ASSERT_GT(heard.size(), kBytes);
  std::vector<uint64_t> words(heard.size() - 7);
  for (size_t i = 0; i < words.size(); ++i) std::memcpy(&words[i], heard.data() + i, 8);
  std::sort(words.begin(), words.end());
  for (size_t at = 0; at < kBytes; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, source_.host() + at, 8);
    ASSERT_FALSE(std::binary_search(words.begin(), words.end(), word)) << "payload at " << at;
  }
  const std::string chunk = "TXS3";
  const auto magic = std::as_bytes(std::span(chunk));
  EXPECT_TRUE(std::search(heard.begin(), heard.end(), magic.begin(), magic.end()) == heard.end()) << "headers are content, too";
}

// A bit of a data socket, wherever it is: in a record's head, its content or its tag.
TEST_F(SoftEncrypted, AFlippedBitOnTheWayEndsTheConnectionAndWritesNothing) {
  for (const uint64_t where : {0, 2, 4, 5, 60, 10'000, 16'390, 16'405}) {
    Relay relay(info_.addresses.front(), 3, [&](std::vector<std::byte>& bytes, uint64_t at) {
      const uint64_t flipped = kHelloBytes + where;
      if (at <= flipped && flipped < at + bytes.size()) bytes[flipped - at] ^= std::byte{4};
    });
    make_comms(&relay);
    const abi::TcpxRequest* received = receive(0, 100'000);
    (void)send(0, 100'000);
    EXPECT_EQ(error_of(*receiver_, received).code(), Code::kPeerGone) << where;
    EXPECT_TRUE(std::all_of(target_.host(), target_.host() + 16'384, [](std::byte each) { return each == std::byte{}; }))
        << where;
    forget_comms();
  }
  EXPECT_TRUE(logged("an encrypted record is not the one that the peer sent here"));
}

TEST_F(SoftEncrypted, EachSocketAndConnectionHasItsOwnKey) {
  using Record = std::array<std::byte, 4 + RecordCipher::kOverheadBytes>;
  std::vector<Record> records;
  std::vector<ConnectedSockets> receivers;
  std::string content = "same";
  const iovec piece{content.data(), content.size()};
  for (int connection = 0; connection < 2; ++connection) {
    const ConnectedSockets ours = must(connect(info_, true));
    receivers.push_back(accept_softly(*listener_));
    for (const auto& cipher : ours.ciphers) ASSERT_OK(cipher->seal({&piece, 1}, records.emplace_back().data()));
  }
  ASSERT_EQ(records.size(), 4u);
  // A cipher that has refused a record is of no further use.
  for (size_t i = 0; i < 4; ++i) {
    RecordCipher& receiver = *receivers[i / 2].ciphers[i % 2];
    Record record = records[i % 2 == 0 ? i : (i + 1) % 4];
    EXPECT_EQ(receiver.open(record).is_ok(), i % 2 == 0) << i << ": the second gets what was said to another";
    for (size_t j = 0; j < i; ++j) EXPECT_NE(records[i], records[j]) << i << j;
  }
}

TEST_F(SoftEncrypted, OneEndThatDoesNotEncryptIsRefusedWithBothSettings) {
  const Status in_clear = connect(info_, false).status();
  EXPECT_EQ(in_clear.code(), Code::kMismatch);
  EXPECT_NE(in_clear.detail().find(kOfListenerAlone), std::string::npos) << in_clear.to_string();
  listen(false);
  const Status encrypting = connect(info_, true).status();
  EXPECT_EQ(encrypting.code(), Code::kMismatch);
  EXPECT_NE(encrypting.detail().find(kOfConnectorAlone), std::string::npos) << encrypting.to_string();
}

// An attacker who changes handles on their way brings no end to do without, nor the two ends to disagree.
TEST_F(SoftEncrypted, AHandleThatSaysOtherwiseOpensNothing) {
  HandleInfo changed = info_;
  changed.encrypts = false;
  EXPECT_EQ(connect(changed, true).status().code(), Code::kMismatch) << "this end encrypts";
  EXPECT_EQ(connect(changed, false).status().code(), Code::kPeerGone) << "the listener does";
  EXPECT_TRUE(wait_until([] { return logged(kOfListenerAlone); }));
  listen(false);
  changed = info_;
  changed.encrypts = true;
  EXPECT_EQ(connect(changed, true).status().code(), Code::kPeerGone);
  EXPECT_TRUE(wait_until([] { return logged(kOfConnectorAlone); }));
  EXPECT_FALSE(listener_->has_peer());
}

// The part of a record that the reader holds does not come again.
TEST_F(SoftEncrypted, AReaderSleepsNoLongerThanItsChunkGoesOn) {
  auto ours = must(connect(info_, true)), theirs = accept_softly(*listener_);
  theirs.spare_copies = true;
  const int reader = theirs.data[0].get();
  receiver_ = must(SoftRecvComm::create(*memory_, 0, io_, pool_, std::move(theirs)));
  target_ = *memory_->allocate_device(0, kRoom);
  std::vector<std::byte> message(kLongest), wire;
  fill_pattern(message, 1);
  const auto header = encoded({.total = kLongest, .bytes = kLongest, .cut = kLongest});
  std::vector<std::byte> plain(header.begin(), header.end());
  plain.insert(plain.end(), message.begin(), message.end());
  for (size_t at = 0; at < plain.size(); at += RecordCipher::kContentBytes) {
    const iovec piece{plain.data() + at, std::min(RecordCipher::kContentBytes, plain.size() - at)};
    wire.resize(wire.size() + piece.iov_len + RecordCipher::kOverheadBytes);
    ASSERT_OK(ours.ciphers[0]->seal({&piece, 1}, wire.data() + wire.size() - piece.iov_len - RecordCipher::kOverheadBytes));
  }
  const abi::TcpxRequest* const received = receive(0, kLongest);
  const auto record = [](size_t n) { return n * RecordCipher::kMostBytes; };
  // For no more than the rest of its chunk. Where its last read ended is chance.
  const auto sleeps_for_the_rest = [&](size_t sent) {
    return wait_until([&] {
      int mark = 0, unread = 0;
      socklen_t length = sizeof mark;
      if (::getsockopt(reader, SOL_SOCKET, SO_RCVLOWAT, &mark, &length) != 0 || ::ioctl(reader, FIONREAD, &unread) != 0)
        return false;
      const size_t come = sent - static_cast<size_t>(unread), opened = come / RecordCipher::kMostBytes;
      const size_t rest = plain.size() - opened * RecordCipher::kContentBytes - come % RecordCipher::kMostBytes;
      return std::max(unread, 1) < mark && mark <= static_cast<int>(std::min<size_t>(128 * 1024, rest));
    });
  };
  const size_t part = 16'000;  // of a record
  send_bytes(ours.data[0], std::span(wire).first(record(1)));
  EXPECT_TRUE(sleeps_for_the_rest(record(1)));
  send_bytes(ours.data[0], std::span(wire).subspan(record(1), record(30) + part));
  EXPECT_TRUE(sleeps_for_the_rest(record(31) + part)) << "what is not open yet is all still to come";
  send_bytes(ours.data[0], std::span(wire).subspan(record(31) + part, record(1) - part + 40));
  EXPECT_TRUE(sleeps_for_the_rest(record(32) + 40)) << "the last record is almost here";
  send_bytes(ours.data[0], std::span(wire).subspan(record(32) + 40));
  EXPECT_TRUE(is_done(*receiver_, received));
  EXPECT_TRUE(std::equal(message.begin(), message.end(), target_.host()));
}

TEST_F(SoftEncrypted, AStreamThatEndsWithinARecordCompletesNothing) {
  auto ours = must(connect(info_, true));
  receiver_ = must(SoftRecvComm::create(*memory_, 0, io_, pool_, accept_softly(*listener_)));
  target_ = *memory_->allocate_device(0, kRoom);
  const abi::TcpxRequest* const received = receive(0, 100);
  auto message = encoded({.total = 100, .bytes = 100, .cut = kPageBytes});
  std::vector<std::byte> plain(message.begin(), message.end()), wire(148 + RecordCipher::kOverheadBytes);
  plain.resize(148, std::byte{1});
  const iovec piece{plain.data(), plain.size()};
  ASSERT_OK(ours.ciphers[0]->seal({&piece, 1}, wire.data()));
  send_bytes(ours.data[0], std::span(wire).first(wire.size() - 1));
  ours = {};
  EXPECT_EQ(error_of(*receiver_, received).code(), Code::kPeerGone);
  EXPECT_EQ(target_.host()[0], std::byte{});
}

// NCCL tells handles in clear, and they are all that ends with certificates have for keys.
TEST(SoftEncryptedPlugin, AsAFileItTakesASecretAlone) {
  const std::pair<const char*, const char*> values[] = {
      {"UCCL_TCPX_SECURITY", "encrypt"}, {"UCCL_TCPX_TLS_CERT", "/c"}, {"UCCL_TCPX_TLS_KEY", "/k"}, {"UCCL_TCPX_TLS_CA", "/a"}};
  for (const auto& [name, value] : values) ::setenv(name, value, 1);
  EXPECT_EQ(file_table()->init(nullptr), abi::kNcclInternalError);
  ::setenv("UCCL_TCPX_SECURITY", "auth", 1);
  EXPECT_EQ(file_table()->init(nullptr), abi::kNcclSuccess);
  for (const auto& [name, value] : values) ::unsetenv(name);
}

// As of test_soft_proof.cc, by Python, with a hello that says so; its key is
//   h(key, b'tcpx-soft data of the connector\0' + hello + answer), and the record is by `cryptography` (test_record_cipher.cc).
TEST(SoftEncryptedRecords, AreThoseThatAnotherProgramMakes) {
  const Prover secret = prover_of('s');
  const HelloProofs proofs = must(HelloProofs::create({{1, 2}}, &secret));
  std::array<std::byte, kHelloBytes> hello;
  ASSERT_OK(proofs.write({.connection = 0x0807060504030201, .socket_index = 3, .data_sockets = 4, .encrypts = true}, hello));
  EXPECT_EQ(to_hex_text(hello.data(), hello.size()),
            "5458533108000100010203040506070803000000040000000000000000000000000000000000000000000000"
            "21bb7168bbee93d02a21d439a4faaeab87ad0708");
  std::array<std::byte, kHelloAnswerBytes> answer;
  ASSERT_OK(proofs.write({.connection = 0x0807060504030201, .accepted = true}, hello, answer));
  std::string content = "content";
  const iovec piece{content.data(), content.size()};
  std::array<std::byte, 7 + RecordCipher::kOverheadBytes> record;
  ASSERT_OK(must(proofs.cipher(RecordCipher::Work::kSeals, hello, answer))->seal({&piece, 1}, record.data()));
  EXPECT_EQ(to_hex_text(record.data(), record.size()), "1703030018f591b89730d44e6efbea72b4233fd24b3a42d19d4c78fbfe");
}

}  // namespace
}  // namespace tcpx::testing
