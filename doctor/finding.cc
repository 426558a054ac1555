#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "doctor/finding.h"

namespace tcpx::doctor {
namespace {

constexpr size_t kVerdictColumns = 5;
// By Verdict.
constexpr std::array<std::string_view, 4> kNames = {"n/a", "ok", "warn", "fail"};
constexpr std::array<std::string_view, 4> kColours = {"\033[2m", "\033[32m", "\033[33m", "\033[1;31m"};

std::string padded(std::string_view text, size_t columns) {
  std::string out(text);
  out.resize(std::max(out.size(), columns), ' ');
  return out;
}

/// `text` with every line behind the first one indented as far as `margin` is long.
std::string indented(const std::string& text, std::string_view margin) {
  std::string out;
  for (const char c : text) {
    out.push_back(c);
    if (c == '\n') out.append(margin);
  }
  return out;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  return kNames[static_cast<size_t>(verdict)];
}

std::array<size_t, 4> counts_of(const std::vector<GroupFindings>& groups) {
  std::array<size_t, 4> counts{};
  for (const GroupFindings& group : groups) {
    for (const Finding& finding : group.findings) ++counts[static_cast<size_t>(finding.verdict)];
  }
  return counts;
}

Verdict worst_of(const std::vector<GroupFindings>& groups) {
  Verdict worst = Verdict::kOk;
  for (const GroupFindings& group : groups) {
    for (const Finding& finding : group.findings) worst = std::max(worst, finding.verdict);
  }
  return worst;
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
  const auto counts = counts_of(groups);
  const auto count = [&](Verdict verdict) { return counts[static_cast<size_t>(verdict)]; };
  return concat("\n", count(Verdict::kOk), " ok, ", count(Verdict::kWarn), " warn, ", count(Verdict::kFail), " fail, ",
                count(Verdict::kNotApplicable), " not applicable",
                verbose || count(Verdict::kNotApplicable) == 0 ? "" : " (--verbose shows them)", "\n");
}

std::string findings_json(const std::vector<GroupFindings>& groups, const std::string& conclusion) {
  nlohmann::ordered_json root;
  root["version"] = TCPX_VERSION;
  root["verdict"] = name_of(worst_of(groups));
  root["conclusion"] = conclusion;
  root["groups"] = nlohmann::ordered_json::array();
  for (const GroupFindings& group : groups) {
    nlohmann::ordered_json entry;
    entry["name"] = group.group;
    entry["findings"] = nlohmann::ordered_json::array();
    for (const Finding& finding : group.findings) {
      entry["findings"].push_back({{"check", finding.check},
                                   {"verdict", name_of(finding.verdict)},
                                   {"found", finding.found},
                                   {"why", finding.why},
                                   {"mend", finding.mend}});
    }
    root["groups"].push_back(std::move(entry));
  }
  return root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tcpx::doctor
