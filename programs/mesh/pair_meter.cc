#include "programs/mesh/pair_meter.h"

namespace tcpx::mesh {

Result<PairResult> measure_pair(const perf::EndPlace& place, BootstrapChannel& peer, bool sends,
                                const std::function<Status()>& start) {
  perf::PerfOptions options = place.options;  // the receiver's become the sender's
  perf::PerfOutput output(options, true);
  perf::PerfEnd end({options, !sends, place.gpu, place.machine, place.stop, place.devices, start}, output);
  TCPX_RETURN_IF_ERROR(end.prepare());
  TCPX_RETURN_IF_ERROR(end.run(peer));
  TCPX_RETURN_IF_ERROR(output.verdict());
  const perf::PerfRow& row = output.rows().front();
  return PairResult{row.gb_per_second, row.verified};
}

Duration pair_limit(const perf::PerfOptions& options) {
  // Of each transfer there is a copy to make, to move and to compare, at 50 MB/s at least.
  const uint64_t bytes = options.sizes.max_bytes * options.iterations;
  return 10 * options.timeout + 5 * std::chrono::milliseconds(bytes / 50'000);
}

}  // namespace tcpx::mesh
