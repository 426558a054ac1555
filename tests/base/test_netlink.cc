// A kernel whose answers lie in a socket before they are asked for.
#include "base/netlink.h"

#include <gtest/gtest.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include "tests/support/netlink_answers.h"

namespace tcpx {
namespace {

using testing::NetlinkAnswers;

TEST(Netlink, TheKernelsReasonIsToldInItsOwnWords) {
  for (const bool capped : {false, true}) {
    NetlinkAnswers kernel;
    kernel.refuse(EINVAL, "tcp-data-split is disabled", capped);
    kernel.refuse(EINVAL, "", capped);
    NetlinkSocket socket = kernel.socket();
    const Status told = socket.ask(77, bytes_of(uint64_t{1})).status();
    EXPECT_EQ(told.native(), EINVAL);
    EXPECT_EQ(told.detail(), "Invalid argument: tcp-data-split is disabled") << capped;
    EXPECT_EQ(socket.ask(77, {}).status().detail(), "Invalid argument");
  }
}

TEST(Netlink, AReasonThatIsCutOffIsNone) {
  NetlinkAnswers kernel;
  kernel.refuse(EPERM, "because", false);
  const Bytes whole = kernel.last();
  for (size_t size = sizeof(nlmsghdr) + sizeof(int); size < whole.size(); ++size) {
    Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    const auto length = static_cast<uint32_t>(size);
    std::memcpy(cut.data(), &length, sizeof length);
    const Status status = netlink_payload(cut, 1).status();
    EXPECT_EQ(status.native(), EPERM) << size;
  }
}

TEST(Netlink, AFamilyIsAskedByItsNumber) {
  NetlinkAnswers kernel;
  kernel.family(0x1D);
  kernel.answer({});
  Result<GenericFamily> family = GenericFamily::over(kernel.socket(), "netdev");
  ASSERT_TRUE(family.is_ok());
  EXPECT_TRUE(family->ask(13, Bytes(8))->empty());
  const Bytes first = kernel.asked(), second = kernel.asked();
  EXPECT_EQ(value_of<nlmsghdr>(std::span(first).first(sizeof(nlmsghdr)))->nlmsg_type, GENL_ID_CTRL);
  EXPECT_EQ(value_of<nlmsghdr>(std::span(second).first(sizeof(nlmsghdr)))->nlmsg_type, 0x1D);
  EXPECT_EQ(second[sizeof(nlmsghdr)], std::byte{13});
}

TEST(Netlink, AKernelWithoutTheFamilySaysSo) {
  NetlinkAnswers kernel;
  kernel.refuse(ENOENT);
  kernel.answer({});
  EXPECT_EQ(GenericFamily::over(kernel.socket(), "netdev").status().code(), Code::kNotFound);
  EXPECT_EQ(GenericFamily::open("no-such-family").status().code(), Code::kNotFound);  // this machine's
}

}  // namespace
}  // namespace tcpx
