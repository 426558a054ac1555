#include "programs/compare/runs.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "base/environment.h"
#include "base/text.h"
#include "measure/plain_text.h"
#include "programs/compare/copies.h"
#include "transfer/pipeline_setup.h"

namespace tcpx {
namespace {

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr int32_t kMostInline = 65536;
constexpr uint64_t kOutstanding = 64;
constexpr uint32_t kRawStreams = 8;

constexpr char kEndpointAbout[] =
    "Endpoints of two processes over the software plugin on loopback, from GPU to GPU where there are any. Each column is "
    "two fresh processes; the columns of a table take turns sample by sample, and ratios are those of medians. All received "
    "messages that no later one has overwritten are compared after every sample. GB/s: message bytes, counted once, from the "
    "first call until the bytes are in place. The application's thread starts operations ahead and waits for the oldest. "
    "Bulk: one connection, against the bare transfer pipeline with the same channels, sockets, chunks, windows and messages "
    "ahead, driven by the thread that measures. Vectors: the same bytes in ranges without neighbours at both ends, one "
    "operation, against one range; ends of a read count at the reader. Latency: half a round trip of send and recv, the "
    "receives posted ahead; in the frame (inline) or forced through the pipeline; beside NCCL, and a socket. Small: messages "
    "of one connection, so many ahead. One: writes and reads of one connection, each begun when the one before it is done. "
    "Local: the same, as the library does it between endpoints of one host, beside TCP; for host memory beside one thread that "
    "copies as much within its process, for that of GPUs beside the driver's copy engine and one kernel, which one process has to "
    "itself. All other tables are of TCP, unless the parameter \"local\" says auto. "
    "Peers: one endpoint writes to many, which live in one other process, each over a connection of its own, with as many "
    "bytes ahead in total as to one. Memory: growth of the memory in core of the end "
    "with one endpoint, and of the GPU's memory in use by anybody, by connection, before anything has moved; growth by "
    "receive posted; processor time of that end while nothing moves.";

using Sizes = std::vector<uint64_t>;
using Others = std::vector<std::string>;

RowSetup operation(Verb verb, uint64_t range_bytes = 0, uint64_t outstanding = 0) {
  return {.verb = verb, .range_bytes = range_bytes, .outstanding = outstanding};
}

/// In each section the ends of every column are two fresh processes.
class EndpointRuns {
 public:
  EndpointRuns(EndpointRunOptions options, const PipelineSettings& settings, Comparison& comparison);

  Status run();

 private:
  /// Section of the report.
  struct Part {
    const char* name;  ///< of kEndpointSections
    Section section;
    Others others = {};  ///< more columns: "NCCL", "memcpy", "copy engine", "one kernel"

    bool has(const char* other) const { return std::find(others.begin(), others.end(), other) != others.end(); }
  };

  std::vector<Part> parts() const;
  Status memory();
  Status compare(const Part& part);
  Result<MeasuredRun> by_another(const std::string& name, const Part& part);
  bool is_wanted(const std::string& section) const;
  /// One round of its own two processes.
  Result<EndPair::Answers> once(const EndSetup& setup, const RowSetup& row, uint64_t count) const;
  EndSetup endpoint(MemoryType memory) const;

