// The meeting of two endpoints of one host: what comes of it, and each way in which nothing comes of it.
#include "endpoint/same_host.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/shared_stream.h"
#include "base/socket_io.h"
#include "base/text.h"
#include "base/unix_socket.h"
#include "lanes/ring/ring_lane.h"
#include "tests/support/lingering_socket.h"
#include "tests/support/link_setup_ends.h"

namespace tcpx::testing {
namespace {

class SameHostTest : public LinkSetupTest {
 protected:
  void SetUp() override {
    LinkSetupTest::SetUp();
    connector_.same_host = acceptor_.same_host = true;
  }
  /// Sets up a link, which stays on TCP. @return what the connector's end and the acceptor's say about it
  std::pair<std::string, std::string> stays_on_tcp() {
    auto [a, b] = link();
    EXPECT_TRUE(a.is_ok()) << a.status().to_string();
    EXPECT_TRUE(b.is_ok()) << b.status().to_string();
    if (!a.is_ok() || !b.is_ok()) return {};
    EXPECT_EQ(a->host, nullptr);
    EXPECT_EQ(b->host, nullptr);
    LinkPair pair{*a, *b, {}, {}};
    a->stream->send(NotifyFrame{.notify = {"a", "text"}});
    EXPECT_TRUE(wait_until([&] {
      pair.drive();
      return !pair.at_b.seen.empty();
    }));
    return {a->local, b->local};
  }
};

TEST_F(SameHostTest, TwoEndpointsOfOneProcessShareTheirMemory) {
  auto [a, b] = link();
  ASSERT_TRUE(a.is_ok()) << a.status().to_string();
  ASSERT_TRUE(b.is_ok()) << b.status().to_string();
  for (const LinkParts* end : {&*a, &*b}) {
    EXPECT_EQ(end->local, "same process");
    ASSERT_NE(end->host, nullptr);
    const HostPeer& host = *end->host;
    EXPECT_TRUE(host.same_process && host.reads_memory && host.is_read);
    EXPECT_EQ(host.pid, ::getpid());
    EXPECT_TRUE(host.socket);
    EXPECT_EQ(host.own_alive(), 1u);
    EXPECT_EQ(host.peer_alive(), 1u);
  }
  a->host->own_alive() = 0;
  EXPECT_EQ(b->host->peer_alive(), 0u);
  EXPECT_EQ(b->host->own_alive(), 1u);
  EXPECT_EQ(a->host->peer_alive(), 1u);
}

// Both ends say the same of each, whichever has a GPU.
TEST_F(SameHostTest, BesideAGpuMessagesAreInlineUpToLess) {
  constexpr uint32_t kMost = 65536, kBesideGpu = 16384, kFew = 100;
  connector_.identity.inline_bytes = kMost;
  const auto expect = [&](bool on_host, const char* gpu, const char* peers_gpu, uint32_t connectors) {
    connector_.same_host = on_host;
    connector_.identity.gpu_bus = gpu;
    acceptor_.identity.gpu_bus = peers_gpu;
    auto [a, b] = link();
    ASSERT_TRUE(a.is_ok() && b.is_ok());
    EXPECT_EQ(a->inline_bytes, connectors);
    EXPECT_EQ(b->peer.inline_bytes, connectors);
    EXPECT_EQ(b->inline_bytes, kFew) << "as it was set";
    EXPECT_EQ(a->peer.inline_bytes, kFew);
  };
  expect(true, "", "", kMost);
  expect(true, "0000:01:00.0", "", kBesideGpu);
  expect(true, "", "0000:01:00.0", kBesideGpu);
  expect(false, "0000:01:00.0", "0000:01:00.0", kMost);
}

TEST_F(SameHostTest, WithChecksumsOfEitherEndNothingIsInline) {
  for (const bool on_host : {true, false}) {
    for (const bool connectors : {true, false}) {
      connector_.same_host = on_host;
      connector_.checksums = connectors;
      acceptor_.checksums = !connectors;
      auto [a, b] = link();
      ASSERT_TRUE(a.is_ok() && b.is_ok());
      for (const LinkParts* end : {&*a, &*b}) {
        EXPECT_EQ(end->inline_bytes, 0u);
        EXPECT_EQ(end->peer.inline_bytes, 0u);
      }
    }
  }
}

TEST_F(SameHostTest, AnEndThatIsGoneCanNoLongerBeRead) {
  auto [a, b] = link();
  ASSERT_TRUE(a.is_ok() && b.is_ok());
  a = Status(Code::kCancelled, "test", "gone");
  EXPECT_EQ(b->host->peer_alive(), 0u);
}

TEST_F(SameHostTest, OneThatDoesNotWishItIsEnough) {
  acceptor_.same_host = false;
  EXPECT_EQ(stays_on_tcp(),
            std::pair(std::string("TCP on one host: the peer does not share memory: set EndpointConfig::same_host and "
                                  "UCCL_TCPX_LOCAL=auto"),
                      std::string("TCP on one host: this end does not share memory: set EndpointConfig::same_host and "
                                  "UCCL_TCPX_LOCAL=auto")));
}

TEST_F(SameHostTest, AnotherBootIdIsAnotherHost) {
  acceptor_.boot_id = "another";
  EXPECT_EQ(stays_on_tcp(), std::pair(std::string(), std::string()));
}

TEST_F(SameHostTest, TheHostIsKnownByItsBootId) {
  EXPECT_EQ(boot_id().size(), 36u);
  EXPECT_EQ(boot_id(), boot_id());
}

// A peer that says what a test wants it to say in the meeting of a channel.
class SameHostByHand : public SameHostTest {
 protected:
  using Met = Result<HostMeeting>;

