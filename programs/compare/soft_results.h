// Results of bench_soft_plugin, before they become a report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "measure/row_meter.h"

namespace tcpx::bench {

/// The plugin, driven bare or by the pipeline, with one kind of memory and one number of data sockets.
struct PluginRun {
  std::string memory;     ///< "host", "gpu"
  uint32_t sockets = 0;   ///< of all channels together, which have as many each
  uint32_t channels = 1;  ///< of the pipeline's connection
  MeasuredBy one_way;
  MeasuredBy ping_pong;
};

/// The pipeline from GPU to GPU with one kind of unpacker.
struct UnpackRun {
  std::string unpack;  ///< "kernel", "d2d", "host"
  MeasuredBy one_way;
};

/// One transfer at a time of ever more chunks through the pipeline, with one kind of memory.
struct LongRun {
  std::string memory;
  MeasuredBy by_chunks;
};

/// TCP without a plugin over as many streams.
struct RawRun {
  uint32_t streams = 0;
  Measured in_cache;     ///< each stream writes the same few bytes over and over
  Measured working_set;  ///< each stream writes its share of a message that fits no cache
};

/// One setting of NCCL's own transport, GPU to GPU.
struct NcclRun {
  std::string label;
  MeasuredBy one_way;
  MeasuredBy ping_pong;
};

/// For every key the measurement with the best median among `runs`.
template <class Run>
MeasuredBy best_of(const std::vector<Run>& runs, MeasuredBy Run::*what, bool higher_is_better) {
  MeasuredBy best;
  for (const Run& run : runs) {
    for (const auto& [key, measured] : run.*what) {
      const auto [place, is_first] = best.try_emplace(key, measured);
      const double difference = measured.summary.median - place->second.summary.median;
      if (!is_first && (higher_is_better ? difference > 0 : difference < 0)) place->second = measured;
    }
  }
  return best;
}

struct SoftResults {
  std::vector<PluginRun> plugin;    ///< bare
  std::vector<PluginRun> pipeline;  ///< each measured in turns with the bare one of the same memory and sockets, if there is one
  std::vector<UnpackRun> unpack;
  std::vector<LongRun> long_transfers;
  uint64_t long_chunk_bytes = 0;
  std::vector<RawRun> raw;
  MeasuredBy raw_ping_pong;
  uint64_t raw_message_bytes = 0;  ///< of the working set of all streams
  std::vector<NcclRun> nccl;
};

}  // namespace tcpx::bench
