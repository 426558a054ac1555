#include "measure/ends/pipeline_lane.h"

#include <utility>

namespace tcpx::bench {

void PipelineLane::start(const MessagePlan& plan, RegisteredMemory memory, uint64_t first) {
  plan_ = plan;
  memory_ = memory;
  begin_ = finished_ = submitted_ = end_ = first;
  ids_.resize(plan.slots());
}

Result<bool> PipelineLane::progress() {
  TCPX_RETURN_IF_ERROR(submit());
  const bool advanced = connection_.progress();
  const Result<bool> finished = finish();
  if (!finished.is_ok()) return finished.status();
  return advanced || *finished;
}

Status PipelineLane::submit() {
  for (; submitted_ < end_ && submitted_ - finished_ < ids_.size(); ++submitted_) {
    const uint64_t off =
        connection_.direction() == Direction::kSend ? MessagePlan::content_off(submitted_) : plan_.slot_off(submitted_);
    const Result<TransferId> id = connection_.submit({.memory = memory_, .offset = off, .bytes = plan_.message_bytes()});
    if (!id.is_ok()) return id.status();
    ids_[submitted_ % ids_.size()] = *id;
  }
  return Status::ok();
}

Result<bool> PipelineLane::finish() {
  bool any = false;
  for (; finished_ < submitted_; ++finished_) {
    TransferAnswer answer = connection_.poll(ids_[finished_ % ids_.size()]);
    if (answer.state == TransferState::kPending) break;
    if (answer.state == TransferState::kFailed) return std::move(answer.status);
    if (answer.state == TransferState::kUnknown)
      return Status(Code::kInternal, "poll transfer", "the connection does not know it");
    any = true;
  }
  return any;
}

}  // namespace tcpx::bench
