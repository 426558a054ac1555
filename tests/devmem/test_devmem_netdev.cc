// Requests to the kernel, and the names of its refusals. tests/devmem/run_vm.sh binds for real.
#include "net/devmem/netdev.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/netlink_answers.h"

namespace tcpx::testing {
namespace {

using devmem::Netdev;
using devmem::ReceiveQueue;
using devmem::spare_queue;

constexpr uint16_t kNetdevFamily = 0x21;

Bytes number(uint16_t type, uint32_t value) {
  Bytes out;
  append_attribute(out, type, bytes_of(value));
  return out;
}

std::vector<uint32_t> words_behind_heads(const Bytes& question) {
  std::vector<uint32_t> words((question.size() - sizeof(nlmsghdr) - sizeof(genlmsghdr)) / sizeof(uint32_t));
  std::memcpy(words.data(), question.data() + sizeof(nlmsghdr) + sizeof(genlmsghdr), words.size() * sizeof(uint32_t));
  return words;
}

Result<Netdev> netdev_over(NetlinkAnswers& kernel) {
  kernel.family(kNetdevFamily);
  return Netdev::over(kernel.socket());
}

TEST(DevmemNetdev, BindsToQueues) {
  NetlinkAnswers kernel;
  Result<Netdev> netdev = netdev_over(kernel);
  ASSERT_TRUE(netdev.is_ok());
  kernel.answer(number(4, 17));
  const std::vector<uint32_t> queues = {3, 5};
  EXPECT_EQ(*netdev->bind_receive(2, queues, 42), 17u);
  (void)kernel.asked();
  const Bytes question = kernel.asked();
  EXPECT_EQ(question[sizeof(nlmsghdr)], std::byte{13});
  // Length and type, then the value, as netdev.yaml has them.
  constexpr uint32_t kNest = (2u | 0x8000u) << 16 | 20;
  EXPECT_EQ(words_behind_heads(question), (std::vector<uint32_t>{1 << 16 | 8, 2, 3 << 16 | 8, 42,        //
                                                                 kNest, 1 << 16 | 8, 3, 3 << 16 | 8, 0,  //
                                                                 kNest, 1 << 16 | 8, 5, 3 << 16 | 8, 0}));
  kernel.answer(number(4, 18));
  EXPECT_EQ(*netdev->bind_send(2, 43), 18u);
  const Bytes second = kernel.asked();
  EXPECT_EQ(second[sizeof(nlmsghdr)], std::byte{15});
  EXPECT_EQ(words_behind_heads(second), (std::vector<uint32_t>{1 << 16 | 8, 2, 3 << 16 | 8, 43}));
}

TEST(DevmemNetdev, TheLastQueueWithoutABindingIsSpareUnlessItIsTheFirst) {
  using Queues = std::vector<ReceiveQueue>;
  EXPECT_EQ(spare_queue(Queues{{0, {}}, {1, {}}, {2, 9}}), 1u);
  EXPECT_EQ(spare_queue(Queues{{0, {}}, {1, {}}}), 1u);
  EXPECT_EQ(spare_queue(Queues{{0, {}}, {1, 8}, {2, 9}}), std::nullopt);
  EXPECT_EQ(spare_queue(Queues{{0, {}}}), std::nullopt);
  EXPECT_EQ(spare_queue(Queues{{0, 7}}), std::nullopt);
  EXPECT_EQ(spare_queue(Queues{}), std::nullopt);
}

TEST(DevmemNetdev, ARefusalSaysWhatIsMissing) {
  struct Refusal {
    int error;
    const char* kernel;
    Code code;
    const char* words;
  };
  for (const Refusal& refusal : {
           Refusal{EPERM, "", Code::kSystem, "CAP_NET_ADMIN"},
           Refusal{EOPNOTSUPP, "", Code::kUnsupported, "Linux 6.12"},
           Refusal{EEXIST, "designated queue already memory provider bound", Code::kExhausted, "already"},
           Refusal{EINVAL, "tcp-data-split is disabled", Code::kUnsupported, "ethtool -G INTERFACE tcp-data-split on"},
           Refusal{EINVAL, "hds-thresh is not zero", Code::kUnsupported, "hds-thresh 0"},
           Refusal{EINVAL, "", Code::kUnsupported, "such a receive queue"},
           Refusal{ENODEV, "", Code::kNotFound, "network namespace"},
           Refusal{EIO, "Failed to map dmabuf attachment", Code::kSystem, "IOMMU"},
       }) {
    NetlinkAnswers kernel;
    Result<Netdev> netdev = netdev_over(kernel);
    kernel.refuse(refusal.error, refusal.kernel);
    const Status status = netdev->bind_receive(2, std::vector<uint32_t>{3}, 42).status();
    EXPECT_EQ(status.code(), refusal.code) << refusal.words;
    EXPECT_EQ(status.native(), refusal.error);
    EXPECT_NE(status.detail().find(refusal.words), std::string::npos) << status.to_string();
    EXPECT_NE(status.detail().find(refusal.kernel), std::string::npos) << status.to_string();
  }
}

TEST(DevmemNetdev, AnAnswerWithoutAnIdIsNone) {
  NetlinkAnswers kernel;
  Result<Netdev> netdev = netdev_over(kernel);
  kernel.answer({});
  EXPECT_EQ(netdev->bind_send(2, 42).status().code(), Code::kProtocol);
}

TEST(DevmemNetdev, QueuesAreAskedForUntilThereAreNoMore) {
  for (const int last : {ENOENT, EINVAL}) {
    NetlinkAnswers kernel;
    Result<Netdev> netdev = netdev_over(kernel);
    kernel.answer({});
    kernel.answer(number(5, 7));
    kernel.refuse(last);
    const Result<std::vector<ReceiveQueue>> queues = netdev->receive_queues(2);
    ASSERT_TRUE(queues.is_ok());
    ASSERT_EQ(queues->size(), 2u);
    EXPECT_FALSE((*queues)[0].dmabuf_id.has_value());
    EXPECT_EQ((*queues)[1].dmabuf_id, 7u);
  }
  NetlinkAnswers kernel;
  Result<Netdev> netdev = netdev_over(kernel);
  kernel.refuse(ENODEV);
  EXPECT_EQ(netdev->receive_queues(2).status().native(), ENODEV);
}

// This machine: nothing can be bound to loopback.
TEST(DevmemNetdev, LoopbackIsRefused) {
  EXPECT_EQ(devmem::interface_index("no-such-nic").status().code(), Code::kNotFound);
  const Result<uint32_t> loopback = devmem::interface_index("lo");
  ASSERT_TRUE(loopback.is_ok());
  Result<Netdev> netdev = Netdev::open();
  if (!netdev.is_ok()) GTEST_SKIP() << netdev.status().to_string();
  EXPECT_FALSE(netdev->bind_send(*loopback, 0).is_ok());
}

}  // namespace
}  // namespace tcpx::testing
