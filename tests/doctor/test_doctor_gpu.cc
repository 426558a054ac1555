// Verdicts on GPUs, their driver and their place on the PCI bus.
#include "doctor/gpu.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using testing::MadeUpMachine;
using enum Verdict;
using End = LibraryAnswer::End;

constexpr uint64_t kGiB = uint64_t{1} << 30;

/// Two H100s with a NIC each below their switch.
GpuFacts plain() {
  GpuFacts facts{.expected = {false, "a test"}, .module_version = "575.57.08", .build = {"75-real,80-real,90", 12}};
  facts.proc_version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build  (dvs-builder@U22)";
  facts.gpus = {{"0000:04:00.0", 128 * kGiB, {{"eth1", PciDistance::kSameSwitch}, {"eth2", PciDistance::kOtherNode}}},
                {"0000:84:00.0", 128 * kGiB, {{"eth1", PciDistance::kOtherNode}, {"eth2", PciDistance::kSameSwitch}}}};
  facts.nodes = {{"/dev/nvidia0", 0}, {"/dev/nvidia1", 0}, {"/dev/nvidia-uvm", 0}, {"/dev/nvidiactl", 0}};
  facts.cuda = {{End::kAnswered, ""}, 0, 12040, {}};
  for (const BusGpu& gpu : facts.gpus)
    facts.cuda.gpus.push_back({.pci_address = gpu.address, .major = 9, .minor = 0, .dma_buf = true});
  return facts;
}
GpuFacts a3() {
  GpuFacts facts = plain();
  facts.expected = {true, "a test"};
  return facts;
}
CudaAnswer refused(int code) {
  return {{End::kRefused, "cuInit: CUDA_ERROR"}, code, 0, {}};
}
const testing::Checks<GpuFacts> kGpu{check_gpu};

TEST(DoctorGpu, AHealthyA3IsWell) {
  EXPECT_EQ(check_gpu(a3()).size(), 9u);
  kGpu.expect_ok(a3(), {"driver", "nodes", "cuda", "count", "compute", "dma_buf", "bar1", "distances", "nic_of_gpu"});
  EXPECT_EQ(kGpu.finding(a3(), "driver").found, "575.57.08, open kernel modules");
  EXPECT_EQ(kGpu.finding(a3(), "distances").found,
            "as nvidia-smi topo -m counts it\n"
            "              eth1  eth2\n"
            "0000:04:00.0  PIX   SYS \n"
            "0000:84:00.0  SYS   PIX ");
}

TEST(DoctorGpu, AnA3NeedsAllOfIt) {
  const auto ends = [](End end) { return [=](GpuFacts& facts) { facts.cuda = {{end, "did not return in time"}, 0, 0, {}}; }; };
  const auto counts = [](std::optional<std::string> visible, size_t seen) {
    return [=](GpuFacts& facts) {
      if (seen == 0) facts.cuda = refused(kCudaNoDevice);
      facts.cuda.gpus.resize(seen);
      facts.visible = visible;
    };
  };
  const auto dma_buf = [](bool internal) {
    return [=](GpuFacts& facts) { facts.cuda.gpus[0].dma_buf = false, facts.internal_dma_buf = internal; };
  };
  const auto far = [](GpuFacts& facts) {
    facts.gpus[1].nics = {{"eth1", PciDistance::kOtherNode}, {"eth2", PciDistance::kOtherNode}};
  };
  kGpu.expect(a3(),
              {{"gpus", kFail, [](GpuFacts& facts) { facts = {.expected = facts.expected}; }},
               {"nodes", kFail, [](GpuFacts& facts) { facts.nodes["/dev/nvidia0"] = EPERM; }},
               {"nodes", kFail, [](GpuFacts& facts) { facts.nodes.erase("/dev/nvidia-uvm"); }},
               {"cuda", kFail, ends(End::kHung)},
               {"cuda", kFail, ends(End::kDied)},
               {"cuda", kFail, ends(End::kRefused)},
               {"cuda", kFail, [](GpuFacts& facts) { facts.cuda.version = 11080; }},  // older than the runtime
               {"count", kOk, counts("0", 1)},
               {"count", kWarn, counts("0,7", 1)},
               {"count", kFail, counts("", 0)},
               {"count", kFail, counts(std::nullopt, 1)},
               {"count", kOk,
                [](GpuFacts& facts) { facts.nodes.erase("/dev/nvidia1"), facts.cuda.gpus.pop_back(); }},  // all it was given
               {"compute", kFail, [](GpuFacts& facts) { facts.cuda.gpus[1].major = 7; }},
               {"dma_buf", kFail, dma_buf(false)},
               {"dma_buf", kOk, dma_buf(true)},
               {"bar1", kFail, [](GpuFacts& facts) { facts.gpus[1].bar1_bytes = kGiB / 4; }},
               {"distances", kWarn, far},
               {"nic_of_gpu", kWarn, far}});  // two NICs are as far away as each other
}

