// The doctor's last line: the way that data goes, and what there is to fix.
#pragma once

#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/machine.h"

namespace tcpx::doctor {

/// The way of data from this machine, as far as files tell without loading anything.
struct DataWay {
  std::string plugin;                   ///< "tcpx-soft over TCP"
  std::vector<std::string> interfaces;  ///< empty: there is no way
  std::string memory;                   ///< "host memory"
};
/// @param interfaces that become devices of the plugin @param build_has_cuda this build can use a GPU
DataWay data_way(const Machine& machine, std::vector<std::string> interfaces, bool build_has_cuda);

/// "Data goes by tcpx-soft over TCP on eth0; host memory; nothing to fix", or how many things there are to fix and the first of
/// the most severe ones with its command. One line, without its end.
/// @param everything all groups were looked at; else those that were are named
std::string conclusion(const DataWay& way, const std::vector<GroupFindings>& groups, bool everything);

}  // namespace tcpx::doctor
