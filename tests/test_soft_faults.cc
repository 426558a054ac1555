// The software plugin against strangers, damaged streams and peers that die.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/socket_io.h"
#include "net/soft/connector.h"
#include "net/soft/wire.h"
#include "tests/support/child_process.h"
#include "tests/support/expect_log.h"
#include "tests/support/table_harness.h"

namespace tcpx::testing {
namespace {

using soft::ChunkHeader;
using soft::kChunkHeaderBytes;

constexpr size_t kMiB = size_t{1} << 20;
constexpr std::chrono::seconds kSoon{10};

Deadline soon() {
  return Deadline::after(kSoon);
}

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

size_t thread_count() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

class SoftFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(table_.init(nullptr), abi::kNcclSuccess);
    allow_log("tcpx-soft");
  }

  void* listen(Handle& handle) {
    void* listener = nullptr;
    EXPECT_EQ(table_.listen(0, handle.bytes.data(), &listener), abi::kNcclSuccess);
    return listener;
  }

  /// A good client connects, is accepted, and a message arrives.
  void expect_good_client_served(void* listener, const Handle& handle) {
    Handle copy = handle;
    void *sender = nullptr, *send_handle = nullptr, *recv_handle = nullptr, *send = nullptr, *recv = nullptr;
    ASSERT_EQ(table_.connect(0, copy.bytes.data(), &sender, nullptr), abi::kNcclSuccess);
    void* receiver = accept_one(table_, listener, nullptr);
    TestMemory source(MemoryType::kHost, 4096), target(MemoryType::kHost, 4096);
    source.write(pattern_bytes(4096, 1));
    ASSERT_EQ(table_.reg_mr(sender, source.data(), 4096, 1, &send_handle), 0);
    ASSERT_EQ(table_.reg_mr(receiver, target.data(), 4096, 1, &recv_handle), 0);
    int size = 4096, tag = 0, done = 0;
    void* data = target.data();
    ASSERT_EQ(table_.irecv(receiver, 1, &data, &size, &tag, &recv_handle, &recv), 0);
    ASSERT_EQ(table_.isend(sender, source.data(), 4096, 0, send_handle, &send), 0);
    ASSERT_TRUE(wait_until([&] { return table_.test(recv, &done, nullptr) != 0 || done != 0; }));
    EXPECT_TRUE(target.read() == source.read());
    EXPECT_EQ(table_.close_send(sender), 0);
    EXPECT_EQ(table_.close_recv(receiver), 0);
  }

  const abi::NetTable_v7& table_ = *linked_table();
};

