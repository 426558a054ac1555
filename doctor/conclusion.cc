#include "doctor/conclusion.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "doctor/words.h"

namespace tcpx::doctor {
namespace {

/// The first finding of this verdict, with its command: "nics data_nics: ip link set lo up"; "" when there is none.
std::string first_of(const std::vector<GroupFindings>& groups, Verdict verdict) {
  for (const GroupFindings& group : groups) {
    const auto found = std::ranges::find(group.findings, verdict, &Finding::verdict);
    if (found == group.findings.end()) continue;
    return concat(group.group, " ", found->check, ": ", found->mend.substr(0, found->mend.find('\n')));
  }
  return "";
}

}  // namespace

DataWay data_way(const Machine& machine, std::vector<std::string> interfaces, bool build_has_cuda) {
  const size_t gpus = pci_gpus(machine.files).size();
  return {.plugin = expected_path(machine).vendor_path ? "GPUDirect-TCPX" : "tcpx-soft over TCP",
          .interfaces = std::move(interfaces),
          .memory = gpus == 0        ? "host memory"
                    : build_has_cuda ? concat("memory of ", gpus, gpus == 1 ? " GPU" : " GPUs")
                                     : "host memory, because this build is without CUDA"};
}

std::string conclusion(const DataWay& way, const std::vector<GroupFindings>& groups, bool everything) {
  const auto counts = counts_of(groups);
  const size_t failures = counts[static_cast<size_t>(Verdict::kFail)];
  const size_t to_fix = failures + counts[static_cast<size_t>(Verdict::kWarn)];
  std::string line = way.interfaces.empty() ? std::string("Data goes nowhere: there is no network interface for it")
                                            : concat(failures > 0 ? "Data would go by " : "Data goes by ", way.plugin, " on ",
                                                     joined(way.interfaces));
  line += concat("; ", way.memory, "; ");
  if (to_fix == 0) {
    line += "nothing to fix";
  } else {
    line += concat(to_fix, to_fix == 1 ? " thing to fix" : " things to fix", to_fix == 1 ? ", " : ", first ",
                   first_of(groups, failures > 0 ? Verdict::kFail : Verdict::kWarn));
  }
  return everything ? line : concat(line, " (looked at: ", joined(groups, ", ", &GroupFindings::group), ")");
}

}  // namespace tcpx::doctor
