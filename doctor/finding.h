// Findings of the doctor's checks: each says what was seen and what to do about it. A group of checks is a table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tcpx::doctor {

/// In order of severity, but for kNotApplicable, which says nothing about the machine's health.
enum class Verdict : uint8_t { kNotApplicable, kOk, kWarn, kFail };
using enum Verdict;
std::string_view name_of(Verdict verdict);

struct Finding {
  std::string check;  ///< stable name, unique within its group but for what stands in brackets: "mtu[eth1]"
  Verdict verdict = kOk;
  std::string found;  ///< the observation, one line
  std::string why;    ///< why it matters; needed for kWarn and kFail, and for kNotApplicable why not
  std::string mend;   ///< the exact command that mends it, or what to do where there is none; needed for kWarn and kFail
};
using Findings = std::vector<Finding>;

/// A row of a group's table: what is read, whether it is as expected, and, where it is not, why that matters and what mends it.
/// Rows of one check stand together: the first one that is not as expected is the finding, else the last one, which is well.
struct Fact {
  std::string check;
  std::string found;
  bool expected = true;
  Verdict otherwise = kFail;
  std::string why = {}, mend = {};
};
using Table = std::vector<Fact>;
/// @param subject what the table is about, in brackets behind the name of each check, and in place of {} in `why` and `mend`
Findings judge(const Table& table, const std::string& subject = {});

template <class List>
void append(List& list, const List& more) {
  list.insert(list.end(), more.begin(), more.end());
}

struct GroupFindings {
  std::string group;
  Findings findings;
};

/// How many findings there are of each verdict, by Verdict.
std::array<size_t, 4> counts_of(const std::vector<GroupFindings>& groups);
/// The most severe verdict; kOk when there is none worse.
Verdict worst_of(const std::vector<GroupFindings>& groups);

/// One line per finding, below each one that is not ok why it matters and what mends it.
/// @param colour with terminal colours @param verbose with what is not applicable; a group that has nothing else is "" otherwise
std::string group_text(const GroupFindings& group, bool colour, bool verbose);
/// The number of findings of each kind, on a line.
std::string findings_summary(const std::vector<GroupFindings>& groups, bool verbose);
/// {"version": ..., "verdict": "ok|warn|fail", "conclusion": ...,
///  "groups": [{"name", "findings": [{"check", "verdict", "found", "why", "mend"}]}]}
/// Foreign texts that are no UTF-8 are replaced.
std::string findings_json(const std::vector<GroupFindings>& groups, const std::string& conclusion);

/// The way of data from this machine, as far as files tell without loading anything.
struct DataWay {
  std::string plugin;                   ///< "tcpx-soft over TCP"
  std::vector<std::string> interfaces;  ///< empty: there is no way
  std::string memory;                   ///< "host memory"
};
/// "Data goes by tcpx-soft over TCP on eth0; host memory; nothing to fix", or how many things there are to fix and the first of
/// the most severe ones with its command. One line, without its end.
/// @param everything all groups were looked at; else those that were are named
std::string conclusion(const DataWay& way, const std::vector<GroupFindings>& groups, bool everything);

}  // namespace tcpx::doctor
