#include "programs/transfer/transfer_end.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "measure/pattern.h"
#include "tcpx/help.h"
#include "transfer/chunk_plan.h"
#include "transfer/handshake.h"
#include "transfer/run.h"

namespace tcpx::programs {
namespace {

constexpr std::string_view kTextPayload = "Hello from TCPX client!";
constexpr int kTransferTag = 42;
// Every byte of a message that is not longer is shown.
constexpr size_t kProbeBytes = 256;

}  // namespace

Deadline TransferEnd::data_deadline() const {
  const auto megabytes = static_cast<int64_t>(transfer_bytes() / 1000000);
  return Deadline::after(options_.timeout + std::chrono::milliseconds(20) * megabytes);
}

size_t TransferEnd::transfer_bytes() const {
  return options_.bytes ? static_cast<size_t>(*options_.bytes) : kTextPayload.size();
}

PipelineOptions TransferEnd::pipeline_options() const {
  PipelineOptions pipeline = options_.pipeline.options(direction());
  pipeline.limits.stall_limit = options_.timeout;
  pipeline.failover = false;  // there is no other channel
  // As open_sender and open_receiver do.
  if (plugin().message_cut()) pipeline.longest_chunk_bytes = 0;
  return pipeline;
}

Status TransferEnd::prepare() {
  MemoryOps& memory = *machine_.memory;
  if (options_.dev) {
    dev_ = *options_.dev;
  } else {
    TCPX_ASSIGN_OR_RETURN(const auto nearest, machine_.channel_devices(gpu_, 1));
    dev_ = nearest.front();
  }
  TCPX_ASSIGN_OR_RETURN(const auto nic, machine_.describe_devices(gpu_, {dev_}));
  step("net plugin ", plugin().name(), " (", machine_.plugin_path, "), device ", dev_, " ", nic);

  if (options_.pipeline.channels > 1 || options_.pipeline.failover)
    tell("one channel, whatever UCCL_TCPX_NUM_CHANNELS and UCCL_TCPX_FAILOVER say: test_tcpx_perf opens several");

  const bool cuda = options_.memory == MemoryType::kCuda;
  if (cuda && !memory.has_gpu()) tell("no GPU on this machine: host memory stands in for GPU memory");
  // The plugin takes the current GPU for that of the connection (27).
  TCPX_RETURN_IF_ERROR(memory.set_current_device(gpu_));
  TCPX_ASSIGN_OR_RETURN(memory_, TestMemory::create(memory, options_.memory, gpu_, std::max<uint64_t>(transfer_bytes(), 1)));
  TCPX_ASSIGN_OR_RETURN(lane_, memory.make_copy_lane(gpu_));
  if (!is_server_) return Status::ok();
  TCPX_ASSIGN_OR_RETURN(unpacker_, machine_.make_unpacker(options_.unpack, gpu_));
  return Status::ok();
}

Result<RegisteredMemory> TransferEnd::register_memory() {
  const bool cuda = options_.memory == MemoryType::kCuda;
  step("registering ", memory_.size(), " bytes of ",
       !cuda                        ? "host"
       : machine_.memory->has_gpu() ? concat("GPU ", gpu_)
                                    : "stand-in",
       " memory");
  if (options_.debug) {
    tell("payload_bytes=", transfer_bytes(), ", buffer ptr=", Hex{reinterpret_cast<uintptr_t>(memory_.data())},
         " bytes=", memory_.size());
  }
  return pipeline_->register_memory(memory_.data(), memory_.size(), options_.memory);
}

Status TransferEnd::run(BootstrapChannel& channel) {
  TCPX_RETURN_IF_ERROR(exchange_parameters(channel));
  TCPX_ASSIGN_OR_RETURN(Comm comm, is_server_ ? accept(channel) : connect(channel));
  TCPX_ASSIGN_OR_RETURN(const ReceiveParts parts, receive_parts());
  TCPX_ASSIGN_OR_RETURN(pipeline_, Pipeline::create(std::move(comm), parts, Clock::steady(), pipeline_options()));
  TCPX_ASSIGN_OR_RETURN(const RegisteredMemory memory, register_memory());
  for (uint32_t i = 0; i < options_.iterations; ++i) {
    TCPX_RETURN_IF_ERROR(is_server_ ? receive(channel, memory, i) : send(channel, memory, i));
  }
  if (!is_server_) step("sent, waiting for the server's verdict");
  // The client waits here for the last byte to be verified, and closes only then (13, 36).
  TCPX_RETURN_IF_ERROR(channel.barrier(data_deadline()));
  step("closing");
  return pipeline_->close();
}

Status TransferEnd::exchange_parameters(BootstrapChannel& channel) {
  Parameters mine = {{"payload", options_.bytes ? "pattern" : "text"},
                     {"bytes", std::to_string(transfer_bytes())},
                     {"iterations", std::to_string(options_.iterations)},
                     {"chunk bytes", std::to_string(options_.pipeline.chunk_bytes)}};
  add_message_cut(plugin(), mine);
  constexpr std::string_view kMustMatch[] = {"payload", "bytes", "iterations", "chunk bytes", kPluginPieceBytes};
  TCPX_ASSIGN_OR_RETURN(const auto theirs, channel.exchange_parameters(mine, kMustMatch, deadline()));
  const PipelineOptions options = pipeline_options();
  TCPX_RETURN_IF_ERROR(check_chunk_bytes(plugin(), direction(), theirs, options.chunk_bytes));
  TCPX_ASSIGN_OR_RETURN(const auto plan, ChunkPlan::make(transfer_bytes(), options.chunk_bytes, options.longest_chunk_bytes));
  step("connected with ", channel.peer().to_string(), " (tcpx ", channel.peer_build(), "): ", options_.iterations, " x ",
       transfer_bytes(), " bytes in ", plan.count(), plan.count() == 1 ? " chunk" : " chunks");
  return Status::ok();
}

Result<Comm> TransferEnd::connect(BootstrapChannel& channel) {
  TCPX_ASSIGN_OR_RETURN(const auto handles, channel.receive_handles(1, deadline()));
  step("handle received: ", hex_preview(handles.front().bytes, 16));
  TCPX_ASSIGN_OR_RETURN(auto comm, connect_comm(plugin(), dev_, handles.front(), {deadline(), &channel, &stop_}));
  step("connected");
  return comm;
}

Result<Comm> TransferEnd::accept(BootstrapChannel& channel) {
  TCPX_ASSIGN_OR_RETURN(auto listener, Listener::create(plugin(), dev_));
  step("listening, handle sent: ", hex_preview(listener.handle().bytes, 16));
  TCPX_RETURN_IF_ERROR(channel.send_handles({&listener.handle(), 1}, deadline()));
  TCPX_ASSIGN_OR_RETURN(auto comm, listener.accept(device_handle_, {deadline(), &channel, &stop_}));
  step("accepted");
  return comm;
}

Result<ReceiveParts> TransferEnd::receive_parts() {
  ReceiveParts parts{.unpacker = unpacker_.get()};
  if (!is_server_) return parts;
  if (options_.memory == MemoryType::kCuda) {
    TCPX_ASSIGN_OR_RETURN(parts.pool, plugin().bounce_pool(device_handle_, *machine_.memory, *lane_));
  }
  if (options_.debug) {
    tell("device handle: ", hex_preview(std::span<const std::byte>(device_handle_.bytes).first(32), 32));
    tell("bounce pool: ", parts.pool.bytes, " bytes at ", Hex{reinterpret_cast<uintptr_t>(parts.pool.base)});
    parts.tap = this;
  }
  return parts;
}

Status TransferEnd::send(BootstrapChannel& channel, const RegisteredMemory& memory, uint32_t iteration) {
  if (!options_.bytes) {
    TCPX_RETURN_IF_ERROR(lane_->copy(memory_.data(), kTextPayload.data(), kTextPayload.size()));
  } else {
    TCPX_RETURN_IF_ERROR(memory_.fill(0, *options_.bytes, iteration + 1));
  }
  TCPX_RETURN_IF_ERROR(channel.barrier(data_deadline()));
  TCPX_ASSIGN_OR_RETURN(const auto first, first_bytes());
  step("sending ", transfer_bytes(), " bytes, tag=", kTransferTag, ": ", hex_preview(first));
  return drive(channel, memory, iteration);
}

Status TransferEnd::receive(BootstrapChannel& channel, const RegisteredMemory& memory, uint32_t iteration) {
  // Data of an earlier iteration cannot pass for that of this one.
  TCPX_RETURN_IF_ERROR(memory_.blank(0, memory_.size()));
  step("receiving ", transfer_bytes(), " bytes, tag=", kTransferTag,
       options_.memory == MemoryType::kCuda ? concat(", unpack ", unpacker_->name()) : "");
  // The barrier lets the time begin with both ends ready.
  TCPX_RETURN_IF_ERROR(channel.barrier(data_deadline()));
  const TimePoint begin = Clock::steady().now();
  TCPX_RETURN_IF_ERROR(drive(channel, memory, iteration));
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::steady().now() - begin).count();
  tell("in place after ", us, " us");
  return verify(iteration);
}

