// A machine that a test makes up: a directory that stands for its /sys and /proc, and variables.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "programs/doctor/finding.h"
#include "programs/doctor/machine.h"
#include "tests/support/temporary_directory.h"

namespace tcpx::testing {

class MadeUpMachine {
 public:
  MadeUpMachine() = default;

  /// A file with its directories. Paths as on the machine.
  MadeUpMachine& file(std::string_view path, std::string_view text) {
    const std::filesystem::path at = make_parent(path);
    std::ofstream(at, std::ios::binary) << text << '\n';
    return *this;
  }
  MadeUpMachine& directory(std::string_view path) {
    std::filesystem::create_directories(root() + std::string(path));
    return *this;
  }
  /// A symbolic link to a directory, which is made; both as paths of the machine.
  MadeUpMachine& link(std::string_view path, std::string_view target) {
    directory(target);
    std::filesystem::create_directory_symlink(root() + std::string(target), make_parent(path));
    return *this;
  }
  MadeUpMachine& variable(std::string name, std::string value) {
    variables_.all.emplace_back(std::move(name), std::move(value));
    return *this;
  }
  doctor::Machine machine() const { return {.files = doctor::FileTree(root()), .variables = variables_}; }

 private:
  std::string root() const { return directory_.path(); }
  std::filesystem::path make_parent(std::string_view path) {
    const std::filesystem::path at = root() + std::string(path);
    std::filesystem::create_directories(at.parent_path());
    return at;
  }

  TemporaryDirectory directory_;
  doctor::Variables variables_;
};

/// The finding of that check; a failure of the test, and an empty one, when there is not exactly one.
inline doctor::Finding finding_of(const doctor::Findings& findings, std::string_view check) {
  const auto is_it = [&](const doctor::Finding& finding) { return finding.check == check; };
  EXPECT_EQ(std::count_if(findings.begin(), findings.end(), is_it), 1) << check;
  const auto found = std::find_if(findings.begin(), findings.end(), is_it);
  return found != findings.end() ? *found : doctor::Finding{};
}

inline bool has(const doctor::Findings& findings, std::string_view check) {
  return std::any_of(findings.begin(), findings.end(), [&](const auto& finding) { return finding.check == check; });
}

inline doctor::Verdict worst_of(const doctor::Findings& findings) {
  return doctor::worst_of({{"group", findings}});
}

/// Expects everything that is not ok to say why, and everything that is wrong to say how to mend it.
inline void expect_helpful(const doctor::Findings& findings) {
  for (const doctor::Finding& finding : findings) {
    EXPECT_FALSE(finding.check.empty() || finding.found.empty()) << finding.check;
    EXPECT_EQ(finding.verdict == doctor::Verdict::kOk, finding.why.empty()) << finding.check;
    EXPECT_EQ(finding.verdict < doctor::Verdict::kWarn, finding.mend.empty()) << finding.check;
  }
}

}  // namespace tcpx::testing
