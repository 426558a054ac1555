#include "programs/mesh/pair_meter.h"

#include <algorithm>

#include "device/unpacker_factory.h"
#include "measure/pattern.h"
#include "transfer/run.h"

namespace tcpx::mesh {
namespace {

constexpr size_t kPieceBytes = 4u << 20;
constexpr uint64_t kSeed = 1;  // positions tell the transfers apart, and the memory is blank before each measurement
constexpr std::byte kBlank{0xEE};

size_t registration_bytes(size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

Result<std::unique_ptr<PairMeter>> PairMeter::create(DefaultEndpoint& endpoint, const MeterOptions& options) {
  std::unique_ptr<PairMeter> meter(new PairMeter(endpoint, options));
  TCPX_RETURN_IF_ERROR(meter->prepare(meter->sending_, false));
  TCPX_RETURN_IF_ERROR(meter->prepare(meter->receiving_, true));
  TCPX_RETURN_IF_ERROR(meter->fill(meter->sending_));
  return meter;
}

Status PairMeter::prepare(Side& side, bool receives) {
  MemoryOps& memory = *endpoint_.memory;
  const size_t bytes = registration_bytes(total_bytes());
  TCPX_RETURN_IF_ERROR(memory.set_current_device(options_.gpu));
  auto buffer = options_.memory == MemoryType::kCuda ? memory.allocate_device(options_.gpu, bytes)
                                                     : memory.allocate_mapped(options_.gpu, bytes);
  if (!buffer.is_ok()) return buffer.status();
  side.buffer = std::move(*buffer);
  auto lane = memory.make_copy_lane(options_.gpu);
  if (!lane.is_ok()) return lane.status();
  side.lane = std::move(*lane);
  side.piece.resize(std::min(kPieceBytes, bytes));
  if (!receives) return Status::ok();
  auto unpacker = endpoint_.make_unpacker(options_.unpack, options_.gpu);
  if (!unpacker.is_ok()) return unpacker.status();
  side.unpacker = std::move(*unpacker);
  return Status::ok();
}

Duration PairMeter::data_time() const {
  // Moving and comparing go at 50 MB/s at least.
  return options_.timeout + std::chrono::milliseconds(20) * static_cast<int64_t>(total_bytes() / 1'000'000);
}

Duration PairMeter::limit() const {
  // Handshake; blanking, warming up, comparing, the timed part, comparing, each as long as its deadline allows.
  return 2 * options_.timeout + 5 * data_time();
}

ConnectionOptions PairMeter::connection_options(Direction direction) const {
  ConnectionOptions connection = options_.pipeline.options(direction);
  connection.limits.stall_limit = options_.timeout;
  return connection;
}

PairResult PairMeter::result(Duration elapsed, bool verified) const {
  // 1e9 bytes per second is one byte per nanosecond.
  const auto ns = static_cast<double>(std::max<int64_t>(elapsed.count(), 1));
  return {static_cast<double>(total_bytes()) / ns, verified};
}

Status PairMeter::check_stop() const {
  if (options_.stop == nullptr || !options_.stop->load()) return Status::ok();
  return {Code::kCancelled, "measure pair", "interrupted"};
}

Status PairMeter::fill(Side& side) {
  for (size_t at = 0; at < total_bytes(); at += side.piece.size()) {
    TCPX_RETURN_IF_ERROR(check_stop());
    const std::span<std::byte> piece = std::span(side.piece).first(std::min(side.piece.size(), total_bytes() - at));
    fill_pattern(piece, kSeed, at);
    TCPX_RETURN_IF_ERROR(side.lane->copy(address(side) + at, piece.data(), piece.size()));
  }
  return Status::ok();
}

Status PairMeter::blank(Side& side) {
  std::fill(side.piece.begin(), side.piece.end(), kBlank);
  for (size_t at = 0; at < side.buffer.size(); at += side.piece.size()) {
    TCPX_RETURN_IF_ERROR(check_stop());
    const size_t bytes = std::min(side.piece.size(), side.buffer.size() - at);
    TCPX_RETURN_IF_ERROR(side.lane->copy(address(side) + at, side.piece.data(), bytes));
  }
  return Status::ok();
}

Status PairMeter::verify(Side& side, size_t bytes) {
  for (size_t at = 0; at < bytes; at += side.piece.size()) {
    TCPX_RETURN_IF_ERROR(check_stop());
    const std::span<std::byte> piece = std::span(side.piece).first(std::min(side.piece.size(), bytes - at));
    TCPX_RETURN_IF_ERROR(side.lane->copy(piece.data(), address(side) + at, piece.size()));
    TCPX_RETURN_IF_ERROR(verify_pattern(piece, kSeed, at));
  }
  return Status::ok();
}

/// Moves the first `transfers` transfers. Both ends begin when both are ready.
Status PairMeter::run(Connection& connection, const RegisteredMemory& memory, uint32_t transfers, BootstrapChannel& peer,
                      Duration& elapsed) {
  std::vector<TransferId> ids;
  for (uint32_t i = 0; i < transfers; ++i) {
    const auto id = connection.submit(
        {.memory = memory, .offset = i * options_.transfer_bytes, .bytes = options_.transfer_bytes, .tag = static_cast<int>(i)});
    if (!id.is_ok()) return id.status();
    ids.push_back(*id);
  }
  TCPX_RETURN_IF_ERROR(peer.barrier(data_deadline()));
  const TimePoint begin = Clock::steady().now();
  const RunOptions run{data_deadline(), options_.stop, [&peer](uint64_t) { return peer.peer_status(); }};
  for (const TransferId id : ids) {
    const auto done = run_until_done(connection, id, run);
    if (!done.is_ok()) return done.status();
    if (!*done) return check_stop();
  }
  elapsed = Clock::steady().now() - begin;
  return Status::ok();
}

Result<PairResult> PairMeter::receive(BootstrapChannel& peer, const std::function<Status()>& start) {
  const ReceiverParts parts{.unpacker = receiving_.unpacker.get(),
                            .memory = endpoint_.memory.get(),
                            .lane = options_.memory == MemoryType::kCuda ? receiving_.lane.get() : nullptr};
  auto connection =
      open_receiver(*endpoint_.plugin, options_.devices, parts, connection_options(Direction::kRecv), handshake_wait(peer));
  if (!connection.is_ok()) return connection.status();
  const auto memory = (*connection)->register_memory(address(receiving_), receiving_.buffer.size(), options_.memory);
  if (!memory.is_ok()) return memory.status();

  Duration elapsed{};
  TCPX_RETURN_IF_ERROR(blank(receiving_));
  TCPX_RETURN_IF_ERROR(run(**connection, *memory, 1, peer, elapsed));
  TCPX_RETURN_IF_ERROR(verify(receiving_, options_.transfer_bytes));
  TCPX_RETURN_IF_ERROR(blank(receiving_));
  TCPX_RETURN_IF_ERROR(start());
  TCPX_RETURN_IF_ERROR(run(**connection, *memory, options_.transfers, peer, elapsed));
  TCPX_RETURN_IF_ERROR(verify(receiving_, total_bytes()));
  // The sender waits here for the verdict, and closes only then.
  TCPX_RETURN_IF_ERROR(peer.barrier(data_deadline()));
  TCPX_RETURN_IF_ERROR((*connection)->close());
  return result(elapsed, true);
}

Result<PairResult> PairMeter::send(BootstrapChannel& peer, const std::function<Status()>& start) {
  auto connection = open_sender(*endpoint_.plugin, options_.devices, connection_options(Direction::kSend), handshake_wait(peer));
  if (!connection.is_ok()) return connection.status();
  const auto memory = (*connection)->register_memory(address(sending_), sending_.buffer.size(), options_.memory);
  if (!memory.is_ok()) return memory.status();

  Duration elapsed{};
  TCPX_RETURN_IF_ERROR(run(**connection, *memory, 1, peer, elapsed));
  TCPX_RETURN_IF_ERROR(start());
  TCPX_RETURN_IF_ERROR(run(**connection, *memory, options_.transfers, peer, elapsed));
  TCPX_RETURN_IF_ERROR(peer.barrier(data_deadline()));
  TCPX_RETURN_IF_ERROR((*connection)->close());
  return result(elapsed, false);
}

Result<PairResult> PairMeter::measure(BootstrapChannel& peer, bool sends, const std::function<Status()>& start) {
  // The plugin takes the current GPU of the calling thread for that of the connection (27).
  TCPX_RETURN_IF_ERROR(endpoint_.memory->set_current_device(options_.gpu));
  return sends ? send(peer, start) : receive(peer, start);
}

}  // namespace tcpx::mesh
