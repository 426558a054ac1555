// What the doctor says of libraries that could be the net plugin.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "net/plugin_loader.h"
#include "net/soft/soft_table.h"
#include "programs/doctor/child_answer.h"
#include "programs/doctor/linker_cache.h"
#include "programs/doctor/plugin_candidates.h"
#include "programs/doctor/plugin_checks.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using testing::expect_helpful;
using testing::finding_of;
using testing::MadeUpMachine;

constexpr char kVendorPath[] = "/usr/local/tcpx/lib64/libnccl-net-tcpx.so";
constexpr char kCosPath[] = "/var/lib/tcpx/lib64/libnccl-net.so";

/// The first bytes of a shared library for this machine.
std::string elf(unsigned char word_class = ELFCLASS64, uint16_t machine = 0, uint16_t type = ET_DYN) {
  std::string bytes(sizeof(Elf64_Ehdr), '\0');
  std::memcpy(bytes.data(), ELFMAG, SELFMAG);
  bytes[EI_CLASS] = static_cast<char>(word_class);
#if defined(__aarch64__)
  if (machine == 0) machine = EM_AARCH64;
#else
  if (machine == 0) machine = EM_X86_64;
#endif
  std::memcpy(bytes.data() + 16, &type, sizeof type);
  std::memcpy(bytes.data() + 18, &machine, sizeof machine);
  return bytes;
}

const PluginLoad kVendor{
    .end = PluginLoad::End::kLoaded, .detail = "", .tables = {{7, "GPUDirectTCPX_v7", ""}}, .uses_libmnl = false};

/// Answers as told for each path, and refuses all others.
class FakeProbe final : public PluginProbe {
 public:
  PluginLoad load(const std::string& path) override {
    ++loads;
    const auto known = answers.find(path);
    return known != answers.end() ? known->second : PluginLoad{.end = PluginLoad::End::kRefused, .detail = "no", .tables = {}};
  }
  std::map<std::string, PluginLoad> answers;
  int loads = 0;
};

class DoctorPlugin : public ::testing::Test {
 protected:
  void install(const std::string& path, const PluginLoad& load) {
    here_.file(path, elf());
    probe_.answers[path] = load;
  }
  Findings check() {
    Findings findings = check_plugin(here_.machine(), probe_);
    expect_helpful(findings);
    return findings;
  }
  /// Of the check of that name for the installed library.
  Finding installed(const std::string& check_name) { return finding_of(check(), check_name + "[" + kVendorPath + "]"); }

  MadeUpMachine here_;
  FakeProbe probe_;
};

PluginLoad with_tables(std::vector<PluginTable> tables) {
  PluginLoad load = kVendor;
  load.tables = std::move(tables);
  return load;
}

TEST_F(DoctorPlugin, AHealthyA3IsWell) {
  install(kVendorPath, kVendor);
  here_.file("/proc/self/mountinfo", "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw");
  const Findings findings = check();
  EXPECT_EQ(worst_of({{"plugin", findings}}), Verdict::kOk);
  for (const char* name : {"file", "mount", "load", "tables"}) EXPECT_EQ(installed(name).verdict, Verdict::kOk) << name;
  EXPECT_EQ(installed("tables").found, "v7: GPUDirectTCPX_v7, GPUDirect-TCPX");
  EXPECT_EQ(installed("layout").verdict, Verdict::kNotApplicable);  // a connection is needed to tell
  EXPECT_EQ(finding_of(findings, "loader").found, std::string("tcpx-p2p takes ") + kVendorPath + ": installed there");
}

TEST_F(DoctorPlugin, APlainMachineNeedsNone) {
  const Findings findings = check();
  EXPECT_EQ(worst_of({{"plugin", findings}}), Verdict::kOk);
  EXPECT_EQ(finding_of(findings, "loader").verdict, Verdict::kOk);
  EXPECT_EQ(installed("file").verdict, Verdict::kNotApplicable);
  EXPECT_EQ(finding_of(findings, "shadow[libnccl-net.so]").verdict, Verdict::kNotApplicable);
  EXPECT_EQ(probe_.loads, 0);
}

TEST_F(DoctorPlugin, AnA3WithoutThePluginFails) {
  here_.directory("/run/tcpx");
  const Finding finding = finding_of(check(), "loader");
  EXPECT_EQ(finding.verdict, Verdict::kFail);
  EXPECT_NE(finding.why.find("plain TCP"), std::string::npos) << finding.why;
}

