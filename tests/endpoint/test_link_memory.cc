// Want of memory, at each place where a link asks for some: the connection may end, and every operation of it does.
#include <functional>
#include <new>

#include "tests/support/count_allocations.h"
#include "tests/support/near_link_fixture.h"

namespace tcpx::testing {
namespace {

class LinkMemory : public NearLinkTest {
 protected:
  /// Drives the link to the end of what `begin` starts, again and again: the first time its first allocation is refused, then its
  /// second one, until there are not so many.
  /// @param serve what the peer's lanes do when the operation has begun
  void at_every_allocation(const std::function<OperationId()>& begin, const std::function<void()>& serve) {
    uint64_t refusals = 0;
    for (;; ++refusals) {
      renew(shares_ ? make_host(false) : nullptr);
      const OperationId id = begin();
      serve();
      uint64_t left = refusals;
      bool refused = false;
      for (int i = 0; i < 50 && pending(id); ++i) {
        if (refused) {
          step();
        } else {
          refused = turn(left);
        }
        peers_turn();
      }
      ASSERT_FALSE(pending(id)) << "after " << refusals << " allocations; " << link_->flight_record();
      const Status end = end_of(id);
      if (!refused) {
        EXPECT_TRUE(end.is_ok()) << end.to_string();
        break;
      }
      EXPECT_TRUE(end.is_ok() || end.code() == Code::kExhausted) << end.to_string();
    }
    EXPECT_GT(refusals, 0u) << "nothing was tried";
  }
  /// A turn of the link, which ends as ServedLinks has it when an allocation is refused.
  /// @param left allocations that are not; less what this turn took
  /// @return one was refused
  bool turn(uint64_t& left) {
    clock_.advance(std::chrono::milliseconds(1));
    const uint64_t before = allocation_count();
    const NoMemory none(left);
    try {
      (void)link_->progress(true);
    } catch (const std::bad_alloc&) {
      link_->fail_without_memory();
    }
    left -= std::min(left, allocation_count() - before);
    return NoMemory::refused();
  }
  void peers_turn() {
    (void)peer_->flush();
    (void)peer_->receive(heard_);
    (void)peer_send_->progress();
    (void)peer_recv_->progress();
  }
  bool shares_ = false;  // a ring with the peer
  void peer_sends() {
    const RegisteredMemory memory = peer_send_->register_memory(peers_.data(), peers_.size(), MemoryType::kHost).value();
    ASSERT_TRUE(peer_send_->submit({.memory = memory, .bytes = kLong}).is_ok());
    peers_turn();
  }
};

TEST_F(LinkMemory, AReceiveWithANotification) {
  at_every_allocation(
      [&] {
        const OperationId id = receive(host(0, kLong));
        say_offer(6, receives_ - 1, NotifyMsg{.name = "layer", .msg = "is there", .conn = {}});
        peers_turn();
        return id;
      },
      [&] { peer_sends(); });
}

TEST_F(LinkMemory, AWrite) {
  at_every_allocation(
      [&] {
        const OperationId id = write(host(0, kLong));
        step();
        say_of(id, ControlType::kGo);
        say_done(id);
        return id;
      },
      [&] { (void)receive_at_peer(); });
}

TEST_F(LinkMemory, ARead) {
  at_every_allocation(
      [&] {
        const OperationId id = read(host(0, kLong));
        step();
        say(ControlType::kReady, static_cast<uint64_t>(id), 0, kLong);
        peers_turn();
        return id;
      },
      [&] { peer_sends(); });
}

TEST_F(LinkMemory, AReceiveThroughTheRing) {
  shares_ = true;
  at_every_allocation(
      [&] {
        const OperationId id = receive(host(0, kLong));
        offer_send({hidden()});
        peers_turn();
        return id;
      },
      [&] { EXPECT_EQ(put(std::span(peers_).first(kLong)), kLong); });
}

TEST_F(LinkMemory, AWriteThroughTheRing) {
  shares_ = true;
  at_every_allocation(
      [&] {
        const OperationId id = write(host(0, kLong));
        step();
        say(ControlType::kGo, static_cast<uint64_t>(id), 0, 0, Packing::kShared);
        say_done(id);
        return id;
      },
      [] {});
}

}  // namespace
}  // namespace tcpx::testing
