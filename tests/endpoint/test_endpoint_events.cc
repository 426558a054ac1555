// Waiting for an endpoint's events with a descriptor: none is missed, by one thread or by several, however they come.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/process_state.h"
#include "tests/support/threads.h"

namespace tcpx::testing {
namespace {

constexpr size_t kEach = 64;

/// An epoll set with one descriptor.
class Epoll {
 public:
  explicit Epoll(int fd, uint32_t events = EPOLLIN) : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    epoll_event wanted{.events = events, .data = {.fd = fd}};
    EXPECT_EQ(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &wanted), 0);
  }
  /// @return false: nothing has happened until the deadline
  bool wait(std::chrono::milliseconds longest = kTestDeadline) {
    epoll_event event;
    int count = 0;
    do count = ::epoll_wait(epoll_.get(), &event, 1, static_cast<int>(longest.count()));
    while (count < 0 && errno == EINTR);
    return count == 1;
  }

 private:
  UniqueFd epoll_;
};

void read_events(int fd) {
  uint64_t count = 0;
  (void)!::read(fd, &count, sizeof count);
}

/// Operations that somebody waits for, from any thread.
class Pending {
 public:
  /// @param start begins one, which nobody looks for before it is known here
  template <class Start>
  void add(Start start) {
    const std::lock_guard lock(mutex_);
    ids_.insert(start());
  }
  /// Takes out those that have ended. @return their number
  size_t take_ended(Endpoint& endpoint) {
    const std::lock_guard lock(mutex_);
    return std::erase_if(ids_, [&](OperationId id) {
      const OperationAnswer answer = endpoint.poll(id);
      EXPECT_NE(answer.state, OperationState::kFailed) << answer.status.to_string();
      return answer.state != OperationState::kPending;
    });
  }

 private:
  std::mutex mutex_;
  std::set<OperationId> ids_;
};

class EndpointEvents : public ::testing::TestWithParam<bool> {
 protected:
  EndpointEvents() {
    EndpointConfig config = loopback_config();
    config.progress_thread = GetParam();
    a_ = make_endpoint(config), b_ = make_endpoint(config);
    if (!GetParam()) drive_.emplace(1, [this] { (void)a_->progress(), (void)b_->progress(); });
    std::tie(at_a_, at_b_) = connect_pair(*a_, *b_);
    source_.emplace(*a_, kEach), target_.emplace(*b_, kEach);
    remote_ = {b_->advertise(at_b_, target_->whole()).value()};
  }
  // Both say farewell while somebody drives them.
  ~EndpointEvents() override {
    EXPECT_TRUE(a_->remove_connection(at_a_).is_ok());
    EXPECT_TRUE(b_->remove_connection(at_b_).is_ok());
    EXPECT_TRUE(wait_until([&] { return a_->stats().connections.empty() && b_->stats().connections.empty(); }));
  }
  OperationId write(const SubmitOptions& options = {}) {
    return a_->write_async(at_a_, source_->whole(), remote_, options).value();
  }

  std::unique_ptr<Endpoint> a_, b_;
  std::optional<Repeating> drive_;
  ConnId at_a_{}, at_b_{};
  std::optional<Memory> source_, target_;
  RemoteRange remote_;
};
INSTANTIATE_TEST_SUITE_P(Over, EndpointEvents, ::testing::Bool(),
                         [](const auto& with_thread) { return with_thread.param ? "Thread" : "Driven"; });

// Each round is begun only when the one before has been seen, so that an event that is missed is never made up for by a later one.
TEST_P(EndpointEvents, OneAfterTheOtherIsSeen) {
  const int at_source = a_->event_fd().value(), at_target = b_->event_fd().value();
  Epoll source(at_source), target(at_target);
  for (int round = 0; round < 1000; ++round) {
    const NotifyMsg message{.name = "round", .msg = concat(round)};
    const OperationId id = write({.notify = &message});
    for (OperationAnswer answer{.state = OperationState::kPending}; answer.state == OperationState::kPending;) {
      ASSERT_TRUE(source.wait()) << round << ": the end was missed";
      read_events(at_source);
      answer = a_->poll(id);
      ASSERT_NE(answer.state, OperationState::kFailed) << answer.status.to_string();
    }
    for (std::vector<NotifyMsg> taken; taken.empty();) {
      ASSERT_TRUE(target.wait()) << round << ": the notification was missed";
      read_events(at_target);
      taken = b_->get_notifs();
      for (const NotifyMsg& one : taken) EXPECT_EQ(one.msg, message.msg);
    }
  }
  // Nothing happens any more, and the descriptor says so.
  read_events(at_source);
  EXPECT_FALSE(source.wait(std::chrono::milliseconds(0)));
}

TEST_P(EndpointEvents, ManyAtOnceAreSeenByOneLoop) {
  constexpr size_t kCount = 1000;
  const int at_source = a_->event_fd().value(), at_target = b_->event_fd().value();
  Epoll source(at_source), target(at_target);
  Pending pending;
  std::thread submitter([&] {
    const NotifyMsg message{.name = "with a write"};
    for (size_t i = 0; i < kCount; ++i) {
      pending.add([&] { return write({.notify = &message}); });
      EXPECT_TRUE(a_->notify(at_a_, {.name = "alone"}).is_ok());
    }
  });
  size_t notified = 0;
  std::thread taker([&] {
    while (notified < 2 * kCount) {
      if (!target.wait()) break;
      read_events(at_target);
      notified += b_->get_notifs().size();
    }
  });
  submitter.join();
  // Its ends may all have come before; the descriptor says so until it is read.
  for (size_t ended = 0; ended < kCount;) {
    if (!source.wait()) {
      ADD_FAILURE() << "missed after " << ended;
      break;
    }
    read_events(at_source);
    ended += pending.take_ended(*a_);
  }
  taker.join();
  EXPECT_EQ(notified, 2 * kCount);
}

