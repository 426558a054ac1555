#include "measure/message_memory.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/environment.h"
#include "base/text.h"
#include "device/unpacker_factory.h"
#include "measure/pattern.h"

namespace tcpx::bench {
namespace {

constexpr std::byte kPoison{0xa5};
constexpr uint64_t kPoisonSeed = UINT64_MAX;  // no row has it

MessagePlan make_plan(const EndSetup& setup, const RowSetup& row) {
  const uint64_t bytes = std::max<uint64_t>(row.message_bytes, 1);  // memory of an empty message is never touched
  if (row.outstanding > 0) return MessagePlan::of_operations(bytes, row.outstanding);
  const bool transfers = setup.kind == EndSetup::Kind::kPipeline || setup.kind == EndSetup::Kind::kEndpoint;
  return transfers ? MessagePlan::of_transfers(bytes, setup.request_bytes, setup.channels)
                   : MessagePlan(bytes, setup.request_bytes);
}

}  // namespace

Result<MessageMemory> MessageMemory::create(const EndSetup& setup) {
  MessageMemory memory(setup);
  if (memory.machine_->has_gpu()) TCPX_RETURN_IF_ERROR(memory.machine_->set_current_device(setup.gpu));
  MemoryOps& ops = memory.on_gpu() ? *memory.machine_ : *memory.host_;
  Result<std::unique_ptr<CopyLane>> lane = ops.make_copy_lane(memory.device());
  if (!lane.is_ok()) return lane.status();
  memory.copies_ = std::move(lane).value();
  if (memory.on_gpu() && memory.machine_->has_gpu()) {
    Result<std::unique_ptr<GpuPattern>> pattern = GpuPattern::create(setup.gpu, *memory.machine_);
    if (!pattern.is_ok()) return pattern.status();
    memory.gpu_pattern_ = std::move(pattern).value();
  }
  return memory;
}

Result<std::unique_ptr<Unpacker>> MessageMemory::make_unpacker() {
  const Result<int64_t> kind = environment_choice(Variable::kUnpackImpl);
  if (!kind.is_ok()) return kind.status();
  return tcpx::make_unpacker(static_cast<UnpackKind>(*kind), device(), *machine_);
}

Status MessageMemory::enlarge(MemoryBuffer& buffer, uint64_t bytes) {
  if (buffer.size() >= bytes) return Status::ok();
  if (buffer) outgrown_.push_back(std::move(buffer));
  Result<MemoryBuffer> larger = (on_gpu() ? *machine_ : *host_).allocate_device(device(), bytes);
  if (!larger.is_ok()) return larger.status();
  buffer = std::move(larger).value();
  return Status::ok();
}

void MessageMemory::release() {
  to_send_ = {};
  received_ = {};
  outgrown_.clear();
}

Status MessageMemory::allocate(const RowSetup& row) {
  row_ = row;
  plan_ = make_plan(setup_, row);
  first_ = count_ = 0;
  if (sends()) {
    TCPX_RETURN_IF_ERROR(enlarge(to_send_, plan_.send_memory_bytes()));
    TCPX_RETURN_IF_ERROR(fill());
  }
  return receives() ? enlarge(received_, plan_.receive_memory_bytes()) : Status::ok();
}

Status MessageMemory::fill() {
  if (gpu_pattern_) return gpu_pattern_->fill(to_send_.device(), plan_.send_memory_bytes(), seed_of(leads()));
  for (uint64_t off = 0; off < plan_.send_memory_bytes(); off += kPieceBytes) {
    const std::span<std::byte> piece =
        std::span(scratch_).first(std::min<uint64_t>(kPieceBytes, plan_.send_memory_bytes() - off));
    fill_pattern(piece, seed_of(leads()), off);
    TCPX_RETURN_IF_ERROR(copies_->copy(to_send_.device() + off, piece.data(), piece.size()));
  }
  return Status::ok();
}

Status MessageMemory::begin_round(uint64_t count) {
  first_ += count_;
  count_ = count;
  if (!receives()) return Status::ok();
  if (gpu_pattern_) return gpu_pattern_->fill(received_.device(), plan_.receive_memory_bytes(), kPoisonSeed);
  std::memset(scratch_.data(), static_cast<int>(kPoison), scratch_.size());
  for (uint64_t off = 0; off < plan_.receive_memory_bytes(); off += kPieceBytes) {
    const uint64_t bytes = std::min<uint64_t>(kPieceBytes, plan_.receive_memory_bytes() - off);
    TCPX_RETURN_IF_ERROR(copies_->copy(received_.device() + off, scratch_.data(), bytes));
  }
  return Status::ok();
}

Status MessageMemory::verify() {
  if (!receives()) return Status::ok();
  const uint64_t end = first_ + count_;
  for (uint64_t message = end - std::min(count_, plan_.slots()); message < end; ++message) {
    TCPX_RETURN_IF_ERROR(compare(message));
  }
  return Status::ok();
}

Status MessageMemory::compare(uint64_t message) {
  const std::byte* const begin = received_.device() + plan_.slot_off(message);
  if (gpu_pattern_ && row_.message_bytes > 0) {
    const auto check = gpu_pattern_->check(begin, row_.message_bytes, seed_of(!leads()), MessagePlan::content_off(message));
    if (!check.is_ok()) return check.status();
    if (check->wrong == 0) return Status::ok();
  }
  for (uint64_t off = 0; off < row_.message_bytes; off += kPieceBytes) {
    const uint64_t bytes = std::min<uint64_t>(kPieceBytes, row_.message_bytes - off);
    const std::span<std::byte> piece = std::span(scratch_).first(bytes), expected = std::span(expected_).first(bytes);
    const uint64_t pattern_off = MessagePlan::content_off(message) + off;
    TCPX_RETURN_IF_ERROR(copies_->copy(piece.data(), begin + off, bytes));
    fill_pattern(expected, seed_of(!leads()), pattern_off);
    if (std::memcmp(piece.data(), expected.data(), bytes) == 0) continue;
    const Status wrong = verify_pattern(piece, seed_of(!leads()), pattern_off);  // slower, but it says where
    return Status(Code::kMismatch, concat("message ", message - first_, " of ", count_),
                  concat("from byte ", off, " on, ", wrong.detail()));
  }
  return Status::ok();
}

}  // namespace tcpx::bench