Status TransferEnd::verify(uint32_t iteration) {
  TCPX_ASSIGN_OR_RETURN(const auto first, first_bytes());
  tell("received: ", hex_preview(first));
  if (options_.bytes) {
    TCPX_RETURN_IF_ERROR(memory_.verify(0, *options_.bytes, iteration + 1));
    tell("SUCCESS: ", *options_.bytes, " bytes match the pattern");
    return Status::ok();
  }
  if (std::memcmp(first.data(), kTextPayload.data(), kTextPayload.size()) != 0) {
    return {Code::kMismatch, "verify data",
            concat("the payload is not the expected string", name_in_detail(Hint::kConsumedEarly))};
  }
  tell("SUCCESS: Payload matches expected string");
  if (options_.debug) tell("Data validation PASSED: ", first.size(), " bytes");
  return Status::ok();
}

Result<std::vector<std::byte>> TransferEnd::first_bytes() {
  std::vector<std::byte> first(std::min(transfer_bytes(), kProbeBytes));
  if (!first.empty()) TCPX_RETURN_IF_ERROR(lane_->copy(first.data(), memory_.data(), first.size()));
  return first;
}

Status TransferEnd::drive(BootstrapChannel& channel, const RegisteredMemory& memory, uint32_t iteration) {
  TCPX_ASSIGN_OR_RETURN(const auto id, pipeline_->submit({.memory = memory, .bytes = transfer_bytes(), .tag = kTransferTag}));
  const bool show = ::isatty(STDERR_FILENO) == 1 && transfer_bytes() > 0;
  bool shown = false;
  const auto tick = [&](uint64_t bytes_done) {
    if (show) {
      std::fprintf(stderr, "\r[%s] %3d %%", name(), static_cast<int>(bytes_done * 100 / transfer_bytes()));
      shown = true;
    }
    return channel.peer_status();
  };
  const auto done = run_until_done(*pipeline_, id, {.deadline = data_deadline(), .stop = &stop_, .on_tick = tick});
  if (shown) std::fputs("\r                    \r", stderr);
  if (!done.is_ok()) return peers_reason(channel, done.status());
  if (*done) return Status::ok();
  tell("stopped in transfer ", iteration + 1, " of ", options_.iterations, ", after ", pipeline_->poll(id).bytes_done, " of ",
       transfer_bytes(), " bytes");
  return {Code::kCancelled, "transfer", "interrupted"};
}

void TransferEnd::arrived(const ChunkWork& work, const ReceivedMessage& message, const DescriptorBlock& block) {
  tell("request: chunk ", work.chunk.index, ", ", message.bytes, " bytes, tag ", work.tag, ", queue index ", message.queue_index,
       message.in_place ? ", in place" : concat(", ", message.fragment_count, " fragments"));
  const auto fragments = block.fragments();
  for (size_t i = 0; i < fragments.size(); ++i) {
    tell("descriptor[", i, "] src_off=", fragments[i].src_off, " len=", fragments[i].len, " dst_off=", fragments[i].dst_off);
  }
  if (fragments.empty()) return;
  std::byte first[kProbeBytes];
  const size_t bytes = std::min<size_t>(sizeof first, fragments[0].len);
  const Status copied = lane_->copy(first, block.target().pool + fragments[0].src_off, bytes);
  tell("Bounce probe (", bytes, "B) from src_off=", fragments[0].src_off, ": ",
       copied.is_ok() ? hex_preview({first, bytes}, kProbeBytes) : copied.to_string());
}

}  // namespace tcpx::programs