TEST_P(EndpointEvents, WhatHappenedBeforeTheFirstCallIsSeen) {
  const NotifyMsg message{.name = "before"};
  const OperationId id = write({.notify = &message});
  EXPECT_TRUE(wait_until([&] { return b_->stats().notifications_waiting == 1 && stats_of(*a_, at_a_).operations_pending == 0; }));
  Epoll source(a_->event_fd().value()), target(b_->event_fd().value());
  EXPECT_TRUE(source.wait() && target.wait());
  EXPECT_EQ(a_->poll(id).state, OperationState::kDone);
  EXPECT_EQ(b_->get_notifs().size(), 1u);
  EXPECT_EQ(a_->event_fd().value(), a_->event_fd().value());
}

// Made while operations end: each end is in the first look, or raises it.
TEST_P(EndpointEvents, NoneFallsBetweenTheFirstCallAndTheFirstLook) {
  const Deadline enough = long_enough();
  for (int round = 0; round < 100 && !enough.expired(); ++round) {
    const auto c = make_endpoint();
    const auto [at_c, at_b] = connect_pair(*c, *b_);
    Memory source(*c, kEach);
    const RemoteRange remote{b_->advertise(at_b, target_->whole()).value()};
    const OperationId id = c->write_async(at_c, source.whole(), remote).value();
    const int fd = c->event_fd().value();
    Epoll epoll(fd);
    for (OperationState state = OperationState::kPending; state == OperationState::kPending; state = c->poll(id).state) {
      ASSERT_TRUE(epoll.wait()) << round;
      read_events(fd);
    }
    ASSERT_TRUE(c->remove_connection(at_c).is_ok());
    (void)b_->remove_connection(at_b);
  }
}

// Whoever reads it looks for all.
TEST_P(EndpointEvents, TwoThreadsThatShareADescriptorMissNothing) {
  constexpr size_t kCount = 2000;
  const int fd = a_->event_fd().value();
  Pending pending;
  std::atomic<size_t> ended{0};
  std::atomic<bool> missed{false};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 2; ++i) {
    waiters.emplace_back([&] {
      Epoll epoll(fd);
      while (ended < kCount && !missed) {
        if (!epoll.wait(std::chrono::milliseconds(20))) continue;  // the other one may have taken the last
        read_events(fd);
        ended += pending.take_ended(*a_);
      }
    });
  }
  size_t begun = 0;
  for (; begun < kCount && !missed; ++begun) {
    pending.add([&] { return write(); });
    // Now and then nothing more is begun until all have been seen, which a lost event would prevent for ever.
    if (begun % 100 == 99 && !wait_until([&] { return ended == begun + 1; })) missed = true;
  }
  EXPECT_FALSE(missed) << ended << " of " << begun;
  for (std::thread& waiter : waiters) waiter.join();
}

// Each has an epoll set of its own, takes only what is its own, and reads nothing.
TEST_P(EndpointEvents, ThreadsThatWaitForEdgesAreAllWoken) {
  constexpr int kThreads = 3, kRounds = 300;
  const int fd = a_->event_fd().value();
  run_together(kThreads, [&](size_t) {
    Epoll epoll(fd, EPOLLIN | EPOLLET);
    for (int round = 0; round < kRounds; ++round) {
      const OperationId id = write();
      for (OperationState state = a_->poll(id).state; state == OperationState::kPending; state = a_->poll(id).state)
        ASSERT_TRUE(epoll.wait()) << round;
    }
  });
}

TEST(EndpointEventsLife, TheDescriptorGoesWithItsEndpoint) {
  const auto warm_up = make_endpoint();  // what a process opens once
  const size_t before = descriptor_count();
  for (int i = 0; i < 3; ++i) {
    const auto endpoint = make_endpoint();
    const size_t without = descriptor_count();
    const int fd = endpoint->event_fd().value();
    EXPECT_EQ(endpoint->event_fd().value(), fd);
    EXPECT_EQ(descriptor_count(), without + 1);
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(descriptor_count(), before);
}

TEST(EndpointEventsLife, TheEndOfTheConnectionIsSeen) {
  allow_broken_connections();
  const auto a = make_endpoint();
  auto b = make_endpoint();
  const ConnId conn = connect_pair(*a, *b).first;
  Memory into(*a, kEach);
  const OperationId id = a->recv_async(conn, into.whole()).value();
  const int fd = a->event_fd().value();
  read_events(fd);
  Epoll epoll(fd);
  EXPECT_EQ(a->poll(id).state, OperationState::kPending);
  b.reset();
  ASSERT_TRUE(epoll.wait());
  EXPECT_EQ(a->poll(id).state, OperationState::kFailed);
}

TEST(EndpointEventsLife, WithoutADescriptorLeftItIsAnErrorAndLaterWell) {
  allow_log("create event descriptor");
  const auto endpoint = make_endpoint();
  rlimit limits;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limits), 0);
  const rlimit none{0, limits.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto refused = endpoint->event_fd();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limits), 0);
  EXPECT_EQ(refused.status().code(), Code::kExhausted);
  EXPECT_TRUE(endpoint->event_fd().is_ok());
}

}  // namespace
}  // namespace tcpx::testing
