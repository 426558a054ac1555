// What the doctor says of bytes that were moved, and the parts with which it moves and compares them.
#include <gtest/gtest.h>

#include <cerrno>

#include "base/socket_io.h"
#include "programs/doctor/raw_tcp.h"
#include "programs/doctor/selftest_checks.h"
#include "programs/doctor/selftest_memory.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using testing::expect_helpful;
using testing::finding_of;
using testing::MadeUpMachine;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr Duration kLong = std::chrono::seconds(30);

class FakeSelftestSource final : public SelftestSource {
 public:
  Result<SelftestTransfers> moved = SelftestTransfers{.path = "plugin x", .seconds = {0.02, 0.01, 0.04}, .sockets = 4};
  Result<std::vector<double>> raw = std::vector<double>{0.02, 0.03, 0.01};
  size_t raw_sockets = 0;

  Result<SelftestTransfers> transfer(uint64_t, Duration) override {
    ++transfers;
    return moved;
  }
  Result<std::vector<double>> raw_tcp(uint64_t, size_t sockets, Duration) override {
    raw_sockets = sockets;
    return raw;
  }
  int transfers = 0;
};

class DoctorSelftest : public ::testing::Test {
 protected:
  Findings check() {
    Findings findings = check_selftest(here_.machine(), source_, kSelftestBytes);
    expect_helpful(findings);
    return findings;
  }
  Finding finding(std::string_view name) { return finding_of(check(), name); }

  MadeUpMachine here_;
  FakeSelftestSource source_;
};

TEST_F(DoctorSelftest, AsFastAsRawTcpIsWell) {
  const Findings findings = check();
  EXPECT_EQ(worst_of({{"selftest", findings}}), Verdict::kOk);
  EXPECT_EQ(finding_of(findings, "transfer").found, "64 MiB, 4 times, every byte compared");
  EXPECT_EQ(finding_of(findings, "path").found, "plugin x");
  // 67108864 bytes in 20 ms.
  EXPECT_EQ(finding_of(findings, "rate").found,
            "3.36 GB/s (median of 3, 1.68 to 6.71); raw TCP over loopback, 4 sockets: 3.36 GB/s (median of 3, 2.24 to 6.71)");
  EXPECT_EQ(source_.raw_sockets, 4u);
}

TEST_F(DoctorSelftest, LessThanHalfOfRawTcpIsAWarning) {
  source_.raw = std::vector<double>{0.0101};
  EXPECT_EQ(finding("rate").verdict, Verdict::kOk);
  source_.raw = std::vector<double>{0.0099};
  EXPECT_EQ(finding("rate").verdict, Verdict::kWarn);
  EXPECT_NE(finding("rate").mend.find("docs/performance.md"), std::string::npos);
}

TEST_F(DoctorSelftest, WrongBytesFail) {
  source_.moved = Status(Code::kMismatch, "compare with the pattern", "3 of 67108864 bytes differ, the first at 4096");
  const Findings findings = check();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::kFail);
  EXPECT_NE(findings[0].found.find("TCPX_E_MISMATCH: compare with the pattern: 3 of"), std::string::npos) << findings[0].found;
  EXPECT_NE(findings[0].mend.find("UCCL_TCPX_UNPACK_IMPL=d2d"), std::string::npos);
}

TEST_F(DoctorSelftest, ASetUpThatFailsSaysWhatTheEndpointSaid) {
  source_.moved = Status(Code::kNotFound, "open net plugin", "/x.so: no such file");
  EXPECT_EQ(finding("transfer").verdict, Verdict::kFail);
  EXPECT_EQ(finding("transfer").found, "TCPX_E_NOT_FOUND: open net plugin: /x.so: no such file");
  EXPECT_NE(finding("transfer").mend.find("docs/troubleshooting.md, TCPX_E_NOT_FOUND"), std::string::npos);
}

TEST_F(DoctorSelftest, WithoutRawTcpThereIsNothingToCompareWith) {
  source_.raw = system_error("connect", EMFILE);
  EXPECT_EQ(finding("rate").verdict, Verdict::kNotApplicable);
  EXPECT_EQ(finding("transfer").verdict, Verdict::kOk);
  source_.raw = std::vector<double>{0.0};  // a clock that stands still
  EXPECT_EQ(finding("rate").verdict, Verdict::kNotApplicable);
  source_.moved->seconds = {0.0};
  EXPECT_EQ(finding("rate").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorSelftest, TheVendorsPathNeedsTwoMachines) {
  here_.directory("/run/tcpx");
  EXPECT_EQ(finding("transfer").verdict, Verdict::kNotApplicable);
  EXPECT_EQ(source_.transfers, 0);
}

TEST(SelftestMemory, TellsAnotherPattern) {
  auto memory = SelftestMemory::create(kMiB + 5, 1000);  // the last GPU, or what stands in for one
  ASSERT_TRUE(memory.is_ok()) << memory.status().to_string();
  ASSERT_TRUE(memory->fill(1).is_ok());
  EXPECT_TRUE(memory->verify(1).is_ok());
  EXPECT_EQ(memory->verify(2).code(), Code::kMismatch);
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
