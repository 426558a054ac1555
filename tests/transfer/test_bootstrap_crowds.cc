// A bootstrap port that serves only who has said all of who it is: crowds that say less get no further.
#include <gtest/gtest.h>

#include <array>

#include "base/socket_io.h"
#include "tests/support/bootstrap_ends.h"
#include "tests/support/expect_log.h"
#include "transfer/bootstrap.h"
#include "transfer/crowded_addresses.h"

namespace tcpx::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const Parameters kWho{{"name", "value"}};

class BootstrapCrowd : public ::testing::Test {
 protected:
  void start(BootstrapServerOptions options) {
    options.host = "127.0.0.1";
    options.wait_for_first_frame = true;
    server_ = must(BootstrapServer::create(options));
  }
  /// A client that says hello and then these bytes.
  UniqueFd say(std::span<const std::byte> bytes) {
    UniqueFd fd = must(connect_tcp(SocketAddress::loopback(server_->port()), soon()));
    EXPECT_OK(send_all(fd.get(), encode_frame(encode_hello("stranger")), soon()));
    EXPECT_OK(send_all(fd.get(), bytes, soon()));
    return fd;
  }
  /// A good client that comes now, and what `accept` returns.
  void expect_served() {
    auto client = in_thread([port = server_->port()]() -> Status {
      TCPX_ASSIGN_OR_RETURN(auto channel, bootstrap_connect("127.0.0.1", port, soon()));
      return channel.exchange_parameters(kWho, {}, soon()).status();
    });
    auto channel = must(server_->accept(soon()));
    const auto said = channel.exchange_parameters({}, {}, soon());
    ASSERT_TRUE(said.is_ok()) << said.status().to_string();
    EXPECT_EQ(*said, kWho);
    EXPECT_OK(client.get());
  }
  void expect_nobody(milliseconds wait = milliseconds(100)) {
    EXPECT_EQ(server_->accept(Deadline::after(wait)).status().code(), Code::kTimeout);
  }

  std::unique_ptr<BootstrapServer> server_;
};

TEST_F(BootstrapCrowd, B7_WhoHasNotSaidAllOfWhoItIsIsNotServed) {
  start({.hello_time = milliseconds(300)});
  const auto frame = encode_frame(must(encode_parameters(kWho)));
  const std::span<const std::byte> whole(frame);
  std::vector<UniqueFd> strangers;
  for (const size_t bytes : {size_t{0}, size_t{1}, whole.size() - 1}) strangers.push_back(say(whole.first(bytes)));
  expect_nobody();
  expect_served();
  allow_log("none until the deadline, after its hello");
  expect_nobody(milliseconds(500));
  EXPECT_TRUE(logged("none until the deadline, after its hello"));
}

TEST_F(BootstrapCrowd, WhatIsNotTheFrameThatComesFirstIsDropped) {
  start({});
  allow_log("bootstrap: dropped");
  const UniqueFd other = say(encode_frame(must(encode_handles(std::array<Handle, 1>{}))));
  expect_nobody();
  EXPECT_TRUE(logged("the client does not begin with its parameters"));
  const std::array<std::byte, 48> zeros{};
  const UniqueFd none = say(zeros);
  expect_nobody();
  expect_served();
}

// Four places, and clients that come again as soon as they are shown out.
TEST_F(BootstrapCrowd, AByteMoreEarnsNoPlace) {
  start({.max_waiting = 4});
  allow_log("bootstrap: dropped");
  const std::byte more{'T'};
  std::vector<UniqueFd> crowd;
  for (int i = 0; i < 20; ++i) crowd.push_back(say(std::span(&more, 1)));
  expect_served();
}

// One that is never silent for long must make room all the same.
TEST_F(BootstrapCrowd, ByteAfterByteEarnsNoPlaceEither) {
  start({.hello_time = seconds(60), .max_waiting = 1});
  allow_log("bootstrap: dropped");
  const auto frame = encode_frame(must(encode_parameters({{"name", std::string(200, 'x')}})));
  const UniqueFd slow = say({});
  std::atomic<bool> stop{false};
  auto dribble = in_thread([&] {
    for (size_t i = 0; i < frame.size() - 1 && !stop; ++i) {
      (void)::send(slow.get(), &frame[i], 1, MSG_NOSIGNAL);
      std::this_thread::sleep_for(milliseconds(50));  // frequent: what the test is about
    }
    return Status::ok();
  });
  expect_nobody();
  expect_served();
  stop = true;
  EXPECT_OK(dribble.get());
}

TEST(CrowdedAddresses, WhoHasMostGivesWayFirst) {
  CrowdedAddresses crowds;
  for (const char* address : {"a", "a", "a", "b"}) crowds.add(address);
  const TimePoint early{seconds(1)}, late{seconds(2)};
  EXPECT_TRUE(crowds.goes_before("a", late, "b", early));
  EXPECT_FALSE(crowds.goes_before("b", early, "a", late));
  EXPECT_TRUE(crowds.goes_before("a", early, "a", late));
  EXPECT_FALSE(crowds.goes_before("a", late, "a", early));
  EXPECT_TRUE(crowds.has_more_than_its_share("a", "b", 4)) << "of two addresses";
  EXPECT_TRUE(crowds.has_more_than_its_share("a", "c", 6)) << "of three";
  EXPECT_FALSE(crowds.has_more_than_its_share("b", "c", 6));
  CrowdedAddresses alone;
  for (int i = 0; i < 4; ++i) alone.add("a");
  EXPECT_FALSE(alone.has_more_than_its_share("a", "a", 4)) << "nobody else wants one";
}

}  // namespace
}  // namespace tcpx::testing
