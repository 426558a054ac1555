// Ends of connections and endpoints: with much under way, again and again, and after a fork. Nothing is left and nothing touches
// the application's memory afterwards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/memory_ops.h"
#include "tcpx/uccl.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/expect_log.h"
#include "tests/support/in_child.h"
#include "tests/support/mapping.h"
#include "tests/support/process_state.h"

namespace tcpx::testing {
namespace {

constexpr size_t kOfEachKind = 250;
constexpr size_t kMostBytes = 65536;
/// What is read of an end's memory, and behind it the places of peer's writes, of own reads, and of receives: no two of the operations
/// write to the same place, nor does one read where another writes.
constexpr size_t kPlaceBytes = kOfEachKind * kMostBytes;
constexpr size_t kOfPeersWrites = kPlaceBytes, kOfReads = 2 * kPlaceBytes, kOfReceives = 3 * kPlaceBytes;
constexpr size_t kMappedBytes = 4 * kPlaceBytes;

/// One end of a connection with much under way.
struct Busy {
  std::unique_ptr<Endpoint> endpoint = make_endpoint();
  std::unique_ptr<Mapping> memory = std::make_unique<Mapping>(kMappedBytes);  ///< a touch of it when it is gone is noticed
  MemoryId region = endpoint->register_memory(memory->span().data(), kMappedBytes).value();
  ConnId conn{};
  std::vector<OperationId> operations;

