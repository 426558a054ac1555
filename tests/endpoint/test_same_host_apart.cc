// The meeting of two endpoints of one host whose network namespaces differ, in a directory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/text.h"
#include "base/unix_socket.h"
#include "endpoint/same_host.h"
#include "tests/support/link_setup_ends.h"
#include "tests/support/own_network.h"
#include "tests/support/temporary_directory.h"

namespace tcpx::testing {
namespace {

// Two ends of different network namespaces.
class SameHostApart : public LinkSetupTest {
 protected:
  SameHostApart() { std::filesystem::create_directory(home_ / "shared"); }

  /// Lets both meet, each in its directory. @return what the acceptor's end and the connector's say
  std::pair<std::string, std::string> meet(const std::filesystem::path& acceptors, const std::filesystem::path& connectors) {
    auto ends = channels();
    BootstrapChannel& client = ends.first;
    auto accepted = in_thread([&, channel = std::make_shared<BootstrapChannel>(std::move(ends.second))] {
      return meet_on_host(*channel, {.connector = false, .apart = true, .directory = acceptors}, soon());
    });
    Result<HostMeeting> connected = Status(Code::kUnsupported, "test", "not run");
    missing_ = in_own_network([&] {
      connected = meet_on_host(client, {.connector = true, .apart = missing_.empty(), .directory = connectors}, soon());
    });
    if (!missing_.empty()) client.leave(connected.status());
    const Result<HostMeeting> met = accepted.get();
    if (!missing_.empty()) return {};
    EXPECT_TRUE(met.is_ok()) << met.status().to_string();
    EXPECT_TRUE(connected.is_ok()) << connected.status().to_string();
    if (!met.is_ok() || !connected.is_ok()) return {};
    EXPECT_EQ(met->peer == nullptr, connected->peer == nullptr);
    return {met->local, connected->local};
  }
  bool shared_is_empty() const { return std::filesystem::is_empty(home_ / "shared"); }

  const TemporaryDirectory temporary_;
  const std::filesystem::path home_ = temporary_.path();
  std::string missing_;  // why there is no network namespace
};

TEST_F(SameHostApart, EndsOfTwoNetworksMeetInADirectory) {
  const auto said = meet(home_ / "shared", home_ / "shared");
  if (!missing_.empty()) GTEST_SKIP() << missing_;
  EXPECT_EQ(said, std::pair(std::string("same process"), std::string("same process")));
  EXPECT_TRUE(shared_is_empty());
  EXPECT_EQ(meet(home_ / "made", home_ / "made").first, "same process");
  EXPECT_EQ(std::filesystem::status(home_ / "made").permissions(), std::filesystem::perms::owner_all);
  EXPECT_EQ(meet(home_ / "shared" / ".." / "shared", concat(home_.string(), std::string(150, '/'), "shared")).first,
            "same process");
}

TEST_F(SameHostApart, OneDirectoryIsMissing) {
  const std::string here = home_ / "shared", none = home_ / "no" / "such";
  const std::string cannot = concat("TCP on one host: the network namespaces differ, and they cannot meet in ", none,
                                    ": it cannot be opened (No such file or directory). Mount one directory in both, and name it "
                                    "in UCCL_TCPX_LOCAL_DIR");
  const auto said_at_acceptor = meet(none, here);
  if (!missing_.empty()) GTEST_SKIP() << missing_;
  EXPECT_EQ(said_at_acceptor.first, cannot);
  EXPECT_EQ(meet(here, none).second, cannot);
  EXPECT_EQ(meet(here, home_ / "other").second,
            concat("TCP on one host: the network namespaces differ, and ", (home_ / "other").string(),
                   " is not the peer's: mount one directory in both, and name it in "
                   "UCCL_TCPX_LOCAL_DIR"));
  EXPECT_EQ(meet("/proc", here).first.find("TCP on one host: the network namespaces differ, and they cannot meet in /proc: nobody can "
                                           "listen there ("),
            0u);
  EXPECT_TRUE(shared_is_empty()) << "what the acceptor has made there";
}

// Ends that were killed in the middle of a meeting.
TEST_F(SameHostApart, WhatKilledEndsHaveLeftIsRemoved) {
  const auto left = [&](const char* name, std::chrono::seconds age) {
    const std::string path = home_ / "shared" / name;
    EXPECT_OK(listen_unix(path, 1).status());
    const timespec then{.tv_sec = ::time(nullptr) - age.count(), .tv_nsec = 0}, both[] = {then, then};
    EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), both, 0), 0);
    return path;
  };
  const std::string old = left("tcpx-1", std::chrono::hours(1)), fresh = left("tcpx-2", std::chrono::seconds(0));
  const std::string others = left("another's", std::chrono::hours(1));
  (void)meet(home_ / "shared", home_ / "shared");
  if (!missing_.empty()) GTEST_SKIP() << missing_;
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(fresh)) << "its owner may be about to listen";
  EXPECT_TRUE(std::filesystem::exists(others));
}

}  // namespace
}  // namespace tcpx::testing
