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
        if (answer_) answer_(id);
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
  bool shares_ = false;                      // a ring with the peer
  std::function<void(OperationId)> answer_;  // what the peer says after each turn
  void peer_sends(int transfers = 1) {
    const RegisteredMemory memory = peer_send_->register_memory(peers_.data(), peers_.size(), MemoryType::kHost).value();
    for (; transfers > 0; --transfers) ASSERT_TRUE(peer_send_->submit({.memory = memory, .bytes = kLong}).is_ok());
    peers_turn();
  }
  /// An operation that the link begins in its next turn.
  OperationId start_in_turn(OperationKind kind) {
    const bool remote = kind == OperationKind::kWrite || kind == OperationKind::kRead;
    return start(kind, {.ranges = one(host(0, kLong)),
                        .remote = {remote ? size_t{1} : 0, WireRange{.slot = {0, 1}, .offset = 0, .bytes = kLong}},
                        .after = &done_});
  }
  Gate done_{.open = true, .failure = {}};
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
        say_of(id, FrameType::kGo);
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
        say(FrameType::kReady, static_cast<uint64_t>(id), 0, kLong);
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
        offer_send({});
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
        say_go(id, Way::kRing);
        say_done(id);
        return id;
      },
      [] {});
}

// Over links whose transfers begin by themselves.

TEST_F(LinkMemory, AWriteThatBegins) {
  eager_ = true;
  answer_ = [&](OperationId id) {
    if (hear(FrameType::kWrite)) say_done(id);
  };
  at_every_allocation([&] { return start_in_turn(OperationKind::kWrite); }, [&] { (void)receive_at_peer(); });
}

TEST_F(LinkMemory, AReadWhoseBytesBegin) {
  eager_ = true;
  answer_ = [&](OperationId id) {
    if (hear(FrameType::kRead)) say_begun(FrameType::kReady, static_cast<uint64_t>(id), 0);
  };
  at_every_allocation([&] { return start_in_turn(OperationKind::kRead); }, [&] { peer_sends(); });
}

TEST_F(LinkMemory, AReceiveThatIsPostedBehindWritesThatBegan) {
  eager_ = true;
  allow_log("send channel gives up");  // at the peer, which sends to a link that is no more
  answer_ = [&](OperationId) {
    if (!hear(FrameType::kPosted)) return;
    OperationPayload nowhere, here, nothing;
    nowhere.ranges = {{.slot = {1, 2}, .offset = 0, .bytes = kLong}};
    here.ranges = {advertised(host_id_, kLong, kLong)};
    say_begun(FrameType::kWrite, 5, 0, &nowhere);
    say_begun(FrameType::kWrite, 6, 0, &here);
    say_begun(FrameType::kSend, 7, receives_ - 1, &nothing);
  };
  at_every_allocation([&] { return start_in_turn(OperationKind::kRecv); }, [&] { peer_sends(3); });
}

TEST_F(LinkMemory, AReceiveWhoseSendSaysWhenItBegins) {
  eager_ = true;
  answer_ = [&](OperationId) {
    if (hear(FrameType::kGo)) say(FrameType::kBegin, 6);
  };
  at_every_allocation(
      [&] {
        const OperationId id = start_in_turn(OperationKind::kRecv);
        say_offer(6, receives_ - 1);
        return id;
      },
      [&] { peer_sends(); });
}

// Their jobs go from one queue into another, which may want memory.
TEST_F(LinkMemory, ReceivesThatWaitForTheirBegin) {
  constexpr int kReceives = 70;
  eager_ = true;
  for (const bool begins : {true, false}) {
    for (uint64_t refusals = 0, refused = 1; refused != 0; ++refusals) {
      renew();
      std::vector<OperationId> ids;
      for (uint64_t number = 0; number < kReceives; ++number) {
        ids.push_back(receive(host(0, kLong)));
        say_offer(number, number);
      }
      steps(3);
      for (uint64_t number = 0; number < kReceives; ++number) {
        ASSERT_TRUE(hear(FrameType::kGo).has_value());
        if (begins) say(FrameType::kBegin, number);
      }
      if (!begins) link_->fail(Status(Code::kPeerGone, "test", "it has gone"));
      peers_turn();
      uint64_t left = refusals;
      refused = turn(left) ? 1 : 0;
      link_->fail(Status(Code::kPeerGone, "test", "it has gone"));
      ASSERT_TRUE(drive([&] { return link_->closed(); })) << "after " << refusals << " allocations; " << link_->flight_record();
      for (const OperationId id : ids) EXPECT_FALSE(end_of(id).is_ok());
    }
  }
}

}  // namespace
}  // namespace tcpx::testing
