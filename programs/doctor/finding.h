// What a check of the doctor has seen, and what to do about it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tcpx::doctor {

/// In order of severity, but for kNotApplicable, which says nothing about the machine's health.
enum class Verdict : uint8_t { kNotApplicable, kOk, kWarn, kFail };

constexpr std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kNotApplicable:
      return "n/a";
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
  }
  return "";
}

struct Finding {
  std::string check;  ///< stable name, unique within its group but for what stands in brackets: "mtu[eth1]"
  Verdict verdict = Verdict::kOk;
  std::string found;  ///< what was seen, one line
  std::string why;    ///< why it matters; needed for kWarn and kFail, and for kNotApplicable why not
  std::string mend;   ///< the exact command that mends it, or what to do where there is none; needed for kWarn and kFail
};

using Findings = std::vector<Finding>;

inline Finding ok(std::string check, std::string found) {
  return {.check = std::move(check), .verdict = Verdict::kOk, .found = std::move(found), .why = {}, .mend = {}};
}
inline Finding not_applicable(std::string check, std::string found, std::string why) {
  return {.check = std::move(check),
          .verdict = Verdict::kNotApplicable,
          .found = std::move(found),
          .why = std::move(why),
          .mend = {}};
}
inline Finding warn(std::string check, std::string found, std::string why, std::string mend) {
  return {.check = std::move(check),
          .verdict = Verdict::kWarn,
          .found = std::move(found),
          .why = std::move(why),
          .mend = std::move(mend)};
}
inline Finding fail(std::string check, std::string found, std::string why, std::string mend) {
  return {.check = std::move(check),
          .verdict = Verdict::kFail,
          .found = std::move(found),
          .why = std::move(why),
          .mend = std::move(mend)};
}

/// Checks that belong together. `run` takes seconds at most and never throws.
struct Group {
  std::string name;  ///< as --only takes it
  std::string what;  ///< a few words, for the help
  std::function<Findings()> run;
};

struct GroupFindings {
  std::string group;
  Findings findings;
};

/// The most severe verdict; kOk when there is none worse.
Verdict worst_of(const std::vector<GroupFindings>& groups);

}  // namespace tcpx::doctor
