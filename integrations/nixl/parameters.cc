#include "integrations/nixl/parameters.h"

#include <cctype>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/text.h"

namespace tcpx::nixl {
namespace {

constexpr char kGpu[] = "gpu";

/// Empty for a variable of the test programs, and for those of NCCL that stand in for ours of the same name.
std::string name_of(const VariableInfo& info) {
  std::string_view name = info.name;
  if (name.starts_with("UCCL_TCPX_PERF_") || info.id == Variable::kBootstrapPort) return {};
  if (info.id == Variable::kNcclSocketIfname || info.id == Variable::kNcclSocketFamily) return {};
  for (const std::string_view prefix : {"UCCL_TCPX_", "NCCL_GPUDIRECTTCPX_", "NCCL_"}) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    break;
  }
  std::string lower;
  for (const char c : name) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

/// What this process goes by: empty where the machine decides.
std::string in_force(const VariableInfo& info) {
  // Defaults that are a sentence, such as "one per network device", are no value.
  if (environment_is_set(info.id)) return environment_text(info.id);
  return environment_check(info, info.default_text).is_ok() ? info.default_text : "";
}

/// For the part of a name, such as `channels`: the names that it may be meant as.
std::string similar_to(const std::string& part) {
  std::string found;
  for (const VariableInfo& info : environment_table()) {
    const std::string name = name_of(info);
    if (!part.empty() && name.find(part) != std::string::npos) found += (found.empty() ? "" : " or ") + name;
  }
  return found.empty() ? found : "is " + found + " meant? ";
}

}  // namespace

abi::Parameters parameters_in_force() {
  abi::Parameters all = {{kGpu, ""}};
  for (const VariableInfo& info : environment_table()) {
    const std::string name = name_of(info);
    if (!name.empty()) all.emplace(name, in_force(info));
  }
  return all;
}

Result<std::optional<int>> set_parameters(const abi::Parameters& parameters) {
  std::optional<int> gpu;
  std::vector<std::pair<Variable, std::string>> values;
  for (const auto& [name, value] : parameters) {
    if (name == kGpu) {
      if (value.empty()) continue;
      int index = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), index);
      if (error != std::errc() || end != value.data() + value.size() || index < 0)
        return Status(Code::kBadConfig, "read parameters", concat("gpu is '", value, "': the index of a GPU is wanted"));
      gpu = index;
      continue;
    }
    const VariableInfo* known = nullptr;
    for (const VariableInfo& info : environment_table()) {
      if (!name.empty() && name_of(info) == name) known = &info;
    }
    if (known == nullptr) {
      return Status(Code::kBadConfig, "read parameters",
                    concat("there is no parameter '", name, "': ", similar_to(name), "those are the variables of docs/env.md"));
    }
    // Programs hand back all that they have read. A variable that is set because of that would no longer be a default, which some
    // code decides by, and whether a malformed one is an error is up to those who need it.
    if (value == in_force(*known)) continue;
    TCPX_RETURN_IF_ERROR(environment_check(*known, value));
    if (!value.empty()) values.emplace_back(known->id, value);
  }
  for (const auto& [id, value] : values) TCPX_RETURN_IF_ERROR(environment_set(id, value));
  return gpu;
}

}  // namespace tcpx::nixl
