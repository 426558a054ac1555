// Records that cannot be read, at a played NIC.
#include "net/devmem/steering_record.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/devmem/steering_test.h"
#include "tests/support/expect_log.h"

namespace tcpx::testing {
namespace {

using devmem::Steering;
using devmem::SteeringChange;

SocketAddress local_at(uint16_t port) {
  return SocketAddress::loopback(port);
}
UniqueFd open_null() {
  return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

class DevmemSteeringRecord : public SteeringTest {
 protected:
  std::set<std::string> files() const {
    std::set<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) paths.insert(entry.path());
    return paths;
  }
};

// Here a directory is in its place. Most often it is a process that has as many files open as it may.
TEST_F(DevmemSteeringRecord, ARecordThatCannotBeReadIsNotTakenForNone) {
  Steering steering = open();
  auto one = std::make_unique<SteeringChange>(*steering.lead(local_at(5201), 2));
  const std::set<std::string> before = files();
  auto two = std::make_unique<SteeringChange>(*steering.lead(local_at(5201), 2));
  std::string path;
  for (const std::string& each : files())
    if (before.count(each) == 0) path = each;
  const std::string elsewhere = directory.file("elsewhere");
  std::filesystem::rename(path, elsewhere);
  std::filesystem::create_directory(path);
  const auto expect_told = [&](const Status& status) {
    EXPECT_EQ(status.native(), EISDIR) << status.to_string();
    EXPECT_NE(status.to_string().find(path), std::string::npos) << status.to_string();
  };
  expect_told(Steering::open(nic, "lo", directory.path()).status());
  expect_told(steering.undo_all_left());
  expect_told(steering.lead(local_at(5201), 2).status());
  expect_told(steering.lead(local_at(5202), 2).status());
  expect_told(steering.take_out_of_rss(3).status());
  EXPECT_EQ(nic.tables[0], (std::vector<uint32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  allow_log("the steering of lo stays changed");
  one.reset();
  EXPECT_TRUE(logged(path));
  EXPECT_EQ(nic.rules.size(), 1u) << "the other one needs it";
  std::filesystem::remove(path);
  std::filesystem::rename(elsewhere, path);
  two.reset();
  EXPECT_EQ(nic.rules.size(), 1u) << "a record says that somebody needs it";
  (void)open();
  EXPECT_TRUE(nic.rules.empty());
  EXPECT_EQ(records(), 0u);
}

TEST_F(DevmemSteeringRecord, ManyRecordsAreReadWithOneFileOpenAtATime) {
  constexpr uint16_t kRules = 40;
  nic.size = kRules;
  Steering steering = open();
  std::vector<SteeringChange> changes;
  for (uint16_t port = 1; port <= kRules; ++port) changes.push_back(*steering.lead(local_at(port), 2));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // Above all that are open: lower numbers may be free.
  const UniqueFd last(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 300));
  const rlimit few{static_cast<rlim_t>(last.get()) + 1, before.rlim_max};
  std::vector<UniqueFd> fill;
  for (UniqueFd next = open_null(); next.get() < last.get(); next = open_null()) fill.push_back(std::move(next));
  fill.resize(fill.size() - kRules / 2);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  for (uint16_t port = 1; port <= kRules; ++port) {
    const auto shared = steering.lead(local_at(port), 2);
    EXPECT_TRUE(shared.is_ok() && shared->is_ours()) << port << ": " << shared.status().to_string();
  }
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace tcpx::testing
