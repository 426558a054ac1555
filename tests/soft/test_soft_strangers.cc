// The software plugin's handshake against strangers, half-finished connections and bad handles.
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "base/text.h"
#include "tests/support/process_state.h"
#include "tests/support/soft_faults.h"

namespace tcpx::testing {
namespace {

using HelloBytes = std::array<std::byte, soft::kHelloBytes>;
using AnswerBytes = std::array<std::byte, soft::kHelloAnswerBytes>;

HelloBytes encode(const soft::Hello& hello) {
  HelloBytes bytes;
  soft::encode_hello(hello, bytes);
  return bytes;
}

class SoftStrangers : public SoftFaults {
 protected:
  void SetUp() override {
    SoftFaults::SetUp();
    listener_ = listen(handle_);
    info_ = *soft::decode_handle(handle_);
  }
  void TearDown() override { EXPECT_EQ(table_.close_listen(listener_), 0); }

  /// A socket that has sent these bytes to the listener.
  UniqueFd stranger(std::span<const std::byte> says) {
    UniqueFd fd = must(connect_tcp(info_.addresses.front(), soon()));
    send_bytes(fd, says);
    return fd;
  }
  soft::Hello hello(uint64_t connection, uint32_t socket_index) const {
    return {.connection = connection,
            .socket_index = socket_index,
            .data_sockets = info_.data_sockets,
            .proof = in_clear(info_.cookie)};
  }
  Handle handle_;
  void* listener_ = nullptr;
  soft::HandleInfo info_;
};

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

TEST_F(SoftStrangers, StrangersAreDroppedAndTheNextGoodClientIsServed) {
  const HelloBytes good = encode(hello(1, 0));
  HelloBytes wrong_magic = good;
  wrong_magic[0] ^= std::byte{1};
  soft::Hello hello_elsewhere = hello(1, 0), hello_of_two = hello(1, 0);
  hello_elsewhere.proof = in_clear({{1, 2}});
  hello_of_two.data_sockets = 1;
  const HelloBytes wrong_cookie = encode(hello_elsewhere), wrong_count = encode(hello_of_two);
  const HelloBytes wrong_index = encode(hello(1, info_.data_sockets + 1));

  const std::string socket_too_many = concat("socket ", info_.data_sockets + 1, " of ", info_.data_sockets);

  struct Attack {
    const char* what;
    std::vector<std::byte> bytes;
    const char* logged;
  };
  const Attack attacks[] = {
      {"connect and close", {}, "closed after 0 of"},
      {"half a hello", {good.begin(), good.begin() + 20}, "closed after 20 of"},
      {"an HTTP request", bytes_of("GET / HTTP/1.1\r\nHost: somewhere\r\nUser-Agent: nobody in particular, 1.0\r\n\r\n"),
       "wrong magic"},
      {"garbage", pattern_bytes(1000, 3), "wrong magic"},
      {"wrong magic", {wrong_magic.begin(), wrong_magic.end()}, "wrong magic"},
      {"wrong cookie", {wrong_cookie.begin(), wrong_cookie.end()}, "wrong cookie"},
      {"wrong number of sockets", {wrong_count.begin(), wrong_count.end()}, "data sockets instead of"},
      {"a socket too many", {wrong_index.begin(), wrong_index.end()}, socket_too_many.c_str()},
  };
  for (const Attack& attack : attacks) {
    const UniqueFd fd = stranger(attack.bytes);
    ::shutdown(fd.get(), SHUT_WR);
    EXPECT_TRUE(is_dropped(fd)) << attack.what << " must be dropped, not answered";
    EXPECT_TRUE(wait_until([&] { return logged(attack.logged); })) << attack.what;
    expect_good_client_served(listener_, handle_);
  }
}

TEST_F(SoftStrangers, SilentStrangersHoldNobodyUp) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(stranger({}));
  const HelloBytes good = encode(hello(1, 0));
  silent.push_back(stranger(std::span(good).first(20)));
  expect_good_client_served(listener_, handle_);
  for (const UniqueFd& fd : silent) EXPECT_TRUE(is_dropped(fd)) << "and are dropped after a while";
}

TEST_F(SoftStrangers, AHalfFinishedConnectionIsNoPeer) {
  const UniqueFd fd = stranger(encode(hello(77, 0)));
  AnswerBytes answer;
  ASSERT_TRUE(recv_all(fd.get(), answer, soon()).is_ok());
  void* comm = nullptr;
  EXPECT_EQ(table_.accept(listener_, &comm, nullptr), 0);
  EXPECT_EQ(comm, nullptr) << "one of five sockets";
  EXPECT_TRUE(is_dropped(stranger(encode(hello(77, 0))))) << "the same socket again, on another connection";
  expect_good_client_served(listener_, handle_);
}

TEST_F(SoftStrangers, BadHandlesAreRefused) {
  void* comm = nullptr;
  Handle garbage;
  std::memset(garbage.bytes.data(), 0x5a, kHandleBytes);
  EXPECT_EQ(table_.connect(0, garbage.bytes.data(), &comm, nullptr), abi::kNcclInternalError);
  for (size_t i = 0; i < kHandleBytes; ++i) {
    Handle damaged = handle_;
    damaged.bytes[i] ^= std::byte{4};
    EXPECT_EQ(table_.connect(0, damaged.bytes.data(), &comm, nullptr), abi::kNcclInternalError) << "byte " << i;
  }
  EXPECT_EQ(table_.close_listen(listener_), 0);
  listener_ = nullptr;
  EXPECT_EQ(table_.connect(0, handle_.bytes.data(), &comm, nullptr), abi::kNcclSystemError) << "nobody listens any more";
  EXPECT_EQ(comm, nullptr);
}

// An impostor at the address of a handle, which answers the first hello of each connection with arbitrary bytes.
class FalseListener {
 public:
  FalseListener() {
    info_.addresses = {*local_address(fd_.get())};
    info_.chunk_bytes = kPageBytes;
  }
  Handle handle() const { return soft::encode_handle(info_); }
  /// Takes both sockets of the next connection. `answer_with` gets the right answer to the first.
  template <class AnswerWith>
  void serve_one(AnswerWith answer_with) {
    for (UniqueFd& socket : sockets_) {
      ASSERT_TRUE(wait_for(fd_.get(), POLLIN, soon()).is_ok());
      socket = UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (&socket != &sockets_[0]) continue;  // it may be closed before it has sent anything
      HelloBytes bytes;
      ASSERT_TRUE(recv_all(socket.get(), bytes, soon()).is_ok());
      AnswerBytes answer;
      const soft::Hello hello = must(soft::decode_hello(bytes));
      soft::encode_hello_answer({.connection = hello.connection, .accepted = true, .proof = hello.proof}, answer);
      EXPECT_TRUE(send_all(socket.get(), answer_with(answer), soon()).is_ok());
    }
  }

