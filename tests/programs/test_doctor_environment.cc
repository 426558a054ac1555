// Verdicts on variables, and the lines that set them.
#include <gtest/gtest.h>

#include "programs/doctor/environment.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using testing::expect_helpful;
using testing::finding_of;
using testing::MadeUpMachine;

class DoctorEnvironment : public ::testing::Test {
 protected:
  DoctorEnvironment() {
    for (const char* name : {"lo", "eth0", "eth1", "eth2"}) here_.directory(std::string("/sys/class/net/") + name);
  }
  Findings check() {
    Findings findings = check_environment(environment_facts(here_.machine()));
    expect_helpful(findings);
    return findings;
  }
  Verdict verdict_of(std::string_view name) { return finding_of(check(), name).verdict; }

  MadeUpMachine here_;
};

TEST_F(DoctorEnvironment, NothingSetIsWell) {
  const Findings findings = check();
  EXPECT_EQ(testing::worst_of(findings), Verdict::kOk);
  EXPECT_NE(finding_of(findings, "defaults").found.find("35 of 35"), std::string::npos) << finding_of(findings, "defaults").found;
}

TEST_F(DoctorEnvironment, EmptyIsUnset) {
  here_.variable("UCCL_TCPX_CHUNK_BYTES", "");
  EXPECT_EQ(testing::worst_of(check()), Verdict::kOk);
}

TEST_F(DoctorEnvironment, AGoodValueIsShownWithItsUnit) {
  here_.variable("UCCL_TCPX_CHUNK_BYTES", "65536");
  EXPECT_EQ(finding_of(check(), "value[UCCL_TCPX_CHUNK_BYTES]").found, "65536 bytes");
}

TEST_F(DoctorEnvironment, AMalformedValueFailsAndIsUnset) {
  here_.variable("UCCL_TCPX_CHUNK_BYTES", "512K").variable("UCCL_TCPX_UNPACK_IMPL", "gpu").variable("UCCL_TCPX_FAILOVER", "2");
  const Findings findings = check();
  for (const char* name : {"UCCL_TCPX_CHUNK_BYTES", "UCCL_TCPX_UNPACK_IMPL", "UCCL_TCPX_FAILOVER"}) {
    const Finding finding = finding_of(findings, std::string("value[") + name + "]");
    EXPECT_EQ(finding.verdict, Verdict::kFail) << name;
    EXPECT_TRUE(finding.mend.starts_with(std::string("unset ") + name)) << finding.mend;
    EXPECT_NE(environment_block(environment_facts(here_.machine())).find(std::string("\nunset ") + name), std::string::npos);
  }
  EXPECT_NE(finding_of(findings, "value[UCCL_TCPX_UNPACK_IMPL]").found.find("auto|kernel|d2d|host|none"), std::string::npos);
}

TEST_F(DoctorEnvironment, ASlipOfTheKeyIsFound) {
  here_.variable("UCCL_TCPX_CHUNK_BYTE", "65536").variable("NCCL_NSOCK_PERTHREAD", "4");
  const Findings findings = check();
  EXPECT_EQ(finding_of(findings, "name[UCCL_TCPX_CHUNK_BYTE]").mend,
            "unset UCCL_TCPX_CHUNK_BYTE && export UCCL_TCPX_CHUNK_BYTES='65536'");
  EXPECT_EQ(finding_of(findings, "name[NCCL_NSOCK_PERTHREAD]").verdict, Verdict::kWarn);
}

TEST_F(DoctorEnvironment, HalfAPrefixOrAnotherOneIsFound) {
  for (const char* name : {"TCPX_CHUNK_BYTES", "UCCL_CHUNK_BYTES", "NCCL_TCPX_CHUNK_BYTES", "NCCL_GPUDIRECTTCPX_CHUNK_BYTES"}) {
    MadeUpMachine machine;
    machine.variable(name, "1");
    const Finding finding =
        finding_of(check_environment(environment_facts(machine.machine())), std::string("name[") + name + "]");
    EXPECT_NE(finding.mend.find("export UCCL_TCPX_CHUNK_BYTES="), std::string::npos) << name << ": " << finding.mend;
  }
  here_.variable("UCCL_TCPX_SOCKET_IFNAME", "eth1").variable("GPUDIRECTTCPX_CTRL_DEV", "eth0");
  const Findings findings = check();
  EXPECT_NE(finding_of(findings, "name[UCCL_TCPX_SOCKET_IFNAME]").mend.find("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"),
            std::string::npos);
  EXPECT_NE(finding_of(findings, "name[GPUDIRECTTCPX_CTRL_DEV]").mend.find("NCCL_GPUDIRECTTCPX_CTRL_DEV"), std::string::npos);
}