  /// Starts the end under test. @return the other end's channel
  BootstrapChannel begin(bool connector) {
    auto [client, server] = channels();
    BootstrapChannel& tested = connector ? client : server;
    met_ = in_thread([connector, channel = std::make_shared<BootstrapChannel>(std::move(tested))] {
      return meet_on_host(*channel, {.connector = connector}, soon());
    });
    return connector ? std::move(server) : std::move(client);
  }
  static Parameters step(BootstrapChannel& channel, const Parameters& mine = {{"why not", ""}}) {
    auto theirs = channel.exchange_parameters(mine, {}, soon());
    EXPECT_TRUE(theirs.is_ok()) << theirs.status().to_string();
    return theirs.is_ok() ? *theirs : Parameters{};
  }
  /// The reason that the end under test gives when nothing came of it.
  std::string why_not() {
    const Met met = met_.get();
    EXPECT_TRUE(met.is_ok()) << met.status().to_string();
    if (!met.is_ok()) return {};
    EXPECT_EQ(met->peer, nullptr);
    return met->local;
  }
  static Parameters named(const std::string& name, const std::string& key = std::string(32, '0')) {
    return {{"why not", ""}, {"name", name}, {"key", key}};
  }

  std::future<Met> met_;
};

TEST_F(SameHostByHand, AStrangerIsShownOut) {
  BootstrapChannel channel = begin(false);
  const Parameters said = step(channel);
  std::vector<ForeignFd> strangers;
  for (const size_t bytes : {0, 1, 39, 40}) {  // silent, and with keys that are none
    strangers.push_back(connect_unix(said.at("name")).value());
    const std::string text(bytes, 'x');
    ASSERT_EQ(::send(strangers.back().get(), text.data(), text.size(), 0), static_cast<ssize_t>(bytes));
  }
  strangers.push_back(connect_unix(said.at("name")).value());
  strangers.back().reset();  // gone
  step(channel);
  EXPECT_EQ(step(channel).at("why not"), "the peer has not come to the Unix socket");
  EXPECT_EQ(why_not(), "TCP on one host: the peer has not come to the Unix socket");
}

// Another user may know the key all the same: the kernel says so of the thread that connects.
TEST_F(SameHostByHand, AnotherUserIsLeftToTcp) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  for (const auto& [theirs, what_to_do] : {std::pair("", ": run both as one user"),
                                           std::pair("1", ", as this user namespace knows it: run both in one user namespace")}) {
    BootstrapChannel channel = begin(false);
    const Parameters said = step(channel, {{"why not", ""}, {"user namespace", theirs}});
    ForeignFd socket;
    std::thread([&] {
      ASSERT_EQ(::syscall(SYS_setresuid, -1, 4711, -1), 0);  // of this thread alone, which ends
      socket = connect_unix(said.at("name")).value();
    }).join();
    ::prctl(PR_SET_DUMPABLE, 1);  // which the change of user has taken from the process
    std::array<std::byte, 40> greeting{};
    for (size_t i = 0; i < 16; ++i)
      greeting[i] = static_cast<std::byte>(std::stoul(said.at("key").substr(2 * i, 2), nullptr, 16));
    ASSERT_EQ(::send(socket.get(), greeting.data(), greeting.size(), 0), static_cast<ssize_t>(greeting.size()));
    step(channel);
    step(channel);
    EXPECT_EQ(why_not(), concat("TCP on one host: the peer is user 4711, not 0", what_to_do));
  }
}

// One that has a hand in nothing here but a socket: neither what it has sent is read nor is its close waited for.
TEST_F(SameHostByHand, WhatAnotherUserHasPassedHoldsNobodyUp) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  BootstrapChannel channel = begin(false);
  const Parameters said = step(channel);
  LingeringSocket lingers;
  std::thread([&] {
    ASSERT_EQ(::syscall(SYS_setresuid, -1, 4711, -1), 0);  // of this thread alone, which ends
    const std::array<std::byte, 40> greeting{};
    lingers.pass(connect_unix(said.at("name")).value().get(), greeting);
  }).join();
  ::prctl(PR_SET_DUMPABLE, 1);  // as above
  step(channel);
  if (met_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) step(channel);
  EXPECT_EQ(why_not(), "TCP on one host: the peer is user 4711, not 0: run both as one user");
}

