// Verdicts on variables, and the lines that set them.
#include <gtest/gtest.h>

#include "programs/doctor/environment.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using testing::has;
using testing::MadeUpMachine;
using enum Verdict;
using Set = std::vector<std::pair<std::string, std::string>>;

constexpr char kIfname[] = "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME";

EnvironmentFacts facts(const Set& variables, bool vendor_path = false) {
  return {.variables = {variables},
          .expected = {vendor_path, "a test"},
          .interfaces = {"eth0", "eth1", "eth2", "lo"},
          .data = {"eth1", "eth2"},
          .control = "eth0"};
}
const testing::Checks<EnvironmentFacts> kEnvironment{check_environment};
Finding finding(const Set& variables, std::string_view name, bool vendor_path = false) {
  return kEnvironment.finding(facts(variables, vendor_path), name);
}
Verdict worst(const Set& variables, bool vendor_path = false) {
  return kEnvironment.worst(facts(variables, vendor_path));
}

TEST(DoctorEnvironment, NothingSetOrEmptyIsWell) {
  for (const Set& variables : {Set{}, Set{{"UCCL_TCPX_CHUNK_BYTES", ""}}}) {
    EXPECT_EQ(worst(variables), kOk);
    EXPECT_TRUE(finding(variables, "defaults").found.starts_with("35 of 35 "));
    EXPECT_NE(environment_block(facts(variables)).find("# nothing needs to be set\n"), std::string::npos);
  }
}

TEST(DoctorEnvironment, AMalformedValueFailsAndIsUnset) {
  EXPECT_EQ(finding({{"UCCL_TCPX_CHUNK_BYTES", "65536"}}, "value[UCCL_TCPX_CHUNK_BYTES]").found, "65536 bytes");
  for (const auto& [name, value] : Set{{"UCCL_TCPX_CHUNK_BYTES", "512K"},
                                       {"UCCL_TCPX_UNPACK_IMPL", "gpu"},
                                       {"UCCL_TCPX_FAILOVER", "2"},
                                       {"UCCL_TCPX_PORT_RANGE", "60000-50000"},
                                       {"UCCL_TCPX_PORT_RANGE", "0-10"},
                                       {"UCCL_TCPX_PORT_RANGE", "99999"}}) {
    EXPECT_EQ(finding({{name, value}}, "value[" + name + "]").verdict, kFail) << name;
    EXPECT_NE(environment_block(facts({{name, value}})).find("\nunset " + name), std::string::npos) << name;
  }
}

TEST(DoctorEnvironment, NamesThatAreAlmostOursAreFound) {
  for (const auto& [name, meant] : Set{{"UCCL_TCPX_CHUNK_BYTE", "UCCL_TCPX_CHUNK_BYTES"},
                                       {"NCCL_NSOCK_PERTHREAD", "NCCL_NSOCKS_PERTHREAD"},
                                       {"TCPX_CHUNK_BYTES", "UCCL_TCPX_CHUNK_BYTES"},
                                       {"UCCL_CHUNK_BYTES", "UCCL_TCPX_CHUNK_BYTES"},
                                       {"NCCL_TCPX_CHUNK_BYTES", "UCCL_TCPX_CHUNK_BYTES"},
                                       {"NCCL_GPUDIRECTTCPX_CHUNK_BYTES", "UCCL_TCPX_CHUNK_BYTES"},
                                       {"UCCL_TCPX_SOCKET_IFNAME", kIfname},
                                       {"GPUDIRECTTCPX_CTRL_DEV", "NCCL_GPUDIRECTTCPX_CTRL_DEV"}}) {
    const Finding found = finding({{name, "65536"}}, "name[" + name + "]");
    EXPECT_EQ(found.verdict, kWarn) << name;
    EXPECT_EQ(found.mend, "unset " + name + " && export " + meant + "='65536'");
  }
  EXPECT_EQ(finding({{"UCCL_TCPX_GO_FASTER_PLEASE", "1"}}, "name[UCCL_TCPX_GO_FASTER_PLEASE]").mend,
            "unset UCCL_TCPX_GO_FASTER_PLEASE");
}

TEST(DoctorEnvironment, A8_OnlyNamesThatThePluginReadsCount) {
  EXPECT_EQ(worst({{"NCCL_SOCKET_IFNAME", "eth0"}, {"NCCL_GPUDIRECTTCPX_RECV_SYNC", "0"}, {"PATH", "/bin"}, {"UCX_TLS", "tcp"}}),
            kOk)
      << "other people's";
  for (const char* read :
       {"TELEMETRY_FILE_REMOVE_FREQUENCY", "TELEMETRY_GARBAGE_COLLECTOR_INDEX", "TELEMETRY_EXPORTER_CORE_INDEX"})
    EXPECT_EQ(worst({{std::string("NCCL_GPUDIRECTTCPX_") + read, "1"}}), kOk) << read;
  EXPECT_EQ(worst({{"NCCL_GPUDIRECTTCPX_PORT_MAPPING", "x"}}), kWarn) << "its parser is never called";
}

