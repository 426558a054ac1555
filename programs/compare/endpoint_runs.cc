#include "programs/compare/runs.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/environment.h"
#include "base/text.h"
#include "base/usable_cores.h"
#include "transfer/pipeline_setup.h"

namespace tcpx {
namespace {

constexpr uint32_t kChannelsOfManyCores = 4;
constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr int32_t kMostInline = 65536;
constexpr uint64_t kMemcpyBytes = 256 * kMiB;
constexpr uint64_t kOutstanding = 64;
constexpr size_t kLatency = 2;  // of the sections

constexpr char kEndpointAbout[] =
    "Endpoints of two processes over the software plugin on loopback, from GPU to GPU where there are any. Each column is "
    "two fresh processes; the columns of a table take turns sample by sample, and ratios are those of medians. All received "
    "messages that no later one has overwritten are compared after every sample. GB/s: message bytes, counted once, from the "
    "first call until the bytes are in place. The application's thread starts operations ahead and waits for the oldest. "
    "Bulk: one connection, against the bare transfer pipeline with the same channels, sockets, chunks, windows and messages "
    "ahead, driven by the thread that measures. Vectors: the same bytes in ranges without neighbours at both ends, one "
    "operation, against one range; ends of a read count at the reader. Latency: half a round trip of send and recv, the "
    "receives posted ahead; in the frame (inline) or forced through the pipeline; NCCL is send and recv of PyTorch over its "
    "own socket transport between the two GPUs, the best of the settings of bench_soft_plugin for each size. Small: messages "
    "of one connection, so many ahead. One: writes and reads of one connection, each begun when the one before it is done. "
    "Local: the same, as the library does it between endpoints of one host, beside TCP; for host memory beside one thread that "
    "copies as much within its process. All other tables are of TCP, unless the parameter \"local\" says auto. "
    "Peers: one endpoint writes to many, which live in one other process, each over a connection of its own, with as many "
    "bytes ahead in total as to one. Memory: growth of the memory in core of the end "
    "with one endpoint, and of the GPU's memory in use by anybody, by connection, before anything has moved; growth by "
    "receive posted; processor time of that end while nothing moves.";

/// Copies between two buffers, of which neither fits into a cache, by the calling thread.
Result<MeasuredBy> copies_of_a_thread(const std::vector<uint64_t>& sizes, const RowPlan& plan) {
  std::vector<std::byte> from(std::max(kMemcpyBytes, *std::max_element(sizes.begin(), sizes.end())), std::byte{1});
  std::vector<std::byte> to(from.size());
  const Duration longest = plan.duration / static_cast<int64_t>(plan.samples);
  MeasuredBy measured;
  for (const uint64_t bytes : sizes) {
    std::vector<double> rates;
    for (size_t sample = 0; sample < plan.samples; ++sample) {
      const TimePoint begin = Clock::steady().now();
      Duration taken{};
      uint64_t copied = 0;
      for (uint64_t at = 0; taken < longest; at = at + 2 * bytes <= from.size() ? at + bytes : 0) {
        std::memcpy(to.data() + at, from.data() + at, bytes);
        copied += bytes;
        taken = Clock::steady().now() - begin;
      }
      rates.push_back(static_cast<double>(copied) / static_cast<double>(taken.count()));
    }
    TCPX_ASSIGN_OR_RETURN(const Samples samples, Samples::create(std::move(rates)));
    measured[bytes].summary = samples.summary();
  }
  return measured;
}

using Sizes = std::vector<uint64_t>;

RowSetup operation(Verb verb, uint64_t range_bytes = 0, uint64_t outstanding = 0) {
  return {.verb = verb, .range_bytes = range_bytes, .outstanding = outstanding};
}
RowSetup turns() {
  return {.pattern = Pattern::kPingPong, .outstanding = 2};
}

/// In each section the ends of every column are two fresh processes.
class EndpointRuns {
 public:
  EndpointRuns(EndpointRunOptions options, const PipelineSettings& settings, Comparison& comparison);

  Status run();

 private:
  /// A mover of messages, and its method.
  struct Column {
    std::string name;
    EndSetup setup;
    RowSetup row;
  };
  /// A table: who moves messages of these sizes, and what is compared with what. The columns take turns sample by sample.
  struct Section {
    const char* name;  ///< of kEndpointSections
    std::string title;
    const char* unit;  ///< "GB/s", "us", "1000/s"
    Sizes sizes;
    std::vector<Column> columns;
    std::vector<std::pair<std::string, std::string>> ratios;  ///< of two columns
    std::string other = "";                                   ///< one more column: "NCCL" or "memcpy"
  };

