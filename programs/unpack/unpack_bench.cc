#include "programs/unpack/unpack_bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>
#include <thread>

#include "base/text.h"
#include "device/unpacker_factory.h"
#include "measure/pattern.h"

namespace tcpx {
namespace {

constexpr uint32_t kListCapacity = 128 * 1024;  // fragments of one launch
constexpr uint64_t kSeed = 3;
constexpr std::byte kPoison{0xa5};
constexpr uint64_t kMostRequestBytes = kMaxRequestBytes;  // the table of launches in flight has these, whatever the options say

const std::vector<FragmentKind>& issue_kinds() {
  using Source = FragmentKind::Source;
  static const std::vector<FragmentKind> kinds = {{"4096 B aligned", 4096, Source::kAligned},
                                                  {"1448 B, 8-aligned", 1448, Source::kAligned},
                                                  {"4096 B, source +3", 4096, Source::kOff3},
                                                  {"4096 B, any alignment", 4096, Source::kMixed},
                                                  {"1448 B, any alignment", 1448, Source::kMixed}};
  return kinds;
}

}  // namespace

Result<std::unique_ptr<UnpackBench>> UnpackBench::create(const UnpackBenchOptions& options, MemoryOps& memory,
                                                         const std::atomic<bool>& stop) {
  std::unique_ptr<UnpackBench> bench(new UnpackBench(options, memory, stop));
  TCPX_RETURN_IF_ERROR(bench->set_up());
  return bench;
}

Status UnpackBench::set_up() {
  progress(concat("filling two pools of ", options_.pool_bytes, " bytes"));
  TCPX_RETURN_IF_ERROR(memory_.set_current_device(options_.gpu));
  TCPX_ASSIGN_OR_RETURN(clock_, GpuClock::create());
  TCPX_ASSIGN_OR_RETURN(lane_, memory_.make_copy_lane(options_.gpu));
  TCPX_ASSIGN_OR_RETURN(device_pool_, memory_.allocate_device(options_.gpu, options_.pool_bytes));
  TCPX_ASSIGN_OR_RETURN(mapped_pool_, memory_.allocate_mapped(options_.gpu, options_.pool_bytes));
  TCPX_ASSIGN_OR_RETURN(destination_, memory_.allocate_device(options_.gpu, std::max(options_.bytes, kMostRequestBytes)));
  gathered_.resize(destination_.size());
  fill_pattern({mapped_pool_.host(), mapped_pool_.size()}, kSeed);
  return lane_->copy(device_pool_.device(), mapped_pool_.host(), mapped_pool_.size());
}

void UnpackBench::progress(const std::string& what) const {
  if (::isatty(STDERR_FILENO) != 0) std::fprintf(stderr, "\r\033[K%s", what.c_str());
}

Result<UnpackWorkload> UnpackBench::workload(const FragmentKind& kind, uint64_t bytes, Pool pool) {
  const MemoryBuffer& buffer = pool == Pool::kDevice ? device_pool_ : mapped_pool_;
  return UnpackWorkload::create(kind, bytes,
                                {.pool = buffer.device(), .pool_bytes = buffer.size(), .destination = destination_.device()});
}

Result<std::unique_ptr<UnpackLauncher>> UnpackBench::launcher(uint32_t block_budget, bool profile, uint32_t list_capacity) {
  UnpackLauncher::Config config;
  config.block_budget = block_budget;
  config.list_capacity = list_capacity;
  config.profile = profile;
  return UnpackLauncher::create(options_.gpu, memory_, config);
}

Result<std::unique_ptr<UnpackMethod>> UnpackBench::kernel(std::string name, uint32_t block_budget) {
  TCPX_ASSIGN_OR_RETURN(std::unique_ptr<UnpackLauncher> made, launcher(block_budget, true, kListCapacity));
  return make_kernel_method(std::move(name), std::move(made));
}

Status UnpackBench::verify(UnpackMethod& method, const UnpackWorkload& workload) {
  const std::span<std::byte> gathered(gathered_.data(), workload.bytes());
  std::memset(gathered.data(), static_cast<int>(kPoison), gathered.size());
  TCPX_RETURN_IF_ERROR(lane_->copy(destination_.device(), gathered.data(), gathered.size()));
  TCPX_RETURN_IF_ERROR(method.run(clock_->stream()));
  TCPX_RETURN_IF_ERROR(clock_->stream().synchronize());
  (void)method.own_seconds();  // of no interest for the first run
  if (method.gathers()) return check(workload);
  TCPX_RETURN_IF_ERROR(lane_->copy(gathered.data(), destination_.device(), gathered.size()));
  return verify_pattern(gathered, kSeed);  // the contiguous copy takes the begin of the pool
}

Status UnpackBench::check(const UnpackWorkload& workload) {
  const std::span<std::byte> gathered(gathered_.data(), workload.bytes());
  TCPX_RETURN_IF_ERROR(lane_->copy(gathered.data(), destination_.device(), gathered.size()));
  return workload.check({mapped_pool_.host(), mapped_pool_.size()}, gathered);
}

Result<Summary> UnpackBench::rate(UnpackMethod& method, const UnpackWorkload& workload, bool queued) {
  progress(concat(method.name(), ", ", workload.kind().name));
  TCPX_RETURN_IF_ERROR(method.prepare(workload));
  const Status verified = verify(method, workload);
  if (!verified.is_ok()) return Status(verified.code(), method.name(), verified.detail());
  const MeasurePlan plan{.warm_up_count = method.host_bound() ? size_t{1} : size_t{3},
                         .sample_count = method.host_bound() ? MeasurePlan::kFewestSamples : options_.samples};
  // Enqueuing takes the host about a nanosecond per fragment for the list, and a launch.
  const std::chrono::microseconds head_start(100 + workload.fragments().size() / 200);
  const auto enqueue = [&](StreamView stream) { return method.run(stream); };
  const Result<Samples> seconds = measure(plan, [&]() -> Result<double> {
    TCPX_ASSIGN_OR_RETURN(const double around, queued ? clock_->time_queued(enqueue, head_start) : clock_->time(enqueue));
    return method.own_seconds().value_or(around);
  });
  if (!seconds.is_ok()) return seconds.status();
  TCPX_ASSIGN_OR_RETURN(const Samples rates, gigabytes_per_second(workload.bytes(), *seconds));
  return rates.summary();
}

Result<Row> UnpackBench::row(UnpackMethod& method, const std::vector<FragmentKind>& kinds, Pool pool, bool queued) {
  Row row{.name = method.name(), .cells = {}, .verified = true};
  for (const FragmentKind& kind : kinds) {
    TCPX_ASSIGN_OR_RETURN(const UnpackWorkload work, workload(kind, options_.bytes, pool));
    TCPX_ASSIGN_OR_RETURN(const Summary cell, rate(method, work, queued));
    row.cells.emplace_back(cell);
  }
  return row;
}

Status UnpackBench::add_kernels(std::vector<std::unique_ptr<UnpackMethod>>& methods,
                                std::vector<std::pair<std::string, uint32_t>> kernels) {
  methods.push_back(make_contiguous_copy());
  for (auto& [name, block_budget] : kernels) {
    TCPX_ASSIGN_OR_RETURN(std::unique_ptr<UnpackMethod> made, kernel(std::move(name), block_budget));
    methods.push_back(std::move(made));
  }
  return Status::ok();
}

Result<Table> UnpackBench::table(std::string title, std::vector<std::unique_ptr<UnpackMethod>> methods, Pool pool, bool queued) {
  const std::vector<FragmentKind>& kinds = issue_kinds();
  Table table{.title = std::move(title), .row_heading = "method", .columns = {}, .rows = {}};
  for (const FragmentKind& kind : kinds) table.columns.push_back({kind.name, "GB/s"});
  for (const auto& method : methods) {
    if (stop_) break;
    TCPX_ASSIGN_OR_RETURN(Row made, row(*method, kinds, pool, queued));
    table.rows.push_back(std::move(made));
  }
  return table;
}

Result<Table> UnpackBench::by_method() {
  std::vector<std::unique_ptr<UnpackMethod>> methods;
  TCPX_RETURN_IF_ERROR(add_kernels(
      methods, {{"tcpx kernel", 0}, {"tcpx kernel, 16 blocks", 16}, {"tcpx kernel, 8 blocks", 8}, {"tcpx kernel, 4 blocks", 4}}));
  for (const WarpLoop kind : {WarpLoop::kNcclLike, WarpLoop::kSimple}) {
    for (const uint32_t blocks : {132u, 16u, 4u}) methods.push_back(make_warp_loop(kind, blocks));
  }
  methods.push_back(make_cub_batch());
  methods.push_back(make_copy_per_fragment());
  for (const auto& [name, kind] : {std::pair("tcpx d2d", UnpackKind::kD2d), std::pair("tcpx host", UnpackKind::kHost)}) {
    TCPX_ASSIGN_OR_RETURN(std::unique_ptr<Unpacker> unpacker, make_unpacker(kind, options_.gpu, memory_));
    methods.push_back(make_unpacker_method(name, std::move(unpacker)));
  }
  return table("By method", std::move(methods), Pool::kDevice, false);
}

Result<Table> UnpackBench::by_method_queued() {
  return main_methods("By method, enqueued ahead", "tcpx kernel", 132, Pool::kDevice, true);
}

Result<Table> UnpackBench::from_mapped_host() {
  return main_methods("From mapped pinned host memory", "tcpx kernel (8 blocks)", 8, Pool::kMappedHost, false);
}

Result<Table> UnpackBench::main_methods(std::string title, std::string kernel_name, uint32_t loop_blocks, Pool pool,
                                        bool queued) {
  std::vector<std::unique_ptr<UnpackMethod>> methods;
  TCPX_RETURN_IF_ERROR(add_kernels(methods, {{std::move(kernel_name), 0}, {"tcpx kernel, 4 blocks", 4}}));
  for (const WarpLoop kind : {WarpLoop::kNcclLike, WarpLoop::kSimple}) methods.push_back(make_warp_loop(kind, loop_blocks));
  return table(std::move(title), std::move(methods), pool, queued);
}

Result<Table> UnpackBench::by_fragment_bytes() {
  Table table{.title = "By fragment size", .row_heading = "fragment", .columns = {{"bytes", "B"}}, .rows = {}};
  struct Line {
    const char* column;
    std::unique_ptr<UnpackMethod> method;
    FragmentKind::Source source;
  };
  using Source = FragmentKind::Source;
  std::vector<Line> lines;
  lines.push_back({"contiguous copy", make_contiguous_copy(), Source::kAligned});
  for (const auto& [column, source] :
       {std::pair("tcpx, aligned", Source::kAligned), std::pair("tcpx, any alignment", Source::kMixed)}) {
    TCPX_ASSIGN_OR_RETURN(std::unique_ptr<UnpackMethod> made, kernel(column, 0));
    lines.push_back({column, std::move(made), source});
  }
  lines.push_back({"simple warp loop, aligned", make_warp_loop(WarpLoop::kSimple, 132), Source::kAligned});
  lines.push_back({"NCCL-like, aligned", make_warp_loop(WarpLoop::kNcclLike, 132), Source::kAligned});
  lines.push_back({"NCCL-like, any alignment", make_warp_loop(WarpLoop::kNcclLike, 132), Source::kMixed});
  for (const Line& line : lines) table.columns.push_back({line.column, "GB/s"});
  for (uint32_t bytes = 64; bytes <= 65536 && !stop_; bytes *= 2) {
    Row row{.name = concat(bytes, " B"), .cells = {static_cast<double>(bytes)}, .verified = true};
    const uint64_t total = std::min<uint64_t>(options_.bytes, uint64_t{bytes} * kListCapacity);
    for (const Line& line : lines) {
      TCPX_ASSIGN_OR_RETURN(const UnpackWorkload work, workload({row.name, bytes, line.source}, total));
      TCPX_ASSIGN_OR_RETURN(const Summary cell, rate(*line.method, work, false));
      row.cells.emplace_back(cell);
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Result<Table> UnpackBench::by_blocks() {
  const std::vector<FragmentKind> kinds(issue_kinds().begin(), issue_kinds().begin() + 4);
  Table table{.title = "By thread blocks", .row_heading = "most blocks", .columns = {{"blocks", ""}}, .rows = {}};
  for (const FragmentKind& kind : kinds) table.columns.push_back({kind.name, "GB/s"});
  for (uint32_t blocks = 1; blocks <= 128 && !stop_; blocks *= 2) {
    TCPX_ASSIGN_OR_RETURN(std::unique_ptr<UnpackMethod> method, kernel(concat(blocks), blocks));
    TCPX_ASSIGN_OR_RETURN(Row made, row(*method, kinds, Pool::kDevice, false));
    made.cells.insert(made.cells.begin(), static_cast<double>(blocks));
    table.rows.push_back(std::move(made));
  }
  return table;
}

}  // namespace tcpx