TEST_F(DoctorPlugin, ANamedLibraryThatIsNotThereFails) {
  here_.variable("UCCL_TCPX_PLUGIN_PATH", "/opt/none.so");
  const Findings findings = check();
  EXPECT_EQ(finding_of(findings, "file[/opt/none.so]").verdict, Verdict::kFail);
  EXPECT_EQ(finding_of(findings, "loader").verdict, Verdict::kFail);
}

TEST_F(DoctorPlugin, TheSecondInstalledPlaceIsTakenWhenTheFirstIsEmpty) {
  install(kCosPath, kVendor);
  const Findings findings = check();
  EXPECT_EQ(finding_of(findings, "loader").found, std::string("tcpx-p2p takes ") + kCosPath + ": installed there");
  EXPECT_NE(installed("file").why.find(kCosPath), std::string::npos);
}

TEST_F(DoctorPlugin, EmbeddedIsTakenWhereItIsNamed) {
  install(kVendorPath, kVendor);
  here_.variable("UCCL_TCPX_PLUGIN_PATH", "embedded");
  EXPECT_EQ(finding_of(check(), "loader").found, "tcpx-p2p takes embedded: named by UCCL_TCPX_PLUGIN_PATH");
}

TEST_F(DoctorPlugin, WhatIsNoLibraryForThisMachineFails) {
  const struct {
    std::string bytes, found;
  } cases[] = {{"", "an empty file"},
               {"version https://git-lfs.github.com/spec/v1", "no library: it begins with \"version https://\""},
               {elf(ELFCLASS32), "a library of 32 bits"},
               {elf(ELFCLASS64, EM_PPC64), "a library for machine 21 of ELF"},
               {elf(ELFCLASS64, 0, ET_EXEC), "an ELF file, but no shared library"}};
  for (const auto& each : cases) {
    here_.file(kVendorPath, each.bytes);
    const Finding finding = installed("file");
    EXPECT_EQ(finding.verdict, Verdict::kFail);
    EXPECT_EQ(finding.found, each.found);
  }
  EXPECT_EQ(probe_.loads, 0);
}

TEST_F(DoctorPlugin, ADirectoryInPlaceOfTheLibraryFails) {
  here_.directory(kVendorPath);
  EXPECT_EQ(installed("file").verdict, Verdict::kFail);
}

TEST(FileTree, APipeIsNeverOpened) {
  const testing::TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo(directory.file("pipe").c_str(), 0600), 0);
  EXPECT_EQ(FileTree(directory.path()).read("/pipe"), std::nullopt);  // to open it would wait for a writer
}

TEST_F(DoctorPlugin, ANoexecMountFailsAndNothingIsLoadedFromIt) {
  install(kVendorPath, kVendor);
  const auto verdict = [&](const char* mounts) {
    here_.file("/proc/self/mountinfo", mounts);
    return installed("mount").verdict;
  };
  EXPECT_EQ(verdict("22 1 8:1 / / rw - ext4 a rw\n30 22 8:2 / /usr/local/tcpx ro,nosuid,noexec,relatime - ext4 b ro"),
            Verdict::kFail);
  EXPECT_EQ(probe_.loads, 0);
  EXPECT_NE(installed("mount").mend.find("remount,exec /usr/local/tcpx "), std::string::npos);
  EXPECT_EQ(verdict("22 1 8:1 / / rw - ext4 a rw\n30 22 8:2 / /usr/local/tcp rw,noexec - ext4 b ro"), Verdict::kOk);
  EXPECT_EQ(verdict("22 1 8:1 / / rw,noexec - ext4 a rw\n30 22 8:2 / /usr/local rw - ext4 b rw"), Verdict::kOk);
  EXPECT_EQ(verdict("30 22 8:2 / /usr/local rw,noexec - ext4 b rw\n31 22 8:2 / /usr/local rw - ext4 b rw"), Verdict::kOk);
}

TEST_F(DoctorPlugin, ABlankInAMountPointIsRead) {
  here_.file("/media/a b/libnccl-net.so", elf()).file("/proc/self/mountinfo", "30 22 8:2 / /media/a\\040b rw,noexec - ext4 b rw");
  EXPECT_EQ(noexec_mount_of(here_.machine(), "/media/a b/libnccl-net.so"), "/media/a b");
}