  std::vector<Section> sections() const;
  Status memory();
  Status compare(const Section& section);
  Result<MeasuredBy> by_others(const Section& section);
  bool is_wanted(const std::string& section) const;
  /// One round of its own two processes.
  Result<EndPair::Answers> once(const EndSetup& setup, const RowSetup& row, uint64_t count) const;
  EndSetup endpoint(MemoryType memory) const;

  const EndpointRunOptions options_;
  PipelineSettings settings_;
  Comparison& comparison_;
  const bool quick_;
  EnvironmentOverrides overrides_;
};

EndpointRuns::EndpointRuns(EndpointRunOptions options, const PipelineSettings& settings, Comparison& comparison)
    : options_(std::move(options)), settings_(settings), comparison_(comparison), quick_(comparison.quick()) {
  uint32_t& channels = settings_.channels;
  if (channels == 0) channels = usable_cores() >= kManyCores ? kChannelsOfManyCores : 1;
  overrides_[environment_info(Variable::kNumChannels).name] = concat(channels);
  // Errors come back as a status; there are too many connections to log each.
  if (!environment_is_set(Variable::kLogLevel)) overrides_[environment_info(Variable::kLogLevel).name] = "off";
  comparison_.note("channels", concat(channels));
  comparison_.note("bytes of a chunk", size_text(settings_.chunk_bytes));
  if (settings_.longest_chunk_bytes > settings_.chunk_bytes)
    comparison_.note("of long transfers", size_text(settings_.longest_chunk_bytes));
  comparison_.note("local", options_.same_host ? "auto" : "off");
  comparison_.note("memory", comparison_.has_gpu() ? "gpu, and host where the table says so" : "host");
}

bool EndpointRuns::is_wanted(const std::string& section) const {
  return options_.only.empty() || std::find(options_.only.begin(), options_.only.end(), section) != options_.only.end();
}

Status EndpointRuns::run() {
  for (const Section& section : sections()) {
    if (is_wanted(section.name)) TCPX_RETURN_IF_ERROR(compare(section));
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

std::vector<EndpointRuns::Section> EndpointRuns::sections() const {
  const uint64_t ranges = quick_ ? kKiB : 32 * kKiB;
  const auto sizes = [this](Sizes all, Sizes quick) { return quick_ ? quick : all; };
  std::vector<MemoryType> memories = {MemoryType::kHost};
  if (comparison_.has_gpu()) memories.push_back(MemoryType::kCuda);
  const EndSetup best = endpoint(memories.back()), host = endpoint(MemoryType::kHost);
  EndSetup pipeline = best, all = best;
  pipeline.kind = EndSetup::Kind::kPipeline;
  all.peers = options_.peers;
  const std::string of_ranges = concat("vectors of ranges of ", size_text(ranges)), many = concat(options_.peers, " peers");
  const RowSetup send = operation(Verb::kSend), write = operation(Verb::kWrite), read = operation(Verb::kRead);
  const RowSetup writev = operation(Verb::kWrite, ranges), readv = operation(Verb::kRead, ranges);
  const RowSetup one_write = operation(Verb::kWrite, 0, 1), one_read = operation(Verb::kRead, 0, 1);
  const RowSetup one_writev = operation(Verb::kWrite, ranges, 1), one_readv = operation(Verb::kRead, ranges, 1);
  const RowSetup to_peers = operation(Verb::kWrite, 0, std::max<uint64_t>(2 * options_.peers, 8));

  std::vector<Section> sections = {
      {"bulk",
       "Bulk",
       "GB/s",
       sizes({kMiB, 8 * kMiB, 64 * kMiB, 256 * kMiB}, {kMiB}),
       {{"pipeline", pipeline, {}}, {"send, recv", best, send}, {"write", best, write}, {"read", best, read}},
       {{"send, recv", "pipeline"}, {"write", "pipeline"}, {"read", "pipeline"}}},
      {"vector",
       concat('V', of_ranges.substr(1)),
       "GB/s",
       sizes({kMiB, 128 * kMiB}, {kMiB}),
       {{"write", best, write},
        {"writev", best, writev},
        {"readv", best, readv},
        {"sendv, recvv", best, operation(Verb::kSend, ranges)}},
       {{"writev", "write"}, {"readv", "write"}, {"sendv, recvv", "write"}}},
      {"latency",
       "Half a round trip",
       "us",
       sizes({0, 8, 64, kKiB, 4 * kKiB, 16 * kKiB, 64 * kKiB}, {0, 8, 4 * kKiB}),
       {},
       {},
       "NCCL"},
      {"small",
       concat("Small messages of host memory, ", kOutstanding, " outstanding"),
       "1000/s",
       {8, 4 * kKiB},
       {{"send, recv", host, operation(Verb::kSend, 0, kOutstanding)}, {"write", host, operation(Verb::kWrite, 0, kOutstanding)}},
       {}},
      {"one",
       "One short operation at a time",
       "1000/s",
       {8, 4 * kKiB},
       {{"write", best, one_write}, {"read", best, one_read}},
       {}},
      {"one",
       concat("One operation at a time, ", of_ranges),
       "GB/s",
       sizes({64 * kMiB, 128 * kMiB}, {kMiB}),
       {{"write", best, one_write}, {"writev", best, one_writev}, {"read", best, one_read}, {"readv", best, one_readv}},
       {}}};
  for (const MemoryType memory : memories) {
    const std::string name = memory == MemoryType::kHost ? "host" : "gpu", title = concat("One host, ", name, " memory");
    EndSetup framed = endpoint(memory), forced = framed, here = framed, tcp = framed;
    framed.inline_bytes = kMostInline;
    forced.inline_bytes = 0;
    for (const Column& column : {Column{name + ", inline", framed, turns()}, Column{name + ", pipeline", forced, turns()}}) {
      sections[kLatency].columns.push_back(column);
      sections[kLatency].ratios.emplace_back(column.name, "NCCL");
    }
    here.same_host = true;
    tcp.same_host = false;
    sections.push_back({"local",
                        title + ", half a round trip",
                        "us",
                        {8, 4 * kKiB},
                        {{"local", here, turns()}, {"TCP", tcp, turns()}},
                        {{"local", "TCP"}}});
    sections.push_back({"local",
                        title + ", one write at a time",
                        "GB/s",
                        sizes({64 * kKiB, kMiB, 64 * kMiB, 128 * kMiB}, {kMiB}),
                        {{"local", here, one_write},
                         {"TCP", tcp, one_write},
                         {"local, writev", here, one_writev},
                         {"TCP, writev", tcp, one_writev}},
                        {{"local", "TCP"}, {"local, writev", "TCP, writev"}, {"local", "memcpy"}},
                        memory == MemoryType::kHost ? "memcpy" : ""});
  }
  sections.push_back({"peers",
                      "Writes to peers, all together",
                      "GB/s",
                      sizes({4 * kMiB}, {64 * kKiB}),
                      {{"1 peer", best, to_peers}, {many, all, to_peers}},
                      {{many, "1 peer"}}});
  return sections;
}

Result<MeasuredBy> EndpointRuns::by_others(const Section& section) {
  if (section.other == "memcpy") return copies_of_a_thread(section.sizes, comparison_.row());
  if (section.other.empty()) return MeasuredBy();
  Sizes with_bytes = section.sizes;
  std::erase(with_bytes, 0);
  return best_of(comparison_.run_nccl({kMiB}, with_bytes), &MeasuredRun::ping_pong, false);
}

Status EndpointRuns::compare(const Section& section) {
  TCPX_ASSIGN_OR_RETURN(MeasuredBy others, by_others(section));
  std::vector<Mover> movers;
  for (const Column& column : section.columns) {
    movers.push_back({concat(section.title, ", ", column.name), column.setup, overrides_, column.row});
  }
  Status status;
  for (const uint64_t bytes : section.sizes) {
    status = comparison_.measure(movers, {bytes});
    if (!status.is_ok()) break;
    comparison_.say(concat(section.title, ", ", size_text(bytes), ": done"));
  }
  std::vector<Line> lines;
  for (size_t i = 0; i < movers.size(); ++i) lines.push_back({section.columns[i].name, movers[i].measured});
  lines.push_back({section.other, std::move(others)});
  const bool counts = std::string_view(section.unit) == "1000/s";
  Table table =
      make_table(By::kSize, section.title, section.unit, std::move(lines), counts ? Show::kThousandMessages : Show::kSummary);
  for (const auto& [over, under] : section.ratios) add_ratio_column(table, over, under);
  if (!table.rows.empty()) comparison_.report().tables.push_back(std::move(table));
  return status.is_ok() ? comparison_.close(movers) : status;
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
