// The measurements of bench_soft_plugin: one connection between two processes, row by row.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "bench/end_process.h"
#include "bench/soft_results.h"

namespace tcpx::bench {

/// How long to measure a row.
struct RowPlan {
  size_t samples = MeasurePlan::kFewestSamples;
  Duration duration = std::chrono::milliseconds(200);  ///< of all samples of a row together, about
};

/// Factors of a number of data sockets: what NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD are set to.
struct SocketFactors {
  int64_t threads;
  int64_t sockets_per_thread;
};
/// @return nullopt when `sockets` is no product of two values that the variables may have.
std::optional<SocketFactors> factors_of(uint32_t sockets);

/// Messages for the next try, when `count` of them took `taken`, so that they take about `wanted`.
uint64_t next_count(uint64_t count, Duration taken, Duration wanted);

class SoftBench {
 public:
  /// Starts and connects two ends. @param setup `leads` and `gpu` are set here.
  /// @param gpus of the sending and of the receiving end.
  static Result<std::unique_ptr<SoftBench>> connect(const EndSetup& setup, std::pair<int, int> gpus,
                                                    const EnvironmentOverrides& overrides, const std::atomic<bool>& stop);

  /// A mismatch is no error but part of the answer.
  Result<Measured> measure(Pattern pattern, uint64_t message_bytes, const RowPlan& plan);
  Status close();

 private:
  struct Round {
    Duration taken{};
    double cpu_seconds = 0;
  };
  /// Memory of both ends in core in the rounds of a row: before the first, and at most after any.
  struct Resident {
    int64_t begin_bytes = 0;
    int64_t most_bytes = 0;
  };
  explicit SoftBench(std::unique_ptr<EndPair> ends) : ends_(std::move(ends)) {}
  Status set_up(const EndSetup& setup, std::pair<int, int> gpus);
  Result<Round> round(Pattern pattern, uint64_t count);
  Result<uint64_t> calibrate(Pattern pattern, Duration wanted);
  /// Empty when right.
  Result<std::string> verify();

  const std::unique_ptr<EndPair> ends_;
  uint64_t next_seed_ = 1;
  uint64_t message_bytes_ = 0;  // of the row
  std::optional<Resident> resident_;
};

}  // namespace tcpx::bench
