// Moves test data on this machine, as the library does it and as TCP alone does it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tcpx/status.h"

namespace tcpx::doctor {

/// What an endpoint has received from another process.
struct SelftestTransfers {
  std::string path;             ///< in the endpoint's words
  std::vector<double> seconds;  ///< of each transfer but the first; not empty
  size_t sockets = 0;           ///< that carried its bytes
};

class SelftestSource {
 public:
  virtual ~SelftestSource() = default;
  /// Transfers `bytes` several times, each with other contents, and compares every byte. GPU memory where there is a GPU. Takes
  /// fewer transfers rather than longer than `limit`.
  /// @return kMismatch when bytes were wrong; what the endpoints say; kTimeout
  virtual Result<SelftestTransfers> transfer(uint64_t bytes, Duration limit) = 0;
  /// As many bytes through this many TCP connections over loopback, from host memory to host memory. @return seconds of each
  /// time, not empty
  virtual Result<std::vector<double>> raw_tcp(uint64_t bytes, size_t sockets, Duration limit) = 0;
};

/// Starts the running program once more for the other end, with the option below.
std::unique_ptr<SelftestSource> make_selftest_source();

/// Of the hidden option by which that process learns what to do.
inline constexpr char kSelftestEndOption[] = "--selftest-end";
/// In that process: sends what it is asked for until the other end leaves. @param task the option's value @return exit code
int run_selftest_end(const std::string& task);

}  // namespace tcpx::doctor
