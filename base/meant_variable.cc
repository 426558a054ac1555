#include "base/meant_variable.h"

#include <algorithm>

#include "base/log.h"
#include "base/near_word.h"

namespace tcpx {
namespace {

using namespace std::string_view_literals;

// Two names that differ by at most this many single-character changes are taken for the same name, misspelt.
constexpr size_t kSlip = 2;

/// "CHUNK_BYTES" of "UCCL_TCPX_CHUNK_BYTES".
std::string_view bare(std::string_view name) {
  for (const std::string_view prefix : {kOwnPrefix, kVendorPrefix, "NCCL_"sv})
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  return name;
}

bool is_known(std::string_view name) {
  return std::ranges::any_of(environment_table(), [&](const auto& info) { return info.name == name; });
}

}  // namespace

const VariableInfo* meant_variable(std::string_view name) {
  // The name may have only a part of its prefix, or another prefix.
  for (const std::string_view prefix : {kOwnPrefix, kVendorPrefix, "UCCL_"sv, "TCPX_"sv, "GPUDIRECTTCPX_"sv, "NCCL_TCPX_"sv}) {
    if (!name.starts_with(prefix)) continue;
    for (const VariableInfo& info : environment_table())
      if (bare(info.name) == name.substr(prefix.size()) && info.name != name) return &info;
  }
  const auto changes = [&](const VariableInfo& info) { return changes_between(name, info.name); };
  const VariableInfo& nearest = *std::ranges::min_element(environment_table(), {}, changes);
  return changes(nearest) <= kSlip ? &nearest : nullptr;
}

void warn_of_unknown_variables() {
  static const bool once = [] {
    for (const auto& [name, value] : environment_snapshot()) {
      if (!name.starts_with(kOwnPrefix) || is_known(name)) continue;
      const VariableInfo* const meant = meant_variable(name);
      log(LogLevel::kWarning, name, " is set, and nobody reads it", meant != nullptr ? "; is " : "",
          meant != nullptr ? meant->name : "", meant != nullptr ? " meant?" : "");
    }
    return true;
  }();
  (void)once;
}

}  // namespace tcpx
