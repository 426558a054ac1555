// A link and a peer that knows what is open there, says for a while what it may, in any order, and then lies. Step by step under
// a manual clock: thousands of talks, the same in every run.
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/knowing_peer.h"
#include "tests/support/link_fixture.h"
#include "tests/support/process_state.h"

namespace tcpx::testing {
namespace {

class LinkRandomPeer : public LinkTest, public ::testing::WithParamInterface<std::tuple<MemoryType, bool>> {
 protected:
  LinkRandomPeer() { eager_ = std::get<1>(GetParam()); }
  /// One link from its begin to its end.
  void talk(uint64_t seed, int truths, size_t lie) {
    renew();
    Bytes memory = pattern(PeersEnd::kMemory, static_cast<unsigned>(seed));
    const MemoryType type = std::get<0>(GetParam());
    const MemoryId id = registry_.add(memory.data(), memory.size(), type).value();
    const auto advertise = [&](ConnId conn, MemoryId region, size_t offset, size_t bytes) {
      return registry_.advertise(conn, region, memory.data() + offset, bytes).value().id;
    };
    Operation& others = *operations_.acquire().value();
    PeersEnd side;
    side.memory = memory;
    side.slot = advertise(kConn, id, PeersEnd::kAdvertised, PeersEnd::kArea);
    side.little = advertise(kConn, id, PeersEnd::kAdvertised, PeersEnd::kLittle);
    side.foreign = advertise(ConnId{8}, id, PeersEnd::kAdvertised, PeersEnd::kArea);
    const MemoryId gone = registry_.add(memory.data(), 2 * PeersEnd::kArea, type).value();
    side.withdrawn = advertise(kConn, gone, PeersEnd::kAdvertised, PeersEnd::kArea);
    EXPECT_TRUE(registry_.remove(gone, Deadline(TimePoint{})).is_ok());
    side.others_operation = static_cast<uint64_t>(others.id);
    side.start = [&](OperationKind kind, const std::vector<PeersEnd::Part>& parts) {
      Start what;
      uint64_t there = 0;
      for (const PeersEnd::Part& part : parts) {
        std::byte* const data = memory.data() + part.offset;
        what.ranges.push_back({registry_.use(id, data, part.bytes).value(), data, part.bytes});
        if (kind == OperationKind::kWrite || kind == OperationKind::kRead)
          what.remote.push_back({PeersEnd::kThere, std::exchange(there, there + part.bytes), part.bytes});
      }
      return static_cast<uint64_t>(LinkTest::start(kind, std::move(what)));
    };
    side.poll = [&](uint64_t number) { return operations_.poll(OperationId{number}); };
    side.cancel = [&](uint64_t number) { cancel(OperationId{number}); };
    side.take_notifications = [&] { return inbox_.take_all().size(); };
    side.say = [&](const FrameHeader& header, std::span<const std::byte> payload) { say_raw(header, payload); };
    side.settle = [&] {
      for (int i = 0; i < 4; ++i) {
        step();
        EXPECT_TRUE(wait_until([&] { return staging_.is_ready(StagingKind::kDevice); }));  // operations may wait for it
      }
      return std::exchange(heard_.frames, {});
    };
    side.alive = [&] { return alive(); };
    std::optional<PeersLanes> lanes;
    if (eager_) side.lanes = &lanes.emplace(*peer_send_, *peer_recv_);

    KnowingPeer peer(std::move(side), seed);
    peer.talk(truths, lie);
    link_->fail(Status(Code::kProtocol, "test", "over"));
    EXPECT_TRUE(drive([&] { return link_->closed(); }));
    peer.expect_over();
    EXPECT_EQ(operations_.outstanding(), 1u) << "operations that nobody ends";
    operations_.finish(others, Status::ok());
    (void)operations_.poll(others.id);
    registry_.forget(kConn);
    registry_.forget(ConnId{8});
    EXPECT_TRUE(registry_.remove(id, Deadline(TimePoint{})).is_ok()) << "something holds the memory; " << peer.said();
    EXPECT_EQ(fake_.misuse(), std::vector<std::string>());
  }
};

TEST_P(LinkRandomPeer, IsBelievedWhereItMayBeAndNowhereElse) {
  constexpr uint64_t kTalksOfEach = kIsChecked ? 4 : 20;
  const size_t lies = KnowingPeer::lies(eager_);
  for (uint64_t seed = 0; seed < kTalksOfEach * lies && !HasFailure(); ++seed) {
    talk(seed, 5 + static_cast<int>(seed / lies * 2), seed % lies);
    if (HasFailure()) ADD_FAILURE() << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(, LinkRandomPeer,
                         ::testing::Combine(::testing::Values(MemoryType::kHost, MemoryType::kCuda), ::testing::Bool()),
                         [](const auto& suite) {
                           const bool on_host = std::get<0>(suite.param) == MemoryType::kHost;
                           return std::string(on_host ? "Host" : "Cuda") + (std::get<1>(suite.param) ? "Eager" : "");
                         });

}  // namespace
}  // namespace tcpx::testing
