// What the doctor says of kernels and their settings, and that the questions it asks a real one have answers.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "programs/doctor/kernel_checks.h"
#include "tests/support/doctor_fixture.h"
#include "tests/support/own_network.h"

namespace tcpx::doctor {
namespace {

using testing::expect_helpful;
using testing::finding_of;
using testing::in_own_network;
using testing::MadeUpMachine;
using testing::set_loopback;

constexpr int kGoogle = 97, kLinux = 80;

/// Answers as recorded.
struct RecordedKernel final : KernelSource {
  std::map<int, int> options;  ///< those that the kernel knows, with what it says
  bool loopback = true;
  int others = ENOPROTOOPT;  ///< what it says to options that it does not know
  RingReceive ring = RingReceive::kAbsent;
  std::optional<uint64_t> files = 1024;

  std::optional<int> set_option_error(int option) const override {
    if (!loopback) return std::nullopt;
    const auto known = options.find(option);
    return known == options.end() ? others : known->second;
  }
  RingReceive ring_receive() const override { return ring; }
  std::optional<uint64_t> open_files() const override { return files; }
};

std::string gzip_of(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string bytes(deflateBound(&stream, text.size()), '\0');
  std::string input = text;
  stream.next_in = reinterpret_cast<Bytef*>(input.data());
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

class DoctorKernel : public ::testing::Test {
 protected:
  DoctorKernel() { release("5.15.0-generic"); }

  void release(const std::string& text) { here_.file("/proc/sys/kernel/osrelease", text); }
  void setting(const std::string& name, const std::string& value) { here_.file("/proc/sys/net/" + name, value); }
  /// From here on this machine is meant for GPUDirect-TCPX.
  void expect_vendor() { here_.directory("/run/tcpx"); }
  Findings check() {
    Findings findings = check_kernel(here_.machine(), kernel_);
    expect_helpful(findings);
    return findings;
  }
  Finding find(std::string_view name) { return finding_of(check(), name); }
  Verdict verdict_of(std::string_view name) { return find(name).verdict; }

  MadeUpMachine here_;
  RecordedKernel kernel_;
};

// Which kernel

TEST_F(DoctorKernel, NoDevmemFailsOnlyWhereItIsNeeded) {
  EXPECT_EQ(verdict_of("devmem"), Verdict::kNotApplicable);
  expect_vendor();
  EXPECT_EQ(verdict_of("devmem"), Verdict::kFail);
  EXPECT_NE(find("devmem").found.find("5.15.0-generic"), std::string::npos);
}

TEST_F(DoctorKernel, GooglesKernelIsWellEverywhere) {
  for (const int answer : {0, EINVAL, EBADF}) {
    kernel_.options = {{kGoogle, answer}};
    EXPECT_EQ(verdict_of("devmem"), Verdict::kOk) << answer;
    EXPECT_NE(find("devmem").found.find("Google"), std::string::npos);
  }
  expect_vendor();
  EXPECT_EQ(verdict_of("devmem"), Verdict::kOk);
  kernel_.options[kLinux] = EINVAL;  // a later kernel of Google's may know both
  EXPECT_EQ(verdict_of("devmem"), Verdict::kOk);
}

TEST_F(DoctorKernel, LinuxOwnDevmemIsNotWhatTheVendorsPluginNeeds) {
  release("6.12.3");
  kernel_.options = {{kLinux, EINVAL}};
  EXPECT_EQ(verdict_of("devmem"), Verdict::kOk);
  EXPECT_NE(find("devmem").found.find("receive only"), std::string::npos);
  release("6.16.0-rc1");
  EXPECT_NE(find("devmem").found.find("receive and send"), std::string::npos);
  expect_vendor();
  EXPECT_EQ(verdict_of("devmem"), Verdict::kWarn);
}

TEST_F(DoctorKernel, VersionsAreNumbersNotText) {
  kernel_.options = {{kLinux, EINVAL}};
  for (const auto& [text, sends] :
       std::map<std::string, bool>{{"6.9.1", false}, {"6.100", true}, {"10.0-x", true}, {"6", false}, {"x.y", false}}) {
    release(text);
    EXPECT_EQ(find("devmem").found.find("receive and send") != std::string::npos, sends) << text;
  }
}

TEST_F(DoctorKernel, WithoutLoopbackNothingIsSaidOfDevmem) {
  kernel_.loopback = false;
  expect_vendor();
  EXPECT_EQ(verdict_of("devmem"), Verdict::kNotApplicable);
}

TEST_F(DoctorKernel, ASandboxThatAcceptsEveryOptionIsNoKernelOfGoogles) {
  kernel_.others = 0;
  expect_vendor();
  EXPECT_EQ(verdict_of("devmem"), Verdict::kNotApplicable);
}

TEST_F(DoctorKernel, TheConfigurationIsReadWhereItIsPlainText) {
  release("6.12.0");
  kernel_.options = {{kLinux, EINVAL}};
  EXPECT_EQ(verdict_of("devmem_config"), Verdict::kNotApplicable);
  // As long as a distribution's, and with the lines far behind.
  const std::string text = std::string(300'000, '#') + "\nCONFIG_PAGE_POOL=y\nCONFIG_DMA_SHARED_BUFFER=y\n";
  here_.file("/boot/config-6.12.0", text + "CONFIG_NET_DEVMEM=y");
  EXPECT_EQ(verdict_of("devmem_config"), Verdict::kOk);
  here_.file("/boot/config-6.12.0", text + "# CONFIG_NET_DEVMEM is not set\nCONFIG_NET_DEVMEM_EXTRA=y");
  EXPECT_EQ(verdict_of("devmem_config"), Verdict::kNotApplicable);
  expect_vendor();
  EXPECT_EQ(verdict_of("devmem_config"), Verdict::kFail);
  EXPECT_NE(find("devmem_config").found.find("lacks CONFIG_NET_DEVMEM"), std::string::npos);
  kernel_.options.clear();  // what is wrong is said once
  EXPECT_EQ(verdict_of("devmem_config"), Verdict::kNotApplicable);
  kernel_.options = {{kGoogle, 0}};  // has devmem under another name
  EXPECT_EQ(verdict_of("devmem_config"), Verdict::kNotApplicable);
}

TEST_F(DoctorKernel, TheConfigurationIsReadWhereItIsCompressed) {
  release("6.12.0");
  kernel_.options = {{kLinux, EINVAL}};
  const std::string text = std::string(300'000, '#') + "\nCONFIG_PAGE_POOL=y\nCONFIG_DMA_SHARED_BUFFER=y\n";
  here_.file("/proc/config.gz", gzip_of(text + "CONFIG_NET_DEVMEM=y\n"));
  EXPECT_EQ(verdict_of("devmem_config"), Verdict::kOk);
  EXPECT_NE(find("devmem_config").found.find("/proc/config.gz has"), std::string::npos);
  expect_vendor();
  here_.file("/proc/config.gz", gzip_of(text));
  EXPECT_EQ(verdict_of("devmem_config"), Verdict::kFail);
  here_.file("/boot/config-6.12.0", text + "CONFIG_NET_DEVMEM=y");  // of this release by its name
  EXPECT_EQ(verdict_of("devmem_config"), Verdict::kOk);
}

TEST_F(DoctorKernel, ADamagedConfigurationIsNone) {
  release("6.12.0");
  kernel_.options = {{kLinux, EINVAL}};
  const std::string whole = gzip_of("CONFIG_NET_DEVMEM=y\nCONFIG_PAGE_POOL=y\nCONFIG_DMA_SHARED_BUFFER=y\n");
  std::string changed = whole;
  changed[whole.size() - 6] ^= 1;  // of its checksum
  const std::string too_long = gzip_of(std::string(8 * 1024 * 1024, '#') + "\nCONFIG_NET_DEVMEM=y\n");
  for (const std::string& bytes :
       {std::string(), std::string("\x1f\x8b"), whole.substr(0, whole.size() - 9), changed, too_long}) {
    here_.file("/proc/config.gz", bytes);
    EXPECT_EQ(verdict_of("devmem_config"), Verdict::kNotApplicable) << bytes.size();
    EXPECT_NE(find("devmem_config").found.find("cannot be read"), std::string::npos) << bytes.size();
  }
  here_.file("/proc/config.gz", whole);
  EXPECT_EQ(verdict_of("devmem_config"), Verdict::kOk);
}

TEST_F(DoctorKernel, IoUringIsReportedAndNeverMissed) {
  expect_vendor();
  EXPECT_EQ(verdict_of("io_uring_zcrx"), Verdict::kNotApplicable);
  kernel_.ring = RingReceive::kPresent;
  EXPECT_EQ(verdict_of("io_uring_zcrx"), Verdict::kOk);
  kernel_.ring = RingReceive::kRefused;
  EXPECT_EQ(find("io_uring_zcrx").found, "io_uring is refused");
  here_.file("/proc/sys/kernel/io_uring_disabled", "2");
  EXPECT_EQ(find("io_uring_zcrx").found, "io_uring is switched off: kernel.io_uring_disabled = 2");
}

// Settings

TEST_F(DoctorKernel, SettingsThatAreNotShownDoNotApply) {
  kernel_.files.reset();
  for (const Finding& finding : check()) EXPECT_EQ(finding.verdict, Verdict::kNotApplicable) << finding.check;
}

struct Setting {
  const char* name;
  const char* good;
  const char* bad;
  const char* mend;  ///< how it begins
};

class DoctorSettings : public DoctorKernel, public ::testing::WithParamInterface<Setting> {};

TEST_P(DoctorSettings, IsSeenWellAndSeenWrong) {
  const Setting& it = GetParam();
  std::string path = it.name;
  std::replace(path.begin(), path.end(), '.', '/');
  expect_vendor();
  here_.file("/proc/sys/" + path, it.good);
  EXPECT_EQ(verdict_of(it.name), Verdict::kOk);
  here_.file("/proc/sys/" + path, it.bad);
  EXPECT_EQ(verdict_of(it.name), Verdict::kWarn);
  EXPECT_TRUE(find(it.name).mend.starts_with(it.mend)) << find(it.name).mend;
  for (const char* nonsense : {"", "many", "1 2 3 4", "4096 x 3"}) {
    here_.file("/proc/sys/" + path, nonsense);
    EXPECT_EQ(verdict_of(it.name), Verdict::kNotApplicable) << nonsense;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DoctorSettings,
    ::testing::Values(Setting{"net.ipv4.tcp_rmem", "4096\t131072\t6291456", "4096\t87380\t1048576",
                              "sudo sysctl -w net.ipv4.tcp_rmem='4096 87380 16777216'"},
                      Setting{"net.ipv4.tcp_wmem", "4096\t16384\t4194304", "4096\t16384\t4194303",
                              "sudo sysctl -w net.ipv4.tcp_wmem='4096 16384 16777216'"},
                      Setting{"net.ipv4.tcp_window_scaling", "1", "0", "sudo sysctl -w net.ipv4.tcp_window_scaling='1'"},
                      Setting{"net.ipv4.tcp_sack", "1", "0", "sudo sysctl -w net.ipv4.tcp_sack='1'"},
                      Setting{"net.ipv4.tcp_mtu_probing", "1", "2", "sudo sysctl -w net.ipv4.tcp_mtu_probing='1'"},
                      Setting{"net.ipv4.tcp_slow_start_after_idle", "0", "1",
                              "sudo sysctl -w net.ipv4.tcp_slow_start_after_idle='0'"},
                      Setting{"net.core.optmem_max", "131072", "20480", "sudo sysctl -w net.core.optmem_max='131072'"},
                      Setting{"net.ipv4.ip_local_port_range", "32768\t60999", "60000\t60999",
                              "sudo sysctl -w net.ipv4.ip_local_port_range='32768 60999'"},
                      Setting{"net.core.somaxconn", "128", "16", "sudo sysctl -w net.core.somaxconn='4096'"}),
    [](const auto& tested) {
      std::string name = tested.param.name;
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

TEST_F(DoctorKernel, DefaultsOfLinuxAreWellOnAPlainMachine) {
  setting("ipv4/tcp_rmem", "4096\t131072\t6291456");
  setting("ipv4/tcp_wmem", "4096\t16384\t4194304");
  setting("ipv4/tcp_mtu_probing", "0");
  setting("ipv4/tcp_slow_start_after_idle", "1");
  setting("ipv4/tcp_window_scaling", "1");
  setting("ipv4/tcp_sack", "1");
  setting("ipv4/ip_local_port_range", "32768\t60999");
  setting("core/optmem_max", "20480");
  setting("core/rmem_max", "212992");
  setting("core/wmem_max", "212992");
  setting("core/somaxconn", "4096");
  EXPECT_EQ(worst_of({{"kernel", check()}}), Verdict::kOk);
  EXPECT_EQ(verdict_of("net.core.rmem_max"), Verdict::kNotApplicable);
  EXPECT_EQ(verdict_of("net.core.optmem_max"), Verdict::kNotApplicable);
}

TEST_F(DoctorKernel, SmallBuffersNameTheRateTheyAllow) {
  setting("ipv4/tcp_rmem", "4096\t87380\t1048576");
  EXPECT_NE(find("net.ipv4.tcp_rmem").why.find(" 1.0 GB/s"), std::string::npos) << find("net.ipv4.tcp_rmem").why;
}

TEST_F(DoctorKernel, APortRangeTheWrongWayRoundHasNoPorts) {
  setting("ipv4/ip_local_port_range", "60999\t32768");
  EXPECT_NE(find("net.ipv4.ip_local_port_range").found.find(": 0 ports"), std::string::npos);
}

TEST_F(DoctorKernel, FewOpenFilesAreTooFewForSixteenPeers) {
  EXPECT_EQ(verdict_of("open_files"), Verdict::kOk);
  kernel_.files = 256;
  EXPECT_EQ(verdict_of("open_files"), Verdict::kWarn);
}

// This machine's kernel

TEST(DoctorKernelSource, KnownAndUnknownOptionsAreToldApart) {
  const auto kernel = make_kernel_source();
  EXPECT_EQ(kernel->set_option_error(12345), ENOPROTOOPT);
  EXPECT_EQ(kernel->set_option_error(SO_KEEPALIVE), 0);
  const auto devmem = kernel->set_option_error(kLinux);
  ASSERT_TRUE(devmem.has_value());
  EXPECT_TRUE(*devmem == ENOPROTOOPT || *devmem == EINVAL) << *devmem;
}

TEST(DoctorKernelSource, WithoutLoopbackThereIsNoAnswer) {
  const std::string missing = in_own_network([] {
    const auto kernel = make_kernel_source();
    EXPECT_TRUE(kernel->set_option_error(SO_KEEPALIVE).has_value());
    ASSERT_EQ(set_loopback(false), 0);
    EXPECT_EQ(kernel->set_option_error(SO_KEEPALIVE), std::nullopt);
  });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

TEST(DoctorKernelSource, TheLimitOfOpenFilesIsTheSoftOne) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit lower = before;
  lower.rlim_cur = 77;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  EXPECT_EQ(make_kernel_source()->open_files(), 77u);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(DoctorKernelSource, ARingIsAskedAndClosedAgain) {
  // Both times the same, and the test main looks for what is left open.
  const auto kernel = make_kernel_source();
  EXPECT_EQ(kernel->ring_receive(), kernel->ring_receive());
}

}  // namespace
}  // namespace tcpx::doctor
