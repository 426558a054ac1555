// What all peers of an endpoint together make it hold: bounded, whatever they do, while those that behave go on; who has no room
// any more is told; and all of it comes back.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "endpoint/peer_memory.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/hostile_peer.h"
#include "tests/support/process_state.h"
#include "tests/support/units.h"

namespace tcpx::testing {
namespace {

constexpr uint64_t kMost = 64 * kMiB;
constexpr uint64_t kForConnections = kMost - kMost / 4;
/// An address leaves as much as it has: one is the good peer's.
constexpr size_t kStrangers = kForConnections / 2 / PeerMemory::kFloorBytes - 1;

EndpointConfig bounded() {
  EndpointConfig config = loopback_config();
  config.max_peer_bytes = kMost;
  return config;
}

/// Uses everything that it gets, asks for more, and takes nothing back.
class Hoarder {
 public:
  explicit Hoarder(uint16_t port) : peer_(port) { room_.fill(kSmallWindowBytes); }
  /// @return false when it has no room any more
  bool hoard() {
    for (uint64_t window = 0; window < kWindows; ++window) peer_.say(FrameType::kCredit, window);
    for (const auto& frame : peer_.take()) {
      if (frame.header.type == static_cast<uint8_t>(FrameType::kCredit)) room_[frame.header.operation] += frame.header.bytes;
    }
    const std::vector<std::byte> bytes(Peer::kInlineBytes);
    OperationPayload data, offer;
    data.data = bytes;
    offer.has_notify = true;
    offer.notify_text = std::string(4096, 't');
    bool any = say(Window::kSends, window_cost(bytes.size()), FrameType::kSendData, bytes.size(), data);
    any |= say(Window::kSendOffers, window_cost(Window::kSendOffers, 0, 0, 0, 4096), FrameType::kSend, 100'000, offer);
    return any;
  }
  bool alive() { return !peer_.has_ended(); }

 private:
  bool say(Window window, uint64_t cost, FrameType type, uint64_t bytes, const OperationPayload& payload) {
    uint64_t& room = room_[static_cast<size_t>(window)];
    const bool any = room >= cost;
    for (; room >= cost; room -= cost, ++next_) peer_.say(type, next_, next_, bytes, Packing::kWhole, &payload);
    return any;
  }
  Peer peer_;
  std::array<uint64_t, kWindows> room_{};
  uint64_t next_ = 0;
};

class EndpointPeerMemory : public HostilePeerTest {
 protected:
  EndpointPeerMemory() : HostilePeerTest(bounded()) {
    allow_log("a connection was not made");
    EXPECT_TRUE(endpoint_->start_accepting().is_ok());
  }
  uint64_t held() const { return endpoint_->stats().peer_bytes; }
  size_t connections() const { return endpoint_->stats().connections.size(); }
};

TEST_F(EndpointPeerMemory, StrangersTogetherGetNoMoreThanTheBound) {
  EXPECT_EQ(endpoint_->stats().max_peer_bytes, kMost);
  const uint64_t before = held();
  EXPECT_EQ(before, PeerMemory::kFloorBytes) << "the good one";
  const size_t resident = resident_bytes();
  {
    std::vector<std::unique_ptr<Hoarder>> strangers;
    while (strangers.size() < kStrangers) strangers.push_back(std::make_unique<Hoarder>(port_of(*endpoint_)));
    ASSERT_TRUE(wait_until([&] { return connections() == kStrangers + 1; }));
    for (int quiet = 0; quiet < 20; ++quiet) {
      for (auto& stranger : strangers) {
        if (stranger->hoard()) quiet = 0;
      }
      EXPECT_LE(held(), kMost);
      ASSERT_TRUE(moves(*good_, good_conn_, *endpoint_, to_good_, 100)) << "beside them";
      ASSERT_TRUE(moves(*good_, good_conn_, *endpoint_, to_good_, kBulk)) << "beside them";
    }
    for (auto& stranger : strangers) EXPECT_TRUE(stranger->alive()) << "it waits";
    EXPECT_GE(held(), before + kStrangers * PeerMemory::kFloorBytes);
    if (!kIsChecked) {
      EXPECT_LT(resident_bytes(), resident + kMost + 32 * kMiB);
    }
  }
  EXPECT_TRUE(wait_until([&] { return connections() <= kStrangers + 1 && held() <= before + kMost / 8; })) << held();
}

TEST_F(EndpointPeerMemory, WhoHasNoRoomIsToldAtBothEnds) {
  std::vector<std::unique_ptr<Peer>> strangers;
  while (strangers.size() < kStrangers) strangers.push_back(std::make_unique<Peer>(port_of(*endpoint_)));
  ASSERT_TRUE(wait_until([&] { return connections() == kStrangers + 1; }));
  const auto refused = good_->connect("127.0.0.1", 0, port_of(*endpoint_), std::chrono::milliseconds(300));
  EXPECT_EQ(refused.status().code(), Code::kExhausted) << refused.status().to_string();
  EXPECT_NE(refused.status().to_string().find("UCCL_TCPX_MAX_PEER_BYTES"), std::string::npos) << refused.status().to_string();
  EXPECT_EQ(held(), (kStrangers + 1) * PeerMemory::kFloorBytes) << "who was refused holds nothing";
  strangers.clear();
  EXPECT_TRUE(wait_until([&] { return connections() == 1; }));
  EXPECT_EQ(held(), PeerMemory::kFloorBytes);
  EXPECT_TRUE(good_->connect("127.0.0.1", 0, port_of(*endpoint_)).is_ok()) << "there is room again";
}

TEST_F(EndpointPeerMemory, NotificationsThatNobodyTakesCount) {
  const uint64_t before = held();
  const NotifyMsg message{.name = "n", .msg = std::string(kMiB / 2, 't')};
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(good_->notify(good_conn_, message).is_ok());
  EXPECT_TRUE(wait_until([&] { return held() > before + kMiB; }));
  EXPECT_LE(held(), kMost);
  size_t taken = 0;
  EXPECT_TRUE(wait_until([&] { return (taken += endpoint_->get_notifs().size()) == 40; })) << taken;
}

TEST(EndpointPeerBytes, TheBoundIsCheckedAndHasADefault) {
  for (const uint64_t wrong : {uint64_t{0}, uint64_t{1}, PeerMemory::kLeastBytes - 1}) {
    EndpointConfig config = loopback_config();
    config.max_peer_bytes = wrong;
    const auto made = Endpoint::create(config);
    EXPECT_EQ(made.status().code(), Code::kInvalidArgument) << made.status().to_string();
    EXPECT_NE(made.status().to_string().find("max_peer_bytes"), std::string::npos);
  }
  EXPECT_EQ(make_endpoint()->stats().max_peer_bytes, PeerMemory::usual_bytes());
}

TEST(EndpointPeerBytes, TheEnvironmentGivesIt) {
  constexpr const char* kName = "UCCL_TCPX_MAX_PEER_BYTES";
  ::setenv(kName, "33554432", 1);
  EXPECT_EQ(make_endpoint()->stats().max_peer_bytes, 33554432u);
  for (const char* wrong : {"33554431", "1", "-1", "x"}) {
    ::setenv(kName, wrong, 1);
    const auto made = Endpoint::create(loopback_config());
    EXPECT_EQ(made.status().code(), Code::kBadConfig) << wrong << ": " << made.status().to_string();
    EXPECT_NE(made.status().to_string().find(kName), std::string::npos) << made.status().to_string();
  }
  ::unsetenv(kName);
}

}  // namespace
}  // namespace tcpx::testing
