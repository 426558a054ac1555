#include "programs/compare/runs.h"

#include <algorithm>
#include <utility>

#include "base/environment.h"
#include "base/text.h"
#include "base/usable_cores.h"
#include "device/gpu_presence.h"
#include "measure/message_plan.h"
#include "measure/resources.h"
#include "net/soft/wire.h"
#include "programs/compare/soft_report.h"
#include "programs/unpack/gpu_description.h"

namespace tcpx {
namespace {

constexpr uint64_t kRawWriteBytes = 512 << 10;
constexpr uint64_t kLeastRawMessageBytes = 4 << 20;
constexpr uint64_t kLongChunkBytes = 512 << 10;
constexpr uint64_t kLargestPingPong = 1 << 20;

using Sizes = std::vector<uint64_t>;

std::vector<Mover> alone(std::string name, const EndSetup& setup, const EnvironmentOverrides& overrides = {}) {
  std::vector<Mover> movers;
  movers.push_back({std::move(name), setup, overrides});
  return movers;
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

constexpr char kSoftAbout[] =
    "Two processes of this machine, connected over loopback TCP by one connection of the plugin each way. They drive its "
    "version 7 table as a consumer of the ABI does: messages cut into requests, up to 16 outstanding, receives posted ahead; "
    "with GPU memory every message is gathered into its place before its request is consumed. One way: messages back to "
    "back, from the first isend until the receiving end has everything in place, message bytes counted once. Half a round "
    "trip: one message at a time back and forth, both ends polling. Who waits for much on a machine of few cores sleeps 50 "
    "us at a time. Per core-second: bytes moved by the processor time of both processes, all threads, polling included. Raw "
    "TCP: blocking writes and reads of one thread per stream and end, each stream over the same bytes again and again (in "
    "cache), or over its share of a message larger than most caches; the first is the ceiling of small messages, the second "
    "of large ones. Its ping-pong polls. Pipeline: the same messages as transfers of the library, several submitted ahead, "
    "polled in the same way, in chunks as large as the requests of the bare plugin; they take turns sample by sample, and "
    "the ratio is that of the medians. With several channels a connection of the pipeline goes over as many connections of the "
    "plugin, which share the data sockets of the row evenly. Long transfers: one after the other; more memory in core is "
    "what both processes have grown by from before the first message of the row, whose memory is in use by then, to after "
    "the last. NCCL: send and recv of PyTorch over its own socket transport between the two GPUs, peer access and shared "
    "memory off, processor time of both ranks. The best of each: of the plugin over all numbers of data sockets, of NCCL "
    "over all its settings.";

/// In their order: for each kind of memory and each number of data sockets two fresh processes.
class SoftRuns {
 public:
  SoftRuns(SoftRunOptions options, Comparison& comparison);

  /// Everything.
  Status run();
  const SoftResults& results() const { return results_; }

 private:
  /// Measures `movers` in turns, one way, and to and fro with messages of `ping_pong`. @param runs gets what came out of each
  Status measure(std::vector<Mover> movers, const Sizes& one_way, const Sizes& ping_pong, std::vector<MeasuredRun>& runs);
  Status raw();
  /// The plugin driven bare, and beside it the pipeline with every number of channels that divides `sockets`.
  Status plugin(MemoryType memory, uint32_t sockets);
  Status unpack(const std::string& kind);
  Status long_transfers(MemoryType memory);
  Result<EndSetup> plugin_setup(EndSetup::Kind kind, MemoryType memory) const;
  /// Those of long_chunks_ that this machine has memory for.
  Result<std::vector<uint64_t>> fitting_chunks(MemoryType memory);
  std::string name_of(MemoryType memory) const;
  std::vector<uint64_t> ping_pong_sizes() const;

  SoftRunOptions options_;
  std::vector<uint64_t> long_chunks_;  // of the long transfers; empty: none
  Comparison& comparison_;
  SoftResults results_;
};

SoftRuns::SoftRuns(SoftRunOptions options, Comparison& comparison) : options_(std::move(options)), comparison_(comparison) {
  if (options_.long_transfers) long_chunks_ = {1, 8, 64, 512, 2048, 8192, 32768};
  if (comparison_.quick()) {
    options_.sizes = {8, 4097, 64 << 10, 4 << 20};
    options_.sockets = {1, 4};
    options_.channels = {1, 2};
    options_.request_bytes = 512 << 10;
    if (options_.long_transfers) long_chunks_ = {1, 8, 64};
  }
  if (options_.memory.empty()) {
    options_.memory = {MemoryType::kHost};
    if (comparison_.has_gpu()) {
      options_.memory.push_back(MemoryType::kCuda);
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
    if (usable_cores() >= kManyCores) options_.channels.push_back(4);
  }
  sort_once_each(options_.channels);
  sort_once_each(options_.sizes);
  sort_once_each(options_.sockets);
  sort_once_each(options_.memory);
  if (options_.unpack.empty() && comparison_.has_gpu() && options_.memory.back() == MemoryType::kCuda)
    options_.unpack = {"kernel", "d2d", "host"};
  const auto number = [](uint32_t count) { return concat(count); };
  comparison_.note("messages", listed(options_.sizes, size_text));
  comparison_.note("data sockets", listed(options_.sockets, number));
  if (!options_.without_pipeline) comparison_.note("channels", listed(options_.channels, number));
  comparison_.note("bytes of a request", size_text(options_.request_bytes));
  comparison_.note("plugin", options_.plugin.empty() ? "linked in" : options_.plugin);
}

Status SoftRuns::run() {
  results_.raw_message_bytes = std::max(options_.sizes.back(), kLeastRawMessageBytes);
  TCPX_RETURN_IF_ERROR(raw());
  for (const MemoryType memory : options_.memory) {
    for (const uint32_t sockets : options_.sockets) TCPX_RETURN_IF_ERROR(plugin(memory, sockets));
  }
  if (!options_.without_pipeline) {
    for (const std::string& kind : options_.unpack) TCPX_RETURN_IF_ERROR(unpack(kind));
    if (!long_chunks_.empty()) {
      for (const MemoryType memory : options_.memory) TCPX_RETURN_IF_ERROR(long_transfers(memory));
    }
  }
  results_.nccl = comparison_.run_nccl(options_.sizes, ping_pong_sizes());
  return comparison_.stopped() ? Status(Code::kCancelled, "measure", "interrupted") : Status::ok();
}

std::string SoftRuns::name_of(MemoryType memory) const {
  if (memory == MemoryType::kHost) return "host";
  return comparison_.has_gpu() ? "gpu" : "gpu stand-in";  // the same code over host memory: no speed of a GPU
}

std::vector<uint64_t> SoftRuns::ping_pong_sizes() const {
  std::vector<uint64_t> sizes;
  std::copy_if(options_.sizes.begin(), options_.sizes.end(), std::back_inserter(sizes),
               [&](uint64_t bytes) { return bytes <= kLargestPingPong; });
  return sizes;
}

Status SoftRuns::measure(std::vector<Mover> movers, const Sizes& one_way, const Sizes& ping_pong,
                         std::vector<MeasuredRun>& runs) {
  runs.resize(movers.size());
  const auto pass = [&](Pattern pattern, const Sizes& sizes, MeasuredBy MeasuredRun::*what) {
    for (Mover& one : movers) one.row.pattern = pattern;
    const Status status = comparison_.measure(movers, sizes);
    for (size_t i = 0; i < movers.size(); ++i) runs[i].*what = std::exchange(movers[i].measured, {});
    return status;
  };
  TCPX_RETURN_IF_ERROR(pass(Pattern::kOneWay, one_way, &MeasuredRun::one_way));
  TCPX_RETURN_IF_ERROR(pass(Pattern::kPingPong, ping_pong, &MeasuredRun::ping_pong));
  return comparison_.close(movers);
}

Status SoftRuns::raw() {
  EndSetup setup;
  setup.kind = EndSetup::Kind::kRawTcp;
  setup.request_bytes = kRawWriteBytes;
  for (const uint32_t streams : options_.sockets) {
    setup.streams = streams;
    const uint64_t in_cache = kRawWriteBytes * streams, large = results_.raw_message_bytes;
    std::vector<MeasuredRun> runs;
    TCPX_RETURN_IF_ERROR(measure(alone(concat("raw TCP, ", counted(streams, "stream")), setup), {in_cache, large}, {}, runs));
    results_.raw_in_cache[streams] = runs[0].one_way.at(in_cache);
    results_.raw_working_set[streams] = runs[0].one_way.at(large);
  }
  setup.streams = 1;
  std::vector<MeasuredRun> runs;
  const Status status = measure(alone("raw TCP", setup), {}, ping_pong_sizes(), runs);
  results_.raw_ping_pong = std::move(runs[0].ping_pong);
  return status;
}

Result<EndSetup> SoftRuns::plugin_setup(EndSetup::Kind kind, MemoryType memory) const {
  EndSetup setup;
  setup.kind = kind;
  setup.memory = memory;
  setup.request_bytes = options_.request_bytes;
  if (options_.plugin.size() >= sizeof setup.plugin) {
    return Status(Code::kInvalidArgument, "open plugin", "the name of the library is too long");
  }
  options_.plugin.copy(setup.plugin, sizeof setup.plugin - 1);
  return setup;
}

Status SoftRuns::plugin(MemoryType memory, uint32_t sockets) {
  std::vector<Mover> movers;
  const auto add = [&](EndSetup::Kind kind, uint32_t channels) -> Status {
    const std::string what = concat(kind == EndSetup::Kind::kPipeline ? "pipeline, " : "", sockets_text(sockets, channels));
    const std::optional<EnvironmentOverrides> overrides = overrides_for(sockets / channels);
    if (!overrides) {  // it would open fewer, and say nothing
      comparison_.note(what, concat("left out: the plugin takes at most ", soft::kMaxDataSockets, " for a connection"));
      return Status::ok();
    }
    TCPX_ASSIGN_OR_RETURN(EndSetup setup, plugin_setup(kind, memory));
    setup.channels = channels;
    movers.push_back({concat(name_of(memory), ", ", what), setup, *overrides});
    return Status::ok();
  };
  TCPX_RETURN_IF_ERROR(add(EndSetup::Kind::kPlugin, 1));
  for (const uint32_t channels : options_.channels) {
    if (!options_.without_pipeline && sockets % channels == 0) TCPX_RETURN_IF_ERROR(add(EndSetup::Kind::kPipeline, channels));
  }
  std::vector<EndSetup> setups;
  for (const Mover& one : movers) setups.push_back(one.setup);
  std::vector<MeasuredRun> runs;
  const Status status = measure(std::move(movers), options_.sizes, ping_pong_sizes(), runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].name = name_of(memory);
    runs[i].sockets = sockets;
    runs[i].channels = setups[i].channels;
    (setups[i].kind == EndSetup::Kind::kPipeline ? results_.pipeline : results_.plugin).push_back(std::move(runs[i]));
  }
  return status;
}

// Over the most data sockets, where the unpacker has the most to do.
Status SoftRuns::unpack(const std::string& kind) {
  EnvironmentOverrides overrides = overrides_for(options_.sockets.back()).value_or(EnvironmentOverrides());
  overrides[environment_info(Variable::kUnpackImpl).name] = kind;
  TCPX_ASSIGN_OR_RETURN(const EndSetup setup, plugin_setup(EndSetup::Kind::kPipeline, MemoryType::kCuda));
  const std::string who = concat("unpack by ", kind);
  std::vector<MeasuredRun> runs;
  const Status status = measure(alone(who, setup, overrides), options_.sizes, {}, runs);
  if (status.code() == Code::kUnsupported) {
    comparison_.note(who, concat("left out: ", status.detail()));
    return Status::ok();
  }
  runs[0].name = kind;
  results_.unpack.push_back(std::move(runs[0]));
  return status;
}

Result<std::vector<uint64_t>> SoftRuns::fitting_chunks(MemoryType memory) {
  // One end has the transfer in memory, the other this one and the next; on this machine or on one GPU.
  const bool one_memory =
      memory == MemoryType::kHost || !comparison_.has_gpu() || comparison_.gpus().first == comparison_.gpus().second;
  const Result<uint64_t> available =
      memory == MemoryType::kCuda && comparison_.has_gpu() ? gpu_memory_bytes(comparison_.gpus().second) : free_host_bytes();
  if (!available.is_ok()) return available.status();
  const auto fits = [&](uint64_t chunks) {
    const MessagePlan plan = MessagePlan::of_transfers(chunks * kLongChunkBytes, kLongChunkBytes, 1);
    return plan.receive_memory_bytes() + (one_memory ? plan.send_memory_bytes() : 0) <= *available / 2;
  };
  std::vector<uint64_t> fitting;
  std::copy_if(long_chunks_.begin(), long_chunks_.end(), std::back_inserter(fitting), fits);
  if (const size_t left_out = long_chunks_.size() - fitting.size(); left_out > 0) {
    comparison_.note(concat("long transfers, ", name_of(memory)),
                     concat(left_out, " left out: both ends' memory is to be at most half of ", size_text(*available)));
  }
  return fitting;
}

Status SoftRuns::long_transfers(MemoryType memory) {
  TCPX_ASSIGN_OR_RETURN(const Sizes chunks, fitting_chunks(memory));
  TCPX_ASSIGN_OR_RETURN(EndSetup setup, plugin_setup(EndSetup::Kind::kPipeline, memory));
  setup.request_bytes = results_.long_chunk_bytes = kLongChunkBytes;
  // The largest first: its memory does for all.
  Sizes sizes;
  for (auto count = chunks.rbegin(); count != chunks.rend(); ++count) sizes.push_back(*count * kLongChunkBytes);
  std::vector<MeasuredRun> runs;
  const Status status = measure(alone(concat(name_of(memory), ", long"), setup), sizes, {}, runs);
  MeasuredRun& run = results_.long_transfers.emplace_back(MeasuredRun{.name = name_of(memory), .one_way = {}, .ping_pong = {}});
  for (const auto& [bytes, measured] : runs[0].one_way) run.one_way[bytes / kLongChunkBytes] = measured;
  return status;
}

}  // namespace

Status run_soft(const SoftRunOptions& options, Comparison& comparison) {
  comparison.report().key = "bench_soft_plugin";
  comparison.report().about = kSoftAbout;
  SoftRuns runs(options, comparison);
  const Status measured = runs.run();
  add_soft_tables(runs.results(), comparison.report());
  return measured;
}

}  // namespace tcpx
