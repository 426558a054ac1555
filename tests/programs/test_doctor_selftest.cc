// Verdicts on bytes that were moved, and the parts that move and compare them.
#include <gtest/gtest.h>

#include <cerrno>

#include "base/socket_io.h"
#include "programs/doctor/selftest.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using testing::expect_helpful;
using testing::finding_of;
using testing::MadeUpMachine;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr Duration kLong = std::chrono::seconds(30);

SelftestFacts moved() {
  return {.expected = {false, "a test"},
          .moved = SelftestTransfers{.path = "plugin x", .seconds = {0.02, 0.01, 0.04}, .sockets = 4},
          .raw = std::vector<double>{0.02, 0.03, 0.01}};
}
Finding finding(const SelftestFacts& facts, std::string_view name) {
  const Findings findings = check_selftest(facts);
  expect_helpful(findings);
  return finding_of(findings, name);
}
Verdict verdict(const SelftestFacts& facts, std::string_view name) {
  return finding(facts, name).verdict;
}

TEST(DoctorSelftest, TheRateIsHeldAgainstRawTcp) {
  SelftestFacts facts = moved();
  EXPECT_EQ(testing::worst_of(check_selftest(facts)), Verdict::kOk);
  // 67108864 bytes in 20 ms.
  EXPECT_TRUE(finding(facts, "rate").found.starts_with("3.36 GB/s (median of 3, 1.68 to 6.71); "))
      << finding(facts, "rate").found;
  facts.raw = std::vector<double>{0.0101};
  EXPECT_EQ(verdict(facts, "rate"), Verdict::kOk);
  facts.raw = std::vector<double>{0.0099};
  EXPECT_EQ(verdict(facts, "rate"), Verdict::kWarn);
}

TEST(DoctorSelftest, AFailureIsTheEndpointsOwn) {
  for (const Status& status : {Status(Code::kMismatch, "compare with the pattern", "3 of 67108864 bytes differ"),
                               Status(Code::kNotFound, "open net plugin", "/x.so: no such file")}) {
    SelftestFacts facts = moved();
    facts.moved = status;
    EXPECT_EQ(check_selftest(facts).size(), 1u);
    EXPECT_EQ(verdict(facts, "transfer"), Verdict::kFail);
    EXPECT_EQ(finding(facts, "transfer").found, status.to_string());
  }
}

TEST(DoctorSelftest, WithoutRawTcpThereIsNothingToCompareWith) {
  SelftestFacts facts = moved();
  facts.raw = system_error("connect", EMFILE);
  EXPECT_EQ(verdict(facts, "rate"), Verdict::kNotApplicable);
  EXPECT_EQ(verdict(facts, "transfer"), Verdict::kOk);
  facts.raw = std::vector<double>{0.0};  // a clock that stands still
  EXPECT_EQ(verdict(facts, "rate"), Verdict::kNotApplicable);
}

TEST(DoctorSelftest, TheVendorsPathNeedsTwoMachines) {
  MadeUpMachine here;
  here.directory("/run/tcpx");
  EXPECT_EQ(verdict(selftest_facts(here.machine(), kSelftestBytes), "transfer"), Verdict::kNotApplicable);
}

TEST(RawTcp, EachTimeIsTimed) {
  for (const size_t sockets : {size_t{1}, size_t{5}}) {
    const auto seconds = time_raw_tcp(kMiB + 7, sockets, kLong);
    ASSERT_TRUE(seconds.is_ok()) << seconds.status().to_string();
    EXPECT_EQ(seconds->size(), 5u);
    for (const double each : *seconds) EXPECT_GT(each, 0);
  }
}

TEST(RawTcp, MoreSocketsThanAnybodyHasAreRefused) {
  EXPECT_EQ(time_raw_tcp(kMiB, 0, kLong).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(time_raw_tcp(kMiB, 65, kLong).status().code(), Code::kInvalidArgument);
}

TEST(RawTcp, ItEndsAtItsDeadline) {
  EXPECT_EQ(time_raw_tcp(64 * kMiB, 1, std::chrono::nanoseconds(1)).status().code(), Code::kTimeout);
}

TEST(RawTcp, SocketsThatReceivedAreCounted) {
  const auto listener = listen_tcp(SocketAddress::loopback(0), 1);
  ASSERT_TRUE(listener.is_ok());
  const SocketAddress address = local_address(listener->get()).value();
  const Deadline deadline = Deadline::after(kLong);
  const auto out = connect_tcp(address, deadline);
  ASSERT_TRUE(out.is_ok());
  const UniqueFd in(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  std::vector<std::byte> data(5000);
  EXPECT_EQ(sockets_that_received(1000), 0u);
  ASSERT_TRUE(send_all(out->get(), data, deadline).is_ok());
  ASSERT_TRUE(recv_all(in.get(), data, deadline).is_ok());
  EXPECT_EQ(sockets_that_received(1000), 1u);
  EXPECT_EQ(sockets_that_received(6000), 0u);
}

}  // namespace
}  // namespace tcpx::doctor
