#include "net/devmem/receiver.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "tests/devmem/fake_socket_calls.h"
#include "tests/support/expect_log.h"

namespace tcpx::testing {
namespace {

using devmem::BoundDmabuf;
using devmem::DevmemRead;
using devmem::DevmemReceiver;

constexpr uint32_t kDmabuf = 3;
constexpr uint64_t kPoolBytes = 1 << 20;

class DevmemReceiving : public ::testing::Test {
 protected:
  DevmemReceiving() : receiver_(std::make_unique<DevmemReceiver>(kernel_, 0, BoundDmabuf{kDmabuf, kPoolBytes})) {}

  /// A fragment in the pool, whose token is out from now on.
  void device(CmsgBuilder& cmsgs, uint64_t off, uint32_t bytes, uint32_t token, uint32_t dmabuf = kDmabuf) {
    cmsgs.device(off, bytes, token, dmabuf);
    kernel_.out.insert(token);
  }
  Result<std::optional<DevmemRead>> receive(uint64_t dst_off = 0) { return receiver_->receive(room_, dst_off); }

  FakeSocketCalls kernel_;
  std::vector<std::byte> room_ = std::vector<std::byte>(64 * 1024);
  std::unique_ptr<DevmemReceiver> receiver_;
};

TEST_F(DevmemReceiving, AReadIsToldAsFragments) {
  CmsgBuilder first(CmsgDialect::kLinux), second(CmsgDialect::kLinux);
  device(first, 4096, 4000, 1);
  device(first, 12288, 96, 2);
  device(second, 0, 5, 3);
  kernel_.reads.push_back({-EINTR, {}, 0});
  kernel_.arrive(4096, first);
  kernel_.arrive(5, second);
  kernel_.reads.push_back({});
  Result<std::optional<DevmemRead>> arrival = receive(100);
  ASSERT_TRUE(arrival.is_ok() && arrival->has_value());
  EXPECT_EQ((*arrival)->bytes, 4096u);
  EXPECT_EQ((*arrival)->fragments, (std::vector<Fragment>{{4096, 4000, 100}, {12288, 96, 4100}}));
  arrival = receive(4196);
  EXPECT_EQ((*arrival)->fragments, (std::vector<Fragment>{{0, 5, 4196}}));
  EXPECT_EQ((*receive(4201))->bytes, 0u);  // the end of the stream
  EXPECT_EQ(receiver_->held(), 3u);
  EXPECT_EQ(receiver_->counts().fragments, 3u);
  EXPECT_EQ(receiver_->counts().pool_bytes, 4101u);
  EXPECT_EQ(receiver_->counts().linear_bytes, 0u);
}

TEST_F(DevmemReceiving, PagesGoBackBeforeItWaits) {
  CmsgBuilder cmsgs(CmsgDialect::kLinux);
  device(cmsgs, 0, 10, 7);
  device(cmsgs, 4096, 10, 8);
  kernel_.arrive(20, cmsgs);
  ASSERT_TRUE(receive()->has_value());
  ASSERT_TRUE(receiver_->consumed(1).is_ok());
  EXPECT_EQ(kernel_.out.size(), 2u);
  const Result<std::optional<DevmemRead>> nothing = receive();
  ASSERT_TRUE(nothing.is_ok());
  EXPECT_FALSE(nothing->has_value());
  EXPECT_EQ(kernel_.out, std::multiset<uint32_t>{8});
  receiver_.reset();
  EXPECT_TRUE(kernel_.out.empty());
}

TEST_F(DevmemReceiving, BytesInHostMemoryAreCounted) {
  CmsgBuilder cmsgs(CmsgDialect::kLinux);
  cmsgs.linear(100);
  device(cmsgs, 8192, 1000, 1);
  kernel_.arrive(1100, cmsgs);
  kernel_.arrive(300, CmsgBuilder(CmsgDialect::kLinux));  // whole packets
  Result<std::optional<DevmemRead>> arrival = receive();
  ASSERT_TRUE(arrival.is_ok());
  EXPECT_EQ((*arrival)->linear, (std::vector<Fragment>{{0, 100, 0}}));
  EXPECT_EQ((*arrival)->fragments, (std::vector<Fragment>{{8192, 1000, 100}}));
  arrival = receive(1100);
  ASSERT_TRUE(arrival.is_ok());
  EXPECT_EQ((*arrival)->linear, (std::vector<Fragment>{{0, 300, 1100}}));
  EXPECT_EQ(receiver_->counts().pool_bytes, 1000u);
  EXPECT_EQ(receiver_->counts().linear_bytes, 400u);
}

// Whatever is wrong with a read, its pages go back, those of earlier reads stay, and the connection is over.
TEST_F(DevmemReceiving, ABadReadEndsTheConnectionAndKeepsNoPages) {
  struct Bad {
    const char* words;
    uint64_t off;
    uint32_t bytes, dmabuf;
    ssize_t result;
    int flags;
  };
  for (const Bad& bad :
       {Bad{"control data truncated", 0, 10, kDmabuf, 20, MSG_CTRUNC}, Bad{"size mismatch", 0, 10, kDmabuf, 11, 0},
        Bad{"in dma-buf 4, and bound is 3", 0, 10, 4, 10, 0}, Bad{"of a pool of", kPoolBytes - 9, 10, kDmabuf, 10, 0},
        Bad{"of a pool of", kPoolBytes + 1, 1, kDmabuf, 1, 0}, Bad{"overflow", uint64_t{1} << 32, 10, kDmabuf, 10, 0}}) {
    SCOPED_TRACE(bad.words);
    allow_log(bad.words);
    receiver_ = std::make_unique<DevmemReceiver>(kernel_, 0, BoundDmabuf{kDmabuf, kPoolBytes});
    CmsgBuilder good(CmsgDialect::kLinux), cmsgs(CmsgDialect::kLinux);
    device(good, kPoolBytes - 10, 10, 1);  // up to the pool's last byte
    device(cmsgs, bad.off, bad.bytes, 2, bad.dmabuf);
    kernel_.arrive(10, good);
    kernel_.arrive(bad.result, cmsgs, bad.flags);
    ASSERT_TRUE(receive().is_ok());
    const Status status = receive().status();
    EXPECT_EQ(status.code(), Code::kProtocol);
    EXPECT_NE(status.detail().find(bad.words), std::string::npos) << status.to_string();
    EXPECT_EQ(kernel_.out, std::multiset<uint32_t>{1});
    kernel_.arrive(1, CmsgBuilder(CmsgDialect::kLinux));
    EXPECT_EQ(receive().status().detail(), status.detail());
    kernel_.reads.clear();
    receiver_.reset();
    EXPECT_TRUE(kernel_.out.empty());
  }
}

TEST_F(DevmemReceiving, MoreBytesThanAskedForAreRefused) {
  allow_log("asked for were");
  CmsgBuilder cmsgs(CmsgDialect::kLinux);
  cmsgs.linear(64 * 1024 + 1);
  kernel_.arrive(64 * 1024 + 1, cmsgs);
  EXPECT_EQ(receive().status().code(), Code::kProtocol);
}

TEST_F(DevmemReceiving, ErrorsOfTheKernelSayWhatTheyMean) {
  allow_log("receive into device memory");
  for (const auto& [error, words] :
       {std::pair{EFAULT, "mixes them"}, {ENODEV, "another program's"}, {525, "no room"}, {ECONNRESET, "Connection reset"}}) {
    receiver_ = std::make_unique<DevmemReceiver>(kernel_, 0, BoundDmabuf{kDmabuf, kPoolBytes});
    kernel_.reads.push_back({-error, {}, 0});
    const Status status = receive().status();
    EXPECT_EQ(status.native(), error);
    EXPECT_NE(status.detail().find(words), std::string::npos) << status.to_string();
  }
}

}  // namespace
}  // namespace tcpx::testing
