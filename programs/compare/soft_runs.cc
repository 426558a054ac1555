#include "programs/compare/soft_runs.h"

#include <algorithm>
#include <thread>

#include "base/environment.h"
#include "base/text.h"
#include "device/gpu_presence.h"
#include "measure/message_plan.h"
#include "measure/plain_text.h"
#include "measure/resources.h"
#include "net/soft/wire.h"
#include "programs/compare/soft_report.h"
#include "programs/unpack/gpu_description.h"

namespace tcpx::bench {
namespace {

constexpr uint64_t kRawWriteBytes = 512 << 10;
constexpr uint64_t kLeastRawMessageBytes = 4 << 20;
constexpr uint64_t kLongChunkBytes = 512 << 10;
constexpr unsigned kManyCores = 16;

std::string size_text(uint64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

std::string counted(uint32_t count, const char* what) {
  return concat(count, " ", what, count == 1 ? "" : "s");
}

template <class Value>
void sort_once_each(std::vector<Value>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

template <class Values, class Text>
std::string listed(const Values& values, Text text) {
  std::string list;
  for (const auto& value : values) list += concat(list.empty() ? "" : ", ", text(value));
  return list;
}

/// Overrides that make an end's plugin take that many sockets for a connection; nullopt when it cannot.
std::optional<EnvironmentOverrides> overrides_for(uint32_t sockets) {
  const std::optional<SocketFactors> factors = factors_of(sockets);
  if (!factors || sockets > soft::kMaxDataSockets) return std::nullopt;
  return EnvironmentOverrides{{environment_info(Variable::kNsocksPerThread).name, concat(factors->sockets_per_thread)},
                              {environment_info(Variable::kSocketNthreads).name, concat(factors->threads)}};
}

}  // namespace

SoftRuns::SoftRuns(SoftRunOptions options, Comparison& comparison) : options_(std::move(options)), comparison_(comparison) {
  if (options_.memory.empty()) {
    options_.memory = {Memory::kHost};
    if (comparison_.has_gpu()) {
      options_.memory.push_back(Memory::kGpu);
    } else {
      comparison_.note("gpu memory", concat("left out: ", gpu_count().status().detail()));
    }
  }
  if (options_.sockets.empty()) {
    for (const uint32_t sockets : {1u, 4u, 8u, 16u}) {
      if (sockets <= soft::kMaxDataSockets) options_.sockets.push_back(sockets);
    }
  }
  if (options_.channels.empty()) {
    options_.channels = {1};
    if (std::thread::hardware_concurrency() >= kManyCores) options_.channels.push_back(4);
  }
  sort_once_each(options_.channels);
  sort_once_each(options_.sizes);
  sort_once_each(options_.sockets);
  sort_once_each(options_.memory);
  sort_once_each(options_.long_chunks);
  if (options_.unpack.empty() && comparison_.has_gpu() && options_.memory.back() == Memory::kGpu)
    options_.unpack = {"kernel", "d2d", "host"};
}

Status SoftRuns::run() {
  TCPX_RETURN_IF_ERROR(comparison_.describe_gpus());
  results_.raw_message_bytes = std::max(options_.sizes.back(), kLeastRawMessageBytes);
  for (const uint32_t sockets : options_.sockets) TCPX_RETURN_IF_ERROR(raw(sockets));
  TCPX_RETURN_IF_ERROR(raw_ping_pong());
  for (const Memory memory : options_.memory) {
    for (const uint32_t sockets : options_.sockets) TCPX_RETURN_IF_ERROR(plugin(memory, sockets));
  }
  if (options_.pipeline) {
    for (const std::string& kind : options_.unpack) TCPX_RETURN_IF_ERROR(unpack(kind));
    if (!options_.long_chunks.empty()) {
      for (const Memory memory : options_.memory) TCPX_RETURN_IF_ERROR(long_transfers(memory));
    }
  }
  results_.nccl = comparison_.run_nccl(options_.sizes, ping_pong_sizes());
  return comparison_.stopped() ? Status(Code::kCancelled, "measure", "interrupted") : Status::ok();
}

std::string SoftRuns::name_of(Memory memory) const {
  if (memory == Memory::kHost) return "host";
  return comparison_.has_gpu() ? "gpu" : "gpu stand-in";  // the same code over host memory: no speed of a GPU
}

std::vector<uint64_t> SoftRuns::ping_pong_sizes() const {
  std::vector<uint64_t> sizes;
  std::copy_if(options_.sizes.begin(), options_.sizes.end(), std::back_inserter(sizes),
               [&](uint64_t bytes) { return bytes <= options_.largest_ping_pong; });
  return sizes;
}

Status SoftRuns::row(RowMeter& bench, const std::string& who, Pattern pattern, uint64_t bytes, MeasuredBy& rows,
                     std::optional<uint64_t> key) {
  const Result<Measured> measured = bench.measure({.pattern = pattern, .message_bytes = bytes}, comparison_.options().row);
  if (!measured.is_ok()) {
    const Status& status = measured.status();
    return Status(status.code(), concat(who, ", ", size_text(bytes), ": ", status.operation()), status.detail(), status.domain(),
                  status.native());
  }
  const bool one_way = pattern == Pattern::kOneWay;
  const std::string what = concat(who, ", ", size_text(bytes), one_way ? " one way" : " half a round trip");
  comparison_.say(concat(what, ": ", format_measured(measured->summary.median), one_way ? " GB/s" : " us",
                         measured->verified() ? "" : ", WRONG BYTES"));
  comparison_.compared(what, *measured);
  rows[key.value_or(bytes)] = *measured;
  return Status::ok();
}

Status SoftRuns::raw(uint32_t streams) {
  EndSetup setup;
  setup.kind = EndSetup::Kind::kRawTcp;
  setup.streams = streams;
  setup.request_bytes = kRawWriteBytes;
  TCPX_ASSIGN_OR_RETURN(const std::unique_ptr<RowMeter> bench, comparison_.connect(setup, {}));
  const std::string who = concat("raw TCP, ", counted(streams, "stream"));
  MeasuredBy cached, rows;
  TCPX_RETURN_IF_ERROR(row(*bench, who, Pattern::kOneWay, kRawWriteBytes * streams, cached));
  TCPX_RETURN_IF_ERROR(row(*bench, who, Pattern::kOneWay, results_.raw_message_bytes, rows));
  results_.raw.push_back({.streams = streams, .in_cache = cached.begin()->second, .working_set = rows.begin()->second});
  return bench->close();
}

Status SoftRuns::raw_ping_pong() {
  EndSetup setup;
  setup.kind = EndSetup::Kind::kRawTcp;
  setup.request_bytes = kRawWriteBytes;
  TCPX_ASSIGN_OR_RETURN(const std::unique_ptr<RowMeter> bench, comparison_.connect(setup, {}));
  for (const uint64_t bytes : ping_pong_sizes()) {
    TCPX_RETURN_IF_ERROR(row(*bench, "raw TCP", Pattern::kPingPong, bytes, results_.raw_ping_pong));
  }
  return bench->close();
}

Result<EndSetup> SoftRuns::plugin_setup(EndSetup::Kind kind, Memory memory) const {
  EndSetup setup;
  setup.kind = kind;
  setup.memory = memory == Memory::kGpu ? MemoryType::kCuda : MemoryType::kHost;
  setup.request_bytes = options_.request_bytes;
  if (options_.plugin.size() >= sizeof setup.plugin) {
    return Status(Code::kInvalidArgument, "open plugin", "the name of the library is too long");
  }
  options_.plugin.copy(setup.plugin, sizeof setup.plugin - 1);
  return setup;
}

Status SoftRuns::plugin(Memory memory, uint32_t sockets) {
  struct Side {
    std::string who;
    std::unique_ptr<RowMeter> bench;
    std::vector<PluginRun>& runs;
    size_t run_idx;
  };
  std::vector<Side> sides;
  const auto add = [&](EndSetup::Kind kind, uint32_t channels) -> Status {
    const char* const pipeline = kind == EndSetup::Kind::kPipeline ? "pipeline, " : "";
    const std::string what = concat(pipeline, sockets_text(sockets, channels));
    const std::optional<EnvironmentOverrides> overrides = overrides_for(sockets / channels);
    if (!overrides) {  // it would open fewer, and say nothing
      comparison_.note(what, concat("left out: the plugin takes at most ", soft::kMaxDataSockets, " for a connection"));
      return Status::ok();
    }
    TCPX_ASSIGN_OR_RETURN(EndSetup setup, plugin_setup(kind, memory));
    setup.channels = channels;
    TCPX_ASSIGN_OR_RETURN(std::unique_ptr<RowMeter> bench, comparison_.connect(setup, *overrides));
    std::vector<PluginRun>& runs = kind == EndSetup::Kind::kPipeline ? results_.pipeline : results_.plugin;
    sides.push_back({concat(name_of(memory), ", ", what), std::move(bench), runs, runs.size()});
    runs.push_back({.memory = name_of(memory), .sockets = sockets, .channels = channels, .one_way = {}, .ping_pong = {}});
    return Status::ok();
  };
  TCPX_RETURN_IF_ERROR(add(EndSetup::Kind::kPlugin, 1));
  for (const uint32_t channels : options_.channels) {
    if (options_.pipeline && sockets % channels == 0) TCPX_RETURN_IF_ERROR(add(EndSetup::Kind::kPipeline, channels));
  }
  // In turns, row by row: any other load on the machine then weighs on all alike. A run sleeps until its turn.
  const auto rows = [&](Pattern pattern, const std::vector<uint64_t>& sizes, MeasuredBy PluginRun::*what) -> Status {
    for (const uint64_t bytes : sizes) {
      for (Side& side : sides) {
        TCPX_RETURN_IF_ERROR(row(*side.bench, side.who, pattern, bytes, side.runs[side.run_idx].*what));
      }
    }
    return Status::ok();
  };
  TCPX_RETURN_IF_ERROR(rows(Pattern::kOneWay, options_.sizes, &PluginRun::one_way));
  TCPX_RETURN_IF_ERROR(rows(Pattern::kPingPong, ping_pong_sizes(), &PluginRun::ping_pong));
  for (Side& side : sides) TCPX_RETURN_IF_ERROR(side.bench->close());
  return Status::ok();
}

// Over the most data sockets, where the unpacker has the most to do.
Status SoftRuns::unpack(const std::string& kind) {
  EnvironmentOverrides overrides = overrides_for(options_.sockets.back()).value_or(EnvironmentOverrides());
  overrides[environment_info(Variable::kUnpackImpl).name] = kind;
  TCPX_ASSIGN_OR_RETURN(const EndSetup setup, plugin_setup(EndSetup::Kind::kPipeline, Memory::kGpu));
  const std::string who = concat("unpack by ", kind);
  const Result<std::unique_ptr<RowMeter>> bench = comparison_.connect(setup, overrides);
  if (!bench.is_ok() && bench.status().code() == Code::kUnsupported) {
    comparison_.note(who, concat("left out: ", bench.status().detail()));
    return Status::ok();
  }
  if (!bench.is_ok()) return bench.status();
  UnpackRun& run = results_.unpack.emplace_back(UnpackRun{.unpack = kind, .one_way = {}});
  for (const uint64_t bytes : options_.sizes) TCPX_RETURN_IF_ERROR(row(**bench, who, Pattern::kOneWay, bytes, run.one_way));
  return (*bench)->close();
}

Result<std::vector<uint64_t>> SoftRuns::fitting_chunks(Memory memory) {
  // One end has the transfer in memory, the other this one and the next; on this machine or on one GPU.
  const bool one_memory =
      memory == Memory::kHost || !comparison_.has_gpu() || comparison_.options().gpus.first == comparison_.options().gpus.second;
  const Result<uint64_t> available =
      memory == Memory::kGpu && comparison_.has_gpu() ? gpu_memory_bytes(comparison_.options().gpus.second) : free_host_bytes();
  if (!available.is_ok()) return available.status();
  const auto fits = [&](uint64_t chunks) {
    const MessagePlan plan = MessagePlan::of_transfers(chunks * kLongChunkBytes, kLongChunkBytes, 1);
    return plan.receive_memory_bytes() + (one_memory ? plan.send_memory_bytes() : 0) <= *available / 2;
  };
  std::vector<uint64_t> fitting;
  std::copy_if(options_.long_chunks.begin(), options_.long_chunks.end(), std::back_inserter(fitting), fits);
  if (const size_t left_out = options_.long_chunks.size() - fitting.size(); left_out > 0) {
    comparison_.note(concat("long transfers, ", name_of(memory)),
                     concat(left_out, " left out: both ends' memory is to be at most half of ", size_text(*available)));
  }
  return fitting;
}

Status SoftRuns::long_transfers(Memory memory) {
  TCPX_ASSIGN_OR_RETURN(std::vector<uint64_t> chunks, fitting_chunks(memory));
  TCPX_ASSIGN_OR_RETURN(EndSetup setup, plugin_setup(EndSetup::Kind::kPipeline, memory));
  setup.request_bytes = kLongChunkBytes;
  TCPX_ASSIGN_OR_RETURN(const std::unique_ptr<RowMeter> bench, comparison_.connect(setup, {}));
  const std::string who = concat(name_of(memory), ", long");
  LongRun& run = results_.long_transfers.emplace_back(LongRun{.memory = name_of(memory), .by_chunks = {}});
  results_.long_chunk_bytes = kLongChunkBytes;
  // The largest first: its memory does for all.
  for (auto count = chunks.rbegin(); count != chunks.rend(); ++count) {
    TCPX_RETURN_IF_ERROR(row(*bench, who, Pattern::kOneWay, *count * kLongChunkBytes, run.by_chunks, *count));
  }
  return bench->close();
}

Report SoftRuns::report() const {
  std::map<std::string, std::string> parameters = comparison_.parameters();
  parameters["messages"] = listed(options_.sizes, size_text);
  parameters["data sockets"] = listed(options_.sockets, [](uint32_t sockets) { return concat(sockets); });
  if (options_.pipeline) parameters["channels"] = listed(options_.channels, [](uint32_t channels) { return concat(channels); });
  parameters["bytes of a request"] = size_text(options_.request_bytes);
  parameters["plugin"] = options_.plugin.empty() ? "linked in" : options_.plugin;
  return make_soft_report(results_, comparison_.devices(), std::move(parameters));
}

}  // namespace tcpx::bench
