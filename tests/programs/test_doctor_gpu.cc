// Verdicts on GPUs, their driver and their place on the PCI bus.
#include "programs/doctor/gpu.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using testing::expect_helpful;
using testing::finding_of;
using testing::MadeUpMachine;

constexpr uint64_t kGiB = uint64_t{1} << 30;

/// Two H100s with a NIC each below their switch.
GpuFacts plain() {
  GpuFacts facts{.expected = {false, "a test"}, .module_version = "575.57.08", .build = {"75-real,80-real,90", 12}};
  facts.proc_version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build  (dvs-builder@U22)";
  facts.gpus = {{"0000:04:00.0", 128 * kGiB, {{"eth1", TopologyDistance::kPix}, {"eth2", TopologyDistance::kSys}}},
                {"0000:84:00.0", 128 * kGiB, {{"eth1", TopologyDistance::kSys}, {"eth2", TopologyDistance::kPix}}}};
  facts.nodes = {{"/dev/nvidia0", 0}, {"/dev/nvidia1", 0}, {"/dev/nvidia-uvm", 0}, {"/dev/nvidiactl", 0}};
  facts.cuda = {.end = CudaAnswer::End::kAnswered, .version = 12040, .gpus = {}};
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
  return {.end = CudaAnswer::End::kRefused, .code = code, .detail = "cuInit: CUDA_ERROR", .gpus = {}};
}
Finding finding(const GpuFacts& facts, std::string_view name) {
  const Findings findings = check_gpu(facts);
  expect_helpful(findings);
  return finding_of(findings, name);
}
Verdict verdict(const GpuFacts& facts, std::string_view name) {
  return finding(facts, name).verdict;
}

TEST(DoctorGpu, AHealthyA3IsWell) {
  EXPECT_EQ(check_gpu(a3()).size(), 9u);
  for (const char* name : {"driver", "nodes", "cuda", "count", "compute", "dma_buf", "bar1", "distances", "nic_of_gpu"})
    EXPECT_EQ(verdict(a3(), name), Verdict::kOk) << name;
  EXPECT_EQ(finding(a3(), "driver").found, "575.57.08, open kernel modules");
  EXPECT_EQ(finding(a3(), "distances").found,
            "as nvidia-smi topo -m counts it\n"
            "              eth1  eth2\n"
            "0000:04:00.0  PIX   SYS \n"
            "0000:84:00.0  SYS   PIX ");
}

TEST(DoctorGpu, AGpuIsMissedOnlyOnAnA3) {
  EXPECT_EQ(verdict({.expected = {false, "a test"}}, "gpus"), Verdict::kNotApplicable);
  EXPECT_EQ(verdict({.expected = {true, "a test"}}, "gpus"), Verdict::kFail);
}

TEST(DoctorGpu, APlainMachineWithGpusNeedsNothingOfTcpx) {
  GpuFacts facts = plain();
  for (CudaGpu& gpu : facts.cuda.gpus) gpu.dma_buf = false;
  EXPECT_EQ(testing::worst_of(check_gpu(facts)), Verdict::kOk);
  for (const char* name : {"dma_buf", "bar1"}) EXPECT_EQ(verdict(facts, name), Verdict::kNotApplicable);
}

TEST(DoctorGpu, ABareContainerOnAGpuMachineIsToldHowToGetThem) {
  // sysfs is the host's; devices and libraries are not there.
  GpuFacts facts{.expected = {false, "a test"}, .gpus = {{"0000:04:00.0", {}, {}}}, .module_version = "575.57.08"};
  facts.cuda.detail = "libcuda.so.1: cannot open shared object file";
  EXPECT_EQ(verdict(facts, "nodes"), Verdict::kWarn);
  EXPECT_EQ(verdict(facts, "cuda"), Verdict::kWarn);
  EXPECT_EQ(verdict(facts, "distances"), Verdict::kNotApplicable);
  facts.module_version.reset();
  EXPECT_EQ(verdict(facts, "driver"), Verdict::kWarn);
}

TEST(DoctorGpu, NodesThatMayNotBeOpenedFail) {
  GpuFacts facts = a3();
  facts.nodes["/dev/nvidia0"] = EPERM;
  EXPECT_EQ(verdict(facts, "nodes"), Verdict::kFail);
  facts = a3();
  facts.nodes.erase("/dev/nvidia-uvm");
  EXPECT_EQ(verdict(facts, "nodes"), Verdict::kFail);
}

