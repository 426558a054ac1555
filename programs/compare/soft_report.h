// Text of bench_soft_plugin's report: tables and ratios. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "measure/report.h"
#include "programs/compare/soft_results.h"

namespace tcpx::bench {

/// Tables without rows are left out. @param devices, parameters as the report has them.
Report make_soft_report(const SoftResults& results, std::vector<std::string> devices,
                        std::map<std::string, std::string> parameters);

/// "8 sockets"; for several channels "4 channels x 2 sockets". @param sockets of all channels together
std::string sockets_text(uint32_t sockets, uint32_t channels = 1);

}  // namespace tcpx::bench
