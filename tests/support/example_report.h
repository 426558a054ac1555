// A report with every kind of cell, for the tests of output made from reports.
#pragma once

#include "measure/report.h"

namespace tcpx::testing {

/// Two tables with every kind of cell, and a row that was not verified.
inline Report example_report() {
  Table methods = {"64 MiB by method", "method", {{"4096 B", "GB/s"}, {"1448 B", "GB/s"}, {"note", ""}}, {}};
  methods.rows = {{"contiguous copy", {Summary{9, 1700, 1748.25, 1750}, 1748.0, {}}, true},
                  {"kernel", {Summary{9, 1600.5, 1661.125, 1702}, Summary{5, 0.25, 0.5, 0.75}, "≥ 0.95"}, true},
                  {"no check", {{}, 12.5, "quick"}, false}};
  Table latency = {"latency", "size", {{"time", "µs"}}, {{"512 KiB", {Summary{7, 4, 5, 6}}, true}}};
  return {.key = "unpack",
          .about = "Gathers fragments; the bytes counted are those of the message, once.",
          .devices = {"NVIDIA H200, driver 580.159.04"},
          .parameters = {{"pool", "1 GiB"}, {"bytes", "67108864"}},
          .tables = {methods, latency}};
}

}  // namespace tcpx::testing
