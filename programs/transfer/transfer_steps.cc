#include "programs/transfer/transfer_steps.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "measure/pattern.h"
#include "transfer/chunk_plan.h"

namespace tcpx::programs {
TransferEnd::TransferEnd(std::string name, LocalMachine& endpoint, const TransferProgramOptions& options, int gpu,
                         const std::atomic<bool>& stop)
    : name_(std::move(name)), endpoint_(endpoint), options_(options), gpu_(gpu), stop_(stop) {}

Deadline TransferEnd::data_deadline() const {
  const auto megabytes = static_cast<int64_t>(transfer_bytes() / 1000000);
  return Deadline::after(options_.timeout + std::chrono::milliseconds(20) * megabytes);
}

std::vector<std::byte> TransferEnd::expected(uint32_t iteration) const {
  std::vector<std::byte> bytes(transfer_bytes());
  if (options_.bytes) {
    fill_pattern(bytes, iteration + 1);
  } else {
    std::memcpy(bytes.data(), kTextPayload.data(), kTextPayload.size());
  }
  return bytes;
}

Status TransferEnd::prepare(bool receives) {
  MemoryOps& memory = *endpoint_.memory;
  if (options_.dev) {
    dev_ = *options_.dev;
  } else {
    TCPX_ASSIGN_OR_RETURN(const auto nearest, endpoint_.channel_devices(gpu_, 1));
    dev_ = nearest.front();
  }
  TCPX_ASSIGN_OR_RETURN(const auto nic, endpoint_.describe_devices(gpu_, {dev_}));
  step("net plugin ", plugin().name(), " (", endpoint_.plugin_path, "), device ", dev_, " ", nic);

  if (options_.pipeline.channels > 1 || options_.pipeline.failover)
    say("one channel, whatever UCCL_TCPX_NUM_CHANNELS and UCCL_TCPX_FAILOVER say: test_tcpx_perf opens several");

  const bool cuda = options_.memory == MemoryType::kCuda;
  if (cuda && !memory.has_gpu()) say("no GPU on this machine: host memory stands in for GPU memory");
  // The plugin takes the current GPU for that of the connection (27).
  TCPX_RETURN_IF_ERROR(memory.set_current_device(gpu_));
  TCPX_ASSIGN_OR_RETURN(memory_, TestMemory::create(memory, options_.memory, gpu_, std::max<uint64_t>(transfer_bytes(), 1)));
  TCPX_ASSIGN_OR_RETURN(lane_, memory.make_copy_lane(gpu_));
  if (!receives) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(unpacker_, endpoint_.make_unpacker(options_.unpack, gpu_));
  return Status::ok();
}

Result<RegisteredMemory> TransferEnd::register_buffer(Pipeline& connection) {
  const bool cuda = options_.memory == MemoryType::kCuda;
  step("registering ", memory_.size(), " bytes of ",
       !cuda                         ? "host"
       : endpoint_.memory->has_gpu() ? concat("GPU ", gpu_)
                                     : "stand-in",
       " memory");
  if (options_.debug) {
    say("payload_bytes=", transfer_bytes(), ", buffer ptr=", Hex{reinterpret_cast<uintptr_t>(memory_.data())},
        " bytes=", memory_.size());
  }
  return connection.register_memory(memory_.data(), memory_.size(), options_.memory);
}

Status TransferEnd::fill(std::span<const std::byte> bytes) {
  return bytes.empty() ? Status::ok() : lane_->copy(memory_.data(), bytes.data(), bytes.size());
}

Status TransferEnd::read_back(std::span<std::byte> bytes) {
  return bytes.empty() ? Status::ok() : lane_->copy(bytes.data(), memory_.data(), bytes.size());
}

Status TransferEnd::exchange_parameters(BootstrapChannel& channel, Direction direction) {
  Parameters mine = {{"payload", options_.bytes ? "pattern" : "text"},
                     {"bytes", std::to_string(transfer_bytes())},
                     {"iterations", std::to_string(options_.iterations)},
                     {"chunk bytes", std::to_string(options_.pipeline.chunk_bytes)}};
  add_message_cut(plugin(), mine);
  constexpr std::string_view kMustMatch[] = {"payload", "bytes", "iterations", "chunk bytes", kPluginPieceBytes};
  TCPX_ASSIGN_OR_RETURN(const auto theirs, channel.exchange_parameters(mine, kMustMatch, deadline()));
  const PipelineOptions options = pipeline_options(direction);
  TCPX_RETURN_IF_ERROR(check_chunk_bytes(plugin(), direction, theirs, options.chunk_bytes));
  TCPX_ASSIGN_OR_RETURN(const auto plan, ChunkPlan::make(transfer_bytes(), options.chunk_bytes, options.longest_chunk_bytes));
  step("connected with ", channel.peer().to_string(), " (tcpx ", channel.peer_build(), "): ", options_.iterations, " x ",
       transfer_bytes(), " bytes in ", plan.count(), plan.count() == 1 ? " chunk" : " chunks");
  return Status::ok();
}

PipelineOptions TransferEnd::pipeline_options(Direction direction) const {
  PipelineOptions connection = options_.pipeline.options(direction);
  connection.limits.stall_limit = options_.timeout;
  connection.failover = false;  // there is no other channel
  // As open_sender and open_receiver do.
  if (plugin().message_cut()) connection.longest_chunk_bytes = 0;
  return connection;
}

Status TransferEnd::drive(Pipeline& connection, TransferId id, uint32_t iteration, BootstrapChannel& channel) {
  const bool show = ::isatty(STDERR_FILENO) == 1 && transfer_bytes() > 0;
  bool shown = false;
  const auto tick = [&](uint64_t bytes_done) {
    if (show) {
      std::fprintf(stderr, "\r[%s] %3d %%", name_.c_str(), static_cast<int>(bytes_done * 100 / transfer_bytes()));
      shown = true;
    }
    return channel.peer_status();
  };
  const auto done = run_until_done(connection, id, {.deadline = data_deadline(), .stop = &stop_, .on_tick = tick});
  if (shown) std::fputs("\r                    \r", stderr);
  if (!done.is_ok()) return peers_reason(channel, done.status());
  if (*done) return Status::ok();
  say("stopped in transfer ", iteration + 1, " of ", options_.iterations, ", after ", connection.poll(id).bytes_done, " of ",
      transfer_bytes(), " bytes");
  return {Code::kCancelled, "transfer", "interrupted"};
}

}  // namespace tcpx::programs
