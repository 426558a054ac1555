#include "net/devmem/sender.h"

#include <gtest/gtest.h>

#include "tests/devmem/fake_socket_calls.h"
#include "tests/support/expect_log.h"

namespace tcpx::testing {
namespace {

using devmem::BoundDmabuf;
using devmem::DevmemSender;

constexpr uint64_t kSourceBytes = 1 << 20;
constexpr BoundDmabuf kSource = {.id = 9, .bytes = kSourceBytes};

DevmemSender sender_over(FakeSocketCalls& kernel) {
  Result<DevmemSender> sender = DevmemSender::create(kernel, 0);
  EXPECT_TRUE(sender.is_ok());
  return *sender;
}

TEST(DevmemSending, TheSocketTakesAPart) {
  FakeSocketCalls kernel;
  DevmemSender sender = sender_over(kernel);
  EXPECT_EQ(kernel.zero_copy, 1);
  kernel.takes = {-EINTR, 300, -EAGAIN};
  EXPECT_EQ(*sender.try_send(kSource, 4096, 1000), 300u);
  EXPECT_EQ(*sender.try_send(kSource, 4396, 700), 0u);
  EXPECT_EQ(*sender.try_send(kSource, kSourceBytes - 700, 700), 700u);
  EXPECT_EQ(sender.sends(), 2u);
  ASSERT_EQ(kernel.sent.size(), 4u);
  EXPECT_EQ(kernel.sent[1].off, 4096u);
  EXPECT_EQ(kernel.sent[1].bytes, 1000u);
  EXPECT_EQ(kernel.sent[1].dmabuf_id, kSource.id);
  EXPECT_EQ(kernel.sent[1].flags, MSG_ZEROCOPY | MSG_DONTWAIT | MSG_NOSIGNAL);
}

TEST(DevmemSending, BytesBeyondTheMemoryAreNotAskedFor) {
  FakeSocketCalls kernel;
  DevmemSender sender = sender_over(kernel);
  for (const auto& [off, bytes] : {std::pair<uint64_t, size_t>{kSourceBytes - 1, 2}, {kSourceBytes + 1, 0}, {~uint64_t{0}, 2}})
    EXPECT_EQ(sender.try_send(kSource, off, bytes).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(kernel.sent.empty());
}

TEST(DevmemSending, MemoryIsFreeWhenTheKernelSaysSo) {
  FakeSocketCalls kernel;
  DevmemSender sender = sender_over(kernel);
  EXPECT_TRUE(sender.are_over(0));
  for (int i = 0; i < 4; ++i) ASSERT_EQ(*sender.try_send(kSource, 0, 10), 10u);
  kernel.complete(1, 2);
  kernel.complete(0, 3, 0, 2);  // of another origin: an ICMP error
  ASSERT_TRUE(sender.read_completions().is_ok());
  EXPECT_FALSE(sender.are_over(1));
  kernel.complete(0, 0);
  ASSERT_TRUE(sender.read_completions().is_ok());
  EXPECT_TRUE(sender.are_over(3));
  EXPECT_FALSE(sender.are_over(4));
  EXPECT_EQ(sender.copied(), 0u);
}

TEST(DevmemSending, CopiesOfTheKernelAreTold) {
  allow_log("copies what is sent from device memory");
  FakeSocketCalls kernel;
  DevmemSender sender = sender_over(kernel);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(*sender.try_send(kSource, 0, 10), 10u);
  kernel.complete(0, 1, SO_EE_CODE_ZEROCOPY_COPIED);
  ASSERT_TRUE(sender.read_completions().is_ok());
  EXPECT_TRUE(sender.are_over(2));
  EXPECT_EQ(sender.copied(), 1u);
  EXPECT_TRUE(logged("copies what is sent from device memory"));
}

TEST(DevmemSending, UnreadCompletionsMakeRoom) {
  FakeSocketCalls kernel;
  DevmemSender sender = sender_over(kernel);
  ASSERT_EQ(*sender.try_send(kSource, 0, 10), 10u);
  kernel.complete(0, 0);
  kernel.takes = {-ENOBUFS, -ENOBUFS};
  EXPECT_EQ(*sender.try_send(kSource, 10, 10), 0u);
  EXPECT_TRUE(sender.are_over(1));
  // None are under way, so nothing will make room.
  EXPECT_EQ(sender.try_send(kSource, 10, 10).status().code(), Code::kSystem);
}

TEST(DevmemSending, ErrorsOfTheKernelSayWhatTheyMean) {
  for (const auto& [error, words] :
       {std::pair{EINVAL, "bound no longer"}, {ENODEV, "does not leave by the NIC"}, {EPIPE, "pipe"}}) {
    FakeSocketCalls kernel;
    DevmemSender sender = sender_over(kernel);
    kernel.takes = {-error};
    const Status status = sender.try_send(kSource, 0, 10).status();
    EXPECT_EQ(status.native(), error);
    EXPECT_NE(status.detail().find(words), std::string::npos) << status.to_string();
  }
  FakeSocketCalls kernel;
  kernel.refuses = ENOPROTOOPT;
  EXPECT_EQ(DevmemSender::create(kernel, 0).status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace tcpx::testing
