// Verdicts on libraries that could be the net plugin.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "doctor/child_answer.h"
#include "doctor/plugin.h"
#include "net/plugin_loader.h"
#include "net/soft/soft_table.h"
#include "tests/support/doctor_fixture.h"

namespace tcpx::doctor {
namespace {

using testing::MadeUpMachine;
using enum Verdict;
using End = PluginLoad::End;

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

PluginLoad with_tables(std::vector<PluginTable> tables, End end = End::kAnswered, std::string detail = "its words") {
  return {{end, std::move(detail)}, std::move(tables), false};
}
const PluginLoad kVendor = with_tables({{7, "GPUDirectTCPX_v7", ""}});

class DoctorPlugin : public testing::MachineTest<PluginFacts> {
 protected:
  DoctorPlugin() : MachineTest(check_plugin) {}

  void install(const std::string& path, const PluginLoad& load = kVendor) {
    here_.file(path, elf());
    loads_[path] = load;
  }
  PluginFacts facts() override {
    PluginFacts facts = plugin_facts(here_.machine(), linker_cache_);
    for (PluginCandidate& candidate : facts.candidates) {
      candidate.noexec = false;  // regardless of the temporary directory's mount
      const auto known = loads_.find(candidate.file.path);
      if (candidate.can_be_loaded() && known != loads_.end()) candidate.load = known->second;
    }
    return facts;
  }
  static std::string of(const std::string& check, const std::string& path = kVendorPath) { return check + "[" + path + "]"; }
  std::string taken() { return facts().choice.path; }