  const EndpointRunOptions options_;
  PipelineSettings settings_;
  Comparison& comparison_;
  const bool quick_;
  const uint64_t range_bytes_;
  EnvironmentOverrides overrides_;
  std::optional<std::vector<MeasuredRun>> nccl_;  // with each of its settings
  std::unique_ptr<MemoryOps> memory_;             // of this process, for copies between GPUs; made for the first of them
};

EndpointRuns::EndpointRuns(EndpointRunOptions options, const PipelineSettings& settings, Comparison& comparison)
    : options_(std::move(options)),
      settings_(settings),
      comparison_(comparison),
      quick_(comparison.quick()),
      range_bytes_(quick_ ? kKiB : 32 * kKiB) {
  uint32_t& channels = settings_.channels;
  if (channels == 0) channels = 1;  // the library's default for the one device that Comparison::connect names
  overrides_[environment_info(Variable::kNumChannels).name] = concat(channels);
  // Errors come back as a status; there are too many connections to log each.
  if (!environment_is_set(Variable::kLogLevel)) overrides_[environment_info(Variable::kLogLevel).name] = "off";
  comparison_.note("channels", concat(channels));
  comparison_.note("bytes of a chunk", format_bytes(settings_.chunk_bytes));
  if (settings_.longest_chunk_bytes > settings_.chunk_bytes)
    comparison_.note("of long transfers", format_bytes(settings_.longest_chunk_bytes));
  comparison_.note("local", options_.same_host ? "auto" : "off");
  comparison_.note("memory", comparison_.has_gpu() ? "gpu, and host where the table says so" : "host");
}

bool EndpointRuns::is_wanted(const std::string& section) const {
  return options_.only.empty() || std::find(options_.only.begin(), options_.only.end(), section) != options_.only.end();
}

Status EndpointRuns::run() {
  for (const Part& part : parts()) {
    if (is_wanted(part.name)) TCPX_RETURN_IF_ERROR(compare(part));
  }
  return is_wanted("memory") ? memory() : Status::ok();
}

EndSetup EndpointRuns::endpoint(MemoryType memory) const {
  EndSetup setup;
  setup.kind = EndSetup::Kind::kEndpoint;
  setup.memory = memory;
  setup.channels = settings_.channels;
  setup.request_bytes = settings_.chunk_bytes;
  setup.longest_request_bytes = settings_.longest_chunk_bytes;
  setup.same_host = options_.same_host;
  return setup;
}

std::vector<EndpointRuns::Part> EndpointRuns::parts() const {
  const uint64_t ranges = range_bytes_;
  const auto sizes = [this](Sizes all, Sizes quick) { return quick_ ? quick : all; };
  std::vector<MemoryType> memories = {MemoryType::kHost};
  if (comparison_.has_gpu()) memories.push_back(MemoryType::kCuda);
  const EndSetup best = endpoint(memories.back()), host = endpoint(MemoryType::kHost);
  EndSetup pipeline = best, all = best;
  pipeline.kind = EndSetup::Kind::kPipeline;
  all.peers = options_.peers;
  EndSetup raw;
  raw.kind = EndSetup::Kind::kRawTcp;
  raw.request_bytes = kRawWriteBytes;
  EndSetup raw_streams = raw;
  raw_streams.streams = quick_ ? 2 : kRawStreams;
  const std::string of_ranges = concat("vectors of ranges of ", format_bytes(ranges)), many = concat(options_.peers, " peers");
  const RowSetup send = operation(Verb::kSend), write = operation(Verb::kWrite), read = operation(Verb::kRead);
  const RowSetup writev = operation(Verb::kWrite, ranges), readv = operation(Verb::kRead, ranges);
  const RowSetup one_write = operation(Verb::kWrite, 0, 1), one_read = operation(Verb::kRead, 0, 1);
  const RowSetup one_writev = operation(Verb::kWrite, ranges, 1), one_readv = operation(Verb::kRead, ranges, 1);
  const RowSetup to_peers = operation(Verb::kWrite, 0, std::max<uint64_t>(2 * options_.peers, 8));
  const RowSetup turns{.outstanding = 2};

  Part latency{
      "latency",
      {.title = "Half a round trip", .ping_pong = sizes({8, 64, kKiB, 4 * kKiB, 16 * kKiB, 64 * kKiB, kMiB}, {8, 4 * kKiB})},
      {"NCCL"}};
  std::vector<Part> local;
  for (const MemoryType memory : memories) {
    const std::string name = memory == MemoryType::kHost ? "host" : "gpu", title = concat("One host, ", name, " memory");
    EndSetup framed = endpoint(memory), forced = framed, here = framed, tcp = framed;
    framed.inline_bytes = kMostInline;
    forced.inline_bytes = 0;
    for (const Mover& mover : {Mover{name + ", inline", framed, turns}, Mover{name + ", pipeline", forced, turns}}) {
      latency.section.movers.push_back(mover);
      latency.section.ratios.emplace_back(mover.name, "NCCL");
    }
    here.same_host = true;
    tcp.same_host = false;
    local.push_back({"local",
                     {.title = title + ", half a round trip",
                      .movers = {{"local", here, turns}, {"TCP", tcp, turns}},
                      .ping_pong = {8, 4 * kKiB},
                      .ratios = {{"local", "TCP"}}}});
    local.push_back({"local",
                     {.title = title + ", one short operation at a time",
                      .movers = {{"write", here, one_write}, {"read", here, one_read}},
                      .one_way = {8, 4 * kKiB},
                      .unit = "1000/s"}});
    local.push_back({"local",
                     {.title = title + ", one operation at a time",
                      .movers = {{"local", here, one_write},
                                 {"local, read", here, one_read},
                                 {"TCP", tcp, one_write},
                                 {"local, writev", here, one_writev},
                                 {"local, readv", here, one_readv},
                                 {"TCP, writev", tcp, one_writev}},
                      .one_way = sizes({64 * kKiB, kMiB, 64 * kMiB, 128 * kMiB}, {kMiB}),
                      .ratios = {{"local", "TCP"},
                                 {"local, writev", "TCP, writev"},
                                 {"local", "memcpy"},
                                 {"local", "copy engine"},
                                 {"local, writev", "one kernel"}}},
                     memory == MemoryType::kHost ? Others{"memcpy"} : Others{"copy engine", "one kernel"}});
  }
  const std::string raw_name = concat("raw TCP, ", counted(raw_streams.streams, "stream"));
  latency.section.movers.push_back({"raw TCP", raw});
  latency.section.movers.push_back({raw_name, raw_streams});
  std::vector<Part> parts = {
      {"bulk",
       {.title = "Bulk",
        .movers = {{"pipeline", pipeline},
                   {"send, recv", best, send},
                   {"write", best, write},
                   {"read", best, read},
                   {raw_name, raw_streams}},
        .one_way = sizes({kMiB, 8 * kMiB, 64 * kMiB, 256 * kMiB}, {kMiB}),
        .ratios = {{"send, recv", "pipeline"},
                   {"write", "pipeline"},
                   {"read", "pipeline"},
                   {"pipeline", raw_name},
                   {"pipeline", "NCCL"}},
        .costs = true},
       {"NCCL"}},
      {"vector",
       {.title = concat('V', of_ranges.substr(1)),
        .movers = {{"write", best, write},
                   {"writev", best, writev},
                   {"readv", best, readv},
                   {"sendv, recvv", best, operation(Verb::kSend, ranges)}},
        .one_way = sizes({kMiB, 128 * kMiB}, {kMiB}),
        .ratios = {{"writev", "write"}, {"readv", "write"}, {"sendv, recvv", "write"}}}},
      std::move(latency),
      {"small",
       {.title = concat("Small messages of host memory, ", kOutstanding, " outstanding"),
        .movers = {{"send, recv", host, operation(Verb::kSend, 0, kOutstanding)},
                   {"write", host, operation(Verb::kWrite, 0, kOutstanding)}},
        .one_way = {8, 4 * kKiB},
        .unit = "1000/s"}},
      {"one",
       {.title = "One short operation at a time",
        .movers = {{"write", best, one_write}, {"read", best, one_read}},
        .one_way = sizes({8, 4 * kKiB, 64 * kKiB, kMiB}, {8, 4 * kKiB}),
        .unit = "1000/s"}},
      {"one",
       {.title = concat("One operation at a time, ", of_ranges),
        .movers =
            {{"write", best, one_write}, {"writev", best, one_writev}, {"read", best, one_read}, {"readv", best, one_readv}},
        .one_way = sizes({64 * kMiB, 128 * kMiB}, {kMiB})}}};
  parts.insert(parts.end(), std::make_move_iterator(local.begin()), std::make_move_iterator(local.end()));
  parts.push_back({"peers",
                   {.title = "Writes to peers, all together",
                    .movers = {{"1 peer", best, to_peers}, {many, all, to_peers}},
                    .one_way = sizes({4 * kMiB}, {64 * kKiB}),
                    .ratios = {{many, "1 peer"}}}});
  for (Part& part : parts) {
    for (Mover& mover : part.section.movers) mover.overrides = overrides_;
  }
  return parts;
}

Result<MeasuredRun> EndpointRuns::by_another(const std::string& name, const Part& part) {
  MeasuredRun other{.name = name, .one_way = {}, .ping_pong = {}};
  const Section& section = part.section;
  if (name == "memcpy") {
    TCPX_ASSIGN_OR_RETURN(other.one_way, copies_of_a_thread(section.one_way, comparison_.row()));
  } else if (name == "NCCL") {
    // Once, for all the sections that have it.
    if (!nccl_) {
      Sizes one_way, ping_pong;
      for (const Part& each : parts()) {
        if (!each.has("NCCL") || !is_wanted(each.name)) continue;
        one_way.insert(one_way.end(), each.section.one_way.begin(), each.section.one_way.end());
        ping_pong.insert(ping_pong.end(), each.section.ping_pong.begin(), each.section.ping_pong.end());
      }
      if (one_way.empty()) one_way = {kMiB};
      nccl_ = comparison_.run_nccl(one_way, ping_pong);
    }
    if (!section.one_way.empty()) other.one_way = best_of(*nccl_, &MeasuredRun::one_way, true);
    if (!section.ping_pong.empty()) other.ping_pong = best_of(*nccl_, &MeasuredRun::ping_pong, false);
  } else {
    const uint64_t range_bytes = name == "one kernel" ? range_bytes_ : 0;
    if (!memory_) memory_ = make_machine_memory_ops();
    auto copies = copies_between_gpus(*memory_, comparison_.gpus(), section.one_way, range_bytes, comparison_.row());
    if (copies.is_ok()) {
      other.one_way = *std::move(copies);
      for (const auto& [bytes, measured] : other.one_way) comparison_.compared(concat(name, ", ", bytes, " bytes"), measured);
    } else {
      comparison_.note(name, concat("left out: ", copies.status().detail()));
    }
  }
  return other;
}

Status EndpointRuns::compare(const Part& part) {
  std::vector<MeasuredRun> others, runs;
  for (const std::string& name : part.others) {
    TCPX_ASSIGN_OR_RETURN(others.emplace_back(), by_another(name, part));
  }
  const Status status = comparison_.measure(part.section, runs);
  runs.insert(runs.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  comparison_.add_tables(part.section, runs);
  return status;
}

Result<EndPair::Answers> EndpointRuns::once(const EndSetup& setup, const RowSetup& row, uint64_t count) const {
  TCPX_ASSIGN_OR_RETURN(const auto meter, comparison_.connect(setup, overrides_));
  TCPX_ASSIGN_OR_RETURN(const EndPair::Answers answers, meter->once(row, count));
  TCPX_RETURN_IF_ERROR(meter->close());
  return answers;
}

Status EndpointRuns::memory() {
  const uint64_t idle_ms = quick_ ? 50 : 1000, receives = quick_ ? 256 : 8192;
  EndSetup one = endpoint(MemoryType::kHost), all = one;
  all.peers = options_.peers;
  RowSetup posts = operation(Verb::kSend, 0, receives);
  posts.message_bytes = 8;
  const std::string per_connection = concat(" per connection, of ", options_.peers);
  struct Value {
    std::string name;
    const char* unit;
    std::vector<double> values = {};
  };
  Value resident{concat("memory in core", per_connection), "kB"}, gpu{concat("GPU memory", per_connection), "kB"},
      posted{concat("memory in core per receive posted, of ", receives), "B"},
      busy{concat("processor time of an idle endpoint with ", options_.peers, " connections"), "% of a core"};
  const auto grown = [](uint64_t from, uint64_t to, double count) {
    return static_cast<double>(static_cast<int64_t>(to - from)) / count;
  };
  for (size_t i = 0; i < MeasurePlan::kFewestSamples; ++i) {
    TCPX_ASSIGN_OR_RETURN(const auto idle, once(all, {.pattern = Pattern::kIdle, .message_bytes = 8}, idle_ms));
    const Timing& leader = idle.leader.timing;
    resident.values.push_back(grown(leader.alone.resident_bytes, leader.connected.resident_bytes, options_.peers * 1e3));
    gpu.values.push_back(grown(leader.connected.free_gpu_bytes, leader.alone.free_gpu_bytes, options_.peers * 1e3));
    busy.values.push_back(100 * leader.cpu_seconds * 1e9 / static_cast<double>(leader.end_ns - leader.begin_ns));
    TCPX_ASSIGN_OR_RETURN(const auto round, once(one, posts, receives));
    const Timing& follower = round.follower.timing;
    posted.values.push_back(
        grown(follower.unposted.resident_bytes, follower.posted.resident_bytes, static_cast<double>(receives)));
  }
  Table table{.title = "Memory and idle time", .row_heading = "what", .columns = {{"value", ""}, {"unit", ""}}, .rows = {}};
  for (Value* value : {&resident, &gpu, &posted, &busy}) {
    if (value == &gpu && !comparison_.has_gpu()) continue;
    TCPX_ASSIGN_OR_RETURN(const Samples samples, Samples::create(std::move(value->values)));
    table.rows.push_back({value->name, {samples.summary(), std::string(value->unit)}, true});
  }
  comparison_.report().tables.push_back(std::move(table));
  comparison_.say("memory: done");
  return Status::ok();
}

}  // namespace

Status run_endpoint(EndpointRunOptions options, Comparison& comparison) {
  TCPX_ASSIGN_OR_RETURN(const PipelineSettings settings, PipelineSettings::from_environment());
  if (comparison.quick()) options.peers = std::min(options.peers, 4u);
  comparison.report().key = "bench_endpoint";
  comparison.report().about = kEndpointAbout;
  return EndpointRuns(std::move(options), settings, comparison).run();
}

}  // namespace tcpx
