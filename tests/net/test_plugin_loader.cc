#include "net/plugin_loader.h"

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/log.h"
#include "net/abi/nccl_net_v7.h"
#include "tests/support/expect_log.h"
#include "tests/support/exported_symbols.h"
#include "tests/support/fake_plugins/fake_library.h"
#include "tests/support/ok.h"

namespace tcpx {
namespace {

using testing::allow_log;
using testing::FakeLibrary;
using testing::must;
using testing::PluginDirectory;

/// Collects the notice lines logged while it lives.
class NoticeLines {
 public:
  NoticeLines() { set_log_sink(&sink, this); }
  ~NoticeLines() { set_log_sink(nullptr, nullptr); }
  std::vector<std::string> lines;

 private:
  static void sink(LogLevel level, std::string_view text, void* self) {
    if (level == LogLevel::kNotice) static_cast<NoticeLines*>(self)->lines.emplace_back(text);
  }
};

class PluginLoaderTest : public ::testing::Test {
 protected:
  void SetUp() override { ::unsetenv("UCCL_TCPX_PLUGIN_PATH"); }
  void TearDown() override { ::unsetenv("UCCL_TCPX_PLUGIN_PATH"); }

  /// A plugin installed on this machine cannot interfere: only these places are searched.
  PluginLoadOptions searching(std::vector<std::string> places) { return {.path = "", .installed_paths = std::move(places)}; }

  void expect_refused(const PluginLoadOptions& options, Code code, const std::string& part) {
    const auto loaded = PluginLoader::load(options);
    ASSERT_FALSE(loaded.is_ok()) << "fell back to " << loaded->source.path;
    EXPECT_EQ(loaded.status().code(), code) << loaded.status().to_string();
    EXPECT_NE(loaded.status().to_string().find(part), std::string::npos) << loaded.status().to_string();
  }

