#include "programs/mesh/pair_meter.h"

#include <algorithm>

#include "device/unpacker_factory.h"

namespace tcpx::mesh {
namespace {

constexpr uint64_t kPieceBytes = 64u << 20;
constexpr uint64_t kSeed = 1;  // positions tell the transfers apart, and the memory is blank before each measurement

}  // namespace

Result<std::unique_ptr<PairMeter>> PairMeter::create(LocalMachine& endpoint, const MeterOptions& options) {
  std::unique_ptr<PairMeter> meter(new PairMeter(endpoint, options));
  TCPX_RETURN_IF_ERROR(meter->prepare());
  return meter;
}

Status PairMeter::prepare() {
  MemoryOps& memory = *endpoint_.memory;
  TCPX_RETURN_IF_ERROR(memory.set_current_device(options_.gpu));
  for (Half* half : {&send_, &receive_}) {
    TCPX_ASSIGN_OR_RETURN(half->memory, TestMemory::create(memory, options_.memory, options_.gpu, total_bytes()));
  }
  TCPX_ASSIGN_OR_RETURN(lane_, memory.make_copy_lane(options_.gpu));
  TCPX_ASSIGN_OR_RETURN(unpacker_, endpoint_.make_unpacker(options_.unpack, options_.gpu));
  return by_pieces(total_bytes(), [this](uint64_t off, uint64_t bytes) { return send_.memory.fill(off, bytes, kSeed, off); });
}

Duration PairMeter::data_time() const {
  // Moving and comparing go at 50 MB/s at least.
  return options_.timeout + std::chrono::milliseconds(20) * static_cast<int64_t>(total_bytes() / 1'000'000);
}

Duration PairMeter::limit() const {
  // Handshake; blanking, warming up, comparing, the timed part, comparing, each as long as its deadline allows.
  return 2 * options_.timeout + 5 * data_time();
}

PipelineOptions PairMeter::pipeline_options(Direction direction) const {
  PipelineOptions pipeline = options_.pipeline.options(direction);
  pipeline.limits.stall_limit = options_.timeout;
  return pipeline;
}

PairResult PairMeter::result(Duration elapsed, bool verified) const {
  // 1e9 bytes per second is one byte per nanosecond.
  const auto ns = static_cast<double>(std::max<int64_t>(elapsed.count(), 1));
  return {static_cast<double>(total_bytes()) / ns, verified};
}

Status PairMeter::by_pieces(uint64_t bytes, const std::function<Status(uint64_t off, uint64_t bytes)>& work) {
  for (uint64_t off = 0; off < bytes; off += kPieceBytes) {
    if (options_.stop != nullptr && options_.stop->load()) return {Code::kCancelled, "measure pair", "interrupted"};
    TCPX_RETURN_IF_ERROR(work(off, std::min(kPieceBytes, bytes - off)));
  }
  return Status::ok();
}

Status PairMeter::verify(uint64_t bytes) {
  return by_pieces(bytes, [this](uint64_t off, uint64_t piece) { return receive_.memory.verify(off, piece, kSeed, off); });
}

Status PairMeter::blank() {
  return by_pieces(receive_.memory.size(), [this](uint64_t off, uint64_t piece) { return receive_.memory.blank(off, piece); });
}

Result<Duration> PairMeter::run(Half* send, Half* receive, uint32_t transfers, BootstrapChannel& peer) {
  TCPX_RETURN_IF_ERROR(peer.barrier(data_deadline()));
  const RoundPlan plan{.bytes = options_.transfer_bytes, .stride = options_.transfer_bytes, .transfers = transfers};
  const RoundWait wait{
      .deadline = data_deadline(), .stop = options_.stop, .on_tick = [&peer](uint32_t) { return peer.peer_status(); }};
  RoundTimes times;
  TCPX_RETURN_IF_ERROR(run_round(plan, send, receive, wait, times));
  return Duration(times.busy_ns);
}

Result<PairResult> PairMeter::receive(BootstrapChannel& peer, const std::function<Status()>& start) {
  const ReceiverParts parts{.unpacker = unpacker_.get(),
                            .memory = endpoint_.memory.get(),
                            .lane = options_.memory == MemoryType::kCuda ? lane_.get() : nullptr};
  TCPX_RETURN_IF_ERROR(receive_.take(
      open_receiver(*endpoint_.plugin, options_.devices, parts, pipeline_options(Direction::kRecv), handshake_wait(peer))));
  TCPX_RETURN_IF_ERROR(blank());
  TCPX_RETURN_IF_ERROR(run(nullptr, &receive_, 1, peer).status());
  TCPX_RETURN_IF_ERROR(verify(options_.transfer_bytes));
  TCPX_RETURN_IF_ERROR(blank());
  TCPX_RETURN_IF_ERROR(start());
  TCPX_ASSIGN_OR_RETURN(const Duration elapsed, run(nullptr, &receive_, options_.transfers, peer));
  TCPX_RETURN_IF_ERROR(verify(total_bytes()));
  // The sender waits here for the verdict, and closes only then.
  TCPX_RETURN_IF_ERROR(peer.barrier(data_deadline()));
  TCPX_RETURN_IF_ERROR(receive_.pipeline->close());
  return result(elapsed, true);
}

Result<PairResult> PairMeter::send(BootstrapChannel& peer, const std::function<Status()>& start) {
  TCPX_RETURN_IF_ERROR(
      send_.take(open_sender(*endpoint_.plugin, options_.devices, pipeline_options(Direction::kSend), handshake_wait(peer))));
  TCPX_RETURN_IF_ERROR(run(&send_, nullptr, 1, peer).status());
  TCPX_RETURN_IF_ERROR(start());
  TCPX_ASSIGN_OR_RETURN(const Duration elapsed, run(&send_, nullptr, options_.transfers, peer));
  TCPX_RETURN_IF_ERROR(peer.barrier(data_deadline()));
  TCPX_RETURN_IF_ERROR(send_.pipeline->close());
  return result(elapsed, false);
}

Result<PairResult> PairMeter::measure(BootstrapChannel& peer, bool sends, const std::function<Status()>& start) {
  // The plugin takes the current GPU of the calling thread for that of the connection (27).
  TCPX_RETURN_IF_ERROR(endpoint_.memory->set_current_device(options_.gpu));
  const auto result = sends ? send(peer, start) : receive(peer, start);
  (sends ? send_ : receive_).pipeline.reset();  // of this pair
  return result;
}

}  // namespace tcpx::mesh
