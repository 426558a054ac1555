#include "doctor/finding.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/words.h"

namespace tcpx::doctor {
namespace {

constexpr size_t kVerdictColumns = 5;
// By Verdict.
constexpr std::array<std::string_view, 4> kNames = {"n/a", "ok", "warn", "fail"};
constexpr std::array<std::string_view, 4> kColours = {"\033[2m", "\033[32m", "\033[33m", "\033[1;31m"};

std::string padded(std::string_view text, size_t columns) {
  return concat(text, std::string(columns - std::min(columns, text.size()), ' '));
}

std::string replaced(std::string text, std::string_view what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) text.replace(at, what.size(), by);
  return text;
}

/// `text` with every line behind the first one indented as far as `margin` is long.
std::string indented(const std::string& text, const std::string& margin) {
  return replaced(text, "\n", "\n" + margin);
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  return kNames[static_cast<size_t>(verdict)];
}

Findings judge(const Table& table, const std::string& subject) {
  Findings findings;
  for (auto row = table.begin(); row != table.end();) {
    const auto end = std::find_if(row, table.end(), [&](const Fact& other) { return other.check != row->check; });
    auto said = std::find_if_not(row, end, [](const Fact& each) { return each.expected; });
    if (said == end) --said;
    Finding& finding = findings.emplace_back(Finding{.check = said->check, .found = said->found});
    if (!subject.empty()) finding.check += concat("[", subject, "]");
    if (!said->expected) {
      finding.verdict = said->otherwise;
      // Texts without a subject may be a user's, who may have written {}.
      finding.why = subject.empty() ? said->why : replaced(said->why, "{}", subject);
      finding.mend = subject.empty() ? said->mend : replaced(said->mend, "{}", subject);
    }
    row = end;
  }
  return findings;
}

std::array<size_t, 4> counts_of(const std::vector<GroupFindings>& groups) {
  std::array<size_t, 4> counts{};
  for (const GroupFindings& group : groups) {
    for (const Finding& finding : group.findings) ++counts[static_cast<size_t>(finding.verdict)];
  }
  return counts;
}

Verdict worst_of(const std::vector<GroupFindings>& groups) {
  const auto counts = counts_of(groups);
  return counts[static_cast<size_t>(kFail)] > 0 ? kFail : counts[static_cast<size_t>(kWarn)] > 0 ? kWarn : kOk;
}

std::string group_text(const GroupFindings& group, bool colour, bool verbose) {
  Findings shown;
  std::ranges::copy_if(group.findings, std::back_inserter(shown),
                       [&](const Finding& finding) { return verbose || finding.verdict != Verdict::kNotApplicable; });
  if (shown.empty()) return "";
  size_t columns = 0;
  for (const Finding& finding : shown) columns = std::max(columns, finding.check.size());
  const std::string_view plain = colour ? "\033[0m" : "";
  const std::string margin(2 + kVerdictColumns + 1, ' ');
  std::string out = concat(colour ? "\033[1m" : "", group.group, plain, "\n");
  for (const Finding& finding : shown) {
    out += concat("  ", colour ? kColours[static_cast<size_t>(finding.verdict)] : "",
                  padded(name_of(finding.verdict), kVerdictColumns), plain, " ", padded(finding.check, columns), "  ",
                  indented(finding.found, margin), "\n");
    if (!finding.why.empty()) out += concat(margin, "why   ", indented(finding.why, margin + "      "), "\n");
    if (!finding.mend.empty()) out += concat(margin, "mend  ", indented(finding.mend, margin + "      "), "\n");
  }
  return out;
}

std::string findings_summary(const std::vector<GroupFindings>& groups, bool verbose) {
  const auto [none, well, warned, failed] = counts_of(groups);
  return concat("\n", well, " ok, ", warned, " warn, ", failed, " fail, ", none, " not applicable",
                verbose || none == 0 ? "" : " (--verbose shows them)", "\n");
}

std::string findings_json(const std::vector<GroupFindings>& groups, const std::string& conclusion) {
  using Json = nlohmann::ordered_json;
  Json root = {{"version", TCPX_VERSION}, {"verdict", name_of(worst_of(groups))}, {"conclusion", conclusion}};
  root["groups"] = Json::array();
  for (const auto& [group, findings] : groups) {
    Json entries = Json::array();
    for (const auto& [check, verdict, found, why, mend] : findings)
      entries.push_back({{"check", check}, {"verdict", name_of(verdict)}, {"found", found}, {"why", why}, {"mend", mend}});
    root["groups"].push_back({{"name", group}, {"findings", entries}});
  }
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string conclusion(const DataWay& way, const std::vector<GroupFindings>& groups, bool everything) {
  const auto counts = counts_of(groups);
  const size_t failures = counts[static_cast<size_t>(kFail)], to_fix = failures + counts[static_cast<size_t>(kWarn)];
  // The first finding of the worst verdict, with its command: "nics data_nics: ip link set lo up".
  std::string first;
  for (const GroupFindings& group : groups) {
    const auto found = std::ranges::find(group.findings, worst_of(groups), &Finding::verdict);
    if (!first.empty() || found == group.findings.end()) continue;
    first = concat(group.group, " ", found->check, ": ", found->mend.substr(0, found->mend.find('\n')));
  }
  const std::string line = concat(way.interfaces.empty() ? "Data goes nowhere: there is no network interface for it"
                                                         : concat(failures > 0 ? "Data would go by " : "Data goes by ",
                                                                  way.plugin, " on ", joined(way.interfaces)),
                                  "; ", way.memory, "; ",
                                  to_fix == 0   ? "nothing to fix"
                                  : to_fix == 1 ? concat("1 thing to fix, ", first)
                                                : concat(to_fix, " things to fix, first ", first));
  return everything ? line : concat(line, " (looked at: ", joined(groups, ", ", &GroupFindings::group), ")");
}

}  // namespace tcpx::doctor