TEST_F(SameHostByHand, ManyClosesThatHangLeaveItToTcp) {
  std::deque<LingeringSocket> hang;
  const std::byte mark{1};
  while (hang.size() < 40) {
    const UnixPair ends = make_unix_pair().value();
    hang.emplace_back().pass(ends.a.get(), std::span(&mark, 1));
  }
  ASSERT_TRUE(wait_until(foreign_closes_hang));
  EXPECT_EQ(stays_on_tcp().second, "TCP on one host: descriptors that others have passed to this process wait to be closed");
  hang.clear();
  EXPECT_TRUE(wait_until([] { return !foreign_closes_hang(); })) << "for the next case";
}

/// An address that a peer names, and what is said of it when it does not hold what the peer says.
class SameHostProbe : public SameHostByHand, public ::testing::WithParamInterface<bool> {};

// Of nobody, or of memory that holds other bytes: a process that has the peer's number by chance.
TEST_P(SameHostProbe, AnAddressWithoutThePeersBytesIsNotRead) {
  BootstrapChannel channel = begin(false);
  const Parameters said = step(channel);
  int answers[2];
  ASSERT_EQ(::pipe(answers), 0);
  UniqueFd reads(answers[0]), writes(answers[1]);
  // A process of its own, which stays until the memory has been looked at.
  std::array<std::byte, 40> greeting{};
  for (size_t i = 0; i < 16; ++i) greeting[i] = static_cast<std::byte>(std::stoul(said.at("key").substr(2 * i, 2), nullptr, 16));
  static const std::array<std::byte, 16> others{std::byte{9}};  // the fork has it at the same place
  const auto place = GetParam() ? reinterpret_cast<uintptr_t>(&others) : 0;
  std::memcpy(&greeting[16], &place, sizeof place);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  said.at("name").copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + said.at("name").size());
  const pid_t child = ::fork();
  if (child == 0) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    char worked = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
                  ::send(fd, greeting.data(), greeting.size(), 0) == static_cast<ssize_t>(greeting.size());
    (void)!::write(writes.get(), &worked, 1);
    ::alarm(60);
    for (;;) ::pause();
  }
  ASSERT_GT(child, 0);
  writes.reset();  // or reading would not end when the child has no such end
  char worked = 0;
  if (::read(reads.get(), &worked, 1) != 1 || worked != 1) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    FAIL() << "the child does not reach this process";
  }
  step(channel);
  EXPECT_NE(step(channel).at("reads"), "yes");
  step(channel, {{"why not", ""}, {"reads", "yes"}});
  const Met met = met_.get();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(met.is_ok()) << met.status().to_string();
  ASSERT_NE(met->peer, nullptr);
  EXPECT_FALSE(met->peer->reads_memory);
  EXPECT_TRUE(met->peer->is_read);
  EXPECT_FALSE(met->peer->same_process);
  EXPECT_EQ(met->peer->pid, child);
  EXPECT_EQ(met->local, concat("same host, host memory that is received through shared memory: ",
                               GetParam() ? "the other process is not where it says it is"
                                          : "the other's memory cannot be read (process_vm_readv: Bad address)"));
  ASSERT_TRUE(met->peer->process);
  EXPECT_TRUE(wait_for(met->peer->process.get(), POLLIN, soon()).is_ok()) << "it has ended";
}

