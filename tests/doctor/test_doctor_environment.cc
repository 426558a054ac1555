// Verdicts on variables, and the lines that set them.
#include <gtest/gtest.h>

#include "base/text.h"
#include "base/words.h"
#include "doctor/environment.h"
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

TEST(DoctorEnvironment, NothingSetOrEmptyIsWell) {
  const size_t all = environment_table().size();
  for (const Set& variables : {Set{}, Set{{"UCCL_TCPX_CHUNK_BYTES", ""}}}) {
    EXPECT_EQ(kEnvironment.worst(facts(variables)), kOk);
    EXPECT_TRUE(kEnvironment.finding(facts(variables), "defaults").found.starts_with(concat(all, " of ", all, " ")));
    EXPECT_NE(environment_block(facts(variables)).find("# nothing needs to be set\n"), std::string::npos);
  }
}

TEST(DoctorEnvironment, VariablesAreJudged) {
  struct Case {
    std::string set;    // "NAME=VALUE NAME=VALUE"
    std::string check;  // "": the worst of all
    Verdict verdict;
    bool vendor_path = false;
    std::string mend = "";
  };
  const std::string range = "NCCL_GPUDIRECTTCPX_PORT_BEGIN=50000 NCCL_GPUDIRECTTCPX_PORT_END=60000",
                    backwards = "NCCL_GPUDIRECTTCPX_PORT_BEGIN=60000 NCCL_GPUDIRECTTCPX_PORT_END=50000",
                    data = "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1,eth2 NCCL_GPUDIRECTTCPX_CTRL_DEV=",
                    sockets = "NCCL_NSOCKS_PERTHREAD=8 NCCL_SOCKET_NTHREADS=2", dynamic = "number[NCCL_DYNAMIC_CHUNK_SIZE]",
                    family = "NCCL_GPUDIRECTTCPX_SOCKET_FAMILY=AF_INET6", ifname = "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=";
  for (const Case& it : std::vector<Case>{
           // Malformed values.
           {"UCCL_TCPX_CHUNK_BYTES=65536", "value[UCCL_TCPX_CHUNK_BYTES]", kOk},
           {"UCCL_TCPX_CHUNK_BYTES=512K", "value[UCCL_TCPX_CHUNK_BYTES]", kFail},
           {"UCCL_TCPX_UNPACK_IMPL=gpu", "value[UCCL_TCPX_UNPACK_IMPL]", kFail},
           {"UCCL_TCPX_FAILOVER=2", "value[UCCL_TCPX_FAILOVER]", kFail},
           {"UCCL_TCPX_PORT_RANGE=60000-50000", "value[UCCL_TCPX_PORT_RANGE]", kFail},
           {"UCCL_TCPX_PORT_RANGE=0-10", "value[UCCL_TCPX_PORT_RANGE]", kFail},
           {"UCCL_TCPX_PORT_RANGE=99999", "value[UCCL_TCPX_PORT_RANGE]", kFail},
           // Names that nobody reads, but for other people's and those of the plugin (A8: the parser of one is never called).
           {"UCCL_TCPX_GO_FASTER=1", "name[UCCL_TCPX_GO_FASTER]", kWarn, false, "unset UCCL_TCPX_GO_FASTER"},
           {"NCCL_SOCKET_IFNAME=eth0 NCCL_GPUDIRECTTCPX_RECV_SYNC=0 PATH=/bin UCX_TLS=tcp", "", kOk},
           {"NCCL_GPUDIRECTTCPX_TELEMETRY_FILE_REMOVE_FREQUENCY=1", "", kOk},
           {"NCCL_GPUDIRECTTCPX_TELEMETRY_GARBAGE_COLLECTOR_INDEX=1", "", kOk},
           {"NCCL_GPUDIRECTTCPX_TELEMETRY_EXPORTER_CORE_INDEX=1", "", kOk},
           {"NCCL_GPUDIRECTTCPX_PORT_MAPPING=x", "", kWarn},
           // A8: numbers that the plugin reads as others.
           {"NCCL_DYNAMIC_CHUNK_SIZE=512K", dynamic, kWarn, true, "export NCCL_DYNAMIC_CHUNK_SIZE=524288"},
           {"NCCL_DYNAMIC_CHUNK_SIZE=1M", dynamic, kWarn, true, "export NCCL_DYNAMIC_CHUNK_SIZE=1048576"},
           {"NCCL_DYNAMIC_CHUNK_SIZE=0100", dynamic, kWarn, true, "export NCCL_DYNAMIC_CHUNK_SIZE=100"},
           {"NCCL_DYNAMIC_CHUNK_SIZE=08", dynamic, kWarn, true, "export NCCL_DYNAMIC_CHUNK_SIZE=8"},
           {"NCCL_GPUDIRECTTCPX_TIMEOUT_THRESHOLD_NS=10s", "number[NCCL_GPUDIRECTTCPX_TIMEOUT_THRESHOLD_NS]", kWarn, true},
           {"NCCL_MIN_ZCOPY_SIZE=10s", "number[NCCL_MIN_ZCOPY_SIZE]", kWarn, true},
           {"NCCL_GPUDIRECTTCPX_TIMEOUT_THRESHOLD_NS=0x1000 NCCL_USE_DMA_BUF=1 NCCL_NSOCKS_PERTHREAD=4", "", kOk, true},
           // A8: flows of IPv6 cannot be steered.
           {family, "", kOk},
           {family, "socket_family", kFail, true, "unset NCCL_GPUDIRECTTCPX_SOCKET_FAMILY"},
           // Interfaces that do not exist, or carry what they should not.
           {ifname + "eth1,eth7", "interface[eth7]", kFail, false, "export " + ifname + "eth1"},
           {ifname + "eth", "", kOk},
           {ifname + "=eth", "", kFail},
           {ifname + "=eth0,eth0", "", kOk},
           {ifname + "^docker", "", kOk},
           {data + "eth0", "ctrl_dev", kOk},
           {data + "eth1", "ctrl_dev", kWarn},
           {data + "eth9", "ctrl_dev", kFail},
           // Sizes that the vendor's plugin cannot do.
           {sockets, "sockets", kOk},
           {sockets, "sockets", kFail, true},
           {"NCCL_DYNAMIC_CHUNK_SIZE=0", "dynamic_chunk_size", kFail},
           {"UCCL_TCPX_CHUNK_BYTES=4194304 NCCL_NSOCKS_PERTHREAD=4", "chunk_bytes", kFail, true,
            "export UCCL_TCPX_CHUNK_BYTES=2097152"},
           // Half a range of ports, and one that ends before it begins.
           {range, "", kOk},
           {"NCCL_GPUDIRECTTCPX_PORT_BEGIN=60000", "port_range", kFail},
           {backwards, "port_range", kFail},
           {backwards + " UCCL_TCPX_PORT_RANGE=50000-60000", "", kOk}}) {  // it goes first
    SCOPED_TRACE(it.set + (it.vendor_path ? ", for the vendor's plugin" : ""));
    Set variables;
    for (const std::string& word : split(it.set, " ")) {
      variables.emplace_back(word.substr(0, word.find('=')), word.substr(word.find('=') + 1));
    }
    const EnvironmentFacts given = facts(variables, it.vendor_path);
    const std::string block = environment_block(given);
    EXPECT_EQ(it.check.empty() ? kEnvironment.worst(given) : kEnvironment.verdict(given, it.check), it.verdict);
    EXPECT_TRUE(it.mend.empty() || kEnvironment.finding(given, it.check).mend == it.mend);
    for (const Finding& finding : check_environment(given)) {
      EXPECT_TRUE(!finding.mend.starts_with("unset ") || block.find("\n" + finding.mend + "\n") != std::string::npos) << block;
    }
    EXPECT_TRUE(it.verdict != kOk || block.find("unset") == std::string::npos) << block;
  }
  EXPECT_EQ(kEnvironment.finding(facts({{"UCCL_TCPX_CHUNK_BYTES", "65536"}}), "value[UCCL_TCPX_CHUNK_BYTES]").found,
            "65536 bytes");
  const EnvironmentFacts wrong_name = facts({{kIfname, "eth1,eth7"}});
  EXPECT_FALSE(has(check_environment(wrong_name), "interface[eth1]"));
  EXPECT_NE(environment_block(wrong_name).find("\nexport NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=eth1\n"), std::string::npos);
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
    const Finding found = kEnvironment.finding(facts({{name, "65536"}}), "name[" + name + "]");
    EXPECT_EQ(found.verdict, kWarn) << name;
    EXPECT_EQ(found.mend, "unset " + name + " && export " + meant + "='65536'");
  }
}

TEST(DoctorEnvironment, AValueIsRepeatedAsItIs) {
  const Finding found = kEnvironment.finding(facts({{"UCCL_TCPX_CHUNK_BYTE", "{}"}}), "name[UCCL_TCPX_CHUNK_BYTE]");
  EXPECT_EQ(found.mend, "unset UCCL_TCPX_CHUNK_BYTE && export UCCL_TCPX_CHUNK_BYTES='{}'");
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