TEST_F(DoctorEnvironment, WhatNobodyReadsHasNoOtherName) {
  here_.variable("UCCL_TCPX_GO_FASTER_PLEASE", "1");
  const Finding finding = finding_of(check(), "name[UCCL_TCPX_GO_FASTER_PLEASE]");
  EXPECT_EQ(finding.verdict, Verdict::kWarn);
  EXPECT_EQ(finding.mend, "unset UCCL_TCPX_GO_FASTER_PLEASE");
}

TEST_F(DoctorEnvironment, OtherPeoplesVariablesAreLeftAlone) {
  here_.variable("NCCL_SOCKET_IFNAME", "eth0").variable("NCCL_GPUDIRECTTCPX_RECV_SYNC", "0").variable("PATH", "/bin");
  here_.variable("NCCL_DEBUG", "INFO").variable("UCX_TLS", "tcp");
  EXPECT_EQ(testing::worst_of(check()), Verdict::kOk);
}

TEST_F(DoctorEnvironment, A8_WhatThePluginReadsIsTheOnlyThingThatCounts) {
  for (const char* read :
       {"TELEMETRY_FILE_REMOVE_FREQUENCY", "TELEMETRY_GARBAGE_COLLECTOR_INDEX", "TELEMETRY_EXPORTER_CORE_INDEX"}) {
    MadeUpMachine machine;
    machine.variable(std::string("NCCL_GPUDIRECTTCPX_") + read, "1");
    EXPECT_EQ(testing::worst_of(check_environment(environment_facts(machine.machine()))), Verdict::kOk) << read;
  }
  here_.variable("NCCL_GPUDIRECTTCPX_PORT_MAPPING", "x");  // its parser is never called
  EXPECT_EQ(verdict_of("name[NCCL_GPUDIRECTTCPX_PORT_MAPPING]"), Verdict::kWarn);
}

TEST_F(DoctorEnvironment, A8_ANumberThatThePluginReadsAsAnotherIsToldApart) {
  const auto number = [](const std::string& name, const std::string& value) {
    MadeUpMachine machine;
    machine.directory("/run/tcpx").variable(name, value);
    return finding_of(check_environment(environment_facts(machine.machine())), "number[" + name + "]");
  };
  for (const auto& [value, meant] : {std::pair{"512K", "524288"}, {"1M", "1048576"}, {"0100", "100"}, {"08", "8"}}) {
    const Finding finding = number("NCCL_DYNAMIC_CHUNK_SIZE", value);
    EXPECT_EQ(finding.verdict, Verdict::kWarn) << value;
    EXPECT_EQ(finding.mend, std::string("export NCCL_DYNAMIC_CHUNK_SIZE=") + meant);
  }
  EXPECT_NE(number("NCCL_DYNAMIC_CHUNK_SIZE", "512K").found.find("reads 512"), std::string::npos);
  EXPECT_NE(number("NCCL_DYNAMIC_CHUNK_SIZE", "0100").found.find("reads 64"), std::string::npos);
  for (const char* name : {"NCCL_GPUDIRECTTCPX_TIMEOUT_THRESHOLD_NS", "NCCL_MIN_ZCOPY_SIZE"})
    EXPECT_EQ(number(name, "10s").verdict, Verdict::kWarn) << name;
  here_.directory("/run/tcpx").variable("NCCL_GPUDIRECTTCPX_TIMEOUT_THRESHOLD_NS", "0x1000").variable("NCCL_USE_DMA_BUF", "1");
  here_.variable("NCCL_GPUDIRECTTCPX_RECV_SYNC", "0").variable("NCCL_NSOCKS_PERTHREAD", "4");
  EXPECT_EQ(testing::worst_of(check()), Verdict::kOk);
}