  PluginDirectory directory_;
};

TEST_F(PluginLoaderTest, DefaultPlacesAreThoseOfTheVendor) {
  EXPECT_EQ(PluginLoadOptions{}.installed_paths,
            (std::vector<std::string>{"/usr/local/tcpx/lib64/libnccl-net-tcpx.so", "/var/lib/tcpx/lib64/libnccl-net.so"}));
}

TEST_F(PluginLoaderTest, ExplicitPathComesFirst) {
  ::setenv("UCCL_TCPX_PLUGIN_PATH", directory_.fresh_plugin("v8").c_str(), 1);
  const std::string named = directory_.fresh_plugin("v7");
  const auto loaded = must(PluginLoader::load({.path = named, .installed_paths = {directory_.fresh_plugin("both")}}));
  EXPECT_EQ(loaded.source.path, named);
  EXPECT_EQ(loaded.plugin->abi_version(), 7);
}

TEST_F(PluginLoaderTest, EnvironmentComesSecond) {
  const std::string named = directory_.fresh_plugin("v8");
  ::setenv("UCCL_TCPX_PLUGIN_PATH", named.c_str(), 1);
  const auto loaded = must(PluginLoader::load(searching({directory_.fresh_plugin("v7")})));
  EXPECT_EQ(loaded.source.path, named);
  EXPECT_EQ(loaded.source.reason, "named by UCCL_TCPX_PLUGIN_PATH");
  EXPECT_EQ(loaded.plugin->abi_version(), 8);
}

TEST_F(PluginLoaderTest, InstalledPlacesComeThirdInTheirOrder) {
  const std::string first = directory_.fresh_plugin("v7");
  const std::string second = directory_.fresh_plugin("v8");
  EXPECT_EQ(PluginLoader::load(searching({first, second}))->source.path, first);
  EXPECT_EQ(PluginLoader::load(searching({directory_.file("absent.so"), second}))->source.path, second);
}

TEST_F(PluginLoaderTest, EmbeddedPluginComesLastAndSaysWhy) {
  const auto loaded = must(PluginLoader::load(searching({"/nowhere/a.so", "/nowhere/b.so"})));
  EXPECT_EQ(loaded.source.path, "embedded");
  EXPECT_EQ(loaded.source.reason, "no plugin at /nowhere/a.so or /nowhere/b.so");
  EXPECT_EQ(loaded.plugin->name(), "tcpx-soft");
}

TEST_F(PluginLoaderTest, TheWordEmbeddedNamesTheOneInThisBuild) {
  const std::vector<std::string> installed = {directory_.fresh_plugin("v7")};
  const auto by_caller = must(PluginLoader::load({.path = "embedded", .installed_paths = installed}));
  EXPECT_EQ(by_caller.plugin->name(), "tcpx-soft");
  ::setenv("UCCL_TCPX_PLUGIN_PATH", "embedded", 1);
  const auto by_environment = must(PluginLoader::load(searching(installed)));
  EXPECT_EQ(by_environment.plugin, by_caller.plugin);
}

// One process, one embedded plugin: the first case above has used up its notice, so this one runs in a process of its own.
TEST(PluginLoaderNoticeDeathTest, OneLineNamesTheEmbeddedPluginAndWhy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto load_twice = [] {
    ::unsetenv("UCCL_TCPX_PLUGIN_PATH");
    const PluginLoadOptions options{.path = "",
                                    .installed_paths = {"/nowhere/lib64/libnccl-net-tcpx.so", "/nowhere/tcpx/libnccl-net.so"}};
    NoticeLines notices;
    const bool loaded = PluginLoader::load(options).is_ok() && PluginLoader::load(options).is_ok();
    const bool right = notices.lines == std::vector<std::string>{
                                            "net plugin tcpx-soft (embedded): no plugin at "
                                            "/nowhere/lib64/libnccl-net-tcpx.so or "
                                            "/nowhere/tcpx/libnccl-net.so"};
    ::_exit(loaded && right ? 0 : 1);
  };
  EXPECT_EXIT(load_twice(), ::testing::ExitedWithCode(0), "");
}

TEST_F(PluginLoaderTest, NoticeNamesALibraryOncePerInstance) {
  const std::string path = directory_.fresh_plugin("v7");
  NoticeLines notices;
  ASSERT_TRUE(PluginLoader::load({.path = path}).is_ok());
  ASSERT_TRUE(PluginLoader::load({.path = path}).is_ok());
  EXPECT_EQ(notices.lines, std::vector<std::string>{"net plugin fake (" + path + "): named by the caller"});
}

TEST_F(PluginLoaderTest, MissingFileIsNotFoundNeverAFallBack) {
  allow_log("no such file");
  expect_refused({.path = directory_.file("missing.so")}, Code::kNotFound, "missing.so");
  ::setenv("UCCL_TCPX_PLUGIN_PATH", directory_.file("missing.so").c_str(), 1);
  expect_refused(searching({directory_.fresh_plugin("v7")}), Code::kNotFound, "UCCL_TCPX_PLUGIN_PATH");
}

TEST_F(PluginLoaderTest, UnreadableFileIsAnError) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read every file";
  allow_log("load net plugin");
  const std::string path = directory_.fresh_plugin("v7");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  expect_refused(searching({path}), Code::kUnsupported, path);
}

TEST_F(PluginLoaderTest, Trap37_WhatIsNoPluginThatWeCanUseIsAnErrorAlsoWhenInstalled) {
  const std::string text = directory_.file("plugin.so"), pipe = directory_.file("pipe.so");
  std::ofstream(text) << std::string(4096, '#');
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);  // nobody waits for its writer
  const std::string half = directory_.fresh_plugin("half_v7");
  const FakeLibrary library(half);
  const std::pair<std::string, std::string> refused[] = {
      {text, "ELF"},
      {directory_.file("."), "directory"},
      {pipe, "a pipe"},
      {directory_.fresh_plugin("no_symbol"), "exports neither"},
      {half, "ncclNetPlugin_v7 lacks regMr, test"},
      {directory_.fresh_plugin("mixed_types"), "device 1 is of type 0, device 0 of type 1"}};
  allow_log("load net plugin");
  for (const auto& [path, part] : refused) {
    allow_log(part);
    expect_refused({.path = path}, Code::kUnsupported, part);
    expect_refused(searching({path, directory_.file("v7.so")}), Code::kUnsupported, part);
  }
  EXPECT_EQ(library.control().init_calls, 0) << "nothing of it may run";
  expect_refused({.path = "libno-such-net-plugin.so"}, Code::kUnsupported, "libno-such-net-plugin.so");
}

