// Verdicts on kernels and their settings, and that the questions which a real one is asked have answers.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <tuple>

#include "doctor/kernel.h"
#include "tests/support/doctor_fixture.h"
#include "tests/support/own_network.h"

namespace tcpx::doctor {
namespace {

using testing::MadeUpMachine;
using enum Verdict;

const Expectation kVendor{true, "a test"};
constexpr DevmemAnswers kNone{ENOPROTOOPT, ENOPROTOOPT, ENOPROTOOPT}, kGoogles{ENOPROTOOPT, EINVAL, ENOPROTOOPT},
    kLinuxOwn{ENOPROTOOPT, ENOPROTOOPT, EINVAL};

/// A plain machine with Linux's defaults.
KernelFacts plain(const DevmemAnswers& devmem = kNone) {
  return {.expected = {false, "a test"},
          .release = "6.12.3",
          .devmem = devmem,
          .ring = RingReceive::kAbsent,
          .sysctls = {{"net.ipv4.tcp_rmem", {4096, 131072, 6291456}},
                      {"net.ipv4.tcp_wmem", {4096, 16384, 4194304}},
                      {"net.core.rmem_max", {212992}},
                      {"net.core.wmem_max", {212992}},
                      {"net.ipv4.tcp_window_scaling", {1}},
                      {"net.ipv4.tcp_sack", {1}},
                      {"net.ipv4.tcp_mtu_probing", {0}},
                      {"net.ipv4.tcp_slow_start_after_idle", {1}},
                      {"net.core.optmem_max", {20480}},
                      {"net.ipv4.ip_local_port_range", {32768, 60999}},
                      {"net.core.somaxconn", {4096}}},
          .open_files = 1024};
}
KernelFacts vendor(const DevmemAnswers& devmem = kNone) {
  KernelFacts facts = plain(devmem);
  facts.expected = kVendor;
  return facts;
}

const testing::Checks<KernelFacts> kKernel{check_kernel};

TEST(DoctorKernel, DefaultsOfLinuxAreWellOnAPlainMachine) {
  EXPECT_EQ(kKernel.worst(plain()), kOk);
  for (const char* name : {"net.core.rmem_max", "net.core.optmem_max"}) EXPECT_EQ(kKernel.verdict(plain(), name), kNotApplicable);
}

TEST(DoctorKernel, DevmemIsMissedOnlyWhereItIsNeeded) {
  for (const auto& [facts, verdict] :
       std::vector<std::pair<KernelFacts, Verdict>>{{plain(), kNotApplicable},
                                                    {vendor(), kFail},
                                                    {vendor({ENOPROTOOPT, 0, EINVAL}), kOk},
                                                    {vendor({ENOPROTOOPT, EINVAL, EINVAL}), kOk},
                                                    {vendor({ENOPROTOOPT, EBADF, EINVAL}), kOk},
                                                    {plain(kGoogles), kOk},
                                                    {plain(kLinuxOwn), kOk},
                                                    {vendor(kLinuxOwn), kWarn},
                                                    {vendor({}), kNotApplicable},            // no loopback
                                                    {vendor({0, 0, 0}), kNotApplicable}}) {  // a sandbox accepts every option
    EXPECT_EQ(kKernel.verdict(facts, "devmem"), verdict) << kKernel.finding(facts, "devmem").found;
  }
}

TEST(DoctorKernel, VersionsAreNumbersNotText) {
  const std::vector<std::pair<std::string, bool>> cases = {
      {"6.12.3", false}, {"6.16.0-rc1", true}, {"6.9.1", false}, {"6.100", true}, {"10.0-x", true}, {"6", false}, {"x.y", false}};
  for (const auto& [text, sends] : cases) {
    KernelFacts facts = plain(kLinuxOwn);
    facts.release = text;
    EXPECT_EQ(kKernel.finding(facts, "devmem").found.find("receive and send") != std::string::npos, sends) << text;
  }
}

TEST(DoctorKernel, TheConfigurationCountsForLinuxOwnDevmem) {
  for (const auto& [facts, missing, verdict] : std::vector<std::tuple<KernelFacts, std::vector<std::string>, Verdict>>{
           {plain(kLinuxOwn), {}, kOk},
           {plain(kLinuxOwn), {"CONFIG_NET_DEVMEM"}, kNotApplicable},
           {vendor(kLinuxOwn), {"CONFIG_NET_DEVMEM"}, kFail},
           {vendor(), {"CONFIG_NET_DEVMEM"}, kNotApplicable},             // told already
           {vendor(kGoogles), {"CONFIG_NET_DEVMEM"}, kNotApplicable}}) {  // under another name
    KernelFacts with = facts;
    with.config = {.path = "/boot/config", .missing = missing, .is_there = true};
    EXPECT_EQ(kKernel.verdict(with, "devmem_config"), verdict) << kKernel.finding(with, "devmem_config").found;
  }
  EXPECT_EQ(kKernel.verdict(vendor(kLinuxOwn), "devmem_config"), kNotApplicable);
}

TEST(DoctorKernel, IoUringIsReportedAndNeverMissed) {
  KernelFacts facts = vendor();
  for (const auto& [ring, verdict] : {std::pair(RingReceive::kAbsent, kNotApplicable), std::pair(RingReceive::kPresent, kOk),
                                      std::pair(RingReceive::kRefused, kNotApplicable)}) {
    facts.ring = ring;
    EXPECT_EQ(kKernel.verdict(facts, "io_uring_zcrx"), verdict);
  }
  facts.ring_disabled = "2";
  EXPECT_NE(kKernel.finding(facts, "io_uring_zcrx").found.find("kernel.io_uring_disabled = 2"), std::string::npos);
}

TEST(DoctorKernel, SettingsThatAreNotShownDoNotApply) {
  KernelFacts facts = vendor({});
  facts.sysctls.clear();
  facts.open_files.reset();
  for (const Finding& finding : check_kernel(facts)) EXPECT_EQ(finding.verdict, kNotApplicable) << finding.check;
}

TEST(DoctorKernel, SettingsAreSeenWellAndSeenWrong) {
  struct Case {
    const char* name;
    std::vector<int64_t> good, bad;
    const char* mend;
  };
  const std::vector<Case> cases = {
      {"net.ipv4.tcp_rmem", {4096, 131072, 6291456}, {4096, 87380, 1048576}, "4096 87380 16777216"},
      {"net.ipv4.tcp_wmem", {4096, 16384, 4194304}, {4096, 16384, 4194303}, "4096 16384 16777216"},
      {"net.ipv4.tcp_window_scaling", {1}, {0}, "1"},
      {"net.ipv4.tcp_sack", {1}, {0}, "1"},
      {"net.ipv4.tcp_mtu_probing", {1}, {2}, "1"},
      {"net.ipv4.tcp_slow_start_after_idle", {0}, {1}, "0"},
      {"net.core.optmem_max", {131072}, {20480}, "131072"},
      {"net.ipv4.ip_local_port_range", {32768, 60999}, {60000, 60999}, "32768 60999"},
      {"net.ipv4.ip_local_port_range", {1024, 65535}, {60999, 32768}, "32768 60999"},
      {"net.core.somaxconn", {128}, {16}, "4096"},
  };
  for (const Case& it : cases) {
    KernelFacts facts = vendor();
    for (const auto& [values, verdict] :
         {std::pair(std::vector<int64_t>{1, 2, 3, 4}, kNotApplicable), std::pair(it.good, kOk), std::pair(it.bad, kWarn)}) {
      facts.sysctls[it.name] = values;
      EXPECT_EQ(kKernel.verdict(facts, it.name), verdict) << it.name;
    }
    EXPECT_EQ(kKernel.finding(facts, it.name).mend, std::string("sudo sysctl -w ") + it.name + "='" + it.mend + "'");
  }
  KernelFacts facts = plain();
  facts.open_files = 256;
  EXPECT_EQ(kKernel.verdict(facts, "open_files"), kWarn);
}

// Facts from files

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

TEST(DoctorKernelFacts, SettingsAreReadAsNumbers) {
  MadeUpMachine here;
  here.file("/proc/sys/kernel/osrelease", "5.15.0-generic").file("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456");
  here.file("/proc/sys/net/ipv4/tcp_wmem", "4096 x 3").file("/proc/sys/net/core/somaxconn", "");
  const KernelFacts facts = kernel_facts(here.machine());
  EXPECT_EQ(facts.release, "5.15.0-generic");
  EXPECT_EQ(facts.sysctls, (std::map<std::string, std::vector<int64_t>>{{"net.ipv4.tcp_rmem", {4096, 131072, 6291456}}}));
}

TEST(DoctorKernelFacts, TheConfigurationIsReadAsTextOrCompressed) {
  MadeUpMachine here;
  here.file("/proc/sys/kernel/osrelease", "6.12.0");
  EXPECT_EQ(kernel_facts(here.machine()).config.path, "");
  // As long as a distribution's, and with the lines far behind.
  const std::string text = std::string(300'000, '#') + "\nCONFIG_PAGE_POOL=y\nCONFIG_DMA_SHARED_BUFFER=y\n";
  here.file("/proc/config.gz", gzip_of(text + "CONFIG_NET_DEVMEM=y\n"));
  EXPECT_EQ(kernel_facts(here.machine()).config.path, "/proc/config.gz");
  EXPECT_EQ(kernel_facts(here.machine()).config.missing.size(), 0u);
  here.file("/boot/config-6.12.0", text + "# CONFIG_NET_DEVMEM is not set\nCONFIG_NET_DEVMEM_EXTRA=y");  // goes first
  EXPECT_EQ(kernel_facts(here.machine()).config.path, "/boot/config-6.12.0");
  EXPECT_EQ(kernel_facts(here.machine()).config.missing, std::vector<std::string>{"CONFIG_NET_DEVMEM"});
}

TEST(DoctorKernelFacts, ADamagedConfigurationIsNone) {
  MadeUpMachine here;
  const std::string whole = gzip_of("CONFIG_NET_DEVMEM=y\n");
  std::string changed = whole;
  changed[whole.size() - 6] ^= 1;  // of its checksum
  const std::string too_long = gzip_of(std::string(8 * 1024 * 1024, '#') + "\nCONFIG_NET_DEVMEM=y\n");
  for (const std::string& bytes :
       {std::string(), std::string("\x1f\x8b"), whole.substr(0, whole.size() - 9), changed, too_long}) {
    here.file("/proc/config.gz", bytes);
    const BuildConfig config = kernel_facts(here.machine()).config;
    EXPECT_TRUE(config.path.empty() && config.is_there) << bytes.size();
  }
}

TEST(DoctorKernelFacts, ThisKernelAnswers) {
  const KernelFacts facts = kernel_facts({.files = FileTree(), .variables = {}});
  EXPECT_TRUE(facts.devmem.nobodys == ENOPROTOOPT || facts.devmem.nobodys == 0);
  EXPECT_FALSE(kKernel.all(facts).empty());
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(facts.open_files, limit.rlim_cur);
}

TEST(DoctorKernelFacts, WithoutLoopbackThereIsNoAnswer) {
  const std::string missing = testing::in_own_network([] {
    ASSERT_EQ(testing::set_loopback(false), 0);
    EXPECT_EQ(kernel_facts({.files = FileTree(), .variables = {}}).devmem.google, std::nullopt);
  });
  if (!missing.empty()) GTEST_SKIP() << missing;
}

}  // namespace
}  // namespace tcpx::doctor
