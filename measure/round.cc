#include "measure/round.h"

#include <utility>

namespace tcpx {

void TransferSeries::start(Pipeline& pipeline, Plan plan, uint64_t first) {
  pipeline_ = &pipeline;
  plan_ = std::move(plan);
  begin_ = finished_ = submitted_ = end_ = first;
  ids_.resize(plan_.window);
}

Result<bool> TransferSeries::progress() {
  TCPX_RETURN_IF_ERROR(submit());
  const bool advanced = pipeline_->progress();
  TCPX_ASSIGN_OR_RETURN(const bool finished, finish());
  return advanced || finished;
}

Status TransferSeries::submit() {
  for (; submitted_ < end_ && submitted_ - finished_ < ids_.size(); ++submitted_) {
    TCPX_ASSIGN_OR_RETURN(
        const auto id,
        pipeline_->submit(
            {.memory = plan_.memory, .offset = plan_.offset_of(submitted_), .bytes = plan_.bytes, .tag = kMeasuredTag}));
    ids_[submitted_ % ids_.size()] = id;
  }
  return Status::ok();
}

Result<bool> TransferSeries::finish() {
  bool any = false;
  for (; finished_ < submitted_; ++finished_) {
    TransferAnswer answer = pipeline_->poll(ids_[finished_ % ids_.size()]);
    if (answer.state == TransferState::kPending) break;
    if (answer.state == TransferState::kFailed) return std::move(answer.status);
    if (answer.state == TransferState::kUnknown)
      return Status(Code::kInternal, "poll transfer", "the connection does not know it");
    any = true;
  }
  return any;
}

}  // namespace tcpx
