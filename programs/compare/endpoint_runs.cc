#include "programs/compare/runs.h"

#include <algorithm>
#include <cstring>

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

RowSetup operation(Verb verb, uint64_t range_bytes = 0, uint64_t outstanding = 0) {
  return {.verb = verb, .range_bytes = range_bytes, .outstanding = outstanding};
}

/// Section by section. In each the ends of every column are two fresh processes, and the columns take turns sample by sample.
class EndpointRuns {
 public:
  EndpointRuns(EndpointRunOptions options, const PipelineSettings& settings, Comparison& comparison);

  Status run();

 private:
  /// A column: the mover of messages, and its method.
  struct Mover {
    std::string name;
    EndSetup setup;
    RowSetup row;
  };
  enum class Show { kRate, kMicroseconds, kThousandMessages };
  struct Section {
    std::string title;
    Show show = Show::kRate;
    std::vector<uint64_t> sizes;
    std::vector<Mover> contenders;
    std::vector<std::pair<std::string, std::string>> ratios;  ///< of two columns
    std::string other;     ///< one more column, of what others take, in the same unit; "": none
    MeasuredBy by_others;  ///< by message
  };

  Status bulk();
  Status vectors();
  Status latency();
  Status small();
  Status one_at_a_time();
  Status local();
  Status peers();
  Status memory();
  Status compare(const Section& section);
  Result<std::unique_ptr<RowMeter>> connect(const EndSetup& setup) const { return comparison_.connect(setup, overrides_); }
  EndSetup endpoint(MemoryType memory) const;
  MemoryType best_memory() const { return comparison_.has_gpu() ? MemoryType::kCuda : MemoryType::kHost; }

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

Status EndpointRuns::run() {
  using Measurement = Status (EndpointRuns::*)();
  constexpr Measurement kSections[] = {&EndpointRuns::bulk,  &EndpointRuns::vectors,       &EndpointRuns::latency,
                                       &EndpointRuns::small, &EndpointRuns::one_at_a_time, &EndpointRuns::local,
                                       &EndpointRuns::peers, &EndpointRuns::memory};
  static_assert(std::size(kSections) == std::size(kEndpointSections));
  for (size_t i = 0; i < std::size(kSections); ++i) {
    const auto& only = options_.only;
    if (only.empty() || std::find(only.begin(), only.end(), kEndpointSections[i]) != only.end()) {
      const Measurement measure = kSections[i];
      TCPX_RETURN_IF_ERROR((this->*measure)());
    }
  }
  return Status::ok();
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

Status EndpointRuns::bulk() {
  EndSetup pipeline = endpoint(best_memory());
  pipeline.kind = EndSetup::Kind::kPipeline;
  return compare({.title = "Bulk",
                  .sizes = quick_ ? std::vector<uint64_t>{kMiB} : std::vector<uint64_t>{kMiB, 8 * kMiB, 64 * kMiB, 256 * kMiB},
                  .contenders = {{"pipeline", pipeline, {}},
                                 {"send, recv", endpoint(best_memory()), operation(Verb::kSend)},
                                 {"write", endpoint(best_memory()), operation(Verb::kWrite)},
                                 {"read", endpoint(best_memory()), operation(Verb::kRead)}},
                  .ratios = {{"send, recv", "pipeline"}, {"write", "pipeline"}, {"read", "pipeline"}}});
}

Status EndpointRuns::vectors() {
  const uint64_t range_bytes = quick_ ? kKiB : 32 * kKiB;
  const EndSetup setup = endpoint(best_memory());
  return compare({.title = concat("Vectors of ranges of ", size_text(range_bytes)),
                  .sizes = quick_ ? std::vector<uint64_t>{kMiB} : std::vector<uint64_t>{kMiB, 128 * kMiB},
                  .contenders = {{"write", setup, operation(Verb::kWrite)},
                                 {"writev", setup, operation(Verb::kWrite, range_bytes)},
                                 {"readv", setup, operation(Verb::kRead, range_bytes)},
                                 {"sendv, recvv", setup, operation(Verb::kSend, range_bytes)}},
                  .ratios = {{"writev", "write"}, {"readv", "write"}, {"sendv, recvv", "write"}}});
}

Status EndpointRuns::latency() {
  Section section{
      .title = "Half a round trip", .show = Show::kMicroseconds, .sizes = {0, 8, 64, kKiB, 4 * kKiB, 16 * kKiB, 64 * kKiB}};
  if (quick_) section.sizes = {0, 8, 4 * kKiB};
  std::vector<MemoryType> kinds = {MemoryType::kHost};
  if (comparison_.has_gpu()) kinds.push_back(MemoryType::kCuda);
  for (const MemoryType memory : kinds) {
    for (const bool forced : {false, true}) {
      EndSetup setup = endpoint(memory);
      setup.inline_bytes = forced ? 0 : kMostInline;
      RowSetup row = operation(Verb::kSend, 0, 2);
      row.pattern = Pattern::kPingPong;
      section.contenders.push_back(
          {concat(memory == MemoryType::kHost ? "host" : "gpu", forced ? ", pipeline" : ", inline"), setup, row});
    }
  }
  std::vector<uint64_t> with_bytes = section.sizes;
  std::erase(with_bytes, 0);
  section.by_others = best_of(comparison_.run_nccl({kMiB}, with_bytes), &MeasuredRun::ping_pong, false);
  if (!section.by_others.empty()) section.other = "NCCL";
  for (const Mover& contender : section.contenders) section.ratios.emplace_back(contender.name, "NCCL");
  return compare(section);
}

Status EndpointRuns::small() {
  constexpr uint64_t kOutstanding = 64;
  const EndSetup setup = endpoint(MemoryType::kHost);
  return compare({.title = concat("Small messages of host memory, ", kOutstanding, " outstanding"),
                  .show = Show::kThousandMessages,
                  .sizes = {8, 4 * kKiB},
                  .contenders = {{"send, recv", setup, operation(Verb::kSend, 0, kOutstanding)},
                                 {"write", setup, operation(Verb::kWrite, 0, kOutstanding)}}});
}

Status EndpointRuns::one_at_a_time() {
  const EndSetup setup = endpoint(best_memory());
  const auto alone = [&](const std::string& name, Verb verb, uint64_t range_bytes = 0) {
    return Mover{name, setup, operation(verb, range_bytes, 1)};
  };
  TCPX_RETURN_IF_ERROR(compare({.title = "One short operation at a time",
                                .show = Show::kThousandMessages,
                                .sizes = {8, 4 * kKiB},
                                .contenders = {alone("write", Verb::kWrite), alone("read", Verb::kRead)}}));
  const uint64_t range_bytes = quick_ ? kKiB : 32 * kKiB;
  return compare({.title = concat("One operation at a time, vectors of ranges of ", size_text(range_bytes)),
                  .sizes = quick_ ? std::vector<uint64_t>{kMiB} : std::vector<uint64_t>{64 * kMiB, 128 * kMiB},
                  .contenders = {alone("write", Verb::kWrite), alone("writev", Verb::kWrite, range_bytes),
                                 alone("read", Verb::kRead), alone("readv", Verb::kRead, range_bytes)}});
}

Status EndpointRuns::local() {
  std::vector<MemoryType> kinds = {MemoryType::kHost};
  if (comparison_.has_gpu()) kinds.push_back(MemoryType::kCuda);
  for (const MemoryType memory : kinds) {
    EndSetup here = endpoint(memory), tcp = here;
    here.same_host = true;
    tcp.same_host = false;
    const std::string title = concat("One host, ", memory == MemoryType::kHost ? "host" : "gpu", " memory");
    const std::vector<std::pair<std::string, std::string>> ratios = {{"local", "TCP"}};
    RowSetup turns = operation(Verb::kSend, 0, 2);
    turns.pattern = Pattern::kPingPong;
    TCPX_RETURN_IF_ERROR(compare({.title = title + ", half a round trip",
                                  .show = Show::kMicroseconds,
                                  .sizes = {8, 4 * kKiB},
                                  .contenders = {{"local", here, turns}, {"TCP", tcp, turns}},
                                  .ratios = ratios}));
    const RowSetup alone = operation(Verb::kWrite, 0, 1), ranges = operation(Verb::kWrite, quick_ ? kKiB : 32 * kKiB, 1);
    Section writes{.title = title + ", one write at a time",
                   .sizes = {64 * kKiB, kMiB, 64 * kMiB, 128 * kMiB},
                   .contenders = {{"local", here, alone},
                                  {"TCP", tcp, alone},
                                  {"local, writev", here, ranges},
                                  {"TCP, writev", tcp, ranges}},
                   .ratios = ratios};
    if (quick_) writes.sizes = {kMiB};
    writes.ratios.emplace_back("local, writev", "TCP, writev");
    if (memory == MemoryType::kHost) {
      writes.other = "memcpy";
      TCPX_ASSIGN_OR_RETURN(writes.by_others, copies_of_a_thread(writes.sizes, comparison_.row()));
      writes.ratios.emplace_back("local", "memcpy");
    }
    TCPX_RETURN_IF_ERROR(compare(writes));
  }
  return Status::ok();
}

Status EndpointRuns::peers() {
  const uint64_t bytes = quick_ ? 64 * kKiB : 4 * kMiB;
  const std::string many = concat(options_.peers, " peers");
  EndSetup one = endpoint(best_memory()), all = one;
  all.peers = options_.peers;
  const RowSetup row = operation(Verb::kWrite, 0, std::max<uint64_t>(2 * options_.peers, 8));
  return compare({.title = "Writes to peers, all together",
                  .sizes = {bytes},
                  .contenders = {{"1 peer", one, row}, {many, all, row}},
                  .ratios = {{many, "1 peer"}}});
}

Status EndpointRuns::memory() {
  const uint64_t idle_ms = quick_ ? 50 : 1000, receives = quick_ ? 256 : 8192;
  std::vector<double> resident, gpu, posted, busy;
  for (size_t i = 0; i < MeasurePlan::kFewestSamples; ++i) {
    EndSetup setup = endpoint(MemoryType::kHost);
    setup.peers = options_.peers;
    auto bench = connect(setup);
    if (!bench.is_ok()) return bench.status();
    TCPX_ASSIGN_OR_RETURN(const auto idle, (*bench)->once({.pattern = Pattern::kIdle, .message_bytes = 8}, idle_ms));
    TCPX_RETURN_IF_ERROR((*bench)->close());
    const Timing& leader = idle.leader.timing;
    const auto grown = [](uint64_t from, uint64_t to, double count) {
      return static_cast<double>(static_cast<int64_t>(to - from)) / count;
    };
    resident.push_back(grown(leader.alone.resident_bytes, leader.connected.resident_bytes, options_.peers) / 1e3);
    gpu.push_back(grown(leader.connected.free_gpu_bytes, leader.alone.free_gpu_bytes, options_.peers) / 1e3);
    busy.push_back(100 * leader.cpu_seconds * 1e9 / static_cast<double>(leader.end_ns - leader.begin_ns));

    setup.peers = 1;
    bench = connect(setup);
    if (!bench.is_ok()) return bench.status();
    RowSetup row = operation(Verb::kSend, 0, receives);
    row.message_bytes = 8;
    TCPX_ASSIGN_OR_RETURN(const auto round, (*bench)->once(row, receives));
    TCPX_RETURN_IF_ERROR((*bench)->close());
    const Timing& follower = round.follower.timing;
    posted.push_back(grown(follower.unposted.resident_bytes, follower.posted.resident_bytes, static_cast<double>(receives)));
  }
  Table table{.title = "Memory and idle time", .row_heading = "what", .columns = {{"value", ""}, {"unit", ""}}, .rows = {}};
  const auto add = [&](const std::string& name, const std::string& unit, std::vector<double> values) -> Status {
    TCPX_ASSIGN_OR_RETURN(const Samples samples, Samples::create(std::move(values)));
    table.rows.push_back({.name = name, .cells = {samples.summary(), unit}, .verified = true});
    return Status::ok();
  };
  TCPX_RETURN_IF_ERROR(add(concat("memory in core per connection, of ", options_.peers), "kB", resident));
  if (comparison_.has_gpu()) TCPX_RETURN_IF_ERROR(add(concat("GPU memory per connection, of ", options_.peers), "kB", gpu));
  TCPX_RETURN_IF_ERROR(add(concat("memory in core per receive posted, of ", receives), "B", posted));
  TCPX_RETURN_IF_ERROR(
      add(concat("processor time of an idle endpoint with ", options_.peers, " connections"), "% of a core", busy));
  comparison_.report().tables.push_back(std::move(table));
  comparison_.say("memory: done");
  return Status::ok();
}

Status EndpointRuns::compare(const Section& section) {
  constexpr const char* kUnits[] = {"GB/s", "us", "1000/s"};
  const char* const unit = kUnits[static_cast<size_t>(section.show)];
  Table table{.title = section.title, .row_heading = "message", .columns = {{"bytes", "B"}}, .rows = {}};
  std::vector<std::unique_ptr<RowMeter>> benches;
  std::vector<MeasuredBy> columns(section.contenders.size());
  for (const Mover& mover : section.contenders) {
    TCPX_ASSIGN_OR_RETURN(benches.emplace_back(), connect(mover.setup));
    table.columns.push_back({mover.name, unit});
  }
  if (!section.other.empty()) {
    columns.push_back(section.by_others);
    table.columns.push_back({section.other, unit});
  }
  Status status;
  for (const uint64_t bytes : section.sizes) {
    std::vector<Contender> contenders;
    for (size_t i = 0; i < benches.size(); ++i) {
      const Mover& mover = section.contenders[i];
      contenders.push_back({concat(section.title, ", ", mover.name), *benches[i], mover.row, columns[i], bytes});
      contenders.back().row.message_bytes = bytes;
    }
    status = comparison_.measure(contenders);
    if (!status.is_ok()) break;
    Row& row = table.rows.emplace_back(Row{size_text(bytes), {static_cast<double>(bytes)}, true});
    for (const MeasuredBy& column : columns) {
      const auto found = column.find(bytes);
      Cell& cell = row.cells.emplace_back();
      if (found == column.end()) continue;
      Summary summary = found->second.summary;
      const double scale = section.show == Show::kThousandMessages ? 1e6 / static_cast<double>(bytes) : 1;
      for (double* const value : {&summary.min, &summary.median, &summary.max}) *value *= scale;
      cell = summary;
      row.verified &= found->second.verified();
    }
    comparison_.say(concat(section.title, ", ", size_text(bytes), ": done"));
  }
  for (const auto& [over, under] : section.ratios) add_ratio_column(table, over, under);
  if (!table.rows.empty()) comparison_.report().tables.push_back(std::move(table));
  if (!status.is_ok()) return status;
  for (const auto& bench : benches) TCPX_RETURN_IF_ERROR(bench->close());
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
