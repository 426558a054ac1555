// Verdicts on bytes that were moved, and the parts that move and compare them.
#include <gtest/gtest.h>

#include <cerrno>

#include "base/socket_io.h"
#include "doctor/selftest.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using enum Verdict;

SelftestFacts moved() {
  return {.expected = {false, "a test"},
          .moved = SelftestTransfers{.path = "plugin x", .seconds = {0.02, 0.01, 0.04}, .sockets = 4},
          .one_host = SelftestTransfers{.path = "plugin x; same host, host memory (of a test)", .seconds = {0.01}},
          .raw = SelftestTransfers{.path = "", .seconds = {0.02, 0.03, 0.01}}};
}
const testing::Checks<SelftestFacts> kSelftest{check_selftest};

TEST(DoctorSelftest, TheRateIsHeldAgainstRawTcp) {
  const auto alone = [](double seconds) { return SelftestTransfers{.path = "", .seconds = {seconds}}; };
  const auto raw = [](Result<SelftestTransfers> transfers) { return [=](SelftestFacts& facts) { facts.raw = transfers; }; };
  EXPECT_EQ(kSelftest.worst(moved()), kOk);
  kSelftest.expect(moved(), {{"rate", kOk, raw(alone(0.0101))},
                             {"rate", kWarn, raw(alone(0.0099))},
                             {"rate", kNotApplicable, raw(alone(0.0))},  // a clock that stands still
                             {"rate", kNotApplicable, raw(system_error("connect", EMFILE))},
                             {"transfer", kOk, raw(system_error("connect", EMFILE))}});
  // 67108864 bytes in 20 ms.
  const std::string found = kSelftest.finding(moved(), "rate").found;
  EXPECT_TRUE(found.starts_with("3.36 GB/s (median of 3, 1.68 to 6.71); ")) << found;
}

TEST(DoctorSelftest, AFailureIsTheEndpointsOwn) {
  for (const Status& status : {Status(Code::kMismatch, "compare with the pattern", "3 of 67108864 bytes differ"),
                               Status(Code::kNotFound, "open net plugin", "/x.so: no such file")}) {
    SelftestFacts facts = moved();
    facts.moved = status;
    EXPECT_EQ(check_selftest(facts).size(), 1u);
    EXPECT_EQ(kSelftest.verdict(facts, "transfer"), kFail);
    EXPECT_EQ(kSelftest.finding(facts, "transfer").found, status.to_string());
  }
}

TEST(DoctorSelftest, ThePluginAndSharedMemoryAreEachTold) {
  SelftestFacts facts = moved();
  facts.moved->value().path = "plugin x; TCP on one host: this end does not share memory: set something";
  EXPECT_EQ(kSelftest.finding(facts, "path").found, "plugin x");
  EXPECT_EQ(kSelftest.finding(facts, "one_host").found,
            "6.71 GB/s (median of 1, 6.71 to 6.71) by shared memory in place of TCP: same host, host memory (of a test)");
  // The system, or the user, may not want it.
  facts.one_host->value().path = "plugin x; TCP on one host: no boot id";
  EXPECT_EQ(kSelftest.verdict(facts, "one_host"), kNotApplicable);
  EXPECT_EQ(kSelftest.finding(facts, "one_host").found, "TCP on one host: no boot id");
  facts.one_host = Status(Code::kMismatch, "compare with the pattern", "3 of 67108864 bytes differ");
  kSelftest.expect(facts, {{"one_host", kFail}, {"transfer", kOk}});
}

TEST(DoctorSelftest, TheVendorsPathNeedsTwoMachines) {
  testing::MadeUpMachine here;
  here.directory("/run/tcpx");
  EXPECT_EQ(kSelftest.verdict(selftest_facts(here.machine(), kSelftestBytes), "transfer"), kNotApplicable);
}

}  // namespace
}  // namespace tcpx::doctor
