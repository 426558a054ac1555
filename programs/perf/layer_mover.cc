// The mover of every layer but the pipeline: an end of measure/, whose rounds are timed as a whole.
#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "measure/end.h"
#include "measure/message_plan.h"
#include "programs/perf/mover.h"
#include "transfer/handshake.h"

namespace tcpx::perf {
namespace {

class LayerMover final : public Mover {
 public:
  explicit LayerMover(const EndPlace& place) : place_(place), options_(place.options) {}

  // The plugin takes the current GPU for that of the connection (27).
  Status prepare() override { return place_.endpoint.memory->set_current_device(place_.gpu); }
  std::string describe() const override;
  uint32_t channels() const override { return options_.layer == Layer::kTcp ? std::max(options_.pipeline.channels, 1u) : 1; }
  Status open(BootstrapChannel& channel, uint64_t slot_room_bytes) override;
  Status fill(const RoundPlan& plan, uint64_t round) override;
  Status run(const RoundPlan& plan, const RoundWait& wait, RoundTimes& times) override;
  Status verify(const RoundPlan& plan, uint64_t round, EndRow& row) override;
  Status close() override { return end_->close(); }

 private:
  bool leads() const { return !place_.is_server; }
  Result<int> exchange_gpus(BootstrapChannel& channel) const;
  Status meet(BootstrapChannel& channel);

  const EndPlace place_;
  const PerfOptions& options_;
  uint64_t slot_room_bytes_ = 0;
  std::unique_ptr<BenchEnd> end_;
  uint64_t row_bytes_ = 0;  // that memory was allocated for
};

std::string LayerMover::describe() const {
  const LocalMachine& endpoint = place_.endpoint;
  return options_.layer == Layer::kTcp ? "host memory"
                                       : concat(endpoint.plugin->name(), " (", endpoint.plugin_path, "), ", place_.memory_text());
}

Result<int> LayerMover::exchange_gpus(BootstrapChannel& channel) const {
  TCPX_ASSIGN_OR_RETURN(const auto theirs,
                        channel.exchange_parameters({{"gpu", std::to_string(place_.gpu)}}, {}, place_.deadline()));
  const auto found = theirs.find("gpu");
  int gpu = -1;
  if (found != theirs.end()) std::from_chars(found->second.data(), found->second.data() + found->second.size(), gpu);
  return gpu >= 0 ? Result<int>(gpu) : Status(Code::kProtocol, "agree with the peer", "'gpu' is missing or malformed");
}

Status LayerMover::open(BootstrapChannel& channel, uint64_t slot_room_bytes) {
  slot_room_bytes_ = slot_room_bytes;
  TCPX_ASSIGN_OR_RETURN(const int peer_gpu, exchange_gpus(channel));
  EndSetup setup;
  setup.kind = options_.layer == Layer::kTcp      ? EndSetup::Kind::kRawTcp
               : options_.layer == Layer::kPlugin ? EndSetup::Kind::kPlugin
                                                  : EndSetup::Kind::kEndpoint;
  setup.leads = leads();
  setup.memory = options_.memory;
  setup.gpu = place_.gpu;
  setup.peer_gpu = peer_gpu;
  setup.peer = channel.peer();
  setup.streams = channels();
  setup.request_bytes = options_.pipeline.chunk_bytes;
  const std::string& path = place_.endpoint.plugin_path;
  if (path != kLinkedIn) path.copy(setup.plugin, sizeof setup.plugin - 1);
  TCPX_ASSIGN_OR_RETURN(end_, make_bench_end(setup));
  return meet(channel);
}

// One direction after the other, because a connect may block until the other end accepts.
Status LayerMover::meet(BootstrapChannel& channel) {
  TCPX_ASSIGN_OR_RETURN(const Handle mine, end_->listen());
  TCPX_RETURN_IF_ERROR(channel.send_handles({&mine, 1}, place_.deadline()));
  TCPX_ASSIGN_OR_RETURN(const auto theirs, channel.receive_handles(1, place_.deadline()));
  if (leads()) TCPX_RETURN_IF_ERROR(end_->connect(theirs.front(), place_.deadline()));
  TCPX_RETURN_IF_ERROR(end_->accept(place_.deadline()));
  return leads() ? Status::ok() : end_->connect(theirs.front(), place_.deadline());
}

Status LayerMover::fill(const RoundPlan& plan, uint64_t round) {
  if (row_bytes_ != plan.bytes) {
    const RowSetup row{.pattern = plan.ping_pong ? Pattern::kPingPong : Pattern::kOneWay,
                       .message_bytes = plan.bytes,
                       .seed = round,
                       .slots = slots_in(slot_room_bytes_, plan.bytes)};
    TCPX_RETURN_IF_ERROR(end_->allocate(row));
    row_bytes_ = plan.bytes;
  }
  return end_->prepare(plan.transfers);
}

Status LayerMover::run(const RoundPlan& plan, const RoundWait& wait, RoundTimes& times) {
  const Result<Timing> timing = end_->run(wait.deadline);
  if (place_.stop) return {Code::kCancelled, "transfer", "interrupted"};
  if (!timing.is_ok()) return timing.status();
  const auto taken = static_cast<uint64_t>(timing->end_ns - timing->begin_ns);
  times.busy_ns += taken;
  times.cpu_ns += static_cast<uint64_t>(timing->cpu_seconds * 1e9);
  if (!plan.ping_pong || plan.begins) {
    times.samples_ns.insert(times.samples_ns.end(), plan.transfers, taken / plan.transfers / (plan.ping_pong ? 2 : 1));
  }
  return wait.on_tick(plan.transfers);
}

Status LayerMover::verify(const RoundPlan&, uint64_t, EndRow& row) {
  const Status wrong = end_->verify();
  if (wrong.code() != Code::kMismatch) return wrong;
  if (row.wrong++ == 0) row.first_wrong = concat(wrong.operation(), ": ", wrong.detail());
  return Status::ok();
}

}  // namespace

std::unique_ptr<Mover> make_layer_mover(const EndPlace& place) {
  return std::make_unique<LayerMover>(place);
}

}  // namespace tcpx::perf
