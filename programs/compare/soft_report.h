// Tables of bench_soft_plugin's report, with their ratios. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "measure/report.h"
#include "programs/compare/measured_run.h"

namespace tcpx {

struct SoftResults {
  std::vector<MeasuredRun> plugin;  ///< driven bare; the name is the kind of memory, "host" or "gpu"
  std::vector<MeasuredRun>
      pipeline;                     ///< each measured in turns with the bare one of the same memory and sockets, if there is one
  std::vector<MeasuredRun> unpack;  ///< the pipeline from GPU to GPU; the name is the kind of unpacker
  std::vector<MeasuredRun>
      long_transfers;  ///< one transfer at a time through the pipeline, by its number of chunks, for a kind of memory
  uint64_t long_chunk_bytes = 0;
  /// TCP without a plugin, by the number of streams: each writes the same few bytes over and over, or its share of a message of
  /// raw_message_bytes, which fits no cache.
  MeasuredBy raw_in_cache, raw_working_set;
  uint64_t raw_message_bytes = 0;
  MeasuredBy raw_ping_pong;
  std::vector<MeasuredRun> nccl;  ///< its own transport, GPU to GPU; the name is the setting
};

/// Adds the tables that have rows.
void add_soft_tables(const SoftResults& results, Report& report);

}  // namespace tcpx
