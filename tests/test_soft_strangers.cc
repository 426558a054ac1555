// The software plugin's handshake against strangers, half-finished connections and bad handles.
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <string>

#include "tests/support/soft_faults.h"

namespace tcpx::testing {
namespace {

using SoftStrangers = SoftFaults;

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

TEST_F(SoftStrangers, StrangersAreDroppedAndTheNextGoodClientIsServed) {
  Handle handle;
  void* listener = listen(handle);
  const auto info = soft::decode_handle(handle);
  ASSERT_TRUE(info.is_ok());

  std::array<std::byte, soft::kHelloBytes> hello;
  soft::encode_hello({.cookie = info->cookie, .connection = 1, .socket_index = 0, .data_sockets = info->data_sockets}, hello);
  auto wrong_cookie = hello, wrong_magic = hello, wrong_count = hello;
  soft::encode_hello({.cookie = {{1, 2}}, .connection = 1, .socket_index = 0, .data_sockets = info->data_sockets}, wrong_cookie);
  soft::encode_hello({.cookie = info->cookie, .connection = 1, .socket_index = 0, .data_sockets = 1}, wrong_count);
  wrong_magic[0] ^= std::byte{1};

  struct Attack {
    const char* what;
    std::vector<std::byte> bytes;
    const char* logged;
  };
  const Attack attacks[] = {
      {"connect and close", {}, "closed after 0 of"},
      {"half a hello", {hello.begin(), hello.begin() + 20}, "closed after 20 of"},
      {"an HTTP request", bytes_of("GET / HTTP/1.1\r\nHost: somewhere\r\nUser-Agent: nobody in particular, 1.0\r\n\r\n"),
       "wrong magic"},
      {"garbage", pattern_bytes(1000, 3), "wrong magic"},
      {"wrong magic", {wrong_magic.begin(), wrong_magic.end()}, "wrong magic"},
      {"wrong cookie", {wrong_cookie.begin(), wrong_cookie.end()}, "wrong cookie"},
      {"wrong number of sockets", {wrong_count.begin(), wrong_count.end()}, "data sockets instead of"},
  };
  for (const Attack& attack : attacks) {
    auto stranger = connect_tcp(info->address, soon());
    ASSERT_TRUE(stranger.is_ok()) << attack.what;
    EXPECT_TRUE(send_all(stranger->get(), attack.bytes, soon()).is_ok()) << attack.what;
    ::shutdown(stranger->get(), SHUT_WR);
    std::byte answer;
    EXPECT_EQ(recv_all(stranger->get(), {&answer, 1}, soon()).code(), Code::kPeerGone)
        << attack.what << " must be dropped, not answered";
    EXPECT_TRUE(wait_until([&] { return logged(attack.logged); })) << attack.what;
    expect_good_client_served(listener, handle);
  }
  EXPECT_EQ(table_.close_listen(listener), 0);
}

TEST_F(SoftStrangers, SilentStrangersHoldNobodyUp) {
  Handle handle;
  void* listener = listen(handle);
  const auto info = soft::decode_handle(handle);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 50; ++i) silent.push_back(std::move(*connect_tcp(info->address, soon())));
  expect_good_client_served(listener, handle);
  std::byte byte;
  EXPECT_EQ(recv_all(silent.front().get(), {&byte, 1}, Deadline::after(std::chrono::seconds(15))).code(), Code::kPeerGone)
      << "and are dropped after a while";
  EXPECT_EQ(table_.close_listen(listener), 0);
}

TEST_F(SoftStrangers, AHalfFinishedConnectionIsNoPeer) {
  Handle handle;
  void* listener = listen(handle);
  const auto info = soft::decode_handle(handle);
  auto fd = connect_tcp(info->address, soon());
  std::array<std::byte, soft::kHelloBytes> hello;
  soft::encode_hello({.cookie = info->cookie, .connection = 77, .socket_index = 0, .data_sockets = info->data_sockets}, hello);
  ASSERT_TRUE(send_all(fd->get(), hello, soon()).is_ok());
  std::array<std::byte, soft::kHelloAnswerBytes> answer;
  ASSERT_TRUE(recv_all(fd->get(), answer, soon()).is_ok());
  void* comm = nullptr;
  EXPECT_EQ(table_.accept(listener, &comm, nullptr), 0);
  EXPECT_EQ(comm, nullptr) << "one of five sockets";
  // The same socket again, on another connection: refused.
  auto twin = connect_tcp(info->address, soon());
  ASSERT_TRUE(send_all(twin->get(), hello, soon()).is_ok());
  std::byte byte;
  EXPECT_EQ(recv_all(twin->get(), {&byte, 1}, soon()).code(), Code::kPeerGone);
  expect_good_client_served(listener, handle);
  EXPECT_EQ(table_.close_listen(listener), 0);
}

TEST_F(SoftStrangers, BadHandlesAreRefused) {
  Handle handle;
  void *listener = listen(handle), *comm = nullptr;
  Handle garbage;
  std::memset(garbage.bytes.data(), 0x5a, kHandleBytes);
  EXPECT_EQ(table_.connect(0, garbage.bytes.data(), &comm, nullptr), abi::kNcclInternalError);
  Handle damaged = handle;
  damaged.bytes[9] ^= std::byte{4};
  EXPECT_EQ(table_.connect(0, damaged.bytes.data(), &comm, nullptr), abi::kNcclInternalError);
  EXPECT_EQ(table_.close_listen(listener), 0);
  EXPECT_EQ(table_.connect(0, handle.bytes.data(), &comm, nullptr), abi::kNcclSystemError) << "nobody listens any more";
  EXPECT_EQ(comm, nullptr);
}

}  // namespace
}  // namespace tcpx::testing
