// Memory one peer can make an endpoint hold: bounded in bytes, without ending a peer that keeps to the protocol; lack of memory
// for one connection is the end of that connection alone.
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "endpoint/notify_inbox.h"
#include "tests/support/child_process.h"
#include "tests/support/endpoint_pair.h"
#include "tests/support/hostile_peer.h"
#include "tests/support/process_state.h"
#include "tests/support/units.h"
#include "wire/credit_windows.h"

namespace tcpx::testing {
namespace {

constexpr size_t kBulkBytes = 256 * 1024;

/// Of a notification that is no short one, though many fit a window.
constexpr size_t kTextBytes = 4096;

OperationPayload with_notification(size_t text_bytes = kTextBytes) {
  OperationPayload payload;
  payload.has_notify = true;
  payload.notify_name = std::string(kMaxNotifyNameBytes, 'n');
  payload.notify_text = std::string(text_bytes, 't');
  return payload;
}

size_t growth_since(size_t before) {
  const size_t now = resident_bytes();
  return now > before ? now - before : 0;
}

/// An endpoint whose peer says what it likes.
struct Victim {
  explicit Victim(const EndpointConfig& config = loopback_config()) : endpoint(make_endpoint(config)) {
    auto accepted = std::async(std::launch::async, [&] { return endpoint->accept(kCallTime); });
    peer.emplace(port_of(*endpoint));
    conn = accepted.get().value().conn;
    allow_broken_connections();
  }
  /// Says it until the connection has ended, which it does before much memory is taken.
  void says_until_the_end(int most, const std::function<void(uint64_t)>& say) {
    const size_t before = resident_bytes();
    int said = 0;
    for (; said < most && peer->goes_on(); ++said) say(static_cast<uint64_t>(said));
    EXPECT_TRUE(peer->hears_the_end()) << "after " << said;
    const size_t growth = growth_since(before);
    std::printf("%d were said until the end was heard, %zu MiB more in core\n", said, growth / kMiB);
    if (!kIsChecked) {
      EXPECT_LT(growth, 80 * kMiB);
    }
  }
  /// A write or read of memory that is advertised to it.
  void ask(FrameType type, Memory& memory) {
    OperationPayload payload;
    payload.ranges = {{endpoint->advertise(conn, memory.whole()).value().id, 0, kBulkBytes}};
    peer->say(type, 5, 0, kBulkBytes, Packing::kWhole, &payload);
  }

