// The counts of what the broker gives to users.
#include "net/devmem/user_shares.h"

#include <gtest/gtest.h>

#include <vector>

namespace tcpx::testing {
namespace {

using devmem::UserShares;

TEST(DevmemUserShares, OneUserLeavesSomeToOthersAndAllTogetherHaveAnEnd) {
  constexpr uid_t kOne = 1, kOther = 2;
  UserShares shares("places", 3, 2);
  std::vector<UserShares::Share> one, other;
  for (int i = 0; i < 2; ++i) one.push_back(*shares.take(kOne));
  Status refused = shares.take(kOne).status();
  EXPECT_EQ(refused.code(), Code::kExhausted);
  EXPECT_EQ(refused.detail(), "user 1 has 2 places, as many as one user may have");
  other.push_back(*shares.take(kOther));
  refused = shares.take(kOther).status();
  EXPECT_EQ(refused.code(), Code::kExhausted);
  EXPECT_EQ(refused.detail(), "3 places are as many as it has");
  one.pop_back();
  other.push_back(*shares.take(kOther));
  EXPECT_EQ(shares.take(kOne).status().code(), Code::kExhausted);
  other.clear();
  EXPECT_TRUE(shares.take(kOne).is_ok());
}

}  // namespace
}  // namespace tcpx::testing
