#include "programs/mesh/pair_meter.h"

#include <algorithm>

#include "device/unpacker_factory.h"

namespace tcpx::mesh {

Result<std::unique_ptr<PairMeter>> PairMeter::create(LocalMachine& machine, const MeterOptions& options) {
  std::unique_ptr<PairMeter> meter(new PairMeter(machine, options));
  for (const bool sends : {false, true}) TCPX_RETURN_IF_ERROR(meter->make_end(sends));
  return meter;
}

Status PairMeter::make_end(bool sends) {
  EndSetup setup;
  setup.leads = sends;
  setup.memory = options_.memory;
  setup.gpu = options_.gpu;
  setup.request_bytes = options_.pipeline.chunk_bytes;
  PipelineEnd::Parts parts{machine_.plugin, options_.devices, options_.pipeline, nullptr};
  parts.settings.stall_limit = options_.timeout;
  TCPX_RETURN_IF_ERROR(machine_.memory->set_current_device(options_.gpu));
  if (!sends) {
    TCPX_ASSIGN_OR_RETURN(parts.unpacker, machine_.make_unpacker(options_.unpack, options_.gpu));
  }
  TCPX_ASSIGN_OR_RETURN(ends_[sends], PipelineEnd::create(setup, std::move(parts)));
  return ends_[sends]->allocate(row());
}

RowSetup PairMeter::row() const {
  return {.message_bytes = options_.transfer_bytes, .slots = options_.transfers, .stride = options_.transfer_bytes};
}

Duration PairMeter::data_time() const {
  // Moving and comparing go at 50 MB/s at least.
  return options_.timeout + std::chrono::milliseconds(20) * static_cast<int64_t>(total_bytes() / 1'000'000);
}

Duration PairMeter::limit() const {
  // Handshake; blanking, warming up, comparing, the timed part, comparing, each as long as its deadline allows.
  return 2 * options_.timeout + 5 * data_time();
}

Result<Timing> PairMeter::run(PipelineEnd& end, BootstrapChannel& peer) const {
  TCPX_RETURN_IF_ERROR(peer.barrier(data_deadline()));
  return end.run(
      {.deadline = data_deadline(), .stop = options_.stop, .on_tick = [&peer](uint64_t) { return peer.peer_status(); }});
}

Result<PairResult> PairMeter::measure_with(PipelineEnd& end, BootstrapChannel& peer, bool sends,
                                           const std::function<Status()>& start) {
  end.meet_over(peer);
  const Deadline connected = Deadline::after(options_.timeout);
  TCPX_RETURN_IF_ERROR(sends ? end.connect({}, connected) : end.accept(connected));
  TCPX_RETURN_IF_ERROR(end.allocate(row()));
  TCPX_RETURN_IF_ERROR(end.prepare(1));
  TCPX_RETURN_IF_ERROR(run(end, peer).status());
  TCPX_RETURN_IF_ERROR(end.verify());
  TCPX_RETURN_IF_ERROR(end.prepare(options_.transfers));
  TCPX_RETURN_IF_ERROR(start());
  TCPX_ASSIGN_OR_RETURN(const Timing timed, run(end, peer));
  TCPX_RETURN_IF_ERROR(end.verify());
  // The sender waits here for the verdict, and closes only then.
  TCPX_RETURN_IF_ERROR(peer.barrier(data_deadline()));
  TCPX_RETURN_IF_ERROR(end.close());
  // 1e9 bytes per second is one byte per nanosecond.
  const auto ns = static_cast<double>(std::max<int64_t>(timed.end_ns - timed.begin_ns, 1));
  return PairResult{static_cast<double>(total_bytes()) / ns, !sends};
}

Result<PairResult> PairMeter::measure(BootstrapChannel& peer, bool sends, const std::function<Status()>& start) {
  // The plugin takes the current GPU of the calling thread for that of the connection (27).
  TCPX_RETURN_IF_ERROR(machine_.memory->set_current_device(options_.gpu));
  PipelineEnd& end = *ends_[sends];
  auto result = measure_with(end, peer, sends, start);
  end.drop();  // of this pair
  return result;
}

}  // namespace tcpx::mesh
