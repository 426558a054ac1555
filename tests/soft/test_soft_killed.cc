// The survivor of a killed process: it soon gets an error, at any step.
#include <signal.h>

#include <chrono>

#include "tests/support/child_process.h"
#include "tests/support/handle_text.h"
#include "tests/support/soft_faults.h"

namespace tcpx::testing {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

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
  const std::string step = GetParam();
  ChildProcess child({TCPX_SOFT_PEER, "send", step == "stream" ? "never" : step});
  child.write_line(to_hex(handle));
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
    EXPECT_EQ(status, 128 + SIGKILL);
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
  auto handle = handle_from_hex(child.read_line(soon()));
  ASSERT_TRUE(handle);
  Time killed;
  if (step == "listen") {
    child.wait();
    killed = std::chrono::steady_clock::now();
    void* comm = nullptr;
    EXPECT_EQ(table_.connect(0, handle->bytes.data(), &comm, nullptr), abi::kNcclSystemError);
    told_after(killed);
    return;
  }
  void *sender = nullptr, *mhandle = nullptr;
  ASSERT_EQ(table_.connect(0, handle->bytes.data(), &sender, nullptr), 0);
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

}  // namespace
}  // namespace tcpx::testing