TEST_F(SoftFaults, StrangersAreDroppedAndTheNextGoodClientIsServed) {
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

TEST_F(SoftFaults, SilentStrangersHoldNobodyUp) {
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

TEST_F(SoftFaults, AHalfFinishedConnectionIsNoPeer) {
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

TEST_F(SoftFaults, BadHandlesAreRefused) {
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

/// A receiving comm whose sender is raw sockets in the test's hands.
class RawSender {
 public:
  explicit RawSender(const abi::NetTable_v7& table_under_test) : table(table_under_test), target(MemoryType::kCuda, 4 * kMiB) {
    Handle handle;
    EXPECT_EQ(table.listen(0, handle.bytes.data(), &listener), 0);
    const auto info = soft::decode_handle(handle);
    auto connected = soft::connect_to_listener(*info, SocketAddress::loopback(0), soon());
    EXPECT_TRUE(connected.is_ok()) << connected.status().to_string();
    sockets = std::move(*connected);
    receiver = accept_one(table, listener, nullptr);
    EXPECT_EQ(table.reg_mr(receiver, target.data(), static_cast<int>(target.size()), 2, &mhandle), 0);
  }
  ~RawSender() {
    EXPECT_EQ(table.close_recv(receiver), 0);
    EXPECT_EQ(table.close_listen(listener), 0);
  }
  void* post(int size) {
    void *data = target.data(), *request = nullptr;
    int tag = 0;
    EXPECT_EQ(table.irecv(receiver, 1, &data, &size, &tag, &mhandle, &request), 0);
    return request;
  }
  static std::array<std::byte, kChunkHeaderBytes> encode(const ChunkHeader& header) {
    std::array<std::byte, kChunkHeaderBytes> bytes;
    soft::encode_chunk_header(header, bytes);
    return bytes;
  }
  void send(size_t socket, std::span<const std::byte> bytes) {
    EXPECT_TRUE(send_all(sockets.data[socket].get(), bytes, soon()).is_ok());
  }
  void send_chunk(size_t socket, const ChunkHeader& header) {
    send(socket, encode(header));
    send(socket, pattern_bytes(header.bytes, 1));
  }
  int finish(void* request) {
    int done = 0, rc = 0;
    EXPECT_TRUE(wait_until([&] { return (rc = table.test(request, &done, nullptr)) != 0 || done != 0; }, kSoon))
        << "neither done nor an error";
    return rc;
  }

  const abi::NetTable_v7& table;
  TestMemory target;
  soft::ConnectedSockets sockets;
  void *listener = nullptr, *receiver = nullptr, *mhandle = nullptr;
};

TEST_F(SoftFaults, AFlippedByteInAChunkHeaderEndsTheConnection) {
  for (size_t i = 0; i < kChunkHeaderBytes; ++i) {
    RawSender raw(table_);
    void* request = raw.post(100);
    auto header = RawSender::encode({.sequence = 0, .total = 100, .offset = 0, .bytes = 100});
    header[i] ^= std::byte{0x10};
    raw.send(0, header);
    EXPECT_EQ(raw.finish(request), abi::kNcclSystemError) << "byte " << i << ": 3 would tell the consumer to try again";
  }
}

TEST_F(SoftFaults, ChunksThatContradictTheirMessageEndTheConnection) {
  const ChunkHeader first = {.sequence = 0, .total = 1048576, .offset = 0, .bytes = 524288};
  ChunkHeader other_total = first, twice = first, finished = first;
  other_total.total = 1048577;
  other_total.offset = 524288;
  for (const auto& [what, second] : {std::pair{"another total", other_total}, std::pair{"the same offset twice", twice}}) {
    RawSender raw(table_);
    void* request = raw.post(2 * kMiB);
    raw.send_chunk(0, first);
    raw.send(1, RawSender::encode(second));
    EXPECT_EQ(raw.finish(request), abi::kNcclSystemError) << what;
  }
  RawSender raw(table_);
  void *done = raw.post(100), *next = raw.post(100);
  finished = {.sequence = 0, .total = 100, .offset = 0, .bytes = 100};
  raw.send_chunk(0, finished);
  EXPECT_EQ(raw.finish(done), 0);
  raw.send(1, RawSender::encode(finished));
  EXPECT_EQ(raw.finish(next), abi::kNcclSystemError) << "a chunk of a message that is over";
}

TEST_F(SoftFaults, ChunksInAnyOrderOverAnySocketsMakeTheMessage) {
  RawSender raw(table_);
  void *first = raw.post(2 * kMiB), *second = raw.post(2 * kMiB);
  constexpr uint32_t kTotal = kMiB + 1;
  const uint32_t chunk = soft::Chunking{.most_bytes = 512 * 1024, .sockets = 4}.bytes_for(kTotal);
  // The second message's chunk is there before the first message has begun: it waits.
  raw.send_chunk(3, {.sequence = 1, .total = 10, .offset = 0, .bytes = 10});
  raw.send_chunk(2, {.sequence = 0, .total = kTotal, .offset = 3 * chunk, .bytes = kTotal - 3 * chunk});
  raw.send_chunk(1, {.sequence = 0, .total = kTotal, .offset = chunk, .bytes = chunk});
  raw.send_chunk(0, {.sequence = 0, .total = kTotal, .offset = 2 * chunk, .bytes = chunk});
  int done = 1;
  EXPECT_EQ(table_.test(first, &done, nullptr), 0);
  EXPECT_EQ(done, 0);
  raw.send_chunk(1, {.sequence = 0, .total = kTotal, .offset = 0, .bytes = chunk});
  EXPECT_EQ(raw.finish(first), 0);
  EXPECT_EQ(raw.finish(second), 0);
  EXPECT_EQ(static_cast<abi::TcpxRequest*>(first)->size, static_cast<int>(kTotal));
  EXPECT_EQ(static_cast<abi::TcpxRequest*>(second)->size, 10);
}

TEST_F(SoftFaults, HalfAHeaderThenTheEndIsALostPeer) {
  RawSender raw(table_);
  void* request = raw.post(100);
  const auto header = RawSender::encode({.total = 100, .bytes = 100});
  raw.send(0, std::span<const std::byte>(header).first(30));
  raw.sockets = {};
  EXPECT_EQ(raw.finish(request), abi::kNcclSystemError);
}

TEST_F(SoftFaults, Trap14_ACutDataSocketIsAnErrorThoughTheOthersLive) {
  RawSender raw(table_);
  void* request = raw.post(2 * kMiB);
  raw.send_chunk(0, {.sequence = 0, .total = 1048576, .offset = 0, .bytes = 524288});
  raw.sockets.data[1].reset();
  EXPECT_EQ(raw.finish(request), abi::kNcclSystemError);
}

TEST_F(SoftFaults, ACutControlSocketIsAnErrorThoughTheDataSocketsLive) {
  RawSender raw(table_);
  void* request = raw.post(100);
  raw.sockets.control.reset();
  EXPECT_EQ(raw.finish(request), abi::kNcclSystemError);
}

TEST_F(SoftFaults, ASenderNoticesAReceiverThatWentAwayWhileNothingWasSent) {
  TablePair pair(table_);
  TestMemory source(MemoryType::kHost, 4096);
  void *mhandle = pair.register_with(pair.sender, source), *request = nullptr;
  pair.close_receiver();
  EXPECT_TRUE(wait_until([&] {
    int done = 0;
    if (table_.isend(pair.sender, source.data(), 1, 0, mhandle, &request) == abi::kNcclSystemError) return true;
    while (table_.test(request, &done, nullptr) == 0 && done == 0) {
    }
    return false;
  }));
}

TEST_F(SoftFaults, ClosingEverythingEndsAllThreads) {
  std::thread([] {}).join();  // a thread checker starts a thread of its own with the first, and keeps it
  const size_t before = thread_count();
  {
    TablePair pair(table_);
    EXPECT_GT(thread_count(), before);
  }
  EXPECT_TRUE(wait_until([&] { return thread_count() == before; })) << before << " before, " << thread_count() << " now";
}

// The survivor of a process that is killed: an error, soon, whatever the step.
class KilledPeer : public SoftFaults, public ::testing::WithParamInterface<const char*> {
 protected:
  using Time = std::chrono::steady_clock::time_point;
  void told_after(Time killed) {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - killed).count();
    RecordProperty("milliseconds_to_error", static_cast<int>(ms));
    std::printf("%s: error %lld ms after the kill\n", GetParam(), static_cast<long long>(ms));
  }
};

class KilledSender : public KilledPeer {};
INSTANTIATE_TEST_SUITE_P(Step, KilledSender, ::testing::Values("start", "connect", "isend", "sent", "stream"));

TEST_P(KilledSender, TheReceiverGetsAnErrorSoon) {
  Handle handle;
  void *listener = listen(handle), *receiver = nullptr, *mhandle = nullptr;
  std::string hex;
  for (const std::byte b : handle.bytes) {
    hex += "0123456789abcdef"[static_cast<unsigned>(b) >> 4];
    hex += "0123456789abcdef"[static_cast<unsigned>(b) & 15];
  }
  const std::string step = GetParam();
  ChildProcess child({TCPX_SOFT_PEER, "send", step == "stream" ? "never" : step});
  child.write_line(hex);
  if (step == "start") {  // dies before it connects: there is simply no peer
    child.wait();
    EXPECT_EQ(table_.accept(listener, &receiver, nullptr), 0);
    EXPECT_EQ(receiver, nullptr);
    EXPECT_EQ(table_.close_listen(listener), 0);
    return;
  }
  receiver = accept_one(table_, listener, nullptr);
  TestMemory target(MemoryType::kCuda, kMiB);
  ASSERT_EQ(table_.reg_mr(receiver, target.data(), kMiB, 2, &mhandle), 0);
  Time killed;
  if (step != "stream") {
    const int status = child.wait();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    killed = std::chrono::steady_clock::now();
  }
  int rc = 0, received = 0;
  ASSERT_TRUE(wait_until([&] {
    void *data = target.data(), *request = nullptr;
    int size = kMiB, tag = 0, done = 0;
    rc = table_.irecv(receiver, 1, &data, &size, &tag, &mhandle, &request);
    while (rc == 0 && done == 0) rc = table_.test(request, &done, nullptr);
    if (rc == 0) rc = table_.irecv_consumed(receiver, 1, request);
    if (rc == 0 && ++received == 20 && step == "stream") {
      child.send_signal(SIGKILL);
      killed = std::chrono::steady_clock::now();
    }
    return rc != 0;
  })) << "a hang";
  told_after(killed);
  EXPECT_EQ(rc, abi::kNcclSystemError);
  EXPECT_EQ(table_.close_recv(receiver), 0);
  EXPECT_EQ(table_.close_listen(listener), 0);
}

class KilledReceiver : public KilledPeer {};
INSTANTIATE_TEST_SUITE_P(Step, KilledReceiver, ::testing::Values("listen", "accept", "irecv", "done", "stream"));

TEST_P(KilledReceiver, TheSenderGetsAnErrorSoon) {
  const std::string step = GetParam();
  ChildProcess child({TCPX_SOFT_PEER, "recv", step == "stream" ? "never" : step});
  const std::string hex = child.read_line(soon());
  ASSERT_EQ(hex.size(), 2 * kHandleBytes);
  Handle handle;
  for (size_t i = 0; i < kHandleBytes; ++i)
    handle.bytes[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  Time killed;
  if (step == "listen") {
    child.wait();
    killed = std::chrono::steady_clock::now();
    void* comm = nullptr;
    EXPECT_EQ(table_.connect(0, handle.bytes.data(), &comm, nullptr), abi::kNcclSystemError);
    told_after(killed);
    return;
  }
  void *sender = nullptr, *mhandle = nullptr;
  ASSERT_EQ(table_.connect(0, handle.bytes.data(), &sender, nullptr), 0);
  TestMemory source(MemoryType::kCuda, kMiB);
  ASSERT_EQ(table_.reg_mr(sender, source.data(), kMiB, 2, &mhandle), 0);
  if (step == "accept" || step == "irecv") {
    child.wait();
    killed = std::chrono::steady_clock::now();
  }
  int rc = 0, sent = 0;
  ASSERT_TRUE(wait_until([&] {
    void* request = nullptr;
    int done = 0;
    rc = table_.isend(sender, source.data(), kMiB, 0, mhandle, &request);
    while (rc == 0 && done == 0) rc = table_.test(request, &done, nullptr);
    if (rc == 0 && ++sent == 20 && step == "stream") {
      child.send_signal(SIGKILL);
      killed = std::chrono::steady_clock::now();
    }
    return rc != 0;
  })) << "a hang";
  if (killed != Time{}) told_after(killed);
  EXPECT_EQ(rc, abi::kNcclSystemError);
  EXPECT_EQ(table_.close_send(sender), 0);
}

TEST_F(SoftFaults, AStalledPeerLosesNothing) {
  ChildProcess child({TCPX_SOFT_PEER, "recv", "never"});
  const std::string hex = child.read_line(soon());
  ASSERT_EQ(hex.size(), 2 * kHandleBytes);
  Handle handle;
  for (size_t i = 0; i < kHandleBytes; ++i)
    handle.bytes[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  void *sender = nullptr, *mhandle = nullptr, *request = nullptr;
  ASSERT_EQ(table_.connect(0, handle.bytes.data(), &sender, nullptr), 0);
  TestMemory source(MemoryType::kCuda, kMiB);
  ASSERT_EQ(table_.reg_mr(sender, source.data(), kMiB, 2, &mhandle), 0);
  ASSERT_TRUE(child.wait_for_line("accept", soon()));
  child.send_signal(SIGSTOP);
  int sent = 0;
  // Until the kernel's buffers are full and a send stays unfinished for a while.
  for (bool stalled = false; !stalled; ++sent) {
    ASSERT_LT(sent, 1000);
    ASSERT_EQ(table_.isend(sender, source.data(), kMiB, 0, mhandle, &request), 0);
    int done = 0;
    stalled = !wait_until([&] { return table_.test(request, &done, nullptr) != 0 || done != 0; }, std::chrono::milliseconds(300));
  }
  child.send_signal(SIGCONT);
  int done = 0;
  EXPECT_TRUE(wait_until([&] { return table_.test(request, &done, nullptr) != 0 || done != 0; }));
  EXPECT_EQ(done, 1);
  for (int i = 0; i < sent; ++i) EXPECT_TRUE(child.wait_for_line("done", soon())) << i << " of " << sent;
  EXPECT_EQ(table_.close_send(sender), 0);
}

}  // namespace
}  // namespace tcpx::testing