TEST_F(DoctorPlugin, ARefusedLibraryFailsWithWhatMendsIt) {
  const auto mend = [&](const std::string& detail) {
    install(kVendorPath, {.end = PluginLoad::End::kRefused, .detail = detail, .tables = {}});
    EXPECT_EQ(installed("load").verdict, Verdict::kFail);
    EXPECT_EQ(installed("load").found, detail);
    EXPECT_EQ(finding_of(check(), "loader").verdict, Verdict::kFail);
    return installed("load").mend;
  };
  EXPECT_TRUE(mend("libcudart.so.12: cannot open shared object file: No such file or directory")
                  .starts_with("find / -name 'libcudart.so.12*'"));
  EXPECT_NE(mend("libcuda.so.1: cannot open shared object file: No such file or directory").find("driver"), std::string::npos);
  EXPECT_NE(mend("/lib/libc.so.6: version `GLIBC_2.99' not found").find("distribution"), std::string::npos);
  EXPECT_EQ(mend("undefined symbol: cuInit"), std::string("ldd -r ") + kVendorPath);
}

TEST_F(DoctorPlugin, ALibraryThatEndsOrStopsItsProcessFails) {
  install(kVendorPath, {.end = PluginLoad::End::kDied, .detail = "called exit(1)", .tables = {}});
  EXPECT_EQ(installed("load").found, "the process that opened it called exit(1)");
  EXPECT_EQ(installed("load").verdict, Verdict::kFail);
  install(kVendorPath, {.end = PluginLoad::End::kHung, .detail = "did not return in time", .tables = {}});
  EXPECT_EQ(installed("load").verdict, Verdict::kFail);
}

