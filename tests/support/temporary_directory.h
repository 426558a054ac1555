// A directory, empty at first, that is removed with its owner.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tcpx::testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tcpx_test_XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string path() const { return path_.string(); }
  /// The path of `name` in it.
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  /// Makes a file with the folders above it. @param name with or without a slash in front
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path() + '/' + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  size_t entry_count() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path_)) ++count;
    return count;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tcpx::testing
