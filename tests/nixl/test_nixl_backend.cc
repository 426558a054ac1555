// The back-end as an agent of NIXL calls it: agents that come, leave and fork.
#include "integrations/nixl/backend.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/expect_log.h"
#include "tests/support/in_child.h"
#include "tests/support/ok.h"

namespace tcpx::nixl {
namespace {

using abi::NixlStatus;

constexpr size_t kBytes = 1 << 20;

/// A back-end and the memory that its agent has registered.
struct Agent {
  explicit Agent(std::string called, abi::Parameters parameters = {}) : name(std::move(called)) {
    parameters.emplace("op_timeout_ms", "20000");  // one of another case holds for the process
    abi::InitParams params{};
    params.local_agent = name;
    params.parameters = &parameters;
    backend = Backend::create(params, {});
    EXPECT_EQ(backend->register_memory(range(), abi::MemSegment::kDram, region), NixlStatus::kSuccess);
  }
  ~Agent() {
    if (backend != nullptr) leave();
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  void withdraw() {
    if (region == nullptr) return;
    EXPECT_EQ(backend->deregister_memory(region), NixlStatus::kSuccess);
    region = nullptr;
  }
  void unload() {
    if (loaded == nullptr) return;
    EXPECT_EQ(backend->unload(std::exchange(loaded, nullptr)), NixlStatus::kSuccess);
  }
  void leave() {
    withdraw();
    unload();
    backend.reset();
  }
  abi::MetaDesc whole(abi::Metadata* of) {
    abi::MetaDesc desc{};
    desc.address = reinterpret_cast<uint64_t>(data.data());
    desc.bytes = kBytes;
    desc.metadata = of;
    return desc;
  }
  abi::BlobDesc range() {
    abi::BlobDesc desc{};
    static_cast<abi::BasicDesc&>(desc) = whole(nullptr);
    return desc;
  }
  std::string connection_info() const {
    std::string info;
    EXPECT_EQ(backend->connection_info(info), NixlStatus::kSuccess);
    return info;
  }
  /// What the other agents load.
  abi::BlobDesc public_range() {
    abi::BlobDesc desc = range();
    EXPECT_EQ(backend->public_data(region, desc.blob), NixlStatus::kSuccess);
    return desc;
  }

  /// Loads the metadata of another, as NIXL would.
  void load(Agent& other) {
    ASSERT_EQ(backend->load_connection_info(other.name, other.connection_info()), NixlStatus::kSuccess);
    ASSERT_EQ(backend->load_remote(other.public_range(), other.name, loaded), NixlStatus::kSuccess);
  }
  /// A request for all of the memory at both ends, which `load` has told.
  abi::BackendReq* request(Agent& other, abi::XferOp operation) {
    abi::DescList<abi::MetaDesc> local{}, remote{};
    local.descs = {whole(region)};
    remote.descs = {other.whole(loaded)};
    abi::BackendReq* made = nullptr;
    EXPECT_EQ(backend->prepare(operation, local, remote, other.name, made), NixlStatus::kSuccess);
    return made;
  }
  NixlStatus run(abi::BackendReq* request) {
    NixlStatus state = backend->post(request, nullptr);
    return state == NixlStatus::kInProgress ? finish(request) : state;
  }
  NixlStatus finish(abi::BackendReq* request) {
    NixlStatus state = NixlStatus::kInProgress;
    testing::wait_until([&] { return (state = backend->check(request)) != NixlStatus::kInProgress; });
    return state;
  }

  const std::string name;
  std::vector<std::byte> data = std::vector<std::byte>(kBytes);
  abi::Metadata* region = nullptr;
  abi::Metadata* loaded = nullptr;  ///< of another
  BackendPtr backend;
};

TEST(NixlBackend, MemoryOfAnAgentWhosePlaceIsNotKnownIsNotFound) {
  testing::allow_log("nobody loaded the metadata of there");
  Agent there("there"), here("here");
  abi::Metadata* loaded = nullptr;
  EXPECT_EQ(here.backend->load_remote(there.public_range(), there.name, loaded), NixlStatus::kNotFound);
  EXPECT_EQ(loaded, nullptr);
  ASSERT_EQ(here.backend->load_connection_info(there.name, there.connection_info()), NixlStatus::kSuccess);
  ASSERT_EQ(here.backend->load_remote(there.public_range(), there.name, loaded), NixlStatus::kSuccess);
  EXPECT_EQ(here.backend->unload(loaded), NixlStatus::kSuccess);
  ASSERT_EQ(here.backend->disconnect(there.name), NixlStatus::kSuccess);
  EXPECT_EQ(here.backend->load_remote(there.public_range(), there.name, loaded), NixlStatus::kNotFound);
}

// It withdraws its memory first and ends its connections then: NIXL forgets the agent by the answer, and counts on the latter.
TEST(NixlBackend, ARequestOfAnAgentThatHasLeftIsDisconnectedAndOfOneThatStaysNotFound) {
  testing::allow_log("it was withdrawn");
  testing::allow_log("TCPX_E_PEER_GONE");
  for (const auto operation : {abi::XferOp::kRead, abi::XferOp::kWrite}) {
    Agent there("there"), here("here");
    here.load(there);
    abi::BackendReq *const first = here.request(there, operation), *const second = here.request(there, operation);
    ASSERT_EQ(here.run(first), NixlStatus::kSuccess);
    there.withdraw();
    ASSERT_EQ(here.backend->post(first, nullptr), NixlStatus::kInProgress);
    EXPECT_EQ(here.run(second), NixlStatus::kNotFound);  // so the first has been refused, too, which nobody has looked at yet
    there.leave();
    EXPECT_EQ(here.finish(first), NixlStatus::kRemoteDisconnect);
    EXPECT_EQ(here.run(first), NixlStatus::kRemoteDisconnect);
    for (abi::BackendReq* request : {first, second}) EXPECT_EQ(here.backend->release(request), NixlStatus::kSuccess);
  }
}

// At that word NIXL forgets the agent of this name that it knows now.
TEST(NixlBackend, ARequestFromBeforeItsAgentWasLoadedAnewDoesNotSayThatItHasGone) {
  testing::allow_log("TCPX_E_PEER_GONE");
  testing::allow_log("was loaded anew");
  Agent there("there"), here("here");
  here.load(there);
  abi::BackendReq* const before = here.request(there, abi::XferOp::kWrite);
  here.unload();
  EXPECT_EQ(here.backend->disconnect(there.name), NixlStatus::kSuccess);
  there.leave();
  const std::vector<uint8_t> place = testing::must(Endpoint::create())->get_metadata();  // it has gone, too
  ASSERT_EQ(here.backend->load_connection_info(there.name, {place.begin(), place.end()}), NixlStatus::kSuccess);
  Agent next(there.name);
  ASSERT_EQ(here.backend->load_remote(next.public_range(), there.name, here.loaded), NixlStatus::kSuccess);
  abi::BackendReq* const after = here.request(next, abi::XferOp::kWrite);
  EXPECT_EQ(here.run(before), NixlStatus::kNotFound);
  EXPECT_EQ(here.run(after), NixlStatus::kRemoteDisconnect);
  for (abi::BackendReq* request : {before, after}) EXPECT_EQ(here.backend->release(request), NixlStatus::kSuccess);
}

// Another process may have its name next, on another machine.
TEST(NixlBackend, AnEstimateNeedsATransferSinceTheAgentWasLoaded) {
  Agent there("there"), here("here");
  const auto estimate = [&](const abi::BackendReq* request) {
    std::chrono::microseconds duration{}, error{};
    abi::CostMethod method{};
    return here.backend->estimate(request, duration, error, method);
  };
  for (int round = 0; round < 2; ++round) {
    here.load(there);
    abi::BackendReq* const request = here.request(there, abi::XferOp::kWrite);
    EXPECT_EQ(estimate(request), NixlStatus::kNotSupported) << round;
    EXPECT_EQ(here.run(request), NixlStatus::kSuccess);
    EXPECT_EQ(estimate(request), NixlStatus::kSuccess);
    EXPECT_EQ(here.backend->release(request), NixlStatus::kSuccess);
    here.unload();
    EXPECT_EQ(here.backend->disconnect(there.name), NixlStatus::kSuccess);
  }
}

// What waits for a connection is bounded; what was lost with one that failed waits no more.
TEST(NixlBackend, NotificationsThatWereLostLeaveRoomForOthers) {
  testing::allow_log("NIXL back-end");
  testing::allow_log("a connection was not made");  // another test may listen at that port by then
  Agent here("here");
  const std::vector<uint8_t> place = testing::must(Endpoint::create())->get_metadata();  // it has gone again
  ASSERT_EQ(here.backend->load_connection_info("gone", {place.begin(), place.end()}), NixlStatus::kSuccess);
  const std::string text(Peers::kMaxWaitingBytes / 32 - here.name.size(), 'x');
  for (int i = 0; i < 32; ++i) EXPECT_EQ(here.backend->notify("gone", text), NixlStatus::kSuccess) << i;
  EXPECT_TRUE(testing::wait_until([] { return testing::logged("notifications to gone are lost"); }));
  EXPECT_EQ(here.backend->notify("gone", text), NixlStatus::kSuccess);
}

// The child has no thread that would make the connection, and the lock may be one that such a thread held.
TEST(NixlBackend, AForkWhileAConnectionIsBeingMadeEnds) {
  testing::allow_log("NIXL back-end");
  const auto silent = testing::must(Endpoint::create());  // it listens, and accepts nobody for now
  Agent here("here");
  const std::vector<uint8_t> place = silent->get_metadata();
  ASSERT_EQ(here.backend->load_connection_info("silent", {place.begin(), place.end()}), NixlStatus::kSuccess);
  EXPECT_EQ(testing::in_child([&] {
              if (here.backend->check_process() != NixlStatus::kNotSupported) return 1;
              here.backend.reset();
              return 0;
            }),
            0);
  EXPECT_EQ(here.backend->check_process(), NixlStatus::kSuccess);
  EXPECT_OK(silent->start_accepting());
}

}  // namespace
}  // namespace tcpx::nixl
