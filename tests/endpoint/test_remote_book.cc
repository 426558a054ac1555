// One connection per remote endpoint, and who of several callers makes, shares and ends it.
#include "endpoint/remote_book.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "tests/support/wait_until.h"

namespace tcpx::testing {
namespace {

/// Connections that are nothing but numbers.
class FakeMaker final : public ConnectionMaker {
 public:
  Result<std::shared_ptr<Connection>> dial(const EndpointMetadata&, Deadline, std::optional<ConnId> again) override {
    ++dialling;
    while (blocked) std::this_thread::yield();
    if (!answer.is_ok()) return answer;
    auto connection = std::make_shared<Connection>();
    connection->id = again ? *again : ConnId{++last};
    alive.insert(connection->id);
    return connection;
  }
  bool is_alive(ConnId conn) override { return alive.contains(conn); }
  bool revive(const std::shared_ptr<Connection>& connection) override {
    in_use = true;
    return alive.contains(connection->id);
  }
  void drop(ConnId conn) override { dropped.push_back(conn); }
  void retire(ConnId conn, bool keep) override {
    EXPECT_TRUE(keep);
    if (at_retire) at_retire();
    retired.push_back(conn);
    in_use = false;
  }

  std::atomic<int> dialling{0};
  std::atomic<bool> blocked{false};
  Status answer;
  uint64_t last = 0;
  std::set<ConnId> alive;
  std::vector<ConnId> dropped, retired;
  std::function<void()> at_retire;
  std::atomic<bool> in_use{false};  // since it was revived
};

class RemoteBookTest : public ::testing::Test {
 protected:
  Result<ConnId> add(uint64_t instance = 1, Deadline deadline = Deadline::after(kTestDeadline)) {
    return book_.add({.host = "there", .port = 1, .gpu_idx = 0, .instance = instance}, deadline);
  }
  static constexpr ConnId kFirst{1}, kSecond{2};

  FakeMaker maker_;
  std::atomic<bool> stop_{false};
  RemoteBook book_{maker_, stop_};
};

TEST_F(RemoteBookTest, TheLastUserEndsIt) {
  EXPECT_EQ(add().value(), kFirst);
  EXPECT_EQ(add().value(), kFirst);
  EXPECT_EQ(maker_.dialling, 1);
  EXPECT_TRUE(book_.remove(kFirst)->is_ok());
  EXPECT_TRUE(maker_.retired.empty());
  EXPECT_TRUE(book_.remove(kFirst)->is_ok());
  EXPECT_EQ(maker_.retired, std::vector<ConnId>{kFirst});
  EXPECT_EQ(book_.remove(kFirst)->code(), Code::kNotFound);
  EXPECT_FALSE(book_.remove(ConnId{99}).has_value()) << "not of this book";
  EXPECT_EQ(add().value(), kFirst) << "it was kept";
}

TEST_F(RemoteBookTest, OneThatHasEndedIsMadeAnewUnderTheSameIdWhileItIsUsed) {
  ASSERT_TRUE(add().is_ok());
  maker_.alive.clear();
  EXPECT_EQ(add().value(), kFirst);
  EXPECT_TRUE(maker_.dropped.empty());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(book_.remove(kFirst)->is_ok());
  maker_.alive.clear();
  EXPECT_EQ(add().value(), kSecond) << "nobody used it";
  EXPECT_EQ(maker_.dropped, std::vector<ConnId>{kFirst});
  EXPECT_FALSE(book_.remove(kFirst).has_value());
}

TEST_F(RemoteBookTest, AnotherEndpointAtTheSameAddressIsAnotherConnection) {
  ASSERT_TRUE(add(1).is_ok());
  ASSERT_TRUE(book_.remove(kFirst)->is_ok());
  EXPECT_EQ(add(0).value(), kFirst) << "whichever listens there";
  ASSERT_TRUE(book_.remove(kFirst)->is_ok());
  EXPECT_EQ(add(2).value(), kSecond);
}

TEST_F(RemoteBookTest, OthersWaitForTheOneThatConnects) {
  maker_.blocked = true;
  std::vector<Result<ConnId>> answers(4, Status(Code::kInternal, "test", "not asked"));
  std::vector<std::thread> callers;
  for (auto& answer : answers) callers.emplace_back([&] { answer = add(); });
  EXPECT_TRUE(wait_until([&] { return maker_.dialling == 1; }));
  EXPECT_EQ(add(1, Deadline(TimePoint{})).status().code(), Code::kTimeout);
  maker_.blocked = false;
  for (std::thread& caller : callers) caller.join();
  for (const auto& answer : answers) EXPECT_EQ(answer.value(), kFirst);
  EXPECT_EQ(maker_.dialling, 1);
}

TEST_F(RemoteBookTest, AWaitEndsWithTheEndpoint) {
  maker_.blocked = true;
  std::thread caller([&] { (void)add(); });
  EXPECT_TRUE(wait_until([&] { return maker_.dialling == 1; }));
  stop_ = true;
  EXPECT_EQ(add().status().code(), Code::kCancelled);
  maker_.blocked = false;
  caller.join();
}

TEST_F(RemoteBookTest, AFailureLeavesNoUser) {
  maker_.answer = Status(Code::kPeerGone, "test", "nobody listens");
  EXPECT_EQ(add().status().code(), Code::kPeerGone);
  maker_.answer = Status::ok();
  ASSERT_TRUE(add().is_ok());
  EXPECT_TRUE(book_.remove(kFirst)->is_ok());
  EXPECT_EQ(maker_.retired, std::vector<ConnId>{kFirst}) << "the one that failed does not count";
}

TEST_F(RemoteBookTest, AFailureDoesNotRetireWhatAnotherCallHasJustRevived) {
  ASSERT_TRUE(add().is_ok());
  ASSERT_TRUE(book_.remove(kFirst)->is_ok());
  std::thread reviver;
  std::atomic<bool> revived{false};
  maker_.at_retire = [&] {
    reviver = std::thread([&] {
      EXPECT_EQ(add(1).value(), kFirst);
      revived = true;
    });
    // Time in which it could come between, not one that it needs.
    (void)wait_until([&] { return revived.load(); }, std::chrono::milliseconds(100));
  };
  maker_.answer = Status(Code::kPeerGone, "test", "another endpoint listens there");
  EXPECT_EQ(add(2).status().code(), Code::kPeerGone);
  ASSERT_TRUE(reviver.joinable());
  reviver.join();
  EXPECT_TRUE(maker_.in_use);
}

}  // namespace
}  // namespace tcpx::testing