  LocalRange range(size_t offset, size_t bytes) { return {region, memory->span().data() + offset, bytes}; }
  /// kOfEachKind of each kind; each send meets a receive of the other end.
  void start(const RemoteSlot& slot, size_t bytes, bool first) {
    for (size_t i = 0; i < kOfEachKind; ++i) {
      const size_t offset = i * kMostBytes;
      operations.push_back(endpoint->write_async(conn, range(offset, bytes), {slot, kOfPeersWrites + offset}).value());
      operations.push_back(endpoint->read_async(conn, range(kOfReads + offset, bytes), {slot, offset}).value());
      const auto send = [&] { operations.push_back(endpoint->send_async(conn, range(offset, bytes)).value()); };
      if (first) send();
      operations.push_back(endpoint->recv_async(conn, range(kOfReceives + offset, bytes)).value());
      if (!first) send();
    }
  }
  void expect_all_ended() {
    for (const OperationId id : operations) {
      const Status status = endpoint->wait(id, kCallTime);
      const Code code = status.code();  // kNotFound: the other end has withdrawn what it had advertised
      EXPECT_TRUE(status.is_ok() || code == Code::kPeerGone || code == Code::kCancelled || code == Code::kNotFound)
          << status.to_string();
    }
    EXPECT_EQ(endpoint->stats().operations_outstanding, 0u);
  }
  void let_memory_go() {
    EXPECT_TRUE(endpoint->deregister(region).is_ok());
    memory.reset();
  }
};

class EndpointBusy : public ::testing::TestWithParam<size_t> {
 protected:
  EndpointBusy() {
    allow_broken_connections();
    std::tie(a_.conn, b_.conn) = connect_pair(*a_.endpoint, *b_.endpoint);
    const RemoteSlot of_b = b_.endpoint->advertise(b_.conn, b_.range(0, kMappedBytes)).value();
    const RemoteSlot of_a = a_.endpoint->advertise(a_.conn, a_.range(0, kMappedBytes)).value();
    a_.start(of_b, GetParam(), true);
    b_.start(of_a, GetParam(), false);
  }
  Busy a_, b_;
};

TEST_P(EndpointBusy, ClosingEndsEverythingAtBothEnds) {
  ASSERT_TRUE(a_.endpoint->remove_connection(a_.conn).is_ok());
  for (Busy* end : {&a_, &b_}) {
    end->expect_all_ended();
    end->let_memory_go();
  }
  EXPECT_EQ(a_.endpoint->remove_connection(a_.conn).code(), Code::kNotFound);
}

TEST_P(EndpointBusy, BothMayCloseAtOnce) {
  auto other = std::async(std::launch::async, [&] { return b_.endpoint->remove_connection(b_.conn); });
  EXPECT_TRUE(a_.endpoint->remove_connection(a_.conn).is_ok());
  EXPECT_TRUE(other.get().is_ok());
  for (Busy* end : {&a_, &b_}) {
    end->expect_all_ended();
    end->let_memory_go();
  }
  EXPECT_TRUE(wait_until([&] { return a_.endpoint->stats().connections.empty() && b_.endpoint->stats().connections.empty(); }));
}

TEST_P(EndpointBusy, AnEndpointMayGoWithEverythingPending) {
  a_.endpoint.reset();
  a_.memory.reset();
  b_.expect_all_ended();
  b_.endpoint.reset();
  b_.memory.reset();
}

TEST_P(EndpointBusy, CancelEndsEverything) {
  for (Busy* end : {&a_, &b_}) {
    for (const OperationId id : end->operations) (void)end->endpoint->cancel(id);
  }
  a_.expect_all_ended();
  b_.expect_all_ended();
  EXPECT_TRUE(a_.endpoint->stats().connections.front().alive);
  // Writes that were given up after they had been sent may still arrive (docs/completion.md): only this waits for them.
  for (Busy* end : {&a_, &b_}) end->let_memory_go();
}

INSTANTIATE_TEST_SUITE_P(, EndpointBusy, ::testing::Values(512, 65536), ::testing::PrintToStringParamName());

// Nobody drives meanwhile, and they are more than one turn takes: requests to cancel were looked at before all had been taken.
TEST(EndpointCancel, ReachesWhatIsStillQueued) {
  EndpointConfig driven = loopback_config();
  driven.progress_thread = false;
  const auto a = make_endpoint(driven), b = make_endpoint();
  const auto [there, here] = connect_pair(*a, *b);
  Memory memory(*a, 8);
  const LocalRange range = memory.whole();
  std::vector<OperationId> operations;
  for (int i = 0; i < 1000; ++i) operations.push_back(a->recv_async(there, {&range, 1}).value());
  for (const OperationId id : operations) EXPECT_TRUE(a->cancel(id).is_ok());
  const Deadline deadline = Deadline::after(kTestDeadline);
  while (a->stats().connections.front().operations_failed < operations.size() && !deadline.expired()) (void)a->progress();
  for (const OperationId id : operations) {
    const OperationAnswer answer = a->poll(id);
    ASSERT_EQ(answer.state, OperationState::kFailed);
    EXPECT_EQ(answer.status.code(), Code::kCancelled);
  }
}

/// Checks what is left after `count` connections have been made, used and closed.
void connect_and_close(int count) {
  const auto a = make_endpoint(), b = make_endpoint();
  const auto once = [&] {
    EXPECT_TRUE(LogCapture::stop().empty());  // it keeps every line
    LogCapture::start();
    const auto [there, here] = connect_pair(*a, *b);
    EXPECT_TRUE(moves(*a, there, *b, here, 64));
    EXPECT_TRUE(moves(*b, here, *a, there, 32768));
    EXPECT_TRUE(a->remove_connection(there).is_ok());
    EXPECT_TRUE(b->remove_connection(here).is_ok());
    return wait_until([&] { return a->stats().connections.empty() && b->stats().connections.empty(); });
  };
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(once());
  const size_t threads = thread_count(), descriptors = descriptor_count(), bytes = resident_bytes();
  const TimePoint begin = Clock::steady().now();
  for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) ASSERT_TRUE(once());
  // The count before may have included a thread of a connection that was just ending.
  EXPECT_TRUE(wait_until([&] { return thread_count() <= threads; })) << thread_count() << " threads, were " << threads;
  EXPECT_TRUE(wait_until([&] { return descriptor_count() <= descriptors; })) << descriptor_count() << ", were " << descriptors;
  const size_t grown = std::max(resident_bytes(), bytes) - bytes;
  std::printf(
      "%d connections in %.1f s: %zu threads, %zu descriptors before and after; %zu KiB resident before, %zu more after\n", count,
      std::chrono::duration<double>(Clock::steady().now() - begin).count(), threads, descriptors, bytes / 1024, grown / 1024);
  // Ten bytes of each would be lost in what an allocator keeps; a buffer or a table entry would not.
  if (!kIsChecked) {
    EXPECT_LE(grown, (size_t{2} << 20) + static_cast<size_t>(count) * 20);
  }
}

TEST(EndpointCycles, ConnectionsLeaveNothingBehind) {
  // With a GPU every one allocates and frees pinned and device memory, which takes a fifth of a second.
  connect_and_close(kIsChecked || make_machine_memory_ops()->has_gpu() ? 50 : 300);
}

// Some minutes: --gtest_also_run_disabled_tests.
TEST(EndpointCycles, DISABLED_TenThousandLeaveNothingBehind) {
  connect_and_close(10'000);
}

// Nobody there knows that they have come, so nobody removes them.
TEST(EndpointCycles, WhatWasTakenInTheBackgroundGoesWithItsPeer) {
  allow_broken_connections();
  const auto client = make_endpoint(), server = make_endpoint();
  ASSERT_TRUE(server->start_accepting().is_ok());
  const auto connect_and_leave = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const auto conn = client->connect("127.0.0.1", 0, port_of(*server), kCallTime);
      ASSERT_TRUE(conn.is_ok()) << conn.status().to_string();
      ASSERT_TRUE(client->remove_connection(*conn).is_ok());
    }
    EXPECT_TRUE(wait_until([&] { return server->stats().connections.empty() && client->stats().connections.empty(); }))
        << server->flight_record();
  };
  connect_and_leave(1);  // a thread that is just starting may have a file open
  const size_t descriptors = descriptor_count();
  connect_and_leave(20);
  EXPECT_TRUE(wait_until([&] { return descriptor_count() == descriptors; })) << descriptor_count() << ", were " << descriptors;
}

