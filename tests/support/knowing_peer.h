// A peer that knows what is open at the endpoint it talks to (peer_model.h). It says what a peer may say, compares all that becomes
// of it, and lies in the end about one of the things it knows. After each saying everything has settled, so there is one right
// answer to all of it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/support/peer_lies.h"
#include "tests/support/peer_model.h"
#include "tests/support/peer_truths.h"

namespace tcpx::testing {

class KnowingPeer {
 public:
  KnowingPeer(PeersEnd end, uint64_t seed) : model_(std::move(end), seed) {}

  /// Lies that it knows.
  static size_t lies(bool eager) { return std::size(lies::kAll) + (eager ? std::size(lies::kEager) : std::size(lies::kNotEager)); }
  /// @param truths that it says before, and more until there is something to lie about. @param lie 0 ... lies() - 1
  void talk(int truths, size_t lie) {
    for (; truths > 0 && !::testing::Test::HasFailure(); --truths) say_something();
    for (int more = 1000; more > 0 && !::testing::Test::HasFailure() && !say_lie(lie); --more) {
      ASSERT_GT(more, 1) << "there is never anything to lie about";
      say_something();
    }
    if (::testing::Test::HasFailure()) return;
    model_.note("which was a lie");
    model_.over = true;
    (void)model_.end.settle();
    EXPECT_TRUE(wait_until([&] { return !model_.end.alive(); })) << "believed; " << said();
  }
  /// When the connection is over: every operation has ended once, badly, and no byte has changed that should not have.
  void expect_over() {
    for (const auto& theirs : model_.let_go) (void)model_.end_of(theirs.number);
    for (const auto& theirs : model_.open) {
      const OperationAnswer answer = model_.end_of(theirs.number);
      EXPECT_EQ(answer.state, OperationState::kFailed) << theirs.number << ": " << said();
      EXPECT_TRUE(answer.status.code() == Code::kProtocol || (theirs.given_up && answer.status.code() == Code::kCancelled))
          << answer.status.to_string() << "; " << said();
      EXPECT_EQ(model_.end.poll(theirs.number).state, OperationState::kUnknown);
    }
    model_.expect_memory();
  }
  std::string said() const { return model_.said(); }

 private:
  void say_something() {
    while (!say_truth(model_.below(std::size(truths::kAll) + (model_.eager() ? std::size(truths::kEager) : 0)))) continue;
    model_.settle();
  }
  bool say_truth(uint64_t truth) {
    const size_t common = std::size(truths::kAll);
    return truth < common ? truths::kAll[truth](model_) : truths::kEager[truth - common](model_);
  }
  bool say_lie(size_t lie) {
    const size_t common = std::size(lies::kAll);
    if (lie < common) return lies::kAll[lie](model_);
    return model_.eager() ? lies::kEager[lie - common](model_) : lies::kNotEager[lie - common](model_);
  }

  PeerModel model_;
};

}  // namespace tcpx::testing
