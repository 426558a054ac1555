// Leader and members over loopback, with a scripted measurement. Each rank is a thread here.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "programs/mesh/mesh_rounds.h"
#include "tests/support/ok.h"

namespace tcpx::mesh {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::soon;

constexpr MeshLimits kLimits = {.step = seconds(5), .round = seconds(10)};

/// Measures nothing: starts, and says that rank r receives with r GB/s. `rank` is whose measurement it is.
using Script = std::function<Result<PairResult>(int rank, BootstrapChannel&, bool sends, const std::function<Status()>& start)>;

Result<PairResult> start_and_end(int rank, BootstrapChannel&, bool, const std::function<Status()>& start) {
  TCPX_RETURN_IF_ERROR(start());
  return PairResult{static_cast<double>(rank), true};
}

/// `size` ranks that have joined; their final results are in `ends`.
class Mesh {
 public:
  Mesh(int size, Script script) : script_(std::move(script)) {
    auto server = BootstrapServer::create({.host = "127.0.0.1"});
    EXPECT_TRUE(server.is_ok());
    server_ = std::move(*server);
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::async(std::launch::async, [this, rank, size] { return run_rank(rank, size); }));
    }
    auto members = gather_members(*server_, describe(0, size, 1), soon());
    EXPECT_TRUE(members.is_ok()) << members.status().to_string();
    members_ = std::move(*members);
  }

  MeshOutcome lead(MeshMode mode, bool together, const std::atomic<bool>* stop = nullptr) {
    const auto rounds = make_schedule(static_cast<int>(members_.size()), mode, 1, together);
    MeshOutcome outcome = lead_mesh(members_, *rounds, {.round = kLimits.round, .stop = stop});
    for (auto& rank : ranks_) ends.push_back(rank.get());
    return outcome;
  }

  std::vector<Status> ends;

 private:
  static RankDescription describe(int rank, int size, uint16_t port) {
    return {.rank = rank, .size = size, .host = "here", .memory = "none", .version = "1", .port = port};
  }

  Status run_rank(int rank, int size) {
    TCPX_ASSIGN_OR_RETURN(auto server, BootstrapServer::create({.host = "127.0.0.1"}));
    TCPX_ASSIGN_OR_RETURN(auto leader,
                          join_mesh("127.0.0.1", server_->port(), describe(rank, size, server->port()), soon(), nullptr));
    const auto measure = [this, rank](BootstrapChannel& peer, bool sends, const std::function<Status()>& start) {
      return script_(rank, peer, sends, start);
    };
    return leader.finish(serve_rounds(leader, *server, rank, kLimits, measure, nullptr), soon());
  }

  Script script_;
  std::unique_ptr<BootstrapServer> server_;
  std::vector<Member> members_;
  std::vector<std::future<Status>> ranks_;
};

TEST(MeshRounds, EveryPairIsMeasuredBetweenItsTwoRanks) {
  std::mutex mutex;
  std::multiset<std::string> seen;
  for (const bool together : {false, true}) {
    seen.clear();
    Mesh mesh(4, [&](int rank, BootstrapChannel& peer, bool sends, const std::function<Status()>& start) -> Result<PairResult> {
      TCPX_ASSIGN_OR_RETURN(const auto other, peer.exchange_parameters({{"rank", concat(rank)}}, {}, soon()));
      {
        const std::lock_guard lock(mutex);
        seen.insert(sends ? concat(rank, " to ", other.at("rank")) : concat(other.at("rank"), " to ", rank));
      }
      return start_and_end(rank, peer, sends, start);
    });
    const MeshOutcome outcome = mesh.lead(MeshMode::kPairs, together);
    ASSERT_EQ(outcome.pairs.size(), 12u);
    EXPECT_EQ(seen.size(), 24u);
    for (const PairOutcome& pair : outcome.pairs) {
      ASSERT_TRUE(pair.result.is_ok()) << pair.result.status().to_string();
      EXPECT_EQ(pair.result->gigabytes_per_second, pair.pair.receiver) << "the receiver's result counts";
      EXPECT_EQ(seen.count(concat(pair.pair.sender, " to ", pair.pair.receiver)), 2u) << "once at each end";
    }
    for (const Status& end : mesh.ends) EXPECT_TRUE(end.is_ok()) << end.to_string();
  }
}