  std::map<std::string, PluginLoad> loads_;
  std::string linker_cache_;
};

TEST_F(DoctorPlugin, AHealthyA3IsWell) {
  install(kVendorPath);
  EXPECT_EQ(checks_.worst(facts()), kOk);
  expect({{of("file"), kOk}, {of("mount"), kOk}, {of("load"), kOk}, {of("tables"), kOk}, {"loader", kOk}});
  EXPECT_EQ(verdict(of("layout")), kNotApplicable);  // a connection is needed to tell
  EXPECT_EQ(taken(), kVendorPath);
}

TEST_F(DoctorPlugin, APlainMachineNeedsNone) {
  EXPECT_EQ(checks_.worst(facts()), kOk);
  expect({{of("file"), kNotApplicable}, {"shadow[libnccl-net.so]", kNotApplicable}, {"loader", kOk}});
  here_.directory("/run/tcpx");  // an A3
  EXPECT_EQ(verdict("loader"), kFail);
}

TEST_F(DoctorPlugin, TheChoiceIsTheLoaders) {
  install(kCosPath);
  EXPECT_EQ(taken(), kCosPath);
  here_.variable("UCCL_TCPX_PLUGIN_PATH", "/opt/none.so");
  expect({{of("file", "/opt/none.so"), kFail}, {"loader", kFail}});
}

TEST_F(DoctorPlugin, EmbeddedIsTakenWhereItIsNamed) {
  install(kVendorPath);
  here_.variable("UCCL_TCPX_PLUGIN_PATH", "embedded");
  EXPECT_EQ(taken(), "embedded");
  EXPECT_EQ(verdict("loader"), kOk);
}

TEST_F(DoctorPlugin, ABareNameIsLookedUpAsTheDynamicLinkerDoes) {
  here_.variable("UCCL_TCPX_PLUGIN_PATH", "libmine.so").variable("LD_LIBRARY_PATH", "/opt/mine");
  EXPECT_EQ(verdict("loader"), kFail);
  install("/opt/mine/libmine.so");
  EXPECT_EQ(taken(), "/opt/mine/libmine.so");
  EXPECT_EQ(verdict("loader"), kOk);
}

TEST_F(DoctorPlugin, AnythingButALibraryForThisMachineFails) {
  here_.directory(kCosPath);
  EXPECT_EQ(verdict(of("file", kCosPath)), kFail);
  for (const std::string& bytes : {std::string(), std::string("version https://git-lfs.github.com/spec/v1"), elf(ELFCLASS32),
                                   elf(ELFCLASS64, EM_PPC64), elf(ELFCLASS64, 0, ET_EXEC)}) {
    here_.file(kVendorPath, bytes);
    EXPECT_EQ(verdict(of("file")), kFail);
    EXPECT_FALSE(facts().candidates[0].can_be_loaded());
  }
}

TEST(FileTree, APipeIsNeverOpened) {
  const testing::TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo(directory.file("pipe").c_str(), 0600), 0);
  EXPECT_EQ(FileTree(directory.path()).read("/pipe"), std::nullopt);  // to open it would wait for a writer
}

TEST_F(DoctorPlugin, ANoexecMountFailsAndNothingIsLoadedFromIt) {
  install(kVendorPath);
  PluginFacts facts = this->facts();
  facts.candidates[0].noexec = true;
  EXPECT_FALSE(facts.candidates[0].can_be_loaded());
  EXPECT_EQ(checks_.verdict(facts, of("mount")), kFail);
}

TEST_F(DoctorPlugin, ALibraryThatDoesNotLoadFails) {
  for (const auto end : {End::kRefused, End::kDied, End::kHung}) {
    install(kVendorPath, with_tables({}, end));
    expect({{of("load"), kFail}, {"loader", kFail}});
  }
  loads_.clear();  // others have hung
  EXPECT_EQ(verdict(of("load")), kNotApplicable);
  here_.variable("LD_LIBRARY_PATH", "/a");
  install("/a/libnccl-net.so", with_tables({}, End::kHung));
  EXPECT_EQ(verdict(of("load", "/a/libnccl-net.so")), kWarn);  // nobody but NCCL takes it
}

TEST_F(DoctorPlugin, ARefusalHasItsCure) {
  const std::vector<std::pair<std::string, std::string>> cures = {
      {"libcudart.so.12: cannot open shared object file: No such file or directory", "find / -name 'libcudart.so.12*'"},
      {"libcuda.so.1: cannot open shared object file: No such file or directory", "driver"},
      {"/lib/libc.so.6: version `GLIBC_2.99' not found", "distribution"},
      {"undefined symbol: cuInit", std::string("ldd -r ") + kVendorPath}};
  for (const auto& [words, cure] : cures) {
    install(kVendorPath, with_tables({}, End::kRefused, words));
    EXPECT_NE(finding(of("load", kVendorPath)).mend.find(cure), std::string::npos) << words;
  }
}

TEST_F(DoctorPlugin, TablesAreJudged) {
  for (const auto& [given, expected] : std::vector<std::pair<std::vector<PluginTable>, Verdict>>{
           {{}, kFail},
           {{{6, "old", ""}}, kFail},
           {{{7, "half", "lacks test"}}, kFail},
           {{{7, "half", ""}, {8, "half", "lacks test"}}, kWarn},
           {{{7, "IBext", ""}, {8, "IBext", ""}, {9, "IBext", ""}}, kOk},
           {{{7, "GPUDirectTCPX_v7", ""}, {8, "GPUDirectTCPX_v8", ""}}, kWarn}}) {
    install(kVendorPath, with_tables(given));
    EXPECT_EQ(verdict(of("tables")), expected);
  }
  here_.variable("LD_LIBRARY_PATH", "/opt/ofi");
  install("/opt/ofi/libnccl-net.so", with_tables({{9, "AWS Libfabric", ""}}));
  EXPECT_EQ(verdict(of("tables", "/opt/ofi/libnccl-net.so")), kNotApplicable) << "newer ones of others";
}

TEST_F(DoctorPlugin, LayoutsAreToldApartAsFarAsTheLibraryShows) {
  PluginLoad newer = kVendor;
  newer.uses_libmnl = true;
  for (const auto& [load, expected] : {std::pair(newer, kWarn), std::pair(with_tables({{7, soft::kPluginName, ""}}), kOk),
                                       std::pair(with_tables({{7, "IBext", ""}}), kNotApplicable)}) {
    install(kVendorPath, load);
    EXPECT_EQ(verdict(of("layout")), expected);
  }
}

TEST_F(DoctorPlugin, OneNameWithTwoFilesIsFound) {
  here_.variable("LD_LIBRARY_PATH", "/opt/a:/opt/b");
  install("/opt/a/libnccl-net.so");
  install("/opt/b/libnccl-net.so");
  EXPECT_EQ(verdict(of("shadow", "libnccl-net.so")), kWarn);
  EXPECT_TRUE(finding(of("shadow", "libnccl-net.so")).mend.starts_with("export LD_LIBRARY_PATH=/opt/b:"));
  here_.variable("NCCL_NET_PLUGIN", "tcpx,none,/x/y.so");
  EXPECT_EQ(verdict(of("shadow", "libnccl-net-tcpx.so")), kNotApplicable);
}

TEST_F(DoctorPlugin, OneFileUnderTwoDirectoriesIsNoShadow) {
  here_.variable("LD_LIBRARY_PATH", "/opt/a:/opt/a-1.2;relative");
  install("/opt/a-1.2/libnccl-net.so");
  here_.link("/opt/a", "/opt/a-1.2");
  EXPECT_EQ(verdict(of("shadow", "libnccl-net.so")), kOk);
  EXPECT_EQ(facts().candidates.size(), 3u);  // with the two places where it may be installed
}

TEST_F(DoctorPlugin, TheDynamicLinkersCacheIsSearched) {
  linker_cache_ =
      "2 libs found in cache `/etc/ld.so.cache'\n\tlibc.so.6 (libc6,x86-64) => /lib/libc.so.6\n"
      "\tlibnccl-net.so (libc6,x86-64) => /opt/x/libnccl-net.so\n";
  install("/opt/x/libnccl-net.so");
  expect({{of("file", "/opt/x/libnccl-net.so"), kOk}, {"shadow[libnccl-net.so]", kOk}});
}

// Libraries of this build, really opened.

std::string fake(const char* name) {
  return std::string(TCPX_FAKE_PLUGIN_DIR) + "/" + name + ".so";
}

TEST(PluginProbe, TellsTheTablesAndWhatTheyLack) {
  const PluginLoad both = load_plugin(fake("both"));
  ASSERT_EQ(both.end, End::kAnswered) << both.detail;
  ASSERT_EQ(both.tables.size(), 2u);
  EXPECT_EQ(both.tables[0].version, 7);
  EXPECT_EQ(both.tables[1].version, 8);
  EXPECT_EQ(both.tables[0].name, "fake");
  EXPECT_EQ(both.tables[0].lacks, "");
  const PluginLoad half = load_plugin(fake("half_v7"));
  ASSERT_EQ(half.tables.size(), 1u);
  EXPECT_NE(half.tables[0].lacks.find("ncclNetPlugin_v7 lacks "), std::string::npos) << half.tables[0].lacks;
  EXPECT_TRUE(load_plugin(fake("no_symbol")).tables.empty());
  const PluginLoad soft = load_plugin(TCPX_SOFT_PLUGIN);
  std::vector<int> versions;
  for (const PluginTable& table : soft.tables) {
    versions.push_back(table.version);
    EXPECT_EQ(table.name, soft::kPluginName);
  }
  EXPECT_EQ(versions, (std::vector{7, 9, 10, 11})) << soft.detail;
  EXPECT_FALSE(soft.uses_libmnl);
}

TEST(PluginProbe, SurvivesALibraryThatExitsOrCrashesOrHangsOrIsNone) {
  constexpr std::chrono::seconds kLong{20};
  for (const auto& [path, limit, end, detail] : std::vector<std::tuple<std::string, Duration, End, std::string>>{
           {fake("bad_exit"), kLong, End::kDied, "called exit(1)"},
           {fake("bad_abort"), kLong, End::kDied, "was killed by signal 6 "},
           {fake("bad_hang"), std::chrono::milliseconds(50), End::kHung, "did not return"},
           {"/proc/self/status", kLong, End::kRefused, "/proc/self/status: "}}) {  // in the linker's words
    const PluginLoad load = load_plugin(path, limit);
    EXPECT_EQ(load.end, end) << path;
    EXPECT_TRUE(load.detail.starts_with(detail)) << path << " " << load.detail;
  }
}

TEST(PluginProbe, NotEveryLibraryThatHangsIsWaitedFor) {
  PluginFacts facts;
  for (int i = 0; i < 4; ++i)
    facts.candidates.push_back({.file = {fake("bad_hang"), "", ""}, .is_there = true, .readable = true});
  load_candidates(facts, std::chrono::milliseconds(50));
  const auto tried = [](const PluginCandidate& candidate) { return candidate.load.has_value(); };
  EXPECT_EQ(std::count_if(facts.candidates.begin(), facts.candidates.end(), tried), 2);
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
    const LibraryFile choice = plugin_facts({.files = FileTree(), .variables = {environment_snapshot()}}, "").choice;
    EXPECT_EQ(choice.path, loaded->source.path);
    EXPECT_EQ(choice.origin, loaded->source.reason);
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
