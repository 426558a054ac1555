// The doctor's last line.
#include <gtest/gtest.h>

#include "doctor/finding.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

const GroupFindings kWell{"nics", {ok("speed[eth0]", "25000 Mb/s"), not_applicable("others", "lo", "They carry no data.")}};
const GroupFindings kWarned{"kernel", {ok("sack", "1"), warn("rmem", "4096", "It is small.", "sysctl -w rmem=1")}};
const GroupFindings kFailed{"gpu", {fail("driver", "535", "It is old.", "install another one\nreboot")}};
const DataWay kWay{.plugin = "tcpx-soft over TCP", .interfaces = {"eth0", "eth1"}, .memory = "host memory"};

TEST(DoctorConclusion, SaysTheWayAndThatThereIsNothingToFix) {
  EXPECT_EQ(conclusion(kWay, {kWell}, true), "Data goes by tcpx-soft over TCP on eth0, eth1; host memory; nothing to fix");
  EXPECT_EQ(conclusion(kWay, {kWell}, false),
            "Data goes by tcpx-soft over TCP on eth0, eth1; host memory; nothing to fix (looked at: nics)");
}

TEST(DoctorConclusion, NamesTheFirstOfTheMostSevereThingsToFix) {
  EXPECT_EQ(conclusion(kWay, {kWell, kWarned}, true),
            "Data goes by tcpx-soft over TCP on eth0, eth1; host memory; 1 thing to fix, kernel rmem: sysctl -w rmem=1");
  EXPECT_EQ(
      conclusion(kWay, {kWarned, kWell, kFailed}, true),
      "Data would go by tcpx-soft over TCP on eth0, eth1; host memory; 2 things to fix, first gpu driver: install another one");
}

TEST(DoctorConclusion, WithoutAnInterfaceThereIsNoWay) {
  DataWay nowhere = kWay;
  nowhere.interfaces.clear();
  EXPECT_TRUE(conclusion(nowhere, {kFailed}, true).starts_with("Data goes nowhere: there is no network interface for it; "));
}

TEST(DoctorConclusion, TheWayIsThatOfTheMachine) {
  testing::MadeUpMachine here;
  EXPECT_EQ(data_way(here.machine(), {}, true).plugin, "tcpx-soft over TCP");
  EXPECT_EQ(data_way(here.machine(), {}, true).memory, "host memory");
  here.pci_device("/sys/devices/pci0000:00/0000:00:04.0", "0x10de", "0x030200").directory("/run/tcpx");
  EXPECT_EQ(data_way(here.machine(), {}, true).plugin, "GPUDirect-TCPX");
  EXPECT_EQ(data_way(here.machine(), {}, true).memory, "memory of 1 GPU");
  EXPECT_EQ(data_way(here.machine(), {}, false).memory, "host memory, because this build is without CUDA");
}

}  // namespace
}  // namespace tcpx::doctor