INSTANTIATE_TEST_SUITE_P(, SameHostProbe, ::testing::Bool(),
                         [](const auto& probe) { return probe.param ? "OfOtherBytes" : "OfNobody"; });

// The link may be kept for what has arrived, and the rings are 8 MiB.
TEST(SharedAreas, BulkRingsThatAreDroppedAreUnmappedAndTheRestStays) {
  const UniqueFd memory = SharedArea::make().value();
  SharedArea area = SharedArea::map(memory.get(), true).value(), other = SharedArea::map(memory.get(), false).value();
  BulkRing* const rings[] = {&area.bulk_ring(true), &area.bulk_ring(false)};
  const auto is_mapped = [](void* page) { return ::msync(page, 4096, MS_ASYNC) == 0; };
  for (BulkRing* const ring : rings) {
    EXPECT_TRUE(is_mapped(ring));
    EXPECT_TRUE(is_mapped(ring->bytes + BulkRing::kBytes - 4096));
  }
  (void)area.take_bulk_rings();
  for (BulkRing* const ring : rings) {
    EXPECT_FALSE(is_mapped(ring));
    EXPECT_FALSE(is_mapped(ring->bytes + BulkRing::kBytes - 4096));
  }
  // What came to their place since is not unmapped with the rest.
  void* const place = rings[0];
  ASSERT_EQ(::mmap(place, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), place);
  EXPECT_EQ(area.alive(true), 1u);
  area.ring(true).written = 7;
  EXPECT_EQ(other.ring(true).written, 7u);
  (void)area.take_bulk_rings();
  area = SharedArea();
  EXPECT_TRUE(is_mapped(place));
  EXPECT_EQ(other.alive(true), 0u);
  EXPECT_EQ(::munmap(place, 4096), 0);
}

TEST_F(SameHostByHand, APeerThatDoesNotComeIsNotWaitedFor) {
  BootstrapChannel channel = begin(false);
  step(channel);
  step(channel, {{"why not", "no such thing"}});
  EXPECT_EQ(why_not(), "TCP on one host: the peer says: no such thing");
}

TEST_F(SameHostByHand, ASocketOfSomebodyElseIsLeftAlone) {
  for (const auto& [said, text] : std::vector<std::pair<Parameters, std::string>>{
           {{{"why not", ""}}, "the peer names no socket"},
           {named("tcpx-nobody", "0"), "the peer names no socket"},
           {named("tcpx-nobody", std::string(32, 'g')), "the peer names no socket"},
           {named("X11-unix"), "the peer names no socket of its own"},
           {named("tcpx-nobody"), "the peer's Unix socket cannot be reached: run both in one network namespace"},
           {named(concat("tcpx-", std::string(500, 'x'))), "name Unix socket: a name of 505 bytes, not 1 to 100"}}) {
    BootstrapChannel channel = begin(true);
    step(channel, said);
    EXPECT_EQ(step(channel).at("why not"), text);
    EXPECT_EQ(why_not(), concat("TCP on one host: ", text));
  }
}