TEST(DoctorGpu, ACudaThatCannotStartFailsWithItsCure) {
  const std::vector<std::pair<int, std::string>> cures = {{kCudaSystemNotReady, "fabricmanager"},
                                                          {kCudaDriverMismatch, "reboot"},
                                                          {kCudaStubLibrary, "stubs"},
                                                          {kCudaUnknown, "nvidia-modprobe"},
                                                          {2, "nvidia-smi"},
                                                          {kCudaNoDevice, "--gpus all"}};
  GpuFacts facts = a3();
  for (const auto& [code, cure] : cures) {
    facts.cuda = refused(code);
    EXPECT_EQ(verdict(facts, "cuda"), Verdict::kFail);
    EXPECT_NE(finding(facts, "cuda").mend.find(cure), std::string::npos) << code;
  }
  for (const auto end : {CudaAnswer::End::kHung, CudaAnswer::End::kDied, CudaAnswer::End::kNoLibrary}) {
    facts.cuda = {.end = end, .detail = "did not return in time", .gpus = {}};
    EXPECT_EQ(verdict(facts, "cuda"), Verdict::kFail);
  }
  facts = a3();
  facts.cuda.version = 11080;  // older than the runtime
  EXPECT_EQ(verdict(facts, "cuda"), Verdict::kFail);
}

TEST(DoctorGpu, GpusThatCudaDoesNotSeeAreCounted) {
  const auto count = [](std::optional<std::string> visible, size_t seen) {
    GpuFacts facts = a3();
    if (seen == 0) facts.cuda = refused(kCudaNoDevice);
    facts.cuda.gpus.resize(seen);
    facts.visible = std::move(visible);
    return verdict(facts, "count");
  };
  EXPECT_EQ(count("0", 1), Verdict::kOk);
  EXPECT_EQ(count("0,7", 1), Verdict::kWarn);
  EXPECT_EQ(count("", 0), Verdict::kFail);
  EXPECT_EQ(count(std::nullopt, 1), Verdict::kFail);
  GpuFacts container = a3();
  container.nodes.erase("/dev/nvidia1");
  container.cuda.gpus.pop_back();
  EXPECT_EQ(verdict(container, "count"), Verdict::kOk) << "as many as it was given";
}

TEST(DoctorGpu, KernelsThatDoNotRunThereFail) {
  GpuFacts facts = a3();
  facts.cuda.gpus[1].major = 7;
  EXPECT_EQ(verdict(facts, "compute"), Verdict::kFail);
  facts = plain();
  facts.build = {};
  EXPECT_EQ(verdict(facts, "compute"), Verdict::kWarn);
}

TEST(DoctorGpu, WithoutDmaBufTheVendorsPathFails) {
  GpuFacts facts = a3();
  facts.cuda.gpus[0].dma_buf = false;
  EXPECT_EQ(verdict(facts, "dma_buf"), Verdict::kFail);
  facts.internal_dma_buf = true;
  EXPECT_EQ(verdict(facts, "dma_buf"), Verdict::kOk);
}

TEST(DoctorGpu, ASmallBarFailsOnTheVendorsPath) {
  GpuFacts facts = a3();
  facts.gpus[1].bar1_bytes = kGiB / 4;
  EXPECT_EQ(verdict(facts, "bar1"), Verdict::kFail);
  EXPECT_NE(finding(facts, "bar1").found.find("1 x 128 GiB, 1 x 256 MiB"), std::string::npos);
}

TEST(DoctorGpu, A1_TheNicOfEachGpuIsNamed) {
  GpuFacts facts = a3();
  EXPECT_NE(finding(facts, "nic_of_gpu").found.find("\n0000:84:00.0: eth2 (PIX)"), std::string::npos);
  facts.gpus[1].nics = {{"eth1", TopologyDistance::kSys}, {"eth2", TopologyDistance::kSys}};
  EXPECT_EQ(verdict(facts, "distances"), Verdict::kWarn);
  EXPECT_EQ(verdict(facts, "nic_of_gpu"), Verdict::kWarn) << "two NICs are as far away as each other";
  EXPECT_NE(finding(facts, "nic_of_gpu").found.find("0000:84:00.0: eth1, eth2 (SYS)"), std::string::npos);
}

// Facts from files

