// Two ends in processes of their own, connected once and measured row by row.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "measure/end_process.h"
#include "measure/samples.h"

namespace tcpx {

/// One row: messages of one size over one connection.
struct Measured {
  Summary summary;                       ///< one way: GB/s; ping-pong: half a round trip in us
  double gigabytes_per_core_second = 0;  ///< moved per second of processor time of both ends together; 0: not known
  std::string mismatch;                  ///< "" when everything that was compared was right
  int64_t resident_growth_bytes = 0;     ///< memory of both ends in core, from before the first message to after the last
  bool verified() const { return mismatch.empty(); }
  bool operator==(const Measured&) const = default;
};

/// By bytes of a message, or by number of sockets.
using MeasuredBy = std::map<uint64_t, Measured>;

/// Duration of measuring a row.
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

class RowMeter {
 public:
  /// Starts and connects two ends. @param setup `leads` and `gpu` are set here.
  /// @param gpus of the sending and of the receiving end. @param by no call lasts longer than until then
  static Result<std::unique_ptr<RowMeter>> connect(const EndSetup& setup, std::pair<int, int> gpus,
                                                   const EnvironmentOverrides& overrides, const std::atomic<bool>& stop,
                                                   Deadline by = Deadline::after(Duration::max()));

  /// A row in steps, so that several meters can take turns: warms up and finds out how many messages a sample takes; takes one;
  /// says what came out, a mismatch included, which is no error. @param row its seed is set here
  Status begin_row(const RowSetup& row, const RowPlan& plan);
  Status sample();
  Result<Measured> end_row();
  /// One round of `count` messages, compared, and what both ends saw of it.
  Result<EndPair::Answers> once(const RowSetup& row, uint64_t count);
  Status close();

 private:
  struct Round {
    Duration taken{};
    double cpu_seconds = 0;
  };
  explicit RowMeter(std::unique_ptr<EndPair> ends) : ends_(std::move(ends)) {}
  Status set_up(const EndSetup& setup, std::pair<int, int> gpus);
  Status allocate(const RowSetup& row);
  Result<EndPair::Answers> move(uint64_t count);
  Result<Round> round(uint64_t count);
  Result<uint64_t> calibrate(Duration wanted);
  Status verify();

  const std::unique_ptr<EndPair> ends_;
  uint64_t next_seed_ = 1;
  RowSetup row_;
  int64_t resident_begin_bytes_ = 0, resident_growth_bytes_ = 0;  // of both ends, since before the first round of the row
  uint64_t count_ = 0;                                            // messages of a sample
  std::vector<double> samples_;
  double run_cpu_seconds_ = 0;              // of both processes, while the latest round ran
  double cpu_seconds_ = 0, gigabytes_ = 0;  // of all samples
  std::string mismatch_;                    // the first
};

}  // namespace tcpx