TEST_F(DoctorPlugin, NotEveryLibraryThatHangsIsWaitedFor) {
  here_.variable("LD_LIBRARY_PATH", "/a:/b:/c:/d");
  for (const char* path : {"/a/libnccl-net.so", "/b/libnccl-net.so", "/c/libnccl-net.so", "/d/libnccl-net.so"}) {
    install(path, {.end = PluginLoad::End::kHung, .detail = "did not return in time", .tables = {}});
  }
  const Findings findings = check();
  EXPECT_EQ(probe_.loads, 2);
  EXPECT_EQ(finding_of(findings, "load[/b/libnccl-net.so]").verdict, Verdict::kWarn);  // nobody but NCCL takes it
  EXPECT_EQ(finding_of(findings, "load[/c/libnccl-net.so]").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorPlugin, TablesAreJudged) {
  const auto tables = [&](std::vector<PluginTable> given) {
    install(kVendorPath, with_tables(std::move(given)));
    return installed("tables");
  };
  EXPECT_EQ(tables({}).verdict, Verdict::kFail);
  EXPECT_EQ(tables({}).found, "no ncclNetPlugin table");
  EXPECT_EQ(tables({{6, "old", ""}}).verdict, Verdict::kFail);
  EXPECT_EQ(tables({{7, "half", "lacks test"}}).verdict, Verdict::kFail);
  EXPECT_EQ(tables({{7, "half", ""}, {8, "half", "lacks test"}}).verdict, Verdict::kWarn);
  EXPECT_EQ(tables({{7, "IBext", ""}, {8, "IBext", ""}, {9, "IBext", ""}}).verdict, Verdict::kOk);
  EXPECT_NE(tables({{7, "IBext", ""}}).found.find("another plugin"), std::string::npos);
}

TEST_F(DoctorPlugin, AVendorsPluginWithAnEighthTableIsSuspect) {
  install(kVendorPath, with_tables({{7, "GPUDirectTCPX_v7", ""}, {8, "GPUDirectTCPX_v8", ""}}));
  const Finding finding = installed("tables");
  EXPECT_EQ(finding.verdict, Verdict::kWarn);
  EXPECT_NE(finding.why.find("misread"), std::string::npos);
}

TEST_F(DoctorPlugin, NewerTablesOfOthersAreNobodysTrouble) {
  here_.variable("LD_LIBRARY_PATH", "/opt/ofi");
  install("/opt/ofi/libnccl-net.so", with_tables({{9, "AWS Libfabric", ""}}));
  EXPECT_EQ(finding_of(check(), "tables[/opt/ofi/libnccl-net.so]").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorPlugin, LayoutsAreToldApartAsFarAsTheLibraryShows) {
  PluginLoad load = kVendor;
  load.uses_libmnl = true;
  install(kVendorPath, load);
  EXPECT_EQ(installed("layout").verdict, Verdict::kWarn);
  install(kVendorPath, with_tables({{7, soft::kPluginName, ""}}));
  EXPECT_EQ(installed("layout").verdict, Verdict::kOk);
  install(kVendorPath, with_tables({{7, "IBext", ""}}));
  EXPECT_EQ(installed("layout").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorPlugin, OneNameWithTwoFilesIsFound) {
  here_.variable("LD_LIBRARY_PATH", "/opt/a:/opt/b");
  install("/opt/a/libnccl-net.so", with_tables({{8, "IBext", ""}}));
  install("/opt/b/libnccl-net.so", kVendor);
  const Finding finding = finding_of(check(), "shadow[libnccl-net.so]");
  EXPECT_EQ(finding.verdict, Verdict::kWarn);
  EXPECT_NE(finding.found.find("NCCL takes /opt/a/libnccl-net.so"), std::string::npos) << finding.found;
  EXPECT_TRUE(finding.mend.starts_with("export LD_LIBRARY_PATH=/opt/b:")) << finding.mend;
  here_.variable("NCCL_NET_PLUGIN", "tcpx,none,/x/y.so");
  EXPECT_EQ(finding_of(check(), "shadow[libnccl-net-tcpx.so]").verdict, Verdict::kNotApplicable);
}

TEST_F(DoctorPlugin, OneFileUnderTwoDirectoriesIsNoShadow) {
  here_.variable("LD_LIBRARY_PATH", "/opt/a:/opt/a-1.2;relative");
  install("/opt/a-1.2/libnccl-net.so", kVendor);
  here_.link("/opt/a", "/opt/a-1.2");
  probe_.answers["/opt/a/libnccl-net.so"] = kVendor;
  const Findings findings = check();
  EXPECT_EQ(finding_of(findings, "shadow[libnccl-net.so]").verdict, Verdict::kOk);
  EXPECT_EQ(probe_.loads, 1);
}

TEST_F(DoctorPlugin, ABareNameIsLookedUpAsTheDynamicLinkerDoes) {
  here_.variable("UCCL_TCPX_PLUGIN_PATH", "libmine.so").variable("LD_LIBRARY_PATH", "/opt/mine");
  EXPECT_EQ(finding_of(check(), "loader").verdict, Verdict::kFail);
  install("/opt/mine/libmine.so", kVendor);
  EXPECT_EQ(finding_of(check(), "loader").found, "tcpx-p2p takes /opt/mine/libmine.so: named by UCCL_TCPX_PLUGIN_PATH");
  EXPECT_EQ(finding_of(check(), "loader").verdict, Verdict::kOk);
}

// glibc's layout in literals: 48 bytes of header, 24 per entry, strings behind them.
std::string linker_cache(const std::vector<std::pair<std::string, std::string>>& entries, const std::string& in_front = "") {
  const auto number = [](size_t value, size_t bytes) {
    std::string out(bytes, '\0');
    for (size_t i = 0; i < std::min<size_t>(bytes, 8); ++i) out[i] = static_cast<char>(value >> (8 * i));
    return out;
  };
  std::string head = "glibc-ld.so.cache1.1" + number(entries.size(), 4), table, strings;
  head.resize(48, '\0');
  const size_t strings_at = 48 + 24 * entries.size();
  for (const auto& [name, path] : entries) {
    table += number(0x303, 4) + number(strings_at + strings.size(), 4);
    strings += name + '\0';
    table += number(strings_at + strings.size(), 4) + number(0, 12);
    strings += path + '\0';
  }
  return in_front + head + table + strings;
}

TEST_F(DoctorPlugin, TheDynamicLinkersCacheIsSearched) {
  here_.file("/etc/ld.so.cache", linker_cache({{"libc.so.6", "/lib/libc.so.6"}, {"libnccl-net.so", "/opt/x/libnccl-net.so"}}));
  install("/opt/x/libnccl-net.so", with_tables({{8, "IBext", ""}}));
  const Findings findings = check();
  EXPECT_EQ(finding_of(findings, "file[/opt/x/libnccl-net.so]").found, "in the dynamic linker's cache");
  EXPECT_EQ(finding_of(findings, "shadow[libnccl-net.so]").verdict, Verdict::kOk);
}

TEST(LinkerCache, EntriesAreRead) {
  const auto entries = linker_cache_entries(linker_cache({{"a.so", "/lib/a.so"}, {"b.so", "/lib/b.so"}}, "ld.so-1.7.0 and more"));
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[1].first, "b.so");
  EXPECT_EQ(entries[1].second, "/lib/b.so");
}

TEST(LinkerCache, WhatIsCutOffIsNotRead) {
  const std::string whole = linker_cache({{"a.so", "/lib/a.so"}, {"b.so", "/lib/b.so"}});
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    for (const auto& [name, path] : linker_cache_entries(std::string(whole, 0, bytes))) {
      EXPECT_TRUE(name.size() <= 4 && path.size() <= 9);
    }
  }
  std::string wild = whole;
  std::memset(wild.data() + 20, 0xff, 4);  // the count
  std::memset(wild.data() + 48 + 4, 0xff, 8);
  EXPECT_LE(linker_cache_entries(wild).size(), 2u + (wild.size() - 48) / 24);
}

// What the libraries of this build really do when they are opened.

std::string fake(const char* name) {
  return std::string(TCPX_FAKE_PLUGIN_DIR) + "/" + name + ".so";
}

TEST(PluginProbe, TellsTheTables) {
  const PluginLoad both = make_plugin_probe()->load(fake("both"));
  ASSERT_EQ(both.end, PluginLoad::End::kLoaded) << both.detail;
  ASSERT_EQ(both.tables.size(), 2u);
  EXPECT_EQ(both.tables[0].version, 7);
  EXPECT_EQ(both.tables[1].version, 8);
  EXPECT_EQ(both.tables[0].name, "fake");
  EXPECT_EQ(both.tables[0].lacks, "");
}

TEST(PluginProbe, TellsWhatATableLacks) {
  const PluginLoad half = make_plugin_probe()->load(fake("half_v7"));
  ASSERT_EQ(half.tables.size(), 1u);
  EXPECT_NE(half.tables[0].lacks.find("ncclNetPlugin_v7 lacks "), std::string::npos) << half.tables[0].lacks;
  EXPECT_TRUE(make_plugin_probe()->load(fake("no_symbol")).tables.empty());
}

TEST(PluginProbe, OpensTheSoftwarePlugin) {
  const PluginLoad soft = make_plugin_probe()->load(TCPX_SOFT_PLUGIN);
  ASSERT_EQ(soft.tables.size(), 1u) << soft.detail;
  EXPECT_EQ(soft.tables[0].name, soft::kPluginName);
  EXPECT_FALSE(soft.uses_libmnl);
}

TEST(PluginProbe, SurvivesALibraryThatExits) {
  const PluginLoad load = make_plugin_probe()->load(fake("bad_exit"));
  EXPECT_EQ(load.end, PluginLoad::End::kDied);
  EXPECT_EQ(load.detail, "called exit(1)");
}

TEST(PluginProbe, SurvivesALibraryThatCrashes) {
  const PluginLoad load = make_plugin_probe()->load(fake("bad_abort"));
  EXPECT_EQ(load.end, PluginLoad::End::kDied);
  EXPECT_TRUE(load.detail.starts_with("was killed by signal 6 ")) << load.detail;
}

TEST(PluginProbe, GivesUpOnALibraryThatHangs) {
  EXPECT_EQ(make_plugin_probe(std::chrono::milliseconds(50))->load(fake("bad_hang")).end, PluginLoad::End::kHung);
}

TEST(PluginProbe, PassesTheLinkersWordsOn) {
  const PluginLoad load = make_plugin_probe()->load("/proc/self/status");
  EXPECT_EQ(load.end, PluginLoad::End::kRefused);
  EXPECT_FALSE(load.detail.empty());
}

TEST(ChildAnswer, AnExitWithZeroIsNoAnswer) {
  const ChildAnswer answer = ask_child(
      [](const Say& say) {
        say("half");
        ::_exit(0);
      },
      std::chrono::seconds(20));
  EXPECT_EQ(answer.end, ChildAnswer::End::kExited);
  EXPECT_EQ(answer.said, "half");
}

TEST(ChildAnswer, WhatTheChildStartedEndsWithIt) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const ChildAnswer answer = ask_child(
      [](const Say&) {
        if (::fork() == 0) {
          for (;;) ::pause();
        }
      },
      std::chrono::milliseconds(200));
  EXPECT_EQ(answer.end, ChildAnswer::End::kDone);
  ::close(ends[1]);
  char byte;
  EXPECT_EQ(::read(ends[0], &byte, 1), 0);  // nobody holds the other end any more
  ::close(ends[0]);
}

// The doctor foretells what the loader does.
TEST(DoctorPluginChoice, AgreesWithTheLoader) {
  const auto agree = [] {
    const auto loaded = PluginLoader::load();
    ASSERT_TRUE(loaded.is_ok()) << loaded.status().detail();
    const PluginChoice choice = plugin_choice({.files = FileTree(), .variables = environment_snapshot()});
    EXPECT_EQ(choice.path, loaded->source.path);
    EXPECT_EQ(choice.reason, loaded->source.reason);
  };
  agree();
  ::setenv("UCCL_TCPX_PLUGIN_PATH", fake("v7").c_str(), 1);
  agree();
  ::setenv("UCCL_TCPX_PLUGIN_PATH", "embedded", 1);
  agree();
  ::unsetenv("UCCL_TCPX_PLUGIN_PATH");
}

}  // namespace
}  // namespace tcpx::doctor