  std::unique_ptr<Endpoint> endpoint;
  std::optional<Peer> peer;
  ConnId conn{};
};

TEST(EndpointBounds, B2_SendsWithNotificationsAreBounded) {
  for (const size_t text_bytes : {kTextBytes, size_t{kMaxNotifyTextBytes}}) {
    const OperationPayload payload = with_notification(text_bytes);
    for (const FrameType type : {FrameType::kSend, FrameType::kSendData}) {
      Victim victim;
      victim.says_until_the_end(30000, [&](uint64_t i) {
        victim.peer->say(type, i, i, type == FrameType::kSend ? kBulkBytes : 0, Packing::kWhole, &payload);
        // Else this end, and not the victim, would hold most of it.
        EXPECT_TRUE(wait_until([&] { return victim.peer->backlog() < kMiB || !victim.peer->goes_on(); }));
      });
    }
  }
}

TEST(EndpointBounds, B9_ServedReadsOfManyRangesAreBounded) {
  Victim victim;
  Memory memory(*victim.endpoint, kBulkBytes);
  const RemoteSlot slot = victim.endpoint->advertise(victim.conn, memory.whole()).value();
  constexpr size_t kEach = kMaxInlineBytes / kMaxWireRanges + 1;  // in all more than is answered inline
  OperationPayload payload;
  for (size_t i = 0; i < kMaxWireRanges; ++i) payload.ranges.push_back({slot.id, i, kEach});
  victim.says_until_the_end(
      500, [&](uint64_t i) { victim.peer->say(FrameType::kRead, i, 0, kEach * kMaxWireRanges, Packing::kWhole, &payload); });
}

// Sends that were given up before they were announced have no part of a window.
TEST(EndpointBounds, B9_PlacesOfSendsThatWereGivenUpAreBounded) {
  Victim victim;
  const size_t before = resident_bytes();
  for (uint64_t i = 0; i < 300000; ++i) {
    victim.peer->say(FrameType::kCancel, i, i);
    if (i % 100 == 0 && !victim.peer->goes_on()) break;
  }
  EXPECT_TRUE(victim.peer->goes_on()) << "one after the other: that is what a peer does that has been told to hurry";
  if (!kIsChecked) {
    EXPECT_LT(growth_since(before), 16 * kMiB);
  }
  victim.says_until_the_end(300000, [&](uint64_t i) { victim.peer->say(FrameType::kCancel, i, 1'000'000 + 2 * i); });
}

/// Two endpoints of ours, connected.
struct Pair {
  explicit Pair(const EndpointConfig& config = loopback_config()) : a(make_endpoint(config)), b(make_endpoint(config)) {
    std::tie(at_a, at_b) = connect_pair(*a, *b);
  }
  std::unique_ptr<Endpoint> a, b;
  ConnId at_a{}, at_b{};
};

bool ends_well(Endpoint& endpoint, const std::vector<OperationId>& operations) {
  for (const OperationId id : operations) {
    const Status status = endpoint.wait(id, 3 * kCallTime);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    if (!status.is_ok()) return false;
  }
  return true;
}

TEST(EndpointBounds, B2_AGoodPeerWaitsWithWhatIsTooMuch) {
  Pair pair;
  constexpr size_t kCount = kIsChecked ? 4500 : 6000, kBytes = 17000;  // more than the window has room for
  Memory source(*pair.a, kBytes), target(*pair.b, kBytes);
  source.fill(3);
  const LocalRange out = source.whole(), in = target.whole();
  const NotifyMsg message{.name = std::string(kMaxNotifyNameBytes, 'n'), .msg = std::string(kTextBytes, 't')};
  std::vector<OperationId> sends, receives;
  const SubmitOptions options{.timeout = 10 * kCallTime, .notify = &message};
  for (size_t i = 0; i < kCount; ++i) sends.push_back(pair.a->send_async(pair.at_a, {&out, 1}, options).value());
  EXPECT_TRUE(wait_until([&] { return pair.a->flight_record().find("waits for the peer's window") != std::string::npos; }));
  // Other kinds go on meanwhile.
  const RemoteRange remote{pair.b->advertise(pair.at_b, target.whole()).value(), 0};
  EXPECT_TRUE(pair.a->write(pair.at_a, {&out, 1}, {&remote, 1}).is_ok());
  EXPECT_TRUE(pair.a->read(pair.at_a, {&in, 0}, {&remote, 0}).is_ok());
  size_t taken = 0;
  for (size_t i = 0; i < kCount; ++i) {
    receives.push_back(pair.b->recv_async(pair.at_b, {&in, 1}, {.timeout = 10 * kCallTime}).value());
    if (i % 64 == 0) taken += pair.b->get_notifs().size();
  }
  EXPECT_TRUE(wait_until([&] { return (taken += pair.b->get_notifs().size()) >= kCount; }, 3 * kCallTime)) << taken;
  EXPECT_TRUE(ends_well(*pair.a, sends));
  EXPECT_TRUE(ends_well(*pair.b, receives));
  EXPECT_EQ(source.bytes(), target.bytes());
}

/// Many reads at once, from `b` to `a`, in ranges of `each` bytes.
void expect_reads(Pair& pair, size_t count, size_t ranges, size_t each) {
  Memory source(*pair.b, ranges * each), target(*pair.a, ranges * each);
  source.fill(5);
  const RemoteSlot slot = pair.b->advertise(pair.at_b, source.whole()).value();
  std::vector<LocalRange> in;
  std::vector<RemoteRange> remote;
  for (size_t i = 0; i < ranges; ++i) {
    const size_t at = each * (ranges == 1 ? 0 : i ^ 1);  // neighbours would be joined
    in.push_back(target.range(at, each));
    remote.push_back({slot, at});
  }
  std::vector<OperationId> reads;
  for (size_t i = 0; i < count; ++i)
    reads.push_back(pair.a->read_async(pair.at_a, in, remote, {.timeout = 10 * kCallTime}).value());
  EXPECT_TRUE(ends_well(*pair.a, reads));
  EXPECT_EQ(source.bytes(), target.bytes());
}

TEST(EndpointBounds, B9_AGoodPeerMayReadInThousandsOfRanges) {
  Pair pair;
  expect_reads(pair, kIsChecked ? 60 : 150, kMaxWireRanges, 2);
}

// Their answers together are more than a control connection may have waiting.
TEST(EndpointBounds, B9_AGoodPeerMayReadMuchInShortMessages) {
  EndpointConfig config = loopback_config();
  config.inline_bytes = kMaxInlineBytes;
  Pair pair(config);
  expect_reads(pair, 4000, 1, kMaxInlineBytes);
}

/// Notifications of `text_bytes` that nobody takes, until this end takes no more and that one's part of the inbox is full. Then the
/// others go on.
void expect_one_peer_bounded(size_t text_bytes) {
  const auto hub = make_endpoint(), loud = make_endpoint(), quiet = make_endpoint();
  const ConnId from_loud = connect_pair(*loud, *hub).first;
  const auto [from_quiet, to_quiet] = connect_pair(*quiet, *hub);
  const NotifyMsg message{.name = "loud", .msg = std::string(text_bytes, 't')};
  const size_t fit = kMaxInboxShareBytes / (NotifyInbox::kEntryBytes + message.name.size() + message.msg.size());
  const size_t before = resident_bytes();
  Status last;
  const auto waiting = [&] { return hub->stats().notifications_waiting; };
  EXPECT_TRUE(wait_until(
      [&] {
        for (int i = 0; i < 100; ++i) last = loud->notify(from_loud, message);
        return waiting() >= fit && !last.is_ok();
      },
      3 * kCallTime))
      << waiting() << " of " << fit << ": " << last.to_string();
  EXPECT_EQ(last.code(), Code::kExhausted) << last.to_string();
  const size_t growth = growth_since(before);
  std::printf("%zu notifications of one peer wait, %zu MiB more in core\n", fit, growth / kMiB);
  if (!kIsChecked) {
    EXPECT_LT(growth, 128 * kMiB) << "64 that have not left, a window, an inbox";
  }
  ASSERT_TRUE(quiet->notify(from_quiet, {.name = "quiet", .msg = message.msg}).is_ok());
  EXPECT_TRUE(wait_until([&] { return waiting() > fit; }));
  EXPECT_TRUE(moves(*quiet, from_quiet, *hub, to_quiet, kBulkBytes));
  const std::vector<NotifyMsg> taken = hub->get_notifs();
  ASSERT_EQ(taken.size(), fit + 1);
  EXPECT_EQ(taken.back().name, "quiet");
  EXPECT_EQ(taken.back().msg, message.msg);
}

TEST(EndpointBounds, B9_OnePeerDoesNotFillTheInboxForOthers) {
  expect_one_peer_bounded(kTextBytes);
  expect_one_peer_bounded(kMaxNotifyTextBytes);
}

// The caller's own, which the peer does not take, are bounded in bytes; so are those of reads, which leave when the read has ended.
TEST(EndpointBounds, NotificationsThatWaitForThePeerAreBounded) {
  EndpointConfig config = loopback_config();
  config.progress_thread = false;  // so that nothing moves meanwhile
  Pair pair(config);
  constexpr size_t kInWindow = 3, kWaiting = 64;
  const auto message = [](size_t i) { return NotifyMsg{.name = "", .msg = std::string(kMiB, static_cast<char>('a' + i % 26))}; };
  size_t taken = 0;
  Status refused;
  while (refused = pair.a->notify(pair.at_a, message(taken)), refused.is_ok() && taken < 1000) ++taken;
  EXPECT_EQ(refused.code(), Code::kExhausted);
  EXPECT_EQ(refused.detail(), "64 notifications of 67108864 bytes wait for the peer to take some");
  EXPECT_EQ(taken, kInWindow + kWaiting);
  Memory target(*pair.a, 64), source(*pair.b, 64);
  const RemoteRange remote{pair.b->advertise(pair.at_b, source.whole()).value()};
  const NotifyMsg read{.name = "read"}, one_byte{.name = "", .msg = "r"};
  EXPECT_EQ(pair.a->read_async(pair.at_a, target.whole(), remote, {.notify = &one_byte}).status().code(), Code::kExhausted);
  EXPECT_EQ(pair.a->read_async(pair.at_a, target.whole(), remote, {.notify = &read}).status().code(), Code::kExhausted);
  const auto alone = pair.a->read_async(pair.at_a, target.whole(), remote);
  ASSERT_TRUE(alone.is_ok()) << alone.status().to_string();

  std::vector<NotifyMsg> come;
  EXPECT_TRUE(wait_until([&] {
    (void)pair.a->progress();
    (void)pair.b->progress();
    for (NotifyMsg& one : pair.b->get_notifs()) come.push_back(std::move(one));
    return come.size() >= taken;
  })) << come.size();
  for (size_t i = 0; i < come.size(); ++i) EXPECT_TRUE(come[i].msg == message(i).msg) << i;
  EXPECT_TRUE(wait_until([&] {
    (void)pair.b->progress();
    return pair.a->wait(*alone, std::chrono::milliseconds(1)).is_ok();
  }));
  EXPECT_TRUE(pair.a->notify(pair.at_a, message(0)).is_ok()) << "there is room again";
}

/// Deregisters memory of a peer that was promised something and does not go on.
void expect_let_go(Victim& victim, Memory& memory) {
  const TimePoint begin = Clock::steady().now();
  const Status status = victim.endpoint->deregister(memory.id());
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_LT(Clock::steady().now() - begin, std::chrono::seconds(5));
  if (status.is_ok()) memory.leave();
  EXPECT_TRUE(victim.peer->hears_the_end());
}

TEST(EndpointBounds, B13_DeregisterEndsReadsThatAreNeverTaken) {
  EndpointConfig config = loopback_config();
  config.operation_timeout = std::chrono::milliseconds(300);
  for (const bool with_thread : {true, false}) {
    config.progress_thread = with_thread;
    Victim victim(config);
    Memory memory(*victim.endpoint, kBulkBytes);
    victim.ask(FrameType::kRead, memory);
    ASSERT_TRUE(wait_until([&] {
      if (!with_thread) (void)victim.endpoint->progress();
      return victim.endpoint->flight_record().find(" 1 reads of the peer") != std::string::npos;
    }));
    expect_let_go(victim, memory);
  }
}

TEST(EndpointBounds, B13_DeregisterEndsWritesThatNeverCome) {
  EndpointConfig config = loopback_config();
  config.operation_timeout = std::chrono::milliseconds(300);
  Victim victim(config);
  Memory memory(*victim.endpoint, kBulkBytes);
  victim.ask(FrameType::kWrite, memory);
  ASSERT_TRUE(victim.peer->hear(FrameType::kGo).has_value());
  expect_let_go(victim, memory);
}

// ---- want of memory

size_t address_space_bytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  unsigned long pages = 0;
  if (file == nullptr || std::fscanf(file, "%lu", &pages) != 1) ::_exit(3);
  (void)std::fclose(file);
  return pages * 4096;
}

size_t allocated_bytes() {
  const struct mallinfo2 all = ::mallinfo2();  // of all threads
  return all.uordblks + all.hblkhd;
}

// Not a test: the next one starts it. A process that can soon allocate no more, and answers what comes over its good connection
// until its input says something.
TEST(EndpointBounds, DISABLED_ServeWithLittleMemory) {
  const auto endpoint = make_endpoint();
  if (endpoint == nullptr || !endpoint->start_accepting().is_ok()) ::_exit(3);
  std::printf("\nport %d\n", port_of(*endpoint));
  std::fflush(stdout);
  char line[16];
  if (std::fgets(line, sizeof line, stdin) == nullptr) ::_exit(3);  // all have connected
  const rlim_t limit = address_space_bytes() + 4 * kMiB;
  const rlimit limits{limit, limit};
  if (::setrlimit(RLIMIT_AS, &limits) != 0) ::_exit(3);
  std::printf("limited\n");
  std::fflush(stdout);
  pollfd end{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  bool had_company = false;
  size_t allocated = 0;
  int looks = 0;  // since it changed
  while (::poll(&end, 1, 1) == 0) {
    const std::vector<ConnectionStats> connections = endpoint->stats().connections;  // none: no memory to say so
    const auto alive = std::count_if(connections.begin(), connections.end(), [](const auto& one) { return one.alive; });
    // The others' memory is given back a little after they have ended.
    looks = allocated_bytes() == std::exchange(allocated, allocated_bytes()) ? looks + 1 : 0;
    if (had_company && alive == 1 && looks >= 50) {
      had_company = false;
      std::printf("alone\n");
      std::fflush(stdout);
    }
    had_company |= alive > 1;
    for (const NotifyMsg& message : endpoint->get_notifs()) {
      if (message.name == "good") (void)endpoint->notify(message.conn, {.name = "answer", .msg = message.msg});
    }
  }
  ::_exit(0);
}

TEST(EndpointBounds, B2_WantOfMemoryEndsTheConnectionAlone) {
  if (kIsChecked) GTEST_SKIP() << "sanitizers need address space of their own";
  allow_broken_connections();
  ChildProcess child({std::filesystem::read_symlink("/proc/self/exe").string(), "--gtest_also_run_disabled_tests",
                      "--gtest_filter=EndpointBounds.DISABLED_ServeWithLittleMemory"});
  const Deadline deadline = Deadline::after(kTestDeadline);
  std::string line = "-";
  while (!line.starts_with("port ") && !deadline.expired() && !child.has_ended()) line = child.read_line(deadline);
  ASSERT_TRUE(line.starts_with("port ")) << line;
  const auto port = static_cast<uint16_t>(std::stoi(line.substr(5)));
  const auto good = make_endpoint();
  const auto conn = good->connect("127.0.0.1", 0, port, kCallTime);
  ASSERT_TRUE(conn.is_ok()) << conn.status().to_string();
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 8; ++i) peers.push_back(std::make_unique<Peer>(port));
  child.write_line("go");
  ASSERT_TRUE(child.wait_for_line("limited", deadline));

  const OperationPayload payload = with_notification();
  // As much as the windows take: these peers do nothing that is forbidden.
  for (uint64_t i = 0; i < 2600; ++i) {
    for (const auto& peer : peers) {
      if (!peer->goes_on()) continue;
      peer->say(FrameType::kSend, i, i, kBulkBytes, Packing::kWhole, &payload);
      if (i < 220) peer->say(FrameType::kSendData, i, 100'000 + i, 0, Packing::kWhole, &payload);
    }
  }
  const auto ended = [&] { return std::count_if(peers.begin(), peers.end(), [](const auto& peer) { return !peer->goes_on(); }); };
  EXPECT_TRUE(wait_until([&] { return ended() > 0; })) << "there was memory enough: the test says nothing";
  std::printf("%d of %zu connections ended for want of memory\n", static_cast<int>(ended()), peers.size());
  // As long as the others fill the memory, it may be wanting for anybody.
  peers.clear();
  ASSERT_TRUE(child.wait_for_line("alone", Deadline::after(kTestDeadline)));
  bool answered = false;
  EXPECT_TRUE(wait_until([&] {
    (void)good->notify(*conn, {.name = "good", .msg = "still there?"});
    for (int i = 0; i < 50 && !answered; ++i) {
      for (const NotifyMsg& message : good->get_notifs()) answered |= message.name == "answer";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return answered;
  })) << "the other connection has ended as well: " << good->flight_record();
  ASSERT_FALSE(child.has_ended());
  child.write_line("end");
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace tcpx::testing
