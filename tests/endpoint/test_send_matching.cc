// The n-th send meets the n-th receive, whichever comes first and whoever gives up.
#include "endpoint/send_matching.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

using Meets = SendMatching::Meets;

Arrival arrival(uint64_t number, bool with_data = false) {
  Arrival made;
  made.number = number;
  made.bytes = 10;
  made.with_data = with_data;
  made.charge = {Window::kSendOffers, number};
  return made;
}

TEST(SendMatching, ASendMeetsAPostedReceive) {
  SendMatching matching;
  matching.submit(0, 70);
  matching.submit(1, 71);
  EXPECT_FALSE(matching.post(1).arrival.has_value());
  const auto met = matching.meet(1);
  EXPECT_EQ(met.with, Meets::kReceive);
  EXPECT_EQ(met.receive, 71u);
  EXPECT_EQ(matching.meet(1).with, Meets::kNobody) << "each receive once";
}

TEST(SendMatching, AReceiveThatIsNotPostedIsNotMet) {
  SendMatching matching;
  matching.submit(0, 70);
  EXPECT_EQ(matching.meet(0).with, Meets::kNobody);
  matching.keep(0, arrival(7));
  EXPECT_TRUE(matching.has_come(0));
  EXPECT_EQ(matching.arrivals(), 1u);
  const auto met = matching.post(0);
  ASSERT_TRUE(met.arrival.has_value());
  EXPECT_EQ(met.arrival->number, 7u);
  EXPECT_FALSE(met.cancelled);
  EXPECT_EQ(matching.arrivals(), 0u);
}

TEST(SendMatching, TwoSendsOfOnePlaceAreNoticed) {
  SendMatching matching;
  matching.keep(4, arrival(7));
  EXPECT_EQ(matching.meet(4).with, Meets::kAnotherSend);
  EXPECT_EQ(*matching.cancel_unannounced(5), std::nullopt);
  EXPECT_EQ(matching.meet(5).with, Meets::kAnotherSend);
}

TEST(SendMatching, AReceiveThatGivesUpKeepsItsPlace) {
  SendMatching matching;
  matching.submit(0, 70);
  EXPECT_FALSE(matching.give_up(0).has_value());
  EXPECT_EQ(matching.meet(0).with, Meets::kGivenUpReceive);
  EXPECT_EQ(matching.meet(0).with, Meets::kNobody) << "once";
  matching.submit(1, 71);
  matching.keep(1, arrival(8));
  const auto refused = matching.give_up(1);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->number, 8u);
  EXPECT_FALSE(matching.has_come(1));
}

TEST(SendMatching, AnAnnouncedSendIsCancelledOnlyByItsNumberAndOnce) {
  SendMatching matching;
  matching.keep(0, arrival(7));
  matching.keep(1, arrival(8, true));
  EXPECT_EQ(matching.cancel_announced(0, 9).status().code(), Code::kProtocol);
  EXPECT_EQ(matching.cancel_announced(1, 8).status().code(), Code::kProtocol) << "it came with its data";
  const auto cancelled = matching.cancel_announced(0, 7);
  ASSERT_TRUE(cancelled.is_ok() && cancelled->has_value());
  EXPECT_EQ((*cancelled)->bytes, 7u);
  const auto met_meanwhile = matching.cancel_announced(0, 7);
  ASSERT_TRUE(met_meanwhile.is_ok());
  EXPECT_FALSE(met_meanwhile->has_value());
  EXPECT_TRUE(matching.has_come(0));
  matching.submit(0, 70);
  EXPECT_TRUE(matching.post(0).cancelled);
  EXPECT_FALSE(matching.has_come(0)) << "told once";
}

TEST(SendMatching, AnUnannouncedSendIsCancelledWhateverWaitsForIt) {
  SendMatching matching;
  matching.submit(0, 70);
  const auto waiting = matching.cancel_unannounced(0);
  ASSERT_TRUE(waiting.is_ok());
  EXPECT_EQ(*waiting, std::optional<uint64_t>(70)) << "posted or not";
  matching.submit(1, 71);
  EXPECT_FALSE(matching.give_up(1).has_value());
  EXPECT_EQ(*matching.cancel_unannounced(1), std::nullopt);
  EXPECT_EQ(matching.meet(1).with, Meets::kNobody) << "both have given up";
  EXPECT_EQ(*matching.cancel_unannounced(2), std::nullopt);
  EXPECT_EQ(matching.cancel_unannounced(2).status().code(), Code::kProtocol) << "twice";
  matching.keep(3, arrival(7));
  EXPECT_EQ(matching.cancel_unannounced(3).status().code(), Code::kProtocol) << "it has come";
  matching.submit(2, 72);
  EXPECT_FALSE(matching.give_up(2).has_value());
  EXPECT_FALSE(matching.has_come(2)) << "a receive that gives up forgets its cancelled send";
}

TEST(SendMatching, HolesAreBounded) {
  SendMatching matching;
  for (uint64_t i = 0; i < SendMatching::kMaxGivenUpSends; ++i) ASSERT_TRUE(matching.cancel_unannounced(2 * i).is_ok());
  const uint64_t next = 2 * SendMatching::kMaxGivenUpSends;
  EXPECT_EQ(matching.cancel_unannounced(next).status().code(), Code::kProtocol);
  matching.submit(next, 70);
  EXPECT_TRUE(matching.cancel_unannounced(next).is_ok()) << "what waits there is no hole";
}

TEST(SendMatching, WhatHasComeWholeOutlivesTheLink) {
  SendMatching matching;
  matching.keep(0, arrival(7));
  matching.keep(1, arrival(8, true));
  EXPECT_EQ(*matching.cancel_unannounced(2), std::nullopt);
  matching.submit(3, 73);
  matching.end();
  EXPECT_EQ(matching.arrivals(), 1u);
  EXPECT_FALSE(matching.has_come(0));
  EXPECT_FALSE(matching.has_come(2));
  matching.submit(1, 71);
  EXPECT_TRUE(matching.post(1).arrival.has_value());
}

}  // namespace
}  // namespace tcpx
