// A process is killed at a random moment in the middle of what it does to this one's memory, or this one to its. Each byte is compared:
// what has come is the peer's, and nothing comes any more once an operation has ended or the memory was taken back. gtest's `repeat`
// kills more processes, at other moments:
//   --gtest_filter=*EndpointKills* --gtest_repeat=250
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/endpoint_processes.h"

namespace tcpx::testing {
namespace {

constexpr size_t kKills = 2;                 // by each case
constexpr size_t kLong = (12 << 20) + 4097;  // the process that is killed has memory for two of them
constexpr std::chrono::seconds kSoon{5};     // far longer than it takes where nobody else uses the processor

/// Bytes without end that repeat themselves.
class Pattern {
 public:
  explicit Pattern(size_t period, size_t step = 1, size_t first = 0) : period_(period) {
    for (size_t i = 0; i < kBlock + period; ++i) block_.push_back(static_cast<std::byte>(first + i % period * step));
  }
  /// @param begin place of the first byte in the pattern
  void fill(std::span<std::byte> bytes, size_t begin) const {
    for (size_t at = 0; at < bytes.size(); at += kBlock)
      std::memcpy(&bytes[at], from(begin + at), std::min(kBlock, bytes.size() - at));
  }
  bool is(std::span<const std::byte> bytes, size_t begin) const {
    for (size_t at = 0; at < bytes.size(); at += kBlock) {
      if (std::memcmp(&bytes[at], from(begin + at), std::min(kBlock, bytes.size() - at)) != 0) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kBlock = 16384;
  const std::byte* from(size_t place) const { return &block_[place % period_]; }
  const size_t period_;
  std::vector<std::byte> block_;
};
const Pattern kPeers(251), kOwn(256, 7), kNobodys(1, 1, 0xfe);  // the first is that of a PeerProcess, which has no 0xfe
static_assert(kLong % 251 != 0, "its first bytes differ from the next ones everywhere");

void sleep_at_random(Duration most) {
  static std::mt19937_64 random(static_cast<uint64_t>(::testing::GTEST_FLAG(random_seed)));
  const auto most_us = std::chrono::duration_cast<std::chrono::microseconds>(most).count();
  ::usleep(static_cast<useconds_t>(random() % static_cast<uint64_t>(most_us + 1)));
}

struct Place {
  const Pattern& pattern;
  size_t begin;
};
/// How many bytes are those of either pattern; together fewer than all if some are of neither. No byte may be of both.
std::pair<size_t, size_t> count(std::span<const std::byte> bytes, const Place& first, const Place& second) {
  constexpr size_t kBlock = 4096;  // at a time, because a build without optimisation takes long for single bytes
  size_t of_first = 0, of_second = 0;
  for (size_t at = 0; at < bytes.size(); at += kBlock) {
    const auto block = bytes.subspan(at, std::min(kBlock, bytes.size() - at));
    const size_t size =
        first.pattern.is(block, first.begin + at) || second.pattern.is(block, second.begin + at) ? block.size() : 1;
    for (size_t i = 0; i < block.size(); i += size) {
      of_first += first.pattern.is(block.subspan(i, size), first.begin + at + i) ? size : 0;
      of_second += second.pattern.is(block.subspan(i, size), second.begin + at + i) ? size : 0;
    }
  }
  return {of_first, of_second};
}

/// @param cut kills in the middle of an operation, as its bytes or its end tell
void print_kills(size_t cut) {
  const auto& info = *::testing::UnitTest::GetInstance()->current_test_info();
  std::printf("[ KILLED   ] %s %zu in the middle %zu\n", info.name(), kKills, cut);
}

struct Work {
  const char* name;
  const char* verb;  // of a PeerProcess
  size_t bytes;
  bool is_hidden = false;    // the process that is killed cannot read this one's memory,
  bool both_hidden = false;  // nor this one its
};

/// The process that is killed uses a slot of this one without end.
class EndpointKillsOfUsers : public EndpointProcesses, public ::testing::WithParamInterface<Work> {
 protected:
  EndpointKillsOfUsers() : EndpointProcesses(GetParam().both_hidden) {}
  uint64_t moved(ConnId conn) const {
    const ConnectionStats stats = stats_of(*endpoint_, conn);
    return stats.bytes_received + stats.bytes_sent;
  }
};

// Nobody else may have had a part in a write of the dead one. Its memory is the owner's again at once.
TEST_P(EndpointKillsOfUsers, LeaveTheSlotToItsOwner) {
  const Work& work = GetParam();
  constexpr size_t kGuard = 4099;
  const bool reads = std::string(work.verb) == "reads", writes_by_turns = std::string(work.verb) == "writes";
  const ConnId first = conn_;
  std::vector<std::byte> memory(work.bytes + 2 * kGuard);
  kNobodys.fill(memory, 0);
  const std::span<std::byte> target = std::span(memory).subspan(kGuard, work.bytes);
  size_t cut = 0;
  for (size_t round = 0; round < kKills; ++round) {
    PeerProcess user(0, work.is_hidden || work.both_hidden);
    meet(user);
    kOwn.fill(target, round);
    const LocalRange range{endpoint_->register_memory(target.data(), target.size()).value(), target.data(), target.size()};
    const LocalRange awaited = memory_.range(0, kShort);
    const auto receive = endpoint_->recv_async(conn_, {&awaited, 1});
    ASSERT_TRUE(receive.is_ok());
    const uint64_t before = moved(conn_);
    user.tell(concat(work.verb, " ", work.bytes));
    ASSERT_TRUE(endpoint_->send_slot(conn_, endpoint_->advertise(conn_, range).value()).is_ok());
    ASSERT_TRUE(wait_until([&] { return moved(conn_) > before + 4 * work.bytes; }));
    sleep_at_random(work.bytes == kLong ? std::chrono::microseconds(8000) : std::chrono::microseconds(700));
    user.begin_to_kill();
    const TimePoint killed = Clock::steady().now();
    const Status removed = endpoint_->deregister(range.memory, kCallTime);
    ASSERT_TRUE(removed.is_ok()) << removed.to_string();
    EXPECT_EQ(endpoint_->wait(*receive, kCallTime).code(), Code::kPeerGone);
    EXPECT_LT(Clock::steady().now() - killed, kSoon);
    if (reads) {
      EXPECT_TRUE(kOwn.is(target, round));
    } else {
      const auto [from_first, from_next] =
          count(target, {kPeers, 0}, writes_by_turns ? Place{kPeers, work.bytes} : Place{kNobodys, 0});
      EXPECT_EQ(from_first + from_next, work.bytes);
      cut += from_first != 0 && from_next != 0 ? 1 : 0;
    }
    kOwn.fill(target, round + 100);
    ::usleep(2000);
    ASSERT_TRUE(kOwn.is(target, round + 100));
    user.kill();
  }
  EXPECT_TRUE(kNobodys.is(std::span(memory).first(kGuard), 0));
  EXPECT_TRUE(kNobodys.is(std::span(memory).last(kGuard), 0));
  print_kills(cut);
  conn_ = first;
  expect_data_flows(peer_);
}

INSTANTIATE_TEST_SUITE_P(, EndpointKillsOfUsers,
                         ::testing::Values(Work{"ShortWritesAndReads", "hammer", 96 << 10},
                                           Work{"ShortWrites", "writes", 96 << 10}, Work{"LongWrites", "writes", kLong},
                                           Work{"LongReads", "reads", kLong},
                                           Work{.name = "PulledWrites", .verb = "writes", .bytes = kLong, .is_hidden = true},
                                           Work{.name = "RingWrites", .verb = "writes", .bytes = kLong, .both_hidden = true},
                                           Work{.name = "RingReads", .verb = "reads", .bytes = kLong, .both_hidden = true}),
                         [](const auto& instance) { return instance.param.name; });

struct Use {
  const char* name;
  OperationKind kind;
  size_t parts = 6;  // of the memory, an operation for each; one alone is copied by both ends
  bool both_hidden = false;
};

/// This process uses a slot of the one that is killed.
class EndpointKillsOfOwners : public EndpointProcesses, public ::testing::WithParamInterface<Use> {
 protected:
  EndpointKillsOfOwners() : EndpointProcesses(GetParam().both_hidden) {}
  static constexpr size_t kBytes = 6 * ((4 << 20) + 4097);
  std::vector<OperationId> start_parts() {
    std::vector<OperationId> ids;
    const size_t part = kBytes / GetParam().parts;
    for (size_t offset = 0; offset < kBytes; offset += part) {
      const LocalRange range = memory_.range(offset, part);
      const RemoteRange remote{slot_, offset};
      ids.push_back(start(*endpoint_, GetParam().kind, conn_, {&range, 1}, {&remote, 1}).value());
    }
    return ids;
  }
};

TEST_P(EndpointKillsOfOwners, EndWhatUsesTheirMemory) {
  const bool reads = GetParam().kind == OperationKind::kRead;
  const ConnId first = conn_;
  const std::span<std::byte> memory = std::span(memory_.bytes()).first(kBytes);
  size_t cut = 0;
  for (size_t round = 0; round < kKills; ++round) {
    PeerProcess owner(0, hidden_);
    meet(owner);
    const auto prepare = [&] { (reads ? kNobodys : kOwn).fill(memory, reads ? 0 : round); };
    prepare();
    TimePoint begun;
    for (int times = 0; times < 2; ++times) {  // the second time it may be by lease
      begun = Clock::steady().now();
      ASSERT_EQ(count_ended(start_parts(), Code::kOk), 0u);
    }
    const Duration took = Clock::steady().now() - begun;
    EXPECT_TRUE(reads ? kPeers.is(memory, 0) : kOwn.is(memory, round));
    prepare();
    const auto ids = start_parts();
    sleep_at_random(took);
    owner.begin_to_kill();
    const TimePoint killed = Clock::steady().now();
    cut += count_ended(ids, Code::kPeerGone) != 0 ? 1 : 0;
    EXPECT_LT(Clock::steady().now() - killed, kSoon);
    if (reads) {
      const auto [came, untouched] = count(memory, {kPeers, 0}, {kNobodys, 0});
      EXPECT_EQ(came + untouched, memory.size());
      kOwn.fill(memory, round);
    }
    ::usleep(2000);
    ASSERT_TRUE(kOwn.is(memory, round));
    owner.kill();
  }
  print_kills(cut);
  conn_ = first;
  expect_data_flows(peer_);
}

INSTANTIATE_TEST_SUITE_P(, EndpointKillsOfOwners,
                         ::testing::Values(Use{"LongReads", OperationKind::kRead}, Use{"LongWrites", OperationKind::kWrite},
                                           Use{"JointReads", OperationKind::kRead, 1},
                                           Use{"JointWrites", OperationKind::kWrite, 1},
                                           Use{.name = "RingReads", .kind = OperationKind::kRead, .both_hidden = true},
                                           Use{.name = "RingWrites", .kind = OperationKind::kWrite, .both_hidden = true}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace tcpx::testing
