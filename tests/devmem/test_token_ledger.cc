#include "net/devmem/token_ledger.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/devmem/fake_socket_calls.h"

namespace tcpx::testing {
namespace {

using devmem::TokenLedger;

void tell(FakeSocketCalls& kernel, TokenLedger& ledger, const std::vector<uint32_t>& tokens) {
  kernel.out.insert(tokens.begin(), tokens.end());
  ledger.hold(tokens);
}

std::vector<uint32_t> successive(uint32_t first, uint32_t count, uint32_t step = 1) {
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < count; ++i) tokens.push_back(first + i * step);
  return tokens;
}

TEST(TokenLedger, TokensLeaveInFullCallsAndTheRestWhenAsked) {
  FakeSocketCalls kernel;
  TokenLedger ledger(kernel, 0);
  tell(kernel, ledger, successive(5, 2500));
  ASSERT_TRUE(ledger.give_back(1023).is_ok());
  EXPECT_TRUE(kernel.give_backs.empty());
  ASSERT_TRUE(ledger.give_back(1200).is_ok());
  EXPECT_EQ(kernel.give_backs, (std::vector<size_t>{1024, 1024}));
  ASSERT_TRUE(ledger.flush().is_ok());
  EXPECT_EQ(kernel.give_backs, (std::vector<size_t>{1024, 1024, 175}));
  EXPECT_EQ(ledger.held(), 277u);
  // The oldest have left.
  EXPECT_EQ(*kernel.out.begin(), 5u + 2223);
}

TEST(TokenLedger, ScatteredTokensTakeMoreCalls) {
  FakeSocketCalls kernel;
  TokenLedger ledger(kernel, 0);
  tell(kernel, ledger, successive(1, 300, 2));
  ASSERT_TRUE(ledger.give_back(300).is_ok());
  ASSERT_TRUE(ledger.flush().is_ok());
  EXPECT_EQ(kernel.give_backs, (std::vector<size_t>{128, 128, 44}));
}

TEST(TokenLedger, TheNewestMayLeaveBeforeTheOthers) {
  FakeSocketCalls kernel;
  TokenLedger ledger(kernel, 0);
  tell(kernel, ledger, successive(1, 10));
  tell(kernel, ledger, successive(20, 3));
  ASSERT_TRUE(ledger.give_back_newest(3).is_ok());
  ASSERT_TRUE(ledger.give_back(2).is_ok());
  ASSERT_TRUE(ledger.flush().is_ok());
  EXPECT_EQ(kernel.out, (std::multiset<uint32_t>{3, 4, 5, 6, 7, 8, 9, 10}));
  ASSERT_TRUE(ledger.give_back(8).is_ok());
  EXPECT_EQ(ledger.held(), 8u);
  ASSERT_TRUE(ledger.flush().is_ok());
  EXPECT_EQ(ledger.held(), 0u);
}

TEST(TokenLedger, AllComeBackAtTheEnd) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    FakeSocketCalls kernel;
    {
      TokenLedger ledger(kernel, 0);
      uint32_t next = 0;
      size_t unread = 0;
      for (int i = 0; i < 100; ++i) {
        const auto tokens = successive(next, random() % 100, 1 + random() % 2);
        next += 200;
        tell(kernel, ledger, tokens);
        unread += tokens.size();
        const size_t count = random() % (unread + 1);
        ASSERT_TRUE(ledger.give_back(count).is_ok());
        unread -= count;
        ASSERT_EQ(ledger.held(), kernel.out.size());
        ASSERT_GE(ledger.held(), unread);
      }
    }
    EXPECT_TRUE(kernel.out.empty());
  }
}

TEST(TokenLedger, TokensThatTheKernelDoesNotKnowAreToldOnce) {
  FakeSocketCalls kernel;
  TokenLedger ledger(kernel, 0);
  ledger.hold(successive(1, 3));
  kernel.out = {2};
  ASSERT_TRUE(ledger.give_back(3).is_ok());
  EXPECT_EQ(ledger.flush().detail(), "the kernel knew 1 of 3 tokens");
  EXPECT_TRUE(ledger.flush().is_ok());
}

TEST(TokenLedger, ARefusedCallKeepsTheTokens) {
  FakeSocketCalls kernel;
  TokenLedger ledger(kernel, 0);
  tell(kernel, ledger, successive(1, 3));
  kernel.refuses = EBADF;
  ASSERT_TRUE(ledger.give_back(3).is_ok());
  EXPECT_EQ(ledger.flush().native(), EBADF);
  EXPECT_EQ(ledger.held(), 3u);
  kernel.refuses = 0;
  EXPECT_TRUE(ledger.flush().is_ok());
  EXPECT_TRUE(kernel.out.empty());
}

}  // namespace
}  // namespace tcpx::testing
