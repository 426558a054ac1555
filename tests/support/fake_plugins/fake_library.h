// A fake plugin opened by a test: its control block, and private copies of its file.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "tests/support/fake_plugins/fake_plugin.h"
#include "tests/support/fake_plugins/vendor_threads.h"
#include "tests/support/resource_counts.h"
#include "tests/support/temporary_directory.h"

namespace tcpx::testing {

/// Holds copies of fake plugins.
class PluginDirectory : public TemporaryDirectory {
 public:
  /// A copy of fake plugin `name`: a separate library to the dynamic linker, so one that is not loaded yet.
  std::string fresh_plugin(const std::string& name) const {
    // The fakes are not affected by NICs that the vendor's own would not survive.
    if (name.starts_with("vendor")) ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 0);
    const std::string copy = file(name + ".so");
    std::filesystem::copy_file(std::string(TCPX_FAKE_PLUGIN_DIR) + "/" + name + ".so", copy);
    allow_left("mapped bytes of " + copy);  // the loader keeps every plugin that it has opened
    return copy;
  }
};

/// The library at `path`, as the loader opened it or will open it.
class FakeLibrary {
 public:
  explicit FakeLibrary(const std::string& path) {
    void* const opened = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(opened, nullptr) << ::dlerror();
    if (opened == nullptr) return;
    handle_.reset(opened, ::dlclose);
    count_also("registrations with " + path, [library = handle_] {
      const auto* const control = static_cast<FakeControl*>(::dlsym(library.get(), kFakeControlSymbol));
      if (control != nullptr) return int64_t{control->open_registrations};
      const auto* const threads = static_cast<FakeThreads*>(::dlsym(library.get(), kFakeThreadsSymbol));
      return threads != nullptr ? int64_t{threads->open_registrations} : 0;
    });
  }
  FakeLibrary(const FakeLibrary&) = delete;
  FakeControl& control() const { return *symbol<FakeControl>(kFakeControlSymbol); }
  /// Control block of the fake vendor_threads.
  FakeThreads& threads() const { return *symbol<FakeThreads>(kFakeThreadsSymbol); }
  template <class T>
  T* symbol(const char* name) const {
    return static_cast<T*>(::dlsym(handle_.get(), name));
  }

 private:
  std::shared_ptr<void> handle_;  // shared with the counting of what is left at the end of the case
};

}  // namespace tcpx::testing