// The dynamic linker ends the process with SIGBUS there.
TEST_F(PluginLoaderTest, AFileThatWasCutOffIsRefusedByName) {
  allow_log("was cut off");
  const std::string whole = directory_.fresh_plugin("v7"), cut = directory_.file("cut.so");
  const uint64_t bytes = std::filesystem::file_size(whole);
  for (const uint64_t left : {uint64_t{sizeof(Elf64_Ehdr)}, bytes / 4, bytes / 2, bytes * 3 / 4, bytes * 95 / 100, bytes - 1}) {
    std::filesystem::copy_file(whole, cut, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(cut, left);
    expect_refused({.path = cut}, Code::kUnsupported, cut + " was cut off: it has " + std::to_string(left) + " bytes");
  }
  EXPECT_TRUE(PluginLoader::load({.path = whole}).is_ok());
}

// One without section headers, as some strippers leave it, is known by its segments.
TEST_F(PluginLoaderTest, AFileWithoutSectionsThatWasCutOffIsRefused) {
  allow_log("was cut off");
  const std::string path = directory_.fresh_plugin("v7");
  Elf64_Ehdr header{};
  uint64_t end = 0;  // of what is mapped
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    std::vector<Elf64_Phdr> parts(header.e_phnum);
    file.seekg(static_cast<std::streamoff>(header.e_phoff));
    file.read(reinterpret_cast<char*>(parts.data()), static_cast<std::streamsize>(parts.size() * sizeof(Elf64_Phdr)));
    for (const Elf64_Phdr& part : parts) end = std::max(end, part.p_offset + part.p_filesz);
    header.e_shoff = 0;
    header.e_shnum = header.e_shstrndx = 0;
    file.seekp(0);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
  }
  std::filesystem::resize_file(path, end - 1);
  expect_refused({.path = path}, Code::kUnsupported, path + " was cut off");
}

TEST_F(PluginLoaderTest, RefusedLibraryMayBeTriedAgain) {
  allow_log("exports neither");
  const std::string path = directory_.fresh_plugin("no_symbol");
  expect_refused({.path = path}, Code::kUnsupported, "exports neither");
  std::filesystem::remove(path);
  std::filesystem::copy_file(directory_.fresh_plugin("v7"), path);
  EXPECT_TRUE(PluginLoader::load({.path = path}).is_ok());
}

TEST_F(PluginLoaderTest, NewestKnownVersionWins) {
  EXPECT_EQ(PluginLoader::load({.path = directory_.fresh_plugin("both")})->plugin->abi_version(), 8);
}

TEST_F(PluginLoaderTest, HalfEmptyNewerTableIsLoggedAndTheOlderTaken) {
  allow_log("ncclNetPlugin_v8 lacks regMr, test");
  const auto loaded = must(PluginLoader::load({.path = directory_.fresh_plugin("half_v8_good_v7")}));
  EXPECT_EQ(loaded.plugin->abi_version(), 7);
  EXPECT_TRUE(testing::logged("ncclNetPlugin_v8 lacks regMr, test"));
}

TEST_F(PluginLoaderTest, FailingInitIsAnErrorAndIsNotRepeated) {
  allow_log("init");
  const std::string path = directory_.fresh_plugin("failing_init");
  const FakeLibrary library(path);
  for (int i = 0; i < 2; ++i) {
    const auto loaded = PluginLoader::load({.path = path});
    ASSERT_FALSE(loaded.is_ok());
    EXPECT_EQ(loaded.status().code(), Code::kPlugin);
    EXPECT_EQ(loaded.status().domain(), Domain::kNccl);
    EXPECT_EQ(loaded.status().native(), 3);
  }
  EXPECT_EQ(library.control().init_calls, 1);
}

TEST_F(PluginLoaderTest, InitThatThrowsIsAFailedInitAndNobodyWaitsForIt) {
  allow_log("thrown in init");
  const std::string path = directory_.fresh_plugin("v7");
  const FakeLibrary library(path);
  library.symbol<abi::NetTable_v7>(abi::kNetPluginV7Symbol)->init = [](abi::NcclLogger) -> int {
    throw std::runtime_error("thrown in init");
  };
  for (int i = 0; i < 2; ++i) expect_refused({.path = path}, Code::kPlugin, "thrown in init");
}

TEST_F(PluginLoaderTest, MalformedLogVariablesAreToldBeforeAnythingIsLoaded) {
  allow_log("expected");
  const std::string path = directory_.fresh_plugin("v7");
  const FakeLibrary library(path);
  for (const char* name : {"UCCL_TCPX_LOG_LEVEL", "UCCL_TCPX_DEBUG"}) {
    ::setenv(name, "loud", 1);
    expect_refused({.path = path}, Code::kBadConfig, name);
    ::unsetenv(name);
  }
  EXPECT_EQ(library.control().init_calls, 0);
}

