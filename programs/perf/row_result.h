// Result of one size: the view of each end, its encoding for the other end, and the row that both make of it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "measure/end.h"
#include "measure/samples.h"
#include "programs/perf/perf.h"
#include "wire/set_up_messages.h"

namespace tcpx::perf {

/// One end's part of a row. Times are nanoseconds.
struct EndRow {
  uint64_t count = 0;  ///< timed transfers; 0: this end times nothing in this mode
  uint64_t total_ns = 0, min_ns = 0, median_ns = 0, max_ns = 0;
  uint64_t p99_ns = 0;      ///< 0: fewer than kSamplesOfP99 transfers
  uint64_t p999_ns = 0;     ///< 0: fewer than kSamplesOfP999
  uint64_t busy_ns = 0;     ///< length of the timed parts as this end saw them
  uint64_t cpu_ns = 0;      ///< processor time of the process in them, all threads
  uint64_t wrong = 0;       ///< received bytes that were not as sent
  std::string first_wrong;  ///< where, for people; "" when there is none
  bool verified = true;     ///< false: nothing was compared
  NicBytes nics;            ///< both directions, in the timed parts
  bool operator==(const EndRow&) const = default;
};

/// One value in a hundred, or in a thousand, must have been seen before anything can be said about it.
inline constexpr uint64_t kSamplesOfP99 = 100, kSamplesOfP999 = 1000;

/// Time of `count` and the six numbers from `samples_ns`, which may be empty.
void set_times(EndRow& row, std::vector<uint64_t> samples_ns);

Parameters encode_row(const EndRow& row);
/// @return kProtocol naming what is missing or malformed.
Result<EndRow> decode_row(const Parameters& parameters);

/// A row of the table. Times are microseconds.
struct PerfRow {
  uint64_t bytes = 0;
  Summary time;                     ///< of one transfer; latency: half of a round trip
  std::optional<double> p99, p999;  ///< nullopt: too few transfers to say
  double average_us = 0;
  double gb_per_second = 0;               ///< bytes / average time; both ways: the sum
  std::map<std::string, double> nics;     ///< GB/s of each of the server, both directions
  double server_cpu = 0, client_cpu = 0;  ///< percent of one core
  uint64_t wrong = 0;
  std::string first_wrong;
  bool verified = true;
};

/// One way the server's times count, which receives; for latency those of the client, which begins; both ways those of the slower
/// direction.
PerfRow make_row(Pattern mode, uint64_t bytes, const EndRow& server, const EndRow& client);

}  // namespace tcpx::perf