 private:
  const UniqueFd fd_ = std::move(*listen_tcp(SocketAddress::loopback(0), 8));
  soft::HandleInfo info_;
  std::array<UniqueFd, 2> sockets_;
};

TEST_F(SoftStrangers, AFlippedByteInAnAnswerIsRefused) {
  FalseListener listener;
  for (size_t i = 0; i < soft::kHelloAnswerBytes; ++i) {
    std::thread serving([&] {
      listener.serve_one([&](AnswerBytes answer) {
        answer[i] ^= std::byte{0x10};
        return answer;
      });
    });
    void* comm = nullptr;
    EXPECT_EQ(table_.connect(0, listener.handle().bytes.data(), &comm, nullptr), abi::kNcclInternalError) << "byte " << i;
    EXPECT_EQ(comm, nullptr);
    serving.join();
  }
}

TEST_F(SoftStrangers, AnAnswerThatSaysNoOrIsForAnotherConnectionIsARefusal) {
  FalseListener listener;
  for (const bool says_no : {true, false}) {
    std::thread serving([&] {
      listener.serve_one([&](AnswerBytes answer) {
        soft::HelloAnswer said = *soft::decode_hello_answer(answer);
        if (says_no) {
          said.accepted = false;
        } else {
          ++said.connection;
        }
        soft::encode_hello_answer(said, answer);
        return answer;
      });
    });
    const auto connected = connect_to_listener(*soft::decode_handle(listener.handle()), {SocketAddress::loopback(0)},
                                               Deadline::after(std::chrono::seconds(3)));
    EXPECT_EQ(connected.status().code(), Code::kPeerGone) << (says_no ? "no" : "another connection");
    EXPECT_NE(connected.status().detail().find("refused by the listener"), std::string::npos);
    serving.join();
  }
}

TEST_F(SoftStrangers, HalfAnAnswerThenSilenceEndsAtTheDeadlineOfConnect) {
  FalseListener listener;
  std::thread serving([&] { listener.serve_one([](const AnswerBytes& answer) { return std::span(answer).first(20); }); });
  const auto connected = connect_to_listener(*soft::decode_handle(listener.handle()), {SocketAddress::loopback(0)},
                                             Deadline::after(std::chrono::milliseconds(300)));
  EXPECT_EQ(connected.status().code(), Code::kTimeout);
  serving.join();
}

TEST_F(SoftStrangers, AHundredAtOnceDoNotDisturbAHandshake) {
  // A good client in the middle of its handshake.
  std::vector<UniqueFd> good;
  for (uint32_t i = 0; i < 2; ++i) good.push_back(stranger(encode(hello(5, i))));
  soft::Hello elsewhere = hello(5, 2), other_count = hello(5, 2);
  elsewhere.proof = in_clear({{1, 2}});
  other_count.data_sockets = 1;
  const HelloBytes whole = encode(hello(5, 2));
  const std::vector<std::byte> sayings[] = {
      {}, {whole.begin(), whole.begin() + 63}, pattern_bytes(64, 1), pattern_bytes(1000, 2)};
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 100; ++i) {
    switch (i % 8) {
      case 0:
        strangers.push_back(stranger(encode(elsewhere)));
        break;
      case 1:
        strangers.push_back(stranger(encode(other_count)));
        break;
      case 2:
        strangers.push_back(stranger(encode(hello(5, 1))));  // twice
        break;
      case 3:
        stranger(sayings[0]);  // and gone
        break;
      default:
        strangers.push_back(stranger(sayings[i % 4]));
    }
  }
  for (uint32_t i = 2; i <= info_.data_sockets; ++i) good.push_back(stranger(encode(hello(5, i))));
  void *receiver = accept_one(table_, listener_, nullptr), *mhandle = nullptr, *request = nullptr;
  ASSERT_NE(receiver, nullptr);
  TestMemory target(MemoryType::kHost, 100);
  void* data = target.data();
  int size = 100, tag = 0, done = 0;
  ASSERT_EQ(table_.reg_mr(receiver, data, size, 1, &mhandle), 0);
  ASSERT_EQ(table_.irecv(receiver, 1, &data, &size, &tag, &mhandle, &request), 0);
  AnswerBytes answer;
  ASSERT_TRUE(recv_all(good[1].get(), answer, soon()).is_ok());
  send_chunk(good[1], {.total = 100, .bytes = 100, .cut = RawSender::kCut}, pattern_bytes(100, 9));
  EXPECT_TRUE(wait_until([&] { return table_.test(request, &done, nullptr) != 0 || done != 0; }));
  EXPECT_EQ(done, 1);
  EXPECT_TRUE(target.read() == pattern_bytes(100, 9)) << "on the socket that was to be taken over";
  EXPECT_EQ(table_.close_recv(receiver), 0);
  expect_good_client_served(listener_, handle_);
}

TEST_F(SoftStrangers, HoldABoundedNumberOfDescriptors) {
  constexpr size_t kStrangers = 400, kMostHeld = 256;
  const size_t before = descriptor_count();
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < kStrangers; ++i) silent.push_back(stranger({}));
  expect_good_client_served(listener_, handle_);  // it came last: all others have been taken
  EXPECT_LE(descriptor_count() - before, kStrangers + kMostHeld);
  for (size_t i = 0; i < kStrangers - kMostHeld; ++i) EXPECT_TRUE(is_dropped(silent[i])) << i << ": the oldest go first";
  EXPECT_EQ(table_.close_listen(listener_), 0);
  listener_ = nullptr;
  EXPECT_LE(descriptor_count() - before, kStrangers);
}

}  // namespace
}  // namespace tcpx::testing
