// What bench_soft_plugin says about its numbers: tables, ratios, chart. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/soft_results.h"
#include "perf/report.h"

namespace tcpx::bench {

// Titles of the tables that the chart is made of.
inline constexpr char kBestOneWay[] = "One way, the best of each";
inline constexpr char kBestPingPong[] = "Half a round trip, the best of each";
inline constexpr char kBySockets[] = "One way by data sockets";
inline constexpr char kByUnpacker[] = "Pipeline by unpacker, one way";

/// Tables without rows are left out. @param devices, parameters as the report has them.
Report make_soft_report(const SoftResults& results, std::vector<std::string> devices,
                        std::map<std::string, std::string> parameters);

/// Rates and latencies by size, rates by number of sockets, from the tables of such a report; panels whose table is missing are
/// left out. @return kInvalidArgument when there is none.
Result<std::string> soft_chart(const Report& report);

/// "8 sockets"; for several channels "4 channels x 2 sockets". @param sockets of all channels together
std::string sockets_text(uint32_t sockets, uint32_t channels = 1);

/// The first row whose bytes were wrong, as "gpu, 4 sockets, one way, 4 KiB: ..."; "" when all were right.
std::string first_mismatch(const SoftResults& results);

}  // namespace tcpx::bench