TEST(DoctorGpu, APlainMachineWithGpusNeedsNothingOfTcpx) {
  GpuFacts without = plain();
  for (CudaGpu& gpu : without.cuda.gpus) gpu.dma_buf = false;
  EXPECT_EQ(kGpu.worst(without), kOk);
  kGpu.expect(without, {{"gpus", kNotApplicable, [](GpuFacts& facts) { facts = {.expected = facts.expected}; }},
                        {"dma_buf", kNotApplicable},
                        {"bar1", kNotApplicable},
                        {"compute", kWarn, [](GpuFacts& facts) { facts.build = {}; }}});
}

TEST(DoctorGpu, ABareContainerOnAGpuMachineIsToldHowToGetThem) {
  // sysfs is the host's; devices and libraries are not there.
  GpuFacts facts{.expected = {false, "a test"}, .gpus = {{"0000:04:00.0", {}, {}}}, .module_version = "575.57.08"};
  facts.cuda.detail = "libcuda.so.1: cannot open shared object file";
  for (const char* name : {"nodes", "cuda"}) EXPECT_EQ(kGpu.verdict(facts, name), kWarn) << name;
  EXPECT_EQ(kGpu.verdict(facts, "distances"), kNotApplicable);
  facts.module_version.reset();
  EXPECT_EQ(kGpu.verdict(facts, "driver"), kWarn);
}

TEST(DoctorGpu, ACudaThatCannotStartFailsWithItsCure) {
  const std::vector<std::pair<int, std::string>> cures = {{kCudaSystemNotReady, "fabricmanager"},
                                                          {kCudaDriverMismatch, "reboot"},
                                                          {kCudaStubLibrary, "stubs"},
                                                          {kCudaUnknown, "nvidia-modprobe"},
                                                          {2, "nvidia-smi"},
                                                          {kCudaNoDevice, "--gpus all"}};
  for (const auto& [code, cure] : cures) {
    GpuFacts facts = a3();
    facts.cuda = refused(code);
    EXPECT_EQ(kGpu.verdict(facts, "cuda"), kFail);
    EXPECT_NE(kGpu.finding(facts, "cuda").mend.find(cure), std::string::npos) << code;
  }
}

TEST(DoctorGpu, SizesAndNeighboursAreNamed) {
  GpuFacts facts = a3();
  EXPECT_NE(kGpu.finding(facts, "nic_of_gpu").found.find("\n0000:84:00.0: eth2 (PIX)"), std::string::npos);
  facts.gpus[1] = {"0000:84:00.0", kGiB / 4, {{"eth1", PciDistance::kOtherNode}, {"eth2", PciDistance::kOtherNode}}};
  EXPECT_NE(kGpu.finding(facts, "bar1").found.find("1 x 128 GiB, 1 x 256 MiB"), std::string::npos);
  EXPECT_NE(kGpu.finding(facts, "nic_of_gpu").found.find("0000:84:00.0: eth1, eth2 (SYS)"), std::string::npos);
}

