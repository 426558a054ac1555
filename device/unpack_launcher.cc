#include "device/unpack_launcher.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"

namespace tcpx {
namespace {

Status check_config(const UnpackLauncher::Config& config) {
  if (config.in_flight != 0 && config.list_capacity != 0 && config.launch) return Status::ok();
  return Status(Code::kInvalidArgument, "make unpack launcher", "no ticket, no fragment or no launch is possible");
}

Status load_kernels(int device) {
  const cudaError_t loaded = load_unpack_kernels();
  if (loaded == cudaErrorNoKernelImageForDevice || loaded == cudaErrorUnsupportedPtxVersion) {
    return Status(Code::kUnsupported, "make unpack launcher",
                  concat("this build has no kernel for GPU ", device, " (", cudaGetErrorName(loaded), "); use ",
                         environment_info(Variable::kUnpackImpl).name, "=d2d or host"),
                  Domain::kCuda, static_cast<int32_t>(loaded));
  }
  return cuda_status(loaded, "load unpack kernels");
}

std::string time_and_rate(Duration time, double gb_per_second) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f us, %.1f GB/s", static_cast<double>(time.count()) / 1e3, gb_per_second);
  return text;
}

// Starting a copy takes the host 1.1 us, a launch for all blocks 2.6. For many bytes the kernel is at least as fast.
constexpr size_t kFewCopies = 2;
constexpr uint64_t kFewBytes = 64 * 1024;

bool are_for_the_copy_engine(std::span<const DescriptorBlock> blocks) {
  return blocks.size() <= kFewCopies && std::all_of(blocks.begin(), blocks.end(), [](const DescriptorBlock& block) {
           return block.fragments().empty() || (block.contiguous_source() != nullptr && block.message_bytes() <= kFewBytes);
         });
}

bool is_failure(const Status& status) {
  return !status.is_ok() && status.code() != Code::kExhausted;
}

}  // namespace

std::string to_text(const LaunchStats& stats) {
  return concat(stats.launches, " launches, ", stats.copies, " copies, ", stats.requests, " requests, ", stats.fragments,
                " fragments, ", stats.bytes, " bytes, ", stats.errors, " errors, ",
                time_and_rate(stats.device_time, stats.gb_per_second()));
}

Result<UnpackLauncher::Config> UnpackLauncher::Config::from_environment() {
  TCPX_ASSIGN_OR_RETURN(const int64_t blocks, environment_integer(Variable::kUnpackBlocks));
  TCPX_ASSIGN_OR_RETURN(const int64_t debug, environment_integer(Variable::kLaunchDebug));
  Config config;
  config.block_budget = static_cast<uint32_t>(blocks);
  config.profile = config.log_launches = debug != 0;
  return config;
}

Result<std::unique_ptr<UnpackLauncher>> UnpackLauncher::create(int device, MemoryOps& memory, Config config) {
  TCPX_RETURN_IF_ERROR(check_config(config));
  const EventTiming timing = config.profile || config.log_launches ? EventTiming::kOn : EventTiming::kOff;
  TCPX_ASSIGN_OR_RETURN(std::unique_ptr<EventRing> ring, EventRing::create(device, config.in_flight, timing));
  TCPX_ASSIGN_OR_RETURN(MemoryBuffer lists, memory.allocate_mapped(device, config.list_capacity * sizeof(KernelFragment)));
  TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(device));
  TCPX_RETURN_IF_ERROR(load_kernels(device));
  return std::unique_ptr<UnpackLauncher>(new UnpackLauncher(memory, std::move(lists), std::move(ring), std::move(config)));
}

UnpackLauncher::UnpackLauncher(MemoryOps& memory, MemoryBuffer lists, std::unique_ptr<EventRing> ring, Config config)
    : config_(std::move(config)),
      memory_(memory),
      lists_(std::move(lists)),
      list_ring_(config_.list_capacity),
      works_(config_.in_flight),
      ring_(std::move(ring)) {}

Result<UnpackTicket> UnpackLauncher::launch(std::span<const DescriptorBlock> blocks) {
  return launch(blocks, ring_->stream());
}

Result<UnpackTicket> UnpackLauncher::launch(std::span<const DescriptorBlock> blocks, StreamView stream) {
  Result<UnpackTicket> ticket = start(blocks, stream);
  if (is_failure(ticket.status())) ++stats_.errors;
  return ticket;
}

Result<UnpackTicket> UnpackLauncher::start(std::span<const DescriptorBlock> blocks, StreamView stream) {
  TCPX_RETURN_IF_ERROR(ring_->ready());
  if (blocks.empty()) return Status(Code::kInvalidArgument, "launch unpack", "no blocks");
  size_t fragments = 0;
  uint64_t bytes = 0;
  for (const DescriptorBlock& block : blocks) {
    fragments += block.fragments().size();
    bytes += block.message_bytes();
  }
  TCPX_ASSIGN_OR_RETURN(const DeviceGuard guard, DeviceGuard::enter(ring_->device()));
  if (stream.get() != ring_->stream().get()) {
    TCPX_ASSIGN_OR_RETURN(const bool captured, stream.is_captured());
    if (captured) return Status(Code::kInvalidArgument, "launch unpack", "the stream is being captured");
  }
  TCPX_ASSIGN_OR_RETURN(const ListStretch stretch, list_ring_.take(fragments));

  Work& work = works_[ring_->next_slot()];
  work = Work{.list_held = stretch.held, .requests = blocks.size(), .fragments = fragments, .bytes = bytes};
  const Status launched = launch_runs(blocks, stretch.first, stream, &work);
  if (!launched.is_ok()) return ring_->fail(launched, stream);
  const Result<UnpackTicket> ticket = ring_->commit(stream);
  if (!ticket.is_ok()) return ticket;
  newest_ = work.ticket = *ticket;
  stats_.launches += work.launches;
  stats_.copies += work.copies;
  stats_.requests += work.requests;
  stats_.fragments += work.fragments;
  stats_.bytes += work.bytes;
  return ticket;
}