TEST_F(SameHostByHand, MemoryThatCouldShrinkIsNotMapped) {
  const auto file = [](off_t bytes, int seals) {
    UniqueFd memory(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(memory.get(), bytes), 0);
    EXPECT_EQ(::fcntl(memory.get(), F_ADD_SEALS, seals), 0);
    return memory;
  };
  const UniqueFd good = SharedArea::make().value();
  struct stat facts {};
  ASSERT_EQ(::fstat(good.get(), &facts), 0);
  const off_t bytes = facts.st_size;
  constexpr int kAll = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_TRUE(SharedArea::map(file(bytes, kAll).get(), true).is_ok());
  EXPECT_EQ(SharedArea::map(file(bytes - 1, kAll).get(), true).status().code(), Code::kProtocol);
  EXPECT_EQ(SharedArea::map(file(bytes * 2, kAll).get(), true).status().code(), Code::kProtocol);
  for (const int seals : {0, F_SEAL_GROW | F_SEAL_SEAL, F_SEAL_SHRINK | F_SEAL_GROW})
    EXPECT_EQ(SharedArea::map(file(bytes, seals).get(), true).status().code(), Code::kProtocol) << seals;
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  const UniqueFd reads(pipes[0]), writes(pipes[1]);
  EXPECT_EQ(SharedArea::map(reads.get(), true).status().code(), Code::kProtocol);
}

TEST_F(SameHostByHand, APeerThatSharesNothingIsLeftToTcp) {
  const std::byte greeting[40]{};
  for (const auto& [passes, text] :
       std::vector<std::pair<int, std::string>>{{-1, "the peer has shared no memory"},
                                                {0, "map shared area: its size is not sealed"},
                                                {1, "the peer has passed no Unix socket for descriptors"}}) {
    const std::string name = concat("tcpx-test-", ::getpid(), passes);
    const ForeignFd listener = listen_unix(name, 1).value();
    BootstrapChannel channel = begin(true);
    step(channel, named(name));
    EXPECT_EQ(step(channel).at("why not"), "");
    const ForeignFd socket = accept_unix(listener.get());
    ASSERT_TRUE(socket);
    const UniqueFd empty(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (passes >= 0) {
      const UniqueFd area = SharedArea::make().value();
      ASSERT_TRUE(send_descriptor(socket.get(), greeting, passes == 0 ? empty.get() : area.get()).is_ok());
      ASSERT_TRUE(send_descriptor(socket.get(), std::span(greeting, 1), empty.get()).is_ok());
    }
    step(channel);
    EXPECT_EQ(step(channel).at("why not"), text);
    EXPECT_EQ(why_not(), concat("TCP on one host: ", text));
  }
}

TEST(SameHost, TheWayOfGpuMemoryIsTold) {
  EXPECT_STREQ(describe_way(GpuLink::kSame), "within one GPU");
  EXPECT_STREQ(describe_way(GpuLink::kNvlink), "over NVLink");
  EXPECT_STREQ(describe_way(GpuLink::kPcie), "over PCIe");
  EXPECT_STREQ(describe_way(GpuLink::kUnknown), "copied by the GPUs");
  EXPECT_STREQ(describe_way(GpuLink::kNone), "through host memory, because these GPUs do not reach each other");
}

TEST_F(SameHostByHand, APeerThatLeavesInBetweenEndsTheSetUp) {
  for (int steps = 0; steps < 3; ++steps) {
    BootstrapChannel channel = begin(false);
    for (int i = 0; i < steps; ++i) step(channel);
    channel.leave(Status(Code::kPeerGone, "test", "gone"));
    EXPECT_EQ(met_.get().is_ok(), steps == 3) << steps;
  }
}

}  // namespace
}  // namespace tcpx::testing
