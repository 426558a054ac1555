// Copies within one process, which need no peer: the ceilings of what endpoints of one host can do.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/memory_ops.h"
#include "measure/row_meter.h"

namespace tcpx {

/// Copies of host memory by the calling thread, in GB/s by bytes. Source and destination fit into no cache.
Result<MeasuredBy> copies_of_a_thread(const std::vector<uint64_t>& sizes, const RowPlan& plan);

/// Copies from the memory of gpus.first to that of gpus.second, each begun when the one before it is done, in GB/s by bytes. What
/// they wrote is compared.
/// @param range_bytes 0: in one piece, by the driver's copy engine; otherwise in ranges of so many bytes that have no neighbours at
/// either end, by one kernel. Sizes of fewer than two ranges are left out.
/// @return also the errors of `memory`; kUnsupported where one GPU does not reach the other
Result<MeasuredBy> copies_between_gpus(MemoryOps& memory, std::pair<int, int> gpus, const std::vector<uint64_t>& sizes,
                                       uint64_t range_bytes, const RowPlan& plan);

}  // namespace tcpx