TEST_F(PluginLoaderTest, PluginWithoutDevicesLoads) {
  const auto loaded = must(PluginLoader::load({.path = directory_.fresh_plugin("no_devices")}));
  EXPECT_EQ(loaded.plugin->device_count().value(), 0);
  EXPECT_EQ(loaded.plugin->properties(0).status().code(), Code::kInvalidArgument);
}

TEST_F(PluginLoaderTest, Trap30_OneLibraryIsOneInstanceWhateverItsPath) {
  const std::string path = directory_.fresh_plugin("v7");
  const std::string link = directory_.file("link.so");
  std::filesystem::create_symlink(path, link);
  const FakeLibrary library(path);
  const auto first = PluginLoader::load({.path = path});
  const auto second = PluginLoader::load({.path = link});
  ASSERT_TRUE(first.is_ok() && second.is_ok());
  EXPECT_EQ(first->plugin, second->plugin);
  EXPECT_EQ(second->source.path, link);
  EXPECT_EQ(library.control().init_calls, 1);
}

TEST_F(PluginLoaderTest, Trap30_ReplacedFileUnderALoadedNameIsStillTheOldInstance) {
  const std::string path = directory_.fresh_plugin("v7");
  const FakeLibrary library(path);
  const auto first = PluginLoader::load({.path = path});
  std::filesystem::rename(directory_.fresh_plugin("both"), path);
  const auto second = PluginLoader::load({.path = path});
  ASSERT_TRUE(first.is_ok() && second.is_ok());
  EXPECT_EQ(first->plugin, second->plugin);
  EXPECT_EQ(library.control().init_calls, 1);
}

TEST_F(PluginLoaderTest, Trap30_ThreadsThatLoadAtOnceShareOneInit) {
  const std::string path = directory_.fresh_plugin("v7");
  const FakeLibrary library(path);
  std::mutex mutex;
  std::vector<std::shared_ptr<NetPlugin>> got;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      auto loaded = PluginLoader::load({.path = path});
      const std::lock_guard lock(mutex);
      got.push_back(loaded.is_ok() ? loaded->plugin : nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(got.front(), nullptr);
  EXPECT_EQ(std::count(got.begin(), got.end(), got.front()), 8);
  EXPECT_EQ(library.control().init_calls, 1);
}

TEST_F(PluginLoaderTest, Trap35_ForeignPluginMakesTheProcessIgnoreSigpipe) {
  const auto old = ::signal(SIGPIPE, SIG_DFL);
  ASSERT_TRUE(PluginLoader::load({.path = "embedded"}).is_ok());
  struct sigaction action {};
  ::sigaction(SIGPIPE, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL) << "the embedded plugin never raises it";
  ASSERT_TRUE(PluginLoader::load({.path = directory_.fresh_plugin("v7")}).is_ok());
  ::sigaction(SIGPIPE, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_IGN);
  EXPECT_TRUE(testing::logged("SIGPIPE"));
  ::signal(SIGPIPE, old);
}

void own_handler(int) {}

TEST_F(PluginLoaderTest, Trap35_HandlerOfTheApplicationStays) {
  const auto old = ::signal(SIGPIPE, own_handler);
  ASSERT_TRUE(PluginLoader::load({.path = directory_.fresh_plugin("v7")}).is_ok());
  struct sigaction action {};
  ::sigaction(SIGPIPE, nullptr, &action);
  EXPECT_EQ(action.sa_handler, own_handler);
  ::signal(SIGPIPE, old);
}

// Its threads run as long as a connection is open: they need its code.
TEST_F(PluginLoaderTest, TheSoftwarePluginStaysWhenItIsClosed) {
  const std::string copy = directory_.file("soft.so");
  testing::allow_left("mapped bytes of " + copy);
  std::filesystem::copy_file(TCPX_SOFT_PLUGIN, copy);
  void* const library = ::dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  EXPECT_EQ(::dlclose(library), 0);
  EXPECT_NE(::dlopen(copy.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
}

TEST(SoftPluginLibrary, Trap29_NoVersion8TableIsExported) {
  if (std::string(TCPX_NM).empty()) GTEST_SKIP() << "nm (binutils) was not found when this was built";
  EXPECT_EQ(testing::dynamic_symbols(TCPX_NM, "--defined-only", TCPX_SOFT_PLUGIN),
            (std::set<std::string>{"ncclNetPlugin_v7", "ncclNetPlugin_v9", "ncclNetPlugin_v10", "ncclNetPlugin_v11"}));
}

}  // namespace
}  // namespace tcpx
