#include "measure/message_memory.h"

#include <algorithm>

#include "base/environment.h"
#include "base/text.h"
#include "device/unpacker_factory.h"

namespace tcpx {
namespace {

MessagePlan make_plan(const EndSetup& setup, const RowSetup& row) {
  const uint64_t bytes = std::max<uint64_t>(row.message_bytes, 1);  // memory of an empty message is never touched
  if (row.stride > 0) return MessagePlan::side_by_side(bytes, setup.request_bytes, row.stride, row.slots);
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
  TCPX_ASSIGN_OR_RETURN(std::unique_ptr<CopyLane> lane, ops.make_copy_lane(memory.device()));
  memory.copies_ = std::move(lane);
  return memory;
}

Result<std::unique_ptr<Unpacker>> MessageMemory::make_unpacker() {
  TCPX_ASSIGN_OR_RETURN(const int64_t kind, environment_choice(Variable::kUnpackImpl));
  return tcpx::make_unpacker(static_cast<UnpackKind>(kind), device(), *machine_);
}

Status MessageMemory::enlarge(TestMemory& memory, uint64_t bytes) {
  if (memory.size() >= bytes) return Status::ok();
  if (memory.size() > 0) outgrown_.push_back(std::move(memory));
  TCPX_ASSIGN_OR_RETURN(TestMemory larger, TestMemory::create(on_gpu() ? *machine_ : *host_, MemoryType::kCuda, device(), bytes));
  memory = std::move(larger);
  return Status::ok();
}

void MessageMemory::release() {
  to_send_ = {};
  received_ = {};
  outgrown_.clear();
}

Status MessageMemory::allocate(const RowSetup& row) {
  row_ = row;
  plan_ = make_plan(setup_, row).with_slots(row.slots);
  first_ = count_ = 0;
  round_ = 0;
  if (sends()) {
    TCPX_RETURN_IF_ERROR(enlarge(to_send_, plan_.send_memory_bytes()));
    if (!plan_.is_side_by_side()) TCPX_RETURN_IF_ERROR(to_send_.fill(0, plan_.send_memory_bytes(), seed_of(leads())));
  }
  return receives() ? enlarge(received_, plan_.receive_memory_bytes()) : Status::ok();
}

Status MessageMemory::begin_round(uint64_t count) {
  first_ += count_;
  count_ = count;
  ++round_;
  if (!plan_.is_side_by_side()) return receives() ? received_.blank(0, plan_.receive_memory_bytes()) : Status::ok();
  for (uint64_t message = first_; message < first_ + std::min(count, plan_.slots()); ++message) {
    const uint64_t off = plan_.slot_off(message);
    if (sends()) TCPX_RETURN_IF_ERROR(to_send_.fill(off, row_.message_bytes, seed_of(leads()), off));
    if (receives()) TCPX_RETURN_IF_ERROR(received_.blank(off, row_.message_bytes));
  }
  return Status::ok();
}

Result<ComparedBytes> MessageMemory::compare() {
  ComparedBytes compared;
  if (!receives()) return compared;
  const uint64_t end = first_ + count_, seed = seed_of(!leads());
  for (uint64_t message = end - std::min(count_, plan_.slots()); message < end; ++message) {
    const uint64_t off = plan_.slot_off(message), content = plan_.content_off(message);
    TCPX_ASSIGN_OR_RETURN(const PatternCheck found, received_.check(off, row_.message_bytes, seed, content));
    if (found.wrong == 0) continue;
    if (compared.wrong_bytes == 0) {
      const Status wrong = received_.verify(off, row_.message_bytes, seed, content);
      compared.first = Status(Code::kMismatch, concat("message ", message - first_, " of ", count_), wrong.detail());
    }
    compared.wrong_bytes += found.wrong;
  }
  return compared;
}

}  // namespace tcpx