TEST_F(DoctorEnvironment, A8_FlowsOfIpv6CannotBeSteered) {
  here_.variable("NCCL_GPUDIRECTTCPX_SOCKET_FAMILY", "AF_INET6");
  EXPECT_EQ(testing::worst_of(check()), Verdict::kOk);
  here_.directory("/run/tcpx");
  EXPECT_EQ(verdict_of("socket_family"), Verdict::kFail);
  EXPECT_NE(environment_block(environment_facts(here_.machine())).find("\nunset NCCL_GPUDIRECTTCPX_SOCKET_FAMILY"),
            std::string::npos);
}

TEST_F(DoctorEnvironment, AnInterfaceThatDoesNotExistFails) {
  here_.variable("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "eth1,eth7");
  const Findings findings = check();
  EXPECT_EQ(finding_of(findings, "interface[eth7]").verdict, Verdict::kFail);
  EXPECT_NE(finding_of(findings, "interface[eth7]").found.find("eth0, eth1, eth2, lo"), std::string::npos);
  EXPECT_TRUE(std::none_of(findings.begin(), findings.end(), [](const Finding& f) { return f.check == "interface[eth1]"; }));
  EXPECT_EQ(finding_of(findings, "interface[eth7]").mend, "export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1");
  EXPECT_NE(environment_block(environment_facts(here_.machine())).find("\nexport NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1\n"),
            std::string::npos);
}

TEST_F(DoctorEnvironment, PrefixesExactNamesAndExclusionsAreToldApart) {
  const auto verdict = [](const std::string& list) {
    MadeUpMachine machine;
    machine.directory("/sys/class/net/eth0").variable("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", list);
    return testing::worst_of(check_environment(environment_facts(machine.machine())));
  };
  EXPECT_EQ(verdict("eth"), Verdict::kOk);
  EXPECT_EQ(verdict("=eth"), Verdict::kFail);
  EXPECT_EQ(verdict("=eth0,eth0"), Verdict::kOk);
  EXPECT_EQ(verdict("^docker"), Verdict::kOk);
}

TEST_F(DoctorEnvironment, TheControlInterfaceIsThereAndCarriesNoData) {
  here_.variable("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "eth1,eth2");
  const auto verdict = [&](const char* control) {
    Machine machine = here_.machine();
    machine.variables.all.emplace_back("NCCL_GPUDIRECTTCPX_CTRL_DEV", control);
    return finding_of(check_environment(environment_facts(machine)), "ctrl_dev").verdict;
  };
  EXPECT_EQ(verdict("eth0"), Verdict::kOk);
  EXPECT_EQ(verdict("eth1"), Verdict::kWarn);
  EXPECT_EQ(verdict("eth9"), Verdict::kFail);
}

TEST_F(DoctorEnvironment, MoreThanEightSocketsAreTooManyForTheVendor) {
  here_.variable("NCCL_NSOCKS_PERTHREAD", "8").variable("NCCL_SOCKET_NTHREADS", "2");
  EXPECT_EQ(verdict_of("sockets"), Verdict::kOk);
  here_.directory("/run/tcpx");
  EXPECT_EQ(verdict_of("sockets"), Verdict::kFail);
}

TEST_F(DoctorEnvironment, AChunkSizeOfZeroFails) {
  here_.variable("NCCL_DYNAMIC_CHUNK_SIZE", "0");
  EXPECT_EQ(verdict_of("dynamic_chunk_size"), Verdict::kFail);
}

TEST_F(DoctorEnvironment, AChunkFitsIntoOnePiecePerSocket) {
  here_.directory("/run/tcpx").variable("UCCL_TCPX_CHUNK_BYTES", "4194304").variable("NCCL_NSOCKS_PERTHREAD", "4");
  EXPECT_EQ(finding_of(check(), "chunk_bytes").mend, "export UCCL_TCPX_CHUNK_BYTES=2097152");
}

TEST_F(DoctorEnvironment, PortRangesAreReadAndNotUnset) {
  here_.variable("NCCL_GPUDIRECTTCPX_PORT_BEGIN", "50000").variable("NCCL_GPUDIRECTTCPX_PORT_END", "60000");
  EXPECT_EQ(testing::worst_of(check()), Verdict::kOk);
  EXPECT_EQ(environment_block(environment_facts(here_.machine())).find("unset"), std::string::npos)
      << environment_block(environment_facts(here_.machine()));
  here_.variable("UCCL_TCPX_PORT_RANGE", "50000-50999");
  EXPECT_EQ(testing::worst_of(check()), Verdict::kOk);
}

TEST_F(DoctorEnvironment, PortRangesThatAreNoneFail) {
  for (const char* bad : {"60000-50000", "0-10", "99999", "many"}) {
    MadeUpMachine machine;
    machine.variable("UCCL_TCPX_PORT_RANGE", bad);
    EXPECT_EQ(finding_of(check_environment(environment_facts(machine.machine())), "value[UCCL_TCPX_PORT_RANGE]").verdict,
              Verdict::kFail)
        << bad;
  }
  here_.variable("NCCL_GPUDIRECTTCPX_PORT_BEGIN", "60000");
  EXPECT_EQ(verdict_of("port_range"), Verdict::kFail);
  here_.variable("NCCL_GPUDIRECTTCPX_PORT_END", "50000");
  EXPECT_EQ(verdict_of("port_range"), Verdict::kFail);
  here_.variable("UCCL_TCPX_PORT_RANGE", "50000-60000");  // it goes first
  EXPECT_EQ(testing::worst_of(check()), Verdict::kOk);
}

TEST_F(DoctorEnvironment, TheBlockSetsWhatAnA3MachineNeeds) {
  here_.directory("/run/tcpx")
      .file("/proc/net/route", "Iface\tDestination\tGateway\neth0\t00000000\t0100000A\neth0\t0000000A\t0");
  for (const char* name : {"eth0", "eth1", "eth2"})
    here_.link(std::string("/sys/class/net/") + name + "/device/driver", "/sys/bus/pci/drivers/gve");
  here_.variable("NCCL_NSOCKS_PERTHREAD", "2");
  const std::string block = environment_block(environment_facts(here_.machine()));
  EXPECT_NE(block.find("export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1,eth2 "), std::string::npos) << block;
  EXPECT_NE(block.find("export NCCL_GPUDIRECTTCPX_CTRL_DEV=eth0 "), std::string::npos) << block;
  EXPECT_NE(block.find("export NCCL_DYNAMIC_CHUNK_SIZE=524288 "), std::string::npos) << block;
  EXPECT_NE(block.find("export NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX=/run/tcpx "), std::string::npos) << block;
  EXPECT_EQ(block.find("NSOCKS"), std::string::npos) << block;  // the user's
}

TEST_F(DoctorEnvironment, TheBlockOfAPlainMachineIsEmpty) {
  EXPECT_EQ(environment_block(environment_facts(here_.machine())),
            "# tcpx_doctor, for this machine: no GPUDirect-TCPX plugin is named or installed\n# nothing needs to be set\n");
}

TEST(DoctorExpectation, TheVendorsPathIsExpectedWhereSomethingOfItIs) {
  const auto expects = [](const MadeUpMachine& machine) { return expected_path(machine.machine()).vendor_path; };
  EXPECT_FALSE(expects(MadeUpMachine()));
  EXPECT_TRUE(expects(MadeUpMachine().file("/usr/local/tcpx/lib64/libnccl-net-tcpx.so", "")));
  EXPECT_TRUE(expects(MadeUpMachine().directory("/run/tcpx")));
  EXPECT_TRUE(expects(MadeUpMachine().variable("UCCL_TCPX_PLUGIN_PATH", "/opt/libnccl-net.so")));
  EXPECT_FALSE(expects(MadeUpMachine().directory("/run/tcpx").variable("UCCL_TCPX_PLUGIN_PATH", "embedded")));
  EXPECT_FALSE(expects(MadeUpMachine().variable("UCCL_TCPX_PLUGIN_PATH", "/opt/libnccl-net-tcpx-soft.so")));
}

}  // namespace
}  // namespace tcpx::doctor
