// Status: what it keeps, and that it can say that there is no memory without any.
#include "tcpx/status.h"

#include <gtest/gtest.h>

#include "tests/support/count_allocations.h"

namespace tcpx {
namespace {

TEST(Status, AnOkOneIsEmptyAndCostsNoMemory) {
  const uint64_t before = testing::allocation_count();
  const Status ok = Status::ok();
  const Status copy = ok;
  EXPECT_TRUE(copy.is_ok());
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_TRUE(copy.operation().empty() && copy.detail().empty());
  EXPECT_EQ(copy.code(), Code::kOk);
  EXPECT_EQ(copy.to_string(), "TCPX_OK");
  EXPECT_TRUE(Status(Code::kOk, "decode", "what a peer said").is_ok()) << "its words are dropped";
}

TEST(Status, CopiesOfAnErrorShareWhatItSays) {
  const std::string long_text(100, 'x');
  const Status error(Code::kPeerGone, "connect", long_text, Domain::kErrno, 111);
  const uint64_t before = testing::allocation_count();
  const Status copy = error;
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_EQ(copy.to_string(), "TCPX_E_PEER_GONE: connect: " + long_text + " (errno 111)");
  EXPECT_EQ(copy.domain(), Domain::kErrno);
  EXPECT_EQ(copy.native(), 111);
}

TEST(Status, WithoutMemoryItSaysThat) {
  Status status;
  {
    const testing::NoMemory none;
    status = Status(Code::kPeerGone, "connect", "refused");
  }
  EXPECT_EQ(status.to_string(), "TCPX_E_EXHAUSTED: allocate: out of memory");
}

}  // namespace
}  // namespace tcpx
