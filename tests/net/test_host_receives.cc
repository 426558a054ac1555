#include "net/host_receives.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

TEST(HostReceives, AClosedCommTakesTheSizesOfItsOwnReceivesAlone) {
  HostReceives receives;
  constexpr RecvComm kClosed{1}, kOpen{2};
  constexpr Request kOfClosed{11}, kOfOpen{12};
  receives.posted(kClosed, kOfClosed);
  receives.posted(kOpen, kOfOpen);
  receives.done(kOfClosed, 5);
  receives.done(kOfOpen, 7);
  receives.closed(kClosed);
  EXPECT_EQ(receives.bytes(kOfClosed), std::nullopt);
  EXPECT_EQ(receives.bytes(kOfOpen), 7u);
}

}  // namespace
}  // namespace tcpx
