// A machine that a test makes up: a directory that stands for its /sys and /proc, and variables.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "doctor/finding.h"
#include "doctor/machine.h"
#include "tests/support/temporary_directory.h"

namespace tcpx::doctor {

inline Finding ok(std::string check, std::string found) {
  return {std::move(check), kOk, std::move(found), {}, {}};
}
inline Finding not_applicable(std::string check, std::string found, std::string why) {
  return {std::move(check), kNotApplicable, std::move(found), std::move(why), {}};
}
inline Finding warn(std::string check, std::string found, std::string why, std::string mend) {
  return {std::move(check), kWarn, std::move(found), std::move(why), std::move(mend)};
}
inline Finding fail(std::string check, std::string found, std::string why, std::string mend) {
  return {std::move(check), kFail, std::move(found), std::move(why), std::move(mend)};
}

}  // namespace tcpx::doctor

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
  /// A device on the PCI bus. @param path below /sys/devices; its last part is the address
  MadeUpMachine& pci_device(const std::string& path, std::string_view vendor, std::string_view pci_class) {
    link("/sys/bus/pci/devices/" + path.substr(path.rfind('/') + 1), path);
    return file(path + "/vendor", vendor).file(path + "/class", pci_class);
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
  EXPECT_EQ(std::ranges::count(findings, check, &doctor::Finding::check), 1) << check;
  const auto found = std::ranges::find(findings, check, &doctor::Finding::check);
  return found != findings.end() ? *found : doctor::Finding{};
}

inline bool has(const doctor::Findings& findings, std::string_view check) {
  return std::ranges::count(findings, check, &doctor::Finding::check) > 0;
}

/// The checks of a group, as tests ask them. Everything that is not ok must say why, and everything that is wrong how to mend it.
template <class Facts>
struct Checks {
  doctor::Findings (*check)(const Facts&);

  doctor::Findings all(const Facts& facts) const {
    doctor::Findings findings = check(facts);
    for (const doctor::Finding& finding : findings) {
      EXPECT_FALSE(finding.check.empty() || finding.found.empty()) << finding.check;
      EXPECT_EQ(finding.verdict == doctor::Verdict::kOk, finding.why.empty()) << finding.check;
      EXPECT_EQ(finding.verdict < doctor::Verdict::kWarn, finding.mend.empty()) << finding.check;
    }
    return findings;
  }
  doctor::Finding finding(const Facts& facts, std::string_view name) const { return finding_of(all(facts), name); }
  doctor::Verdict verdict(const Facts& facts, std::string_view name) const { return finding(facts, name).verdict; }
  doctor::Verdict worst(const Facts& facts) const { return doctor::worst_of({{"group", all(facts)}}); }

  /// A check, and its verdict once something has changed.
  struct Case {
    std::string check;
    doctor::Verdict verdict;
    std::function<void(Facts&)> change;
  };
  /// Expects those verdicts, each after its own change alone.
  void expect(const Facts& facts, const std::vector<Case>& cases) const {
    for (size_t i = 0; i < cases.size(); ++i) {
      Facts changed = facts;
      if (cases[i].change) cases[i].change(changed);
      EXPECT_EQ(verdict(changed, cases[i].check), cases[i].verdict) << cases[i].check << ", case " << i;
    }
  }
  void expect_ok(const Facts& facts, std::initializer_list<const char*> names) const {
    for (const char* name : names) EXPECT_EQ(verdict(facts, name), doctor::Verdict::kOk) << name;
  }
};

/// Tests of a group by a machine that they change.
template <class Facts>
class MachineTest : public ::testing::Test {
 protected:
  explicit MachineTest(doctor::Findings (*check)(const Facts&)) : checks_{check} {}

  /// Of the machine as it is now.
  virtual Facts facts() = 0;
  doctor::Finding finding(std::string_view name) { return checks_.finding(facts(), name); }
  doctor::Verdict verdict(std::string_view name) { return checks_.verdict(facts(), name); }
  void expect(const std::vector<typename Checks<Facts>::Case>& cases) { checks_.expect(facts(), cases); }

  MadeUpMachine here_;
  const Checks<Facts> checks_;
};

}  // namespace tcpx::testing
