// Ranks find each other, or learn why not. Each rank is a thread here.
#include "programs/mesh/rendezvous.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/support/expect_log.h"
#include "tests/support/ok.h"

namespace tcpx::mesh {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::soon;

RankDescription description_of(int rank, int size) {
  return {.rank = rank,
          .size = size,
          .host = "here",
          .memory = "host memory",
          .version = "1",
          .port = static_cast<uint16_t>(1000 + rank),
          .options = {{"size", "1 MiB"}}};
}

/// Ranks that join and then wait for the leader's last word.
class RendezvousTest : public ::testing::Test {
 protected:
  RendezvousTest() {
    auto server = BootstrapServer::create({.host = "127.0.0.1"});
    EXPECT_TRUE(server.is_ok()) << server.status().to_string();
    server_ = std::move(*server);
  }

  void join(const RankDescription& mine) {
    ranks_.push_back(std::async(std::launch::async, [this, mine] {
      auto leader = join_mesh("127.0.0.1", server_->port(), mine, soon(), nullptr);
      return leader.is_ok() ? leader->finish(Status::ok(), soon()) : leader.status();
    }));
  }

  /// The error of gathering `size` ranks; every rank that came must hear the same.
  Status gather_error(int size, Duration time = seconds(10)) {
    const auto members = gather_members(*server_, description_of(0, size), Deadline::after(time));
    EXPECT_FALSE(members.is_ok());
    for (auto& rank : ranks_) {
      const Status heard = rank.get();
      EXPECT_EQ(heard.code(), members.status().code());
      EXPECT_NE(heard.detail().find(members.status().detail()), std::string::npos) << heard.to_string();
    }
    return members.status();
  }

  std::unique_ptr<BootstrapServer> server_;
  std::vector<std::future<Status>> ranks_;
};

bool contains(const Status& status, const std::string& text) {
  return status.detail().find(text) != std::string::npos;
}

TEST_F(RendezvousTest, MembersStandInTheOrderOfTheirRanks) {
  for (const int rank : {2, 0, 3, 1}) join(description_of(rank, 4));
  auto members = gather_members(*server_, description_of(0, 4), soon());
  ASSERT_TRUE(members.is_ok()) << members.status().to_string();
  ASSERT_EQ(members->size(), 4u);
  for (int rank = 0; rank < 4; ++rank) {
    Member& member = (*members)[static_cast<size_t>(rank)];
    EXPECT_EQ(member.description.rank, rank);
    EXPECT_EQ(member.description.port, 1000 + rank);
    EXPECT_EQ(member.address, "127.0.0.1");
    EXPECT_TRUE(member.channel.finish(Status::ok(), soon()).is_ok());
  }
  for (auto& rank : ranks_) EXPECT_TRUE(rank.get().is_ok());
}

TEST_F(RendezvousTest, MissingRanksAreNamed) {
  join(description_of(2, 4));
  const Status status = gather_error(4, milliseconds(300));
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_TRUE(contains(status, "ranks 0, 1, 3 of 4 did not come")) << status.to_string();
}

TEST_F(RendezvousTest, ARankThatComesTwiceIsNamed) {
  join(description_of(1, 2));
  join(description_of(1, 2));
  // Of the two, the second is turned away; both hear it.
  const Status status = gather_error(2);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_TRUE(contains(status, "rank 1 (here, host memory) is there twice")) << status.to_string();
}

TEST_F(RendezvousTest, ARankThatDoesNotFitIsNamed) {
  struct Case {
    RankDescription one;
    const char* said;
  };
  std::vector<Case> cases(5, {description_of(1, 2), nullptr});
  cases[0].one.size = 5, cases[0].said = "counts 5 ranks, rank 0 counts 2";
  cases[1].one.version = "2", cases[1].said = "is tcpx 2, rank 0 is 1";
  cases[2].one.options["size"] = "2 MiB", cases[2].said = "has size 2 MiB, rank 0 has 1 MiB";
  cases[3].one.options["iters"] = "1", cases[3].said = "has iters 1, rank 0 has not given";
  cases[4].one.rank = 4, cases[4].said = "is not among 2 ranks";
  for (const Case& bad : cases) {
    ranks_.clear();
    join(bad.one);
    join(description_of(0, 2));
    const Status status = gather_error(2);
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_TRUE(contains(status, concat("rank ", bad.one.rank, " (here")) && contains(status, bad.said)) << status.to_string();
  }
}

TEST_F(RendezvousTest, RanksThatComeBehindOneThatDoesNotFitAreToldToo) {
  RankDescription other = description_of(1, 3);
  other.version = "2";
  join(other);
  auto gathered =
      std::async(std::launch::async, [this] { return gather_members(*server_, description_of(0, 3), soon()).status(); });
  EXPECT_EQ(ranks_[0].get().code(), Code::kMismatch);
  join(description_of(0, 3));
  join(description_of(2, 3));
  for (const size_t late : {1u, 2u}) {
    const Status heard = ranks_[late].get();
    EXPECT_EQ(heard.code(), Code::kMismatch);
    EXPECT_TRUE(contains(heard, "rank 1 (here, host memory) is tcpx 2, rank 0 is 1")) << heard.to_string();
  }
  EXPECT_EQ(gathered.get().code(), Code::kMismatch);
}

TEST_F(RendezvousTest, OtherHostsMustReachEveryRank) {
  RankDescription far = description_of(1, 2);
  far.host = "there";
  join(description_of(0, 2));
  join(far);
  const Status status = gather_error(2);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(contains(status, "rank 0 (here, host memory) came from 127.0.0.1")) << status.to_string();
}

TEST_F(RendezvousTest, StrangersAreTurnedAway) {
  testing::allow_log("is no rank: TCPX_E_PROTOCOL: read mesh message: 'rank' is missing");
  join(description_of(0, 2));
  auto stranger = std::async(std::launch::async, [this] {
    auto channel = bootstrap_connect("127.0.0.1", server_->port(), soon());
    return channel.is_ok() ? channel->exchange_parameters({{"bytes", "1"}}, {}, soon()).status() : channel.status();
  });
  auto late = std::async(std::launch::async, [this, &stranger] {
    EXPECT_TRUE(stranger.get().is_ok());
    join(description_of(1, 2));
  });
  auto members = gather_members(*server_, description_of(0, 2), soon());
  late.get();
  ASSERT_TRUE(members.is_ok()) << members.status().to_string();
  for (Member& member : *members) EXPECT_TRUE(member.channel.finish(Status::ok(), soon()).is_ok());
}

TEST_F(RendezvousTest, WithoutALeaderARankGivesUpAtItsDeadline) {
  // A loopback address of this process's own, where no other test listens.
  const std::string nowhere = concat("127.1.", (::getpid() >> 8) & 0xff, '.', (::getpid() & 0xff) | 1);
  const auto channel = join_mesh(nowhere, server_->port(), description_of(1, 2), Deadline::after(milliseconds(200)), nullptr);
  EXPECT_EQ(channel.status().code(), Code::kTimeout);
}

}  // namespace
}  // namespace tcpx::mesh
