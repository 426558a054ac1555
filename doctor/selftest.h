// Group "selftest": bytes really move and arrive whole, over the net plugin about as fast as this machine's TCP. Two endpoints of
// one host would share memory in place of the plugin, so both ways are tried.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/machine.h"
#include "tcpx/status.h"

namespace tcpx::doctor {

inline constexpr uint64_t kSelftestBytes = uint64_t{64} << 20;

/// Everything that an end has received from another.
struct SelftestTransfers {
  std::string path;             ///< in the endpoint's words; "" of raw TCP
  std::vector<double> seconds;  ///< of each transfer but the first; not empty
  size_t sockets = 0;           ///< that carried its bytes
};

struct SelftestFacts {
  Expectation expected;
  uint64_t bytes = kSelftestBytes;
  /// nullopt on the vendor's path, which does not exist within one machine.
  std::optional<Result<SelftestTransfers>> moved;
  /// The same bytes with the endpoints free to share memory. nullopt when nothing has moved.
  std::optional<Result<SelftestTransfers>> one_host;
  /// As many bytes by TCP alone, over as many sockets. nullopt when nothing has moved.
  std::optional<Result<SelftestTransfers>> raw;
};
/// Moves test data between two processes of the running program (measure/end_process.h), and compares it. GPU memory where there is a GPU. Takes 25 s at
/// most.
SelftestFacts selftest_facts(const Machine& machine, uint64_t bytes);

Findings check_selftest(const SelftestFacts& facts);

}  // namespace tcpx::doctor