TEST(DoctorEnvironment, A8_ANumberThatThePluginReadsAsAnotherIsToldApart) {
  for (const auto& [value, meant] : Set{{"512K", "524288"}, {"1M", "1048576"}, {"0100", "100"}, {"08", "8"}}) {
    const Finding found = finding({{"NCCL_DYNAMIC_CHUNK_SIZE", value}}, "number[NCCL_DYNAMIC_CHUNK_SIZE]", true);
    EXPECT_EQ(found.verdict, kWarn) << value;
    EXPECT_EQ(found.mend, "export NCCL_DYNAMIC_CHUNK_SIZE=" + meant);
  }
  for (const std::string name : {"NCCL_GPUDIRECTTCPX_TIMEOUT_THRESHOLD_NS", "NCCL_MIN_ZCOPY_SIZE"})
    EXPECT_EQ(finding({{name, "10s"}}, "number[" + name + "]", true).verdict, kWarn);
  EXPECT_EQ(
      worst({{"NCCL_GPUDIRECTTCPX_TIMEOUT_THRESHOLD_NS", "0x1000"}, {"NCCL_USE_DMA_BUF", "1"}, {"NCCL_NSOCKS_PERTHREAD", "4"}},
            true),
      kOk);
}

TEST(DoctorEnvironment, A8_FlowsOfIpv6CannotBeSteered) {
  const Set variables = {{"NCCL_GPUDIRECTTCPX_SOCKET_FAMILY", "AF_INET6"}};
  EXPECT_EQ(worst(variables), kOk);
  EXPECT_EQ(finding(variables, "socket_family", true).verdict, kFail);
  EXPECT_NE(environment_block(facts(variables, true)).find("\nunset NCCL_GPUDIRECTTCPX_SOCKET_FAMILY"), std::string::npos);
}

TEST(DoctorEnvironment, AnInterfaceThatDoesNotExistFails) {
  const Set variables = {{kIfname, "eth1,eth7"}};
  EXPECT_EQ(finding(variables, "interface[eth7]").verdict, kFail);
  EXPECT_FALSE(has(check_environment(facts(variables)), "interface[eth1]"));
  EXPECT_NE(environment_block(facts(variables)).find("\nexport NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1\n"), std::string::npos);
  for (const auto& [list, verdict] :
       std::vector<std::pair<std::string, Verdict>>{{"eth", kOk}, {"=eth", kFail}, {"=eth0,eth0", kOk}, {"^docker", kOk}})
    EXPECT_EQ(worst({{kIfname, list}}), verdict) << list;
}

TEST(DoctorEnvironment, TheControlInterfaceIsThereAndCarriesNoData) {
  for (const auto& [control, verdict] :
       std::vector<std::pair<std::string, Verdict>>{{"eth0", kOk}, {"eth1", kWarn}, {"eth9", kFail}})
    EXPECT_EQ(finding({{kIfname, "eth1,eth2"}, {"NCCL_GPUDIRECTTCPX_CTRL_DEV", control}}, "ctrl_dev").verdict, verdict)
        << control;
}

TEST(DoctorEnvironment, SizesThatTheVendorsPluginCannotDoFail) {
  const Set sockets = {{"NCCL_NSOCKS_PERTHREAD", "8"}, {"NCCL_SOCKET_NTHREADS", "2"}};
  EXPECT_EQ(finding(sockets, "sockets").verdict, kOk);
  EXPECT_EQ(finding(sockets, "sockets", true).verdict, kFail);
  EXPECT_EQ(finding({{"NCCL_DYNAMIC_CHUNK_SIZE", "0"}}, "dynamic_chunk_size").verdict, kFail);
  const Set chunk = {{"UCCL_TCPX_CHUNK_BYTES", "4194304"}, {"NCCL_NSOCKS_PERTHREAD", "4"}};
  EXPECT_EQ(finding(chunk, "chunk_bytes", true).mend, "export UCCL_TCPX_CHUNK_BYTES=2097152");
}

TEST(DoctorEnvironment, HalfAPortRangeFails) {
  const std::string begin = "NCCL_GPUDIRECTTCPX_PORT_BEGIN", end = "NCCL_GPUDIRECTTCPX_PORT_END";
  EXPECT_EQ(worst({{begin, "50000"}, {end, "60000"}}), kOk);
  EXPECT_EQ(environment_block(facts({{begin, "50000"}, {end, "60000"}})).find("unset"), std::string::npos);
  EXPECT_EQ(finding({{begin, "60000"}}, "port_range").verdict, kFail);
  EXPECT_EQ(finding({{begin, "60000"}, {end, "50000"}}, "port_range").verdict, kFail);
  EXPECT_EQ(worst({{begin, "60000"}, {end, "50000"}, {"UCCL_TCPX_PORT_RANGE", "50000-60000"}}), kOk) << "it goes first";
}

TEST(DoctorEnvironment, TheBlockSetsWhatAnA3MachineNeeds) {
  MadeUpMachine here;
  here.directory("/run/tcpx").file("/proc/net/route", "Iface\tDestination\tGateway\neth0\t00000000\t0100000A\neth0\t0000000A\t0");
  for (const char* name : {"eth0", "eth1", "eth2"})
    here.link(std::string("/sys/class/net/") + name + "/device/driver", "/sys/bus/pci/drivers/gve");
  here.variable("NCCL_NSOCKS_PERTHREAD", "2");
  const std::string block = environment_block(environment_facts(here.machine()));
  EXPECT_NE(block.find("export NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1,eth2 "), std::string::npos) << block;
  EXPECT_NE(block.find("export NCCL_GPUDIRECTTCPX_CTRL_DEV=eth0 "), std::string::npos) << block;
  EXPECT_NE(block.find("export NCCL_DYNAMIC_CHUNK_SIZE=524288 "), std::string::npos) << block;
  EXPECT_NE(block.find("export NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX=/run/tcpx "), std::string::npos) << block;
  EXPECT_EQ(block.find("NSOCKS"), std::string::npos) << block;  // the user's
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
