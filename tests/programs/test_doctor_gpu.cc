// What the doctor says of GPUs, their driver and their place on the PCI bus.
#include "programs/doctor/gpu_checks.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "programs/doctor/pci_topology.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using testing::expect_helpful;
using testing::finding_of;
using testing::MadeUpMachine;

constexpr char kOpenDriver[] =
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build  (dvs-builder@U22)  Sat May 24";
const GpuBuild kBuild{.architectures = "75-real,80-real,90", .cuda_major = 12};

class FakeGpuSource final : public GpuSource {
 public:
  std::vector<int> open_errors(const std::vector<std::string>& paths) override {
    return std::vector<int>(paths.size(), open_error);
  }
  CudaAnswer ask_cuda() override { return answer; }

  int open_error = 0;
  CudaAnswer answer{.end = CudaAnswer::End::kNoLibrary, .detail = "libcuda.so.1: cannot open shared object file", .gpus = {}};
};

class DoctorGpu : public ::testing::Test {
 protected:
  /// A GPU at `address` below the given bridges, with BAR 1 of `bar1` as sysfs writes its end.
  void add_gpu(const std::string& address, const std::string& bridges, const char* bar1_end = "0x0000201fffffffff") {
    const std::string path = "/sys/devices/" + bridges + "/" + address;
    here_.link("/sys/bus/pci/devices/" + address, path).file(path + "/vendor", "0x10de").file(path + "/class", "0x030200");
    here_.file(path + "/resource", std::string("0x0000204000000000 0x0000204000ffffff 0x000000000014220c\n0x0 0x0 0x0\n"
                                               "0x0000200000000000 ") +
                                       bar1_end + " 0x000000000014220c\n0x0 0x0 0x0");
    here_.file("/dev/nvidia" + std::to_string(source_.answer.gpus.size()), "");
    source_.answer.end = CudaAnswer::End::kAnswered;
    source_.answer.version = 12040;
    source_.answer.gpus.push_back({.pci_address = address, .major = 9, .minor = 0, .dma_buf = true});
  }
  void add_interface(const std::string& name, const std::string& path) {
    here_.link("/sys/class/net/" + name + "/device", "/sys/devices/" + path);
  }
  /// Two H100s with a NIC each below their switch, and everything that GPUDirect-TCPX needs.
  void make_a3() {
    make_plain_gpu_machine();
    here_.directory("/run/tcpx");
  }
  void make_plain_gpu_machine() {
    here_.file("/proc/driver/nvidia/version", kOpenDriver).file("/sys/module/nvidia/version", "575.57.08");
    here_.file("/dev/nvidiactl", "").file("/dev/nvidia-uvm", "").file("/dev/nvidia-uvm-tools", "");
    add_gpu("0000:04:00.0", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0");
    add_gpu("0000:84:00.0", "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0");
    add_interface("eth1", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:05:00.0");
    add_interface("eth2", "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:01.0/0000:85:00.0");
    here_.directory("/sys/class/net/lo").directory("/sys/devices/system/node/node0").directory("/sys/devices/system/node/node1");
    here_.file("/sys/devices/pci0000:00/0000:00:01.0/numa_node", "0");
    here_.file("/sys/devices/pci0000:80/0000:80:01.0/numa_node", "1");
  }
  Findings check() {
    Findings findings = check_gpu(here_.machine(), source_, build_);
    expect_helpful(findings);
    return findings;
  }
  Finding finding(const char* name) { return finding_of(check(), name); }

  MadeUpMachine here_;
  FakeGpuSource source_;
  GpuBuild build_ = kBuild;
};

TEST_F(DoctorGpu, AHealthyA3IsWell) {
  make_a3();
  const Findings findings = check();
  for (const char* name : {"driver", "nodes", "cuda", "count", "compute", "dma_buf", "bar1", "distances", "nic_of_gpu"}) {
    EXPECT_EQ(finding_of(findings, name).verdict, Verdict::kOk) << name;
  }
  EXPECT_EQ(findings.size(), 9u);
  EXPECT_EQ(finding_of(findings, "driver").found, "575.57.08, open kernel modules");
  EXPECT_EQ(finding_of(findings, "cuda").found, "the driver runs CUDA 12.4");
  EXPECT_EQ(finding_of(findings, "bar1").found, "BAR 1: 2 x 128 GiB");
  EXPECT_EQ(finding_of(findings, "distances").found,
            "as nvidia-smi topo -m counts it\n"
            "              eth1  eth2\n"
            "0000:04:00.0  PIX   SYS \n"
            "0000:84:00.0  SYS   PIX ");
}

TEST_F(DoctorGpu, WithoutAGpuHostMemoryStandsIn) {
  const Findings findings = check();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::kNotApplicable);
  EXPECT_NE(findings[0].why.find("Host memory stands in"), std::string::npos);
}

TEST_F(DoctorGpu, AnA3WithoutAGpuFails) {
  here_.directory("/run/tcpx");
  EXPECT_EQ(finding("gpus").verdict, Verdict::kFail);
}

TEST_F(DoctorGpu, APlainMachineWithGpusNeedsNothingOfTcpx) {
  make_plain_gpu_machine();
  for (CudaGpu& gpu : source_.answer.gpus) gpu.dma_buf = false;
  const Findings findings = check();
  EXPECT_EQ(worst_of({{"gpu", findings}}), Verdict::kOk);
  EXPECT_EQ(finding_of(findings, "dma_buf").verdict, Verdict::kNotApplicable);
  EXPECT_EQ(finding_of(findings, "bar1").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorGpu, ABareContainerOnAGpuMachineIsToldHowToGetThem) {
  // sysfs is the host's; devices and libraries are not there.
  add_gpu("0000:04:00.0", "pci0000:00/0000:00:01.0");
  MadeUpMachine container;
  const std::string path = "/sys/devices/pci0000:00/0000:04:00.0";
  container.link("/sys/bus/pci/devices/0000:04:00.0", path).file(path + "/vendor", "0x10de").file(path + "/class", "0x030000");
  container.file("/sys/module/nvidia/version", "575.57.08");
  FakeGpuSource nothing;
  const Findings findings = check_gpu(container.machine(), nothing, build_);
  expect_helpful(findings);
  EXPECT_EQ(finding_of(findings, "nodes").verdict, Verdict::kWarn);
  EXPECT_TRUE(finding_of(findings, "nodes").mend.starts_with("docker run --gpus all"));
  EXPECT_EQ(finding_of(findings, "cuda").verdict, Verdict::kWarn);
  EXPECT_EQ(finding_of(findings, "distances").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorGpu, WithoutADriverThereIsNoGpu) {
  make_a3();
  source_.answer = FakeGpuSource().answer;
  MadeUpMachine bare;
  const std::string path = "/sys/devices/pci0000:00/0000:04:00.0";
  bare.directory("/run/tcpx").link("/sys/bus/pci/devices/0000:04:00.0", path);
  bare.file(path + "/vendor", "0x10de").file(path + "/class", "0x030200");
  const Findings findings = check_gpu(bare.machine(), source_, build_);
  EXPECT_EQ(finding_of(findings, "driver").verdict, Verdict::kFail);
  EXPECT_TRUE(finding_of(findings, "driver").mend.starts_with("sudo modprobe nvidia"));
}

TEST_F(DoctorGpu, NodesThatMayNotBeOpenedFail) {
  make_a3();
  source_.open_error = EPERM;
  EXPECT_EQ(finding("nodes").verdict, Verdict::kFail);
  EXPECT_NE(finding("nodes").found.find("/dev/nvidia0: Operation not permitted"), std::string::npos) << finding("nodes").found;
}

TEST_F(DoctorGpu, WithoutTheNodeOfUnifiedMemoryCudaCannotStart) {
  here_.file("/proc/driver/nvidia/version", kOpenDriver).directory("/run/tcpx").file("/dev/nvidiactl", "");
  add_gpu("0000:04:00.0", "pci0000:00");
  EXPECT_EQ(finding("nodes").verdict, Verdict::kFail);
  EXPECT_EQ(finding("nodes").mend, "sudo nvidia-modprobe -u -c=0");
}

TEST_F(DoctorGpu, ACudaThatCannotStartFailsWithItsCure) {
  make_a3();
  const auto mend = [&](int code) {
    source_.answer = {.end = CudaAnswer::End::kRefused, .code = code, .detail = "cuInit: CUDA_ERROR", .gpus = {}};
    EXPECT_EQ(finding("cuda").verdict, Verdict::kFail);
    return finding("cuda").mend;
  };
  EXPECT_NE(mend(kCudaSystemNotReady).find("fabricmanager"), std::string::npos);
  EXPECT_NE(mend(kCudaDriverMismatch).find("reboot"), std::string::npos);
  EXPECT_NE(mend(kCudaStubLibrary).find("stubs"), std::string::npos);
  EXPECT_NE(mend(kCudaUnknown).find("nvidia-modprobe"), std::string::npos);
  EXPECT_NE(mend(2).find("nvidia-smi"), std::string::npos);
  EXPECT_NE(mend(kCudaNoDevice).find("--gpus all"), std::string::npos);
}

TEST_F(DoctorGpu, ADriverThatHangsOrCrashesFails) {
  make_a3();
  source_.answer = {.end = CudaAnswer::End::kHung, .detail = "did not return in time", .gpus = {}};
  EXPECT_EQ(finding("cuda").verdict, Verdict::kFail);
  source_.answer.end = CudaAnswer::End::kDied;
  EXPECT_EQ(finding("cuda").verdict, Verdict::kFail);
}

TEST_F(DoctorGpu, ADriverOlderThanTheRuntimeFails) {
  make_a3();
  source_.answer.version = 11080;
  EXPECT_EQ(finding("cuda").verdict, Verdict::kFail);
  EXPECT_EQ(finding("cuda").found, "the driver runs CUDA 11.8, this build needs 12.0");
}

TEST_F(DoctorGpu, HiddenGpusAreCounted) {
  make_a3();
  const auto count = [&](const std::string& value, size_t seen) {
    CudaAnswer& answer = source_.answer;
    answer.gpus.resize(seen);
    if (seen == 0) answer.end = CudaAnswer::End::kRefused, answer.code = kCudaNoDevice, answer.detail = "cuInit";
    Machine machine = here_.machine();
    machine.variables.emplace_back("CUDA_VISIBLE_DEVICES", value);
    const Findings findings = check_gpu(machine, source_, build_);
    expect_helpful(findings);
    return finding_of(findings, "count");
  };
  EXPECT_EQ(count("0", 1).verdict, Verdict::kOk);
  EXPECT_EQ(count("0,7", 1).verdict, Verdict::kWarn);
  EXPECT_EQ(count("", 0).verdict, Verdict::kFail);
  EXPECT_EQ(count("", 0).mend, "unset CUDA_VISIBLE_DEVICES");
}

TEST_F(DoctorGpu, AGpuThatCudaDoesNotSeeFails) {
  make_a3();
  source_.answer.gpus.pop_back();
  EXPECT_EQ(finding("count").verdict, Verdict::kFail);
  EXPECT_EQ(finding("count").found, "2 on the PCI bus, 1 seen by CUDA");
}

TEST_F(DoctorGpu, AContainerWithOneOfTheGpusIsWell) {
  add_gpu("0000:04:00.0", "pci0000:00");
  MadeUpMachine& machine = here_;
  const std::string other = "/sys/devices/pci0000:00/0000:05:00.0";
  machine.link("/sys/bus/pci/devices/0000:05:00.0", other).file(other + "/vendor", "0x10de").file(other + "/class", "0x030200");
  EXPECT_EQ(finding("count").verdict, Verdict::kOk);
  EXPECT_NE(finding("count").found.find("this container was given"), std::string::npos);
}

TEST_F(DoctorGpu, AGpuThatTheKernelsDoNotRunOnFails) {
  make_a3();
  source_.answer.gpus[1] = {.pci_address = "0000:84:00.0", .major = 7, .minor = 0, .dma_buf = true};
  EXPECT_EQ(finding("compute").verdict, Verdict::kFail);
  EXPECT_EQ(finding("compute").found, "compute capability 1 x 7.0, 1 x 9.0; kernels are built for 75-real,80-real,90");
}

TEST_F(DoctorGpu, ABuildWithoutCudaIsSaidToBeOne) {
  make_plain_gpu_machine();
  build_ = {};
  EXPECT_EQ(finding("compute").verdict, Verdict::kWarn);
}

TEST_F(DoctorGpu, WithoutDmaBufTheVendorsPathFails) {
  make_a3();
  source_.answer.gpus[0].dma_buf = false;
  EXPECT_EQ(finding("dma_buf").verdict, Verdict::kFail);
  EXPECT_EQ(finding("dma_buf").found, "1 of 2 GPUs export their memory; not 0000:04:00.0");
  here_.directory("/proc/driver/nvp2p_dma_buf").variable("NCCL_GPUDIRECTTCPX_REG_DMABUF_USE_INTERNAL_API", "1");
  EXPECT_EQ(finding("dma_buf").verdict, Verdict::kOk);
}

TEST_F(DoctorGpu, ASmallBarFailsOnTheVendorsPath) {
  make_a3();
  add_gpu("0000:06:00.0", "pci0000:00", "0x000020000fffffff");
  EXPECT_EQ(finding("bar1").verdict, Verdict::kFail);
  EXPECT_EQ(finding("bar1").found, "BAR 1: 2 x 128 GiB, 1 x 256 MiB; too small: 0000:06:00.0");
}

// Up to Ampere BAR 0 takes one register, and BAR 1 is the next.
TEST_F(DoctorGpu, BarsOfOlderGpusAreTold) {
  make_a3();
  here_.file("/sys/bus/pci/devices/0000:04:00.0/resource",
             "0x0000000080000000 0x0000000080ffffff 0x0000000000040200\n"
             "0x0000200000000000 0x0000200fffffffff 0x000000000014220c\n0x0 0x0 0x0\n"
             "0x0000202000000000 0x0000202001ffffff 0x000000000014220c");
  EXPECT_EQ(finding("bar1").found, "BAR 1: 1 x 128 GiB, 1 x 64 GiB");
  for (const char* text :
       {"", "0x80000000 0x80ffffff 0x40200", "0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x1000 0x1fff 0x0", "none"}) {
    here_.file("/sys/bus/pci/devices/0000:04:00.0/resource", text);
    EXPECT_EQ(finding("bar1").found, "BAR 1: 1 x 128 GiB, 1 x unknown") << text;
  }
}

TEST_F(DoctorGpu, AGpuFarFromAllNicsIsNamed) {
  make_a3();
  add_gpu("0000:c4:00.0", "pci0000:c0/0000:c0:01.0");
  EXPECT_EQ(finding("distances").verdict, Verdict::kWarn);
  EXPECT_NE(finding("distances").found.find("no NIC below a common PCI switch: 0000:c4:00.0"), std::string::npos);
}

TEST_F(DoctorGpu, A1_TheNicOfEachGpuIsNamed) {
  make_a3();
  EXPECT_EQ(finding("nic_of_gpu").found,
            "GPUDirect-TCPX gets payload into a GPU's memory over the NIC nearest to it and no other\n"
            "0000:04:00.0: eth1 (PIX)\n"
            "0000:84:00.0: eth2 (PIX)");
  add_gpu("0000:c4:00.0", "pci0000:c0/0000:c0:01.0");
  const Finding unclear = finding("nic_of_gpu");
  EXPECT_EQ(unclear.verdict, Verdict::kWarn) << "two NICs are as far away as each other";
  EXPECT_NE(unclear.found.find("0000:c4:00.0: eth1, eth2 (SYS)"), std::string::npos) << unclear.found;
  EXPECT_NE(unclear.mend.find("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"), std::string::npos);
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

TEST(PciDistance, IsThatOfNvidiaSmi) {
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

// What the real source makes of a driver library.

CudaAnswer ask(const char* library, Duration limit = std::chrono::seconds(20)) {
  return make_gpu_source(std::string(TCPX_FAKE_DRIVER_DIR) + "/" + library, limit)->ask_cuda();
}

TEST(GpuSource, ReadsWhatTheDriverTells) {
  const CudaAnswer answer = ask("libcuda_works.so");
  ASSERT_EQ(answer.end, CudaAnswer::End::kAnswered) << answer.detail;
  EXPECT_EQ(answer.version, 12040);
  ASSERT_EQ(answer.gpus.size(), 2u);
  EXPECT_EQ(answer.gpus[0].pci_address, "0000:0a:00.0");
  EXPECT_EQ(answer.gpus[1].major, 9);
  EXPECT_TRUE(answer.gpus[0].dma_buf);
  EXPECT_FALSE(answer.gpus[1].dma_buf);
}

TEST(GpuSource, PassesARefusalOn) {
  const CudaAnswer answer = ask("libcuda_not_ready.so");
  EXPECT_EQ(answer.end, CudaAnswer::End::kRefused);
  EXPECT_EQ(answer.code, kCudaSystemNotReady);
  EXPECT_EQ(answer.detail, "cuInit: CUDA_ERROR_SYSTEM_NOT_READY");
  EXPECT_EQ(answer.version, 12040);
}

TEST(GpuSource, SurvivesADriverThatHangsOrCrashes) {
  EXPECT_EQ(ask("libcuda_hangs.so", std::chrono::milliseconds(50)).end, CudaAnswer::End::kHung);
  const CudaAnswer crashed = ask("libcuda_crashes.so");
  EXPECT_EQ(crashed.end, CudaAnswer::End::kDied);
  EXPECT_TRUE(crashed.detail.starts_with("was killed by signal 6")) << crashed.detail;
}

TEST(GpuSource, SaysWhenThereIsNoDriver) {
  EXPECT_EQ(ask("none.so").end, CudaAnswer::End::kNoLibrary);
  EXPECT_NE(make_gpu_source("libdl.so.2")->ask_cuda().detail.find("lacks cuInit"), std::string::npos);
}

TEST(GpuSource, OpensWhatItIsGiven) {
  EXPECT_EQ(make_gpu_source()->open_errors({"/dev/null", "/no/such/node", "/proc"}), (std::vector<int>{0, ENOENT, EISDIR}));
}

TEST(GpuSource, TheChecksEndWhateverThisMachineHas) {
  const Machine machine{.files = FileTree(), .variables = {}};
  const Findings findings = check_gpu(machine, *make_gpu_source(), kBuild);
  expect_helpful(findings);
  EXPECT_FALSE(findings.empty());
}

}  // namespace
}  // namespace tcpx::doctor
