#include "programs/compare/runs.h"

#include <algorithm>
#include <utility>

#include "base/environment.h"
#include "base/text.h"
#include "base/usable_cores.h"
#include "base/words.h"
#include "device/gpu_presence.h"
#include "measure/message_plan.h"
#include "measure/plain_text.h"
#include "measure/resources.h"
#include "net/soft/wire.h"
#include "programs/unpack/gpu_description.h"

namespace tcpx {
namespace {

constexpr uint64_t kLeastRawMessageBytes = 4 << 20;
constexpr uint64_t kLongChunkBytes = 512 << 10;
constexpr uint64_t kLargestPingPong = 1 << 20;

constexpr char kPlugin[] = "plugin", kPipeline[] = "pipeline";  // columns

using Sizes = std::vector<uint64_t>;

template <class Value>
void sort_once_each(std::vector<Value>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
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
    "ratios are those of the medians. With several channels a connection of the pipeline goes over as many connections of the "
    "plugin, which share the data sockets of the row evenly. Long transfers: one after the other; more memory in core is "
    "what both processes have grown by from before the first message of the row, whose memory is in use by then, to after "
    "the last. NCCL: send and recv of PyTorch over its own socket transport between the two GPUs, peer access and shared "
    "memory off, processor time of both ranks. The best of each: of the plugin over all numbers of data sockets, of NCCL "
    "over all its settings.";

/// In their order: for each kind of memory and each number of data sockets two fresh processes of every mover.
class SoftRuns {
 public:
  SoftRuns(SoftRunOptions options, Comparison& comparison);

  /// Everything.
  Status run();
  /// Tables of what several sections have measured.
  void compare_best();

 private:
  /// Measures a single mover. @return what came out of it, also after an error, which `status` gets
  MeasuredRun alone(std::string title, Mover mover, const Sizes& one_way, const Sizes& ping_pong, Status& status);
  Status raw();
  /// The plugin driven bare, and beside it the pipeline with every number of channels that divides `sockets`.
  Status plugin(MemoryType memory, uint32_t sockets);
  Status unpack(const std::string& kind);
  Status long_transfers(MemoryType memory);
  Result<EndSetup> plugin_setup(EndSetup::Kind kind, MemoryType memory) const;
  /// Those of long_chunks_ that this machine has memory for.
  Result<std::vector<uint64_t>> fitting_chunks(MemoryType memory);
  std::string name_of(MemoryType memory) const;
  Sizes ping_pong_sizes() const;
  std::vector<MeasuredRun>& runs_of(const std::string& mover);

  SoftRunOptions options_;
  Sizes long_chunks_;  // of the long transfers; empty: none
  Comparison& comparison_;
  // "host", "gpu pipeline, 4 channels": over each number of sockets. In the order in which they were measured.
  std::vector<std::pair<std::string, std::vector<MeasuredRun>>> movers_;
  std::vector<MeasuredRun> unpack_, nccl_;
  // TCP without a plugin, by the number of streams: each writes the same few bytes over and over, or its share of a message of
  // raw_message_bytes_, which fits no cache.
  MeasuredBy raw_in_cache_, raw_working_set_, raw_ping_pong_;
  uint64_t raw_message_bytes_ = 0;
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
  comparison_.note("messages", joined(options_.sizes, ", ", [](uint64_t bytes) { return format_bytes(bytes); }));
  comparison_.note("data sockets", joined(options_.sockets));
  if (!options_.without_pipeline) comparison_.note("channels", joined(options_.channels));
  comparison_.note("bytes of a request", format_bytes(options_.request_bytes));
  comparison_.note("plugin", options_.plugin.empty() ? "linked in" : options_.plugin);
}

Status SoftRuns::run() {
  raw_message_bytes_ = std::max(options_.sizes.back(), kLeastRawMessageBytes);
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
  nccl_ = comparison_.run_nccl(options_.sizes, ping_pong_sizes());
  comparison_.add_tables({.title = "NCCL", .one_way = options_.sizes, .ping_pong = options_.sizes, .costs = true}, nccl_);
  return comparison_.stopped() ? Status(Code::kCancelled, "measure", "interrupted") : Status::ok();
}

std::string SoftRuns::name_of(MemoryType memory) const {
  if (memory == MemoryType::kHost) return "host";
  return comparison_.has_gpu() ? "gpu" : "gpu stand-in";  // the same code over host memory: no speed of a GPU
}

Sizes SoftRuns::ping_pong_sizes() const {
  Sizes sizes;
  std::copy_if(options_.sizes.begin(), options_.sizes.end(), std::back_inserter(sizes),
               [&](uint64_t bytes) { return bytes <= kLargestPingPong; });
  return sizes;
}

std::vector<MeasuredRun>& SoftRuns::runs_of(const std::string& mover) {
  const auto found = std::find_if(movers_.begin(), movers_.end(), [&](const auto& known) { return known.first == mover; });
  return found == movers_.end() ? movers_.emplace_back(mover, std::vector<MeasuredRun>()).second : found->second;
}

MeasuredRun SoftRuns::alone(std::string title, Mover mover, const Sizes& one_way, const Sizes& ping_pong, Status& status) {
  std::vector<MeasuredRun> runs;
  status = comparison_.measure(
      {.title = std::move(title), .movers = {std::move(mover)}, .one_way = one_way, .ping_pong = ping_pong}, runs);
  return std::move(runs.front());
}

Status SoftRuns::raw() {
  EndSetup setup;
  setup.kind = EndSetup::Kind::kRawTcp;
  setup.request_bytes = kRawWriteBytes;
  Status status;
  for (const uint32_t streams : options_.sockets) {
    setup.streams = streams;
    const uint64_t in_cache = kRawWriteBytes * streams;
    MeasuredRun run = alone("raw TCP", {counted(streams, "stream"), setup}, {in_cache, raw_message_bytes_}, {}, status);
    if (!status.is_ok()) return status;
    raw_in_cache_[streams] = run.one_way.at(in_cache);
    raw_working_set_[streams] = run.one_way.at(raw_message_bytes_);
  }
  setup.streams = 1;
  raw_ping_pong_ = alone("raw TCP", {"to and fro", setup}, {}, ping_pong_sizes(), status).ping_pong;
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
  Section section{.title = concat(name_of(memory), ", ", counted(sockets, "socket")),
                  .one_way = options_.sizes,
                  .ping_pong = ping_pong_sizes(),
                  .costs = true};
  const auto add = [&](EndSetup::Kind kind, std::string name, uint32_t channels) -> Status {
    const std::optional<EnvironmentOverrides> overrides = overrides_for(sockets / channels);
    if (!overrides) {  // it would open fewer, and say nothing
      comparison_.note(concat(section.title, ", ", name),
                       concat("left out: the plugin takes at most ", soft::kMaxDataSockets, " for a connection"));
      return Status::ok();
    }
    TCPX_ASSIGN_OR_RETURN(EndSetup setup, plugin_setup(kind, memory));
    setup.channels = channels;
    if (kind == EndSetup::Kind::kPipeline) section.ratios.emplace_back(name, kPlugin);
    section.movers.push_back({.name = std::move(name), .setup = setup, .overrides = *overrides});
    return Status::ok();
  };
  TCPX_RETURN_IF_ERROR(add(EndSetup::Kind::kPlugin, kPlugin, 1));
  for (const uint32_t channels : options_.channels) {
    if (options_.without_pipeline || sockets % channels != 0) continue;
    std::string name = channels == 1 ? kPipeline : concat(kPipeline, ", ", channels, " channels");
    TCPX_RETURN_IF_ERROR(add(EndSetup::Kind::kPipeline, std::move(name), channels));
  }
  std::vector<MeasuredRun> runs;
  const Status status = comparison_.measure(section, runs);
  comparison_.add_tables(section, runs);
  for (MeasuredRun& run : runs) {
    run.sockets = sockets;
    runs_of(run.name == kPlugin ? name_of(memory) : concat(name_of(memory), " ", run.name)).push_back(std::move(run));
  }
  return status;
}

// Over the most data sockets, where the unpacker has the most to do.
Status SoftRuns::unpack(const std::string& kind) {
  EnvironmentOverrides overrides = overrides_for(options_.sockets.back()).value_or(EnvironmentOverrides());
  overrides[environment_info(Variable::kUnpackImpl).name] = kind;
  TCPX_ASSIGN_OR_RETURN(const EndSetup setup, plugin_setup(EndSetup::Kind::kPipeline, MemoryType::kCuda));
  Status status;
  MeasuredRun run = alone("unpack", {.name = kind, .setup = setup, .overrides = overrides}, options_.sizes, {}, status);
  if (status.code() == Code::kUnsupported) {
    comparison_.note(concat("unpack by ", kind), concat("left out: ", status.detail()));
    return Status::ok();
  }
  unpack_.push_back(std::move(run));
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
                     concat(left_out, " left out: both ends' memory is to be at most half of ", format_bytes(*available)));
  }
  return fitting;
}

Status SoftRuns::long_transfers(MemoryType memory) {
  TCPX_ASSIGN_OR_RETURN(const Sizes chunks, fitting_chunks(memory));
  TCPX_ASSIGN_OR_RETURN(EndSetup setup, plugin_setup(EndSetup::Kind::kPipeline, memory));
  setup.request_bytes = kLongChunkBytes;
  // The largest first: its memory does for all.
  Sizes sizes;
  for (auto count = chunks.rbegin(); count != chunks.rend(); ++count) sizes.push_back(*count * kLongChunkBytes);
  Status status;
  const MeasuredRun run = alone(name_of(memory), {"long", setup}, sizes, {}, status);
  Table table{.title = concat("Long transfers, ", name_of(memory)),
              .row_heading = concat("chunks of ", format_bytes(kLongChunkBytes)),
              .columns = {{"bytes", "B"}, {"one way", "GB/s"}, {"a chunk", "us"}, {"more memory in core", "KiB"}},
              .rows = {}};
  for (const auto& [bytes, measured] : run.one_way) {
    const double rate = measured.summary.median;  // GB/s: 1000 bytes a microsecond
    table.rows.push_back({.name = concat(bytes / kLongChunkBytes),
                          .cells = {static_cast<double>(bytes), measured.summary,
                                    rate > 0 ? Cell(static_cast<double>(kLongChunkBytes) / 1e3 / rate) : Cell(),
                                    static_cast<double>(measured.resident_growth_bytes) / 1024},
                          .verified = measured.verified()});
  }
  if (!table.rows.empty()) comparison_.report().tables.push_back(std::move(table));
  return status;
}

// scripts/plot.py finds these tables by their titles.
void SoftRuns::compare_best() {
  comparison_.add_tables({.title = "Pipeline by unpacker, one way", .one_way = options_.sizes, .ratios = {{"kernel", "d2d"}}},
                         unpack_);
  std::vector<MeasuredRun> best;
  const auto add_best = [&](const std::string& name, const std::vector<MeasuredRun>& runs) {
    best.push_back({.name = name,
                    .one_way = best_of(runs, &MeasuredRun::one_way, true),
                    .ping_pong = best_of(runs, &MeasuredRun::ping_pong, false)});
  };
  for (const auto& [name, runs] : movers_) add_best(name, runs);
  best.push_back({.name = "raw TCP", .one_way = {}, .ping_pong = raw_ping_pong_});
  add_best("NCCL", nccl_);
  comparison_.add_tables({.title = "One way, the best of each", .one_way = options_.sizes, .ratios = {{"gpu", "NCCL"}}}, best);
  comparison_.add_tables({.title = "Half a round trip, the best of each",
                          .ping_pong = options_.sizes,
                          .ratios = {{"host", "raw TCP"}, {"gpu", "NCCL"}}},
                         best);

  std::vector<Line> lines;
  for (const auto& [name, runs] : movers_) lines.push_back({name, by_sockets(runs, options_.sizes.back())});
  const Line in_cache{"raw TCP, in cache", raw_in_cache_},
      large{concat("raw TCP, ", format_bytes(raw_message_bytes_)), raw_working_set_};
  lines.insert(lines.end(), {in_cache, large});
  const std::string heading = concat(format_bytes(options_.sizes.back()), " over");
  for (const Show show : {Show::kSummary, Show::kPerCoreSecond}) {
    const bool rates = show == Show::kSummary;
    Table table = make_table(By::kSockets, rates ? "One way by data sockets" : "Per core-second by data sockets",
                             rates ? "GB/s" : "GB", lines, show);
    table.row_heading = heading;
    for (const char* host : {"host", "host pipeline"}) {
      for (const Line* raw : {&in_cache, &large}) add_ratio_column(table, host, raw->name);
    }
    if (!table.rows.empty()) comparison_.report().tables.push_back(std::move(table));
  }
}

}  // namespace

Status run_soft(const SoftRunOptions& options, Comparison& comparison) {
  comparison.report().key = "bench_soft_plugin";
  comparison.report().about = kSoftAbout;
  SoftRuns runs(options, comparison);
  const Status measured = runs.run();
  runs.compare_best();
  return measured;
}

}  // namespace tcpx
