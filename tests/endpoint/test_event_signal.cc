// The descriptor of an endpoint's events: none until it is asked for, then raised by whatever happens.
#include "endpoint/event_signal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "endpoint/notify_inbox.h"
#include "tests/support/operations.h"
#include "tests/support/process_state.h"

namespace tcpx {
namespace {

using namespace testing;  // NOLINT: a test's own helpers

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1 && entry.revents == POLLIN;
}

/// As an application reads it. @return events since the last time; 0: none
uint64_t read_events(int fd) {
  uint64_t count = 0;
  return ::read(fd, &count, sizeof count) == sizeof count ? count : 0;
}

TEST(EventSignal, IsNothingUntilItIsAskedFor) {
  const size_t before = descriptor_count();
  {
    EventSignal signal;
    signal.raise();
    EXPECT_EQ(descriptor_count(), before);
    const int fd = signal.open().value();
    EXPECT_EQ(descriptor_count(), before + 1);
    EXPECT_EQ(signal.open().value(), fd) << "the same for everybody";
    EXPECT_EQ(descriptor_count(), before + 1);
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_EQ(descriptor_count(), before);
}

TEST(EventSignal, IsReadableAtFirstAndWheneverItWasRaised) {
  EventSignal signal;
  const int fd = signal.open().value();
  EXPECT_TRUE(is_readable(fd)) << "for what happened before";
  EXPECT_EQ(read_events(fd), 1u);
  EXPECT_FALSE(is_readable(fd));
  EXPECT_EQ(read_events(fd), 0u) << "does not block";
  for (int round = 0; round < 3; ++round) {
    signal.raise();
    signal.raise();
    EXPECT_TRUE(is_readable(fd));
    EXPECT_EQ(read_events(fd), 2u);
    EXPECT_FALSE(is_readable(fd));
  }
}

TEST(EventSignal, TellsOfEndsThatCanBePolled) {
  EventSignal signal;
  OperationTable table(4, &signal);
  Operation& early = acquired(table);
  const OperationId early_id = early.id;
  table.finish(early, Status::ok());
  const int fd = signal.open().value();
  EXPECT_EQ(read_events(fd), 1u);
  EXPECT_EQ(table.poll(early_id).state, OperationState::kDone);
  table.abandon(acquired(table));
  EXPECT_FALSE(is_readable(fd)) << "it was never anybody's";
  Operation& late = acquired(table);
  const OperationId late_id = late.id;
  EXPECT_FALSE(is_readable(fd));
  table.finish(late, failure());
  EXPECT_EQ(read_events(fd), 1u);
  EXPECT_EQ(table.poll(late_id).state, OperationState::kFailed);
  EXPECT_FALSE(is_readable(fd));
}

TEST(EventSignal, TellsOfNotificationsThatHaveComeIn) {
  EventSignal signal;
  NotifyInbox inbox(1, &signal);
  const int fd = signal.open().value();
  EXPECT_EQ(read_events(fd), 1u);
  NotifyMsg first{.name = "first"}, second{.name = "second"};
  EXPECT_TRUE(inbox.push(first));
  EXPECT_EQ(read_events(fd), 1u);
  EXPECT_FALSE(inbox.push(second));
  EXPECT_FALSE(is_readable(fd)) << "it has not come in";
  EXPECT_EQ(inbox.take_all().size(), 1u);
  EXPECT_TRUE(inbox.push(second));
  EXPECT_EQ(read_events(fd), 1u);
}

}  // namespace
}  // namespace tcpx
