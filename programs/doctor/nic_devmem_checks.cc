#include "programs/doctor/nic_devmem_checks.h"

#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace tcpx::doctor {
namespace {

// RxDM binds queues 8 to 15 to GPU memory (google/tcpgpudmarxd).
constexpr size_t kA3RxQueues = 16;
constexpr std::string_view kDevmemPackets = "rx_devmem_pkts";

Finding check_header_split(const Nic& nic, const NicAnswers& answers) {
  constexpr std::string_view kWhy =
      "Without it packets arrive in host memory, and the GPUDirect-TCPX plugin ends its process at the first one. RxDM switches "
      "it on "
      "when it starts.";
  const std::string check = of("header_split", nic);
  if (answers.data_split) {
    if (*answers.data_split) return ok(check, "on");
    return fail(check, "off", std::string(kWhy), concat("sudo ethtool -G ", nic.name, " tcp-data-split on   # or start RxDM"));
  }
  // The driver of Google's images has private flags instead: enable-header-split, enable-strict-header-split,
  // enable-max-rx-buffer-size.
  std::vector<std::string> on, off;
  for (const auto& [flag, set] : answers.private_flags) {
    if (flag.find("header-split") != std::string::npos || flag.find("max-rx-buffer-size") != std::string::npos)
      (set ? on : off).push_back(flag);
  }
  if (on.empty() && off.empty()) return not_applicable(check, "the driver does not tell", "ethtool has no word for it here.");
  if (off.empty()) return ok(check, concat("on: ", list_of(on)));
  std::string mend = concat("sudo ethtool --set-priv-flags ", nic.name);
  for (const std::string& flag : off) mend += concat(" ", flag, " on");
  return fail(check, concat("off: ", list_of(off)), std::string(kWhy), mend + "   # or start RxDM");
}

Finding check_ntuple(const Nic& nic, const NicAnswers& answers) {
  const std::string check = of("ntuple", nic);
  if (!answers.ntuple) return not_applicable(check, "the driver does not tell", "ethtool has no word for it here.");
  if (*answers.ntuple) {
    return ok(check, answers.ntuple_rules ? concat("on, ", *answers.ntuple_rules, " rules") : std::string("on"));
  }
  return fail(check, "off", "RxDM steers each connection into GPU memory by such a filter; without them none is accepted.",
              concat("sudo ethtool -K ", nic.name, " ntuple on   # or start RxDM"));
}

Finding check_queues(const Nic& nic) {
  const std::string found = concat(nic.rx_queues);
  if (nic.rx_queues >= kA3RxQueues) return ok(of("rx_queues", nic), found);
  return fail(of("rx_queues", nic), found, "RxDM gives queues 8 to 15 to the GPUs; they do not exist here.",
              concat("sudo ethtool -L ", nic.name, " rx ", kA3RxQueues));
}

Finding check_devmem_packets(const Nic& nic, const NicAnswers& answers) {
  const std::string check = of(kDevmemPackets, nic);
  bool there = false;
  uint64_t packets = 0;
  for (const auto& [name, value] : answers.statistics) {
    if (!name.starts_with(kDevmemPackets)) continue;  // a driver may count per queue: "rx_devmem_pkts[8]"
    there = true;
    packets += value;
  }
  if (!there) return not_applicable(check, "not counted", "The driver has no such statistic.");
  const uint32_t rules = answers.ntuple_rules.value_or(0);
  if (packets > 0 || rules == 0) return ok(check, concat(packets));
  return warn(check, concat("0, with ", rules, " steering rules"),
              "Connections are steered into GPU memory, and no packet has arrived there: right only before the first transfer.",
              concat("ethtool -S ", nic.name, " | grep rx_devmem   # while data flows; if it stays 0, restart RxDM"));
}

}  // namespace

Findings check_nic_devmem(const Nic& nic, const NicAnswers& answers) {
  return {check_header_split(nic, answers), check_ntuple(nic, answers), check_queues(nic), check_devmem_packets(nic, answers)};
}

}  // namespace tcpx::doctor
