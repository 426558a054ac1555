// The mover of the pipeline: a Connection each way, as an application has it.
#include <algorithm>
#include <set>

#include "base/text.h"
#include "device/unpacker_factory.h"
#include "measure/size_sweep.h"
#include "programs/perf/mover.h"
#include "transfer/pipeline_setup.h"

namespace tcpx::perf {
namespace {

class PipelineMover final : public Mover {
 public:
  explicit PipelineMover(const EndPlace& place) : place_(place), options_(place.options), endpoint_(place.endpoint) {}

  Status prepare() override;
  std::string describe() const override;
  std::string unpack() const override {
    return place_.receives() && options_.memory == MemoryType::kCuda ? unpacker_->name() : "";
  }
  bool verifies() const override { return options_.unpack != UnpackKind::kNone || options_.memory == MemoryType::kHost; }
  std::vector<std::string> nics() const override { return nics_; }
  uint32_t channels() const override { return static_cast<uint32_t>(devices_.size()); }
  Status open(BootstrapChannel& channel, uint64_t slot_room_bytes) override;
  Status fill(const RoundPlan& plan, uint64_t round) override;
  Status run(const RoundPlan& plan, const RoundWait& wait, RoundTimes& times) override {
    return run_round(plan, place_.sends() ? &send_ : nullptr, place_.receives() ? &receive_ : nullptr, wait, times);
  }
  Status verify(const RoundPlan& plan, uint64_t round, EndRow& row) override;
  Status close() override;

 private:
  Status make_unpacker();
  Status open_half(BootstrapChannel& channel, bool sending, uint64_t bytes);
  static uint64_t seed(uint64_t round, uint32_t slot, bool from_server) {
    return (round * kMaxSlots + slot) * 2 + (from_server ? 1 : 0);
  }

  const EndPlace place_;
  const PerfOptions& options_;
  LocalMachine& endpoint_;
  ChannelDevices devices_;
  std::vector<std::string> nics_;  // of the devices, each once, sorted
  std::unique_ptr<CopyLane> lane_;
  std::unique_ptr<Unpacker> unpacker_;
  Half send_, receive_;
};

Status PipelineMover::prepare() {
  TCPX_ASSIGN_OR_RETURN(devices_, endpoint_.channel_devices(place_.gpu, options_.pipeline.channels));
  std::set<std::string> nics;
  for (const int device : devices_) {
    TCPX_ASSIGN_OR_RETURN(const auto properties, endpoint_.plugin->properties(device));
    nics.insert(properties.name);
  }
  nics_.assign(nics.begin(), nics.end());

  // The plugin takes the current GPU for that of the connection (27).
  TCPX_RETURN_IF_ERROR(endpoint_.memory->set_current_device(place_.gpu));
  TCPX_ASSIGN_OR_RETURN(lane_, endpoint_.memory->make_copy_lane(place_.gpu));
  return place_.receives() ? make_unpacker() : Status::ok();
}

Status PipelineMover::make_unpacker() {
  if (options_.unpack == UnpackKind::kNone) {
    unpacker_ = make_no_unpacker();
    return Status::ok();
  }
  TCPX_ASSIGN_OR_RETURN(unpacker_, endpoint_.make_unpacker(options_.unpack, place_.gpu));
  return Status::ok();
}

std::string PipelineMover::describe() const {
  const PipelineSettings& pipeline = options_.pipeline;
  return concat(endpoint_.plugin->name(), " (", endpoint_.plugin_path, ", ABI v", endpoint_.plugin->abi_version(), "), ",
                place_.memory_text(), unpack().empty() ? "" : concat(", unpack ", unpack()), ", window ",
                place_.receives() ? concat(pipeline.recv_window, place_.sends() ? "/" : "") : "",
                place_.sends() ? std::to_string(pipeline.send_window) : "");
}

Status PipelineMover::open(BootstrapChannel& channel, uint64_t slot_room_bytes) {
  uint64_t bytes = 0;
  for (const uint64_t size : sizes_of(options_.sizes)) {
    bytes = std::max(bytes, slots_in(slot_room_bytes, size) * slot_stride(size));
  }
  // First the way from the client to the server.
  TCPX_RETURN_IF_ERROR(open_half(channel, !place_.is_server, bytes));
  return options_.mode == PerfMode::kOneWay ? Status::ok() : open_half(channel, place_.is_server, bytes);
}

Status PipelineMover::open_half(BootstrapChannel& channel, bool sending, uint64_t bytes) {
  Half& half = sending ? send_ : receive_;
  TCPX_ASSIGN_OR_RETURN(auto memory, TestMemory::create(*endpoint_.memory, options_.memory, place_.gpu, bytes));
  half.memory = std::move(memory);

  const HandshakeWait wait{place_.deadline(), &channel, &place_.stop};
  PipelineOptions pipeline_options = options_.pipeline.options(sending ? Direction::kSend : Direction::kRecv);
  pipeline_options.limits.stall_limit = options_.timeout;
  const bool needs_pool = options_.memory == MemoryType::kCuda;
  const ReceiverParts parts{
      .unpacker = unpacker_.get(), .memory = endpoint_.memory.get(), .lane = needs_pool ? lane_.get() : nullptr, .tap = nullptr};
  return half.take(sending ? open_sender(*endpoint_.plugin, devices_, pipeline_options, wait)
                           : open_receiver(*endpoint_.plugin, devices_, parts, pipeline_options, wait));
}

Status PipelineMover::fill(const RoundPlan& plan, uint64_t round) {
  if (!place_.sends()) return Status::ok();
  for (uint32_t slot = 0; slot < plan.transfers; ++slot) {
    TCPX_RETURN_IF_ERROR(send_.memory.fill(slot * plan.stride, plan.bytes, seed(round, slot, place_.is_server)));
  }
  return Status::ok();
}

Status PipelineMover::verify(const RoundPlan& plan, uint64_t round, EndRow& row) {
  if (!place_.receives() || !verifies()) return Status::ok();
  for (uint32_t slot = 0; slot < plan.transfers; ++slot) {
    TCPX_ASSIGN_OR_RETURN(const auto check,
                          receive_.memory.check(slot * plan.stride, plan.bytes, seed(round, slot, !place_.is_server)));
    if (check.wrong == 0) continue;
    if (row.wrong == 0) {
      row.first_wrong = concat(check.wrong, " of ", plan.bytes, " bytes of one transfer differ at the ",
                               place_.is_server ? "server" : "client", ", the first at ", check.first_wrong);
    }
    row.wrong += check.wrong;
  }
  return Status::ok();
}

Status PipelineMover::close() {
  for (Half* half : {&send_, &receive_}) {
    if (half->pipeline) TCPX_RETURN_IF_ERROR(half->pipeline->close());
  }
  return Status::ok();
}

}  // namespace

std::string EndPlace::memory_text() const {
  const bool has_gpu = endpoint.memory->has_gpu();
  const char* memory = options.memory == MemoryType::kHost ? "host memory" : has_gpu ? "GPU memory" : "stand-in for GPU memory";
  return concat(has_gpu ? concat("GPU ", gpu) : "no GPU", ", ", memory);
}

std::unique_ptr<Mover> make_pipeline_mover(const EndPlace& place) {
  return std::make_unique<PipelineMover>(place);
}

}  // namespace tcpx::perf