TEST(MeshRounds, NobodyStartsBeforeAllAreSetUp) {
  std::atomic<int> set_up = 0, early = 0;
  Mesh mesh(4, [&](int rank, BootstrapChannel& peer, bool sends, const std::function<Status()>& start) -> Result<PairResult> {
    // The last to be set up comes after the others had every chance to start.
    if (rank == 3 && sends && !peer.barrier(soon()).is_ok()) return Status(Code::kInternal, "test", "barrier");
    if (rank == 0 && !sends && !peer.barrier(soon()).is_ok()) return Status(Code::kInternal, "test", "barrier");
    ++set_up;
    TCPX_RETURN_IF_ERROR(start());
    if (set_up < 8) ++early;
    return PairResult{1, true};
  });
  const MeshOutcome outcome = mesh.lead(MeshMode::kPermutation, true);
  EXPECT_EQ(outcome.pairs.size(), 4u);
  EXPECT_EQ(set_up, 8);
  EXPECT_EQ(early, 0);
}

TEST(MeshRounds, AFailedPairDoesNotEndTheMesh) {
  // Rank 1 fails as the sender to rank 2, before it starts or behind it; the receiver notices nothing by itself.
  for (const bool before : {true, false}) {
    Mesh mesh(3, [&](int rank, BootstrapChannel& peer, bool sends, const std::function<Status()>& start) -> Result<PairResult> {
      TCPX_ASSIGN_OR_RETURN(const auto other, peer.exchange_parameters({{"rank", concat(rank)}}, {}, soon()));
      const bool fails = rank == 1 && sends && other.at("rank") == "2";
      if (fails && before) return Status(Code::kMismatch, "scripted", "before");
      TCPX_RETURN_IF_ERROR(start());
      if (fails) return Status(Code::kMismatch, "scripted", "behind");
      return PairResult{static_cast<double>(rank), true};
    });
    const MeshOutcome outcome = mesh.lead(MeshMode::kPairs, false);
    ASSERT_EQ(outcome.pairs.size(), 6u);
    for (const PairOutcome& pair : outcome.pairs) {
      const bool failed = pair.pair == Pair{1, 2};
      EXPECT_EQ(pair.result.is_ok(), !failed) << pair.pair.sender << " to " << pair.pair.receiver;
      if (!failed) continue;
      EXPECT_EQ(pair.result.status().code(), Code::kMismatch);
      EXPECT_EQ(pair.result.status().detail(), concat("scripted: ", before ? "before" : "behind"))
          << "in the failing rank's words";
    }
    for (const Status& end : mesh.ends)
      EXPECT_TRUE(end.is_ok()) << "a failed pair is no failure of its ranks: " << end.to_string();
  }
}

TEST(MeshRounds, AnInterruptKeepsWhatIsMeasured) {
  std::atomic<bool> stop = false;
  std::atomic<int> ended = 0;
  Mesh mesh(2, [&](int rank, BootstrapChannel& peer, bool sends, const std::function<Status()>& start) {
    auto result = start_and_end(rank, peer, sends, start);
    if (++ended == 2) stop = true;  // both ends of the first pair
    return result;
  });
  const MeshOutcome outcome = mesh.lead(MeshMode::kPairs, false, &stop);
  EXPECT_TRUE(outcome.interrupted);
  ASSERT_EQ(outcome.pairs.size(), 1u);
  EXPECT_TRUE(outcome.pairs[0].result.is_ok());
  for (const Status& end : mesh.ends) {
    EXPECT_EQ(end.code(), Code::kCancelled);
    EXPECT_NE(end.detail().find("interrupted"), std::string::npos) << end.to_string();
  }
}

TEST(MeshRounds, TheOneWhoSawItHappenIsBelieved) {
  const Status seen(Code::kMismatch, "reported", "byte 3 differs"), gone(Code::kPeerGone, "reported", "closed"),
      heard(Code::kMismatch, "reported", "peer reported: byte 3 differs");
  EXPECT_EQ(telling_error(seen, gone).detail(), "byte 3 differs");
  EXPECT_EQ(telling_error(gone, seen).detail(), "byte 3 differs");
  EXPECT_EQ(telling_error(heard, seen).detail(), "byte 3 differs");
  EXPECT_EQ(telling_error(gone, Status()).code(), Code::kPeerGone);
  EXPECT_EQ(telling_error(Status(), gone).code(), Code::kPeerGone);
  EXPECT_EQ(telling_error(seen, Status()).operation(), "receive");
  EXPECT_EQ(telling_error(Status(), seen).operation(), "send");
}

}  // namespace
}  // namespace tcpx::mesh