// Facts from files

TEST(DoctorGpuFacts, AreReadFromTheTree) {
  MadeUpMachine here;
  const std::string path = "/sys/devices/pci0000:00/0000:00:01.0/0000:04:00.0";
  here.pci_device(path, "0x10de", "0x030200");
  here.link("/sys/class/net/eth1/device", "/sys/devices/pci0000:00/0000:00:01.0/0000:05:00.0").directory("/sys/class/net/lo");
  for (const char* node : {"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}) here.file(std::string("/dev/") + node, "");
  here.variable("CUDA_VISIBLE_DEVICES", "").variable("NCCL_GPUDIRECTTCPX_REG_DMABUF_USE_INTERNAL_API", "1");
  here.directory("/proc/driver/nvp2p_dma_buf");
  const GpuFacts facts = gpu_facts(here.machine());
  ASSERT_EQ(facts.gpus.size(), 1u);
  ASSERT_EQ(facts.gpus[0].nics.size(), 1u);
  EXPECT_EQ(facts.gpus[0].nics[0].second, PciDistance::kSameSwitch);
  EXPECT_EQ(facts.nodes.size(), 3u);
  EXPECT_EQ(facts.visible, "");
  EXPECT_TRUE(facts.internal_dma_buf);
}

// Up to Ampere BAR 0 takes one register, and BAR 1 is the next; from Hopper on it takes two.
TEST(DoctorGpuFacts, BarsOfOldAndNewGpusAreTold) {
  const std::vector<std::pair<std::string, std::optional<uint64_t>>> cases = {
      {"0x80000000 0x80ffffff 0x40200\n0x200000000000 0x200fffffffff 0x14220c\n0x0 0x0 0x0\n0x1000 0x1fff 0x0", 64 * kGiB},
      {"0x204000000000 0x204000ffffff 0x14220c\n0x0 0x0 0x0\n0x200000000000 0x201fffffffff 0x14220c", 128 * kGiB},
      {"", std::nullopt},
      {"0x80000000 0x80ffffff 0x40200", std::nullopt},
      {"0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x1000 0x1fff 0x0", std::nullopt},
      {"none", std::nullopt},
  };
  for (const auto& [text, bytes] : cases) {
    MadeUpMachine here;
    here.file("/gpu/resource", text);
    EXPECT_EQ(bar1_bytes(here.machine().files, {"", "/gpu"}), bytes) << text;
  }
}

TEST(RunsOn, FollowsTheRulesOfCompatibility) {
  const std::string usual = "75-real,80-real,90";
  struct Case {
    std::string built;
    int major, minor;
    std::optional<bool> runs;
  };
  for (const Case& it : {Case{usual, 7, 0, false}, Case{usual, 7, 5, true}, Case{usual, 8, 9, true}, Case{usual, 9, 0, true},
                         Case{usual, 12, 0, true},  // intermediate code
                         Case{"80-real", 9, 0, false}, Case{"86-real", 8, 0, false}, Case{"80-virtual", 8, 6, true},
                         Case{"90a", 9, 0, true}, Case{"90a-real", 10, 0, false}, Case{"native", 9, 0, std::nullopt}}) {
    EXPECT_EQ(runs_on(it.built, it.major, it.minor), it.runs) << it.built << " on " << it.major << "." << it.minor;
  }
}

TEST(TopologyDistance, IsThatOfNvidiaSmi) {
  MadeUpMachine machine;
  for (const char* node : {"node0", "node1"}) machine.directory(std::string("/sys/devices/system/node/") + node);
  machine.file("/sys/devices/pci0000:00/0000:00:01.0/numa_node", "0").file("/sys/devices/pci0000:40/0000:40:01.0/numa_node", "0");
  machine.file("/sys/devices/pci0000:80/0000:80:01.0/numa_node", "1");
  const PciDevice gpu{"", "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0"};
  for (const auto& [path, distance] : std::vector<std::pair<std::string, std::string_view>>{
           {"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", "PIX"},
           {"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0/virtio3", "PIX"},
           {"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:05:00.0/0000:06:00.0/0000:07:00.0", "PXB"},
           {"pci0000:00/0000:00:02.0/0000:08:00.0", "PHB"},
           {"pci0000:40/0000:40:01.0/0000:41:00.0", "NODE"},
           {"pci0000:80/0000:80:01.0/0000:81:00.0", "SYS"},
           {"pci0000:c0/0000:c0:01.0", "SYS"}}) {  // on an unknown node of a machine with two
    EXPECT_EQ(name_of(distance_between(machine.machine().files, gpu, {"", "/sys/devices/" + path})), distance) << path;
  }
}

// Answers of a driver library

CudaAnswer ask(const char* library, Duration limit = std::chrono::seconds(20)) {
  return ask_cuda(std::string(TCPX_FAKE_DRIVER_DIR) + "/" + library, limit);
}

TEST(CudaDriver, ReadsWhatTheDriverTells) {
  const CudaAnswer answer = ask("libcuda_works.so");
  ASSERT_EQ(answer.end, End::kAnswered) << answer.detail;
  EXPECT_EQ(answer.version, 12040);
  ASSERT_EQ(answer.gpus.size(), 2u);
  EXPECT_EQ(answer.gpus[0].pci_address, "0000:0a:00.0");
  EXPECT_EQ(answer.gpus[1].major, 9);
  EXPECT_TRUE(answer.gpus[0].dma_buf);
  EXPECT_FALSE(answer.gpus[1].dma_buf);
}

TEST(CudaDriver, SurvivesWhateverADriverDoes) {
  struct Case {
    const char* library;
    std::chrono::milliseconds limit;
    End end;
    int code;
    std::string detail;
  };
  constexpr std::chrono::seconds kLong{20};
  for (const Case& it :
       {Case{"libcuda_not_ready.so", kLong, End::kRefused, kCudaSystemNotReady, "cuInit: CUDA_ERROR_SYSTEM_NOT_READY"},
        Case{"libcuda_hangs.so", std::chrono::milliseconds(50), End::kHung, 0, "did not return"},
        Case{"libcuda_crashes.so", kLong, End::kDied, 0, "was killed by signal 6"},
        Case{"none.so", kLong, End::kRefused, 0, TCPX_FAKE_DRIVER_DIR}}) {
    const CudaAnswer answer = ask(it.library, it.limit);
    EXPECT_EQ(answer.end, it.end) << it.library;
    EXPECT_EQ(answer.code, it.code) << it.library;
    EXPECT_TRUE(answer.detail.starts_with(it.detail)) << answer.detail;
  }
  EXPECT_EQ(ask("libcuda_not_ready.so").version, 12040);
  EXPECT_NE(ask_cuda("libdl.so.2").detail.find("lacks cuInit"), std::string::npos);
}

TEST(CudaDriver, NodesAreOpened) {
  std::map<std::string, int> nodes = {{"/dev/null", -1}, {"/no/such/node", 0}, {"/proc", 0}};
  try_open(nodes);
  EXPECT_EQ(nodes, (std::map<std::string, int>{{"/dev/null", 0}, {"/no/such/node", ENOENT}, {"/proc", EISDIR}}));
}

TEST(CudaDriver, TheChecksEndWhateverThisMachineHas) {
  GpuFacts facts = gpu_facts({.files = FileTree(), .variables = {}});
  try_open(facts.nodes);
  facts.cuda = ask_cuda();
  EXPECT_FALSE(kGpu.all(facts).empty());
}

}  // namespace
}  // namespace tcpx::doctor