Status UnpackLauncher::launch_runs(std::span<const DescriptorBlock> blocks, size_t first, StreamView stream, Work* work) {
  auto* const lists = reinterpret_cast<KernelFragment*>(lists_.host());
  const auto* const lists_on_device = reinterpret_cast<const KernelFragment*>(lists_.device());
  while (!blocks.empty()) {
    const PoolRun run = leading_run(blocks);
    if (run.pool == nullptr) break;
    blocks = blocks.subspan(run.blocks.size());
    const PoolMemory memory = pool_memory(run.pool);
    if (memory == PoolMemory::kMappedHost && are_for_the_copy_engine(run.blocks)) {
      TCPX_RETURN_IF_ERROR(copy_blocks(run.blocks, stream, work));
      continue;
    }
    const UnpackShape shape = write_list(run, lists + first, memory);
    const LaunchPolicy policy = choose_launch_policy(shape, config_.block_budget);
    // As late as possible: building the list is not GPU time.
    if (work->is_empty()) TCPX_RETURN_IF_ERROR(ring_->begin(stream));
    const cudaError_t error =
        config_.launch(policy, UnpackLaunch{lists_on_device + first, shape.fragment_count, run.pool}, stream.get());
    TCPX_RETURN_IF_ERROR(cuda_status(error, "launch unpack kernel"));
    first += shape.fragment_count;
    work->policy = policy;
    work->alignment = shape.alignment;
    ++work->launches;
  }
  return Status::ok();
}

Status UnpackLauncher::copy_blocks(std::span<const DescriptorBlock> blocks, StreamView stream, Work* work) {
  if (work->is_empty()) TCPX_RETURN_IF_ERROR(ring_->begin(stream));
  for (const DescriptorBlock& block : blocks) {
    if (block.contiguous_source() == nullptr) continue;  // without fragments
    const cudaError_t error = cudaMemcpyAsync(block.target().destination, block.contiguous_source(), block.message_bytes(),
                                              cudaMemcpyDefault, stream.get());
    TCPX_RETURN_IF_ERROR(cuda_status(error, "start unpack copy"));
    ++work->copies;
  }
  return Status::ok();
}

PoolMemory UnpackLauncher::pool_memory(const std::byte* pool) {
  // Queried once per pool, because it costs a driver call. A stale answer would only cost speed.
  if (pool != known_pool_) {
    known_pool_memory_ = memory_.is_device_memory(pool) ? PoolMemory::kDevice : PoolMemory::kMappedHost;
    known_pool_ = pool;
  }
  return known_pool_memory_;
}

Status UnpackLauncher::launch_sync(std::span<const DescriptorBlock> blocks, Deadline deadline) {
  Result<UnpackTicket> ticket = launch(blocks);
  if (ticket.status().code() == Code::kExhausted) {
    // Older ones are done before this one, so waiting for all of them costs nothing.
    TCPX_RETURN_IF_ERROR(wait(newest_, deadline));
    ticket = launch(blocks);
  }
  return ticket.is_ok() ? wait(*ticket, deadline) : ticket.status();
}

Result<bool> UnpackLauncher::query(UnpackTicket ticket) {
  Result<bool> done = ring_->query(ticket, [this](size_t slot) { return retire(slot); });
  if (is_failure(done.status())) ++stats_.errors;
  return done;
}

Status UnpackLauncher::wait(UnpackTicket ticket, Deadline deadline) {
  for (;;) {
    TCPX_ASSIGN_OR_RETURN(const bool done, query(ticket));
    if (done) return Status::ok();
    if (deadline.expired()) {
      return Status(Code::kTimeout, "wait for unpack", concat("ticket ", static_cast<uint64_t>(ticket), " is not done"));
    }
    // A copy takes microseconds, and CUDA has no blocking call with a deadline.
    std::this_thread::yield();
  }
}

Status UnpackLauncher::retire(size_t slot) {
  const Work& work = works_[slot];
  list_ring_.release(work.list_held);
  if (work.is_empty() || !(config_.profile || config_.log_launches)) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(const Duration time, ring_->device_time(slot));
  stats_.device_time += time;
  stats_.timed_bytes += work.bytes;
  if (config_.log_launches && log_enabled(LogLevel::kNotice)) log_work(work, time);
  return Status::ok();
}

std::string UnpackLauncher::how(const Work& work) {
  if (work.launches == 0) return concat(work.copies, " copies");
  return concat(work.policy.blocks, " x ", work.policy.threads, " threads, ",
                work.alignment == AlignmentClass::kCongruent ? "congruent" : "mixed",
                work.launches == 1 ? std::string() : concat(", last of ", work.launches, " launches"));
}

void UnpackLauncher::log_work(const Work& work, Duration time) const {
  const LaunchStats rate{.timed_bytes = work.bytes, .device_time = time};
  log(LogLevel::kNotice, "unpack ticket ", static_cast<uint64_t>(work.ticket), ": ", work.requests, " requests, ", work.fragments,
      " fragments, ", work.bytes, " bytes, ", how(work), ", ", time_and_rate(time, rate.gb_per_second()));
}

}  // namespace tcpx
