// Group "selftest": bytes really move and arrive whole, over the net plugin about as fast as this machine's TCP. Two endpoints of
// one host would share memory in place of the plugin, so both ways are tried.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "doctor/finding.h"
#include "doctor/machine.h"
#include "tcpx/status.h"

namespace tcpx::doctor {

inline constexpr uint64_t kSelftestBytes = uint64_t{64} << 20;

/// Everything that an endpoint has received from another process.
struct SelftestTransfers {
  std::string path;             ///< in the endpoint's words
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
  /// As many bytes by TCP alone; seconds of each time. nullopt when nothing has moved.
  std::optional<Result<std::vector<double>>> raw;
};
/// Moves test data between two processes of the running program, and compares it. GPU memory where there is a GPU. Takes 25 s at
/// most.
SelftestFacts selftest_facts(const Machine& machine, uint64_t bytes);

Findings check_selftest(const SelftestFacts& facts);

/// Hidden options by which the second process learns that it is one, and of how many bytes.
inline constexpr char kSelftestEndOption[] = "--selftest-end", kSelftestBytesOption[] = "--selftest-bytes";
/// In that process: sends until the other end has enough. @param descriptor the first option's value @return exit code
int run_selftest_end(int descriptor, uint64_t bytes);

/// `bytes` through `sockets` connections over loopback at once, from host memory to host memory, with a thread at each end of
/// each; several times after one that does not count, fewer rather than longer than `limit`. Each time all bytes are compared.
/// @return seconds of each time, not empty
Result<std::vector<double>> time_raw_tcp(uint64_t bytes, size_t sockets, Duration limit);
/// TCP sockets of this process that have received `least` bytes or more.
size_t sockets_that_received(uint64_t least);

}  // namespace tcpx::doctor