TEST(EndpointFork, AChildIsRefusedByEveryCall) {
  auto a = make_endpoint();
  const auto b = make_endpoint();
  const auto [there, here] = connect_pair(*a, *b);
  char data[64] = {};
  const MemoryId memory = a->register_memory(data, sizeof data).value();
  const OperationId pending = [&, conn = there] {
    const LocalRange range{memory, data, 8};
    return a->recv_async(conn, {&range, 1}).value();
  }();
  const int failed_at = in_child([&, conn = there] {
    const LocalRange range{memory, data, 8};
    const std::span ranges(&range, 1);
    const RemoteRange remote{};
    const std::span remotes(&remote, 1);
    const Status answers[] = {a->connect("127.0.0.1", 0, 1).status(),
                              a->accept().status(),
                              a->add_remote_endpoint(b->get_metadata()).status(),
                              a->remove_connection(conn),
                              a->start_accepting(),
                              a->register_memory(data, 8).status(),
                              a->deregister(memory),
                              a->advertise(conn, range).status(),
                              a->send_async(conn, ranges).status(),
                              a->recv_async(conn, ranges).status(),
                              a->write_async(conn, ranges, remotes).status(),
                              a->read_async(conn, ranges, remotes).status(),
                              a->send(conn, ranges),
                              a->recv(conn, ranges),
                              a->write(conn, ranges, remotes),
                              a->read(conn, ranges, remotes),
                              a->wait(pending),
                              a->cancel(pending),
                              a->completion_event(pending).status(),
                              a->notify(conn, {}),
                              a->event_fd().status()};
    int position = 0;
    for (const Status& answer : answers) {
      ++position;
      if (answer.code() != Code::kUnsupported || answer.detail().find("fork") == std::string::npos) return position;
    }
    if (a->poll(pending).state != OperationState::kUnknown || a->progress() || !a->get_notifs().empty()) return 100;
    a.reset();
    return 0;
  });
  EXPECT_EQ(failed_at, 0);
  const MemoryId at_b = b->register_memory(data + 8, 8).value();
  const LocalRange out{at_b, data + 8, 8};
  EXPECT_TRUE(b->send(here, {&out, 1}).is_ok());
  EXPECT_TRUE(a->wait(pending, kCallTime).is_ok());
  EXPECT_TRUE(moves(*a, there, *b, here, 1 << 20));
}

// It would wait for threads of the net plugin, which only the parent has.
TEST(EndpointFork, AChildIsRefusedEndpointsOfItsOwn) {
  const auto a = make_endpoint();
  const int failed_at = in_child([] {
    const auto refused = Endpoint::create(loopback_config());
    return refused.status().code() == Code::kUnsupported && refused.status().detail().find("fork") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(failed_at, 0);
}

TEST(EndpointConfigured, MalformedVariablesAreNoDefaults) {
  allow_log("UCCL_TCPX_");
  for (const char* name : {"UCCL_TCPX_OP_TIMEOUT_MS", "UCCL_TCPX_INLINE_BYTES"}) {
    for (const char* value : {"abc", "-1", "12x", "99999999999999999999"}) {
      ::setenv(name, value, 1);
      const auto refused = Endpoint::create(loopback_config());
      EXPECT_EQ(refused.status().code(), Code::kBadConfig) << name << "=" << value << ": " << refused.status().to_string();
      EXPECT_NE(refused.status().to_string().find(name), std::string::npos) << refused.status().to_string();
      uccl::Endpoint engine(0, 2);
      EXPECT_FALSE(engine.start_passive_accept());
      EXPECT_EQ(uccl::Endpoint::last_error().code(), Code::kBadConfig);
    }
    ::unsetenv(name);
  }
}

}  // namespace
}  // namespace tcpx::testing