TEST(DoctorGpuFacts, AreReadFromTheTree) {
  MadeUpMachine here;
  const std::string path = "/sys/devices/pci0000:00/0000:00:01.0/0000:04:00.0";
  here.link("/sys/bus/pci/devices/0000:04:00.0", path).file(path + "/vendor", "0x10de").file(path + "/class", "0x030200");
  here.link("/sys/class/net/eth1/device", "/sys/devices/pci0000:00/0000:00:01.0/0000:05:00.0").directory("/sys/class/net/lo");
  for (const char* node : {"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}) here.file(std::string("/dev/") + node, "");
  here.variable("CUDA_VISIBLE_DEVICES", "").variable("NCCL_GPUDIRECTTCPX_REG_DMABUF_USE_INTERNAL_API", "1");
  here.directory("/proc/driver/nvp2p_dma_buf");
  const GpuFacts facts = gpu_facts(here.machine());
  ASSERT_EQ(facts.gpus.size(), 1u);
  ASSERT_EQ(facts.gpus[0].nics.size(), 1u);
  EXPECT_EQ(facts.gpus[0].nics[0].second, TopologyDistance::kPix);
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
  EXPECT_EQ(runs_on(usual, 7, 0), false);
  EXPECT_EQ(runs_on(usual, 7, 5), true);
  EXPECT_EQ(runs_on(usual, 8, 9), true);
  EXPECT_EQ(runs_on(usual, 9, 0), true);
  EXPECT_EQ(runs_on(usual, 12, 0), true);  // intermediate code
  EXPECT_EQ(runs_on("80-real", 9, 0), false);
  EXPECT_EQ(runs_on("86-real", 8, 0), false);
  EXPECT_EQ(runs_on("80-virtual", 8, 6), true);
  EXPECT_EQ(runs_on("90a", 9, 0), true);
  EXPECT_EQ(runs_on("90a-real", 10, 0), false);
  EXPECT_EQ(runs_on("native", 9, 0), std::nullopt);
}

TEST(TopologyDistance, IsThatOfNvidiaSmi) {
  MadeUpMachine machine;
  for (const char* node : {"node0", "node1"}) machine.directory(std::string("/sys/devices/system/node/") + node);
  machine.file("/sys/devices/pci0000:00/0000:00:01.0/numa_node", "0").file("/sys/devices/pci0000:40/0000:40:01.0/numa_node", "0");
  machine.file("/sys/devices/pci0000:80/0000:80:01.0/numa_node", "1");
  const auto distance = [&](const std::string& gpu, const std::string& interface) {
    return std::string(
        name_of(pci_distance(machine.machine().files, {"", "/sys/devices/" + gpu}, {"", "/sys/devices/" + interface})));
  };
  const std::string gpu = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0";
  EXPECT_EQ(distance(gpu, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0"), "PIX");
  EXPECT_EQ(distance(gpu, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0/virtio3"), "PIX");
  EXPECT_EQ(distance(gpu, "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:05:00.0/0000:06:00.0/0000:07:00.0"), "PXB");
  EXPECT_EQ(distance(gpu, "pci0000:00/0000:00:02.0/0000:08:00.0"), "PHB");
  EXPECT_EQ(distance(gpu, "pci0000:40/0000:40:01.0/0000:41:00.0"), "NODE");
  EXPECT_EQ(distance(gpu, "pci0000:80/0000:80:01.0/0000:81:00.0"), "SYS");
  EXPECT_EQ(distance(gpu, "pci0000:c0/0000:c0:01.0"), "SYS");  // on an unknown node of a machine with two
}

// Answers of a driver library

CudaAnswer ask(const char* library, Duration limit = std::chrono::seconds(20)) {
  return ask_cuda(std::string(TCPX_FAKE_DRIVER_DIR) + "/" + library, limit);
}

TEST(CudaDriver, ReadsWhatTheDriverTells) {
  const CudaAnswer answer = ask("libcuda_works.so");
  ASSERT_EQ(answer.end, CudaAnswer::End::kAnswered) << answer.detail;
  EXPECT_EQ(answer.version, 12040);
  ASSERT_EQ(answer.gpus.size(), 2u);
  EXPECT_EQ(answer.gpus[0].pci_address, "0000:0a:00.0");
  EXPECT_EQ(answer.gpus[1].major, 9);
  EXPECT_TRUE(answer.gpus[0].dma_buf);
  EXPECT_FALSE(answer.gpus[1].dma_buf);
}

TEST(CudaDriver, PassesARefusalOn) {
  const CudaAnswer answer = ask("libcuda_not_ready.so");
  EXPECT_EQ(answer.end, CudaAnswer::End::kRefused);
  EXPECT_EQ(answer.code, kCudaSystemNotReady);
  EXPECT_EQ(answer.detail, "cuInit: CUDA_ERROR_SYSTEM_NOT_READY");
  EXPECT_EQ(answer.version, 12040);
}

TEST(CudaDriver, SurvivesADriverThatHangsOrCrashes) {
  EXPECT_EQ(ask("libcuda_hangs.so", std::chrono::milliseconds(50)).end, CudaAnswer::End::kHung);
  const CudaAnswer crashed = ask("libcuda_crashes.so");
  EXPECT_EQ(crashed.end, CudaAnswer::End::kDied);
  EXPECT_TRUE(crashed.detail.starts_with("was killed by signal 6")) << crashed.detail;
}

TEST(CudaDriver, SaysWhenThereIsNoDriver) {
  EXPECT_EQ(ask("none.so").end, CudaAnswer::End::kNoLibrary);
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
  const Findings findings = check_gpu(facts);
  expect_helpful(findings);
  EXPECT_FALSE(findings.empty());
}

}  // namespace
}  // namespace tcpx::doctor
