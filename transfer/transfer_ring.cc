#include "transfer/transfer_ring.h"

#include "base/text.h"
#include "transfer/invariant.h"

namespace tcpx {
namespace {

// Keeps the lowest 31 bits, because a plugin's tag is a non-negative int.
int plugin_tag(uint64_t tag) {
  return static_cast<int>(tag & 0x7fffffff);
}

}  // namespace

ChunkWork Transfer::work(uint64_t index) const {
  const Chunk chunk = plan[index];
  return {.transfer = id,
          .chunk = chunk,
          .data = spec.memory.data + place_of(chunk),
          .memory = {},
          .type = spec.memory.type,
          .tag = plugin_tag(first_tag + index)};
}

Result<TransferId> TransferRing::add(const TransferSpec& spec, const ChunkPlan& plan) {
  Transfer& transfer = (*this)[end_];
  if (transfer.state != TransferState::kUnknown) {
    return Status(Code::kExhausted, "submit transfer", concat(transfers_.size(), " transfers have not been polled to their end"));
  }
  transfer = {.id = TransferId{end_},
              .state = TransferState::kPending,
              .spec = spec,
              .plan = plan,
              .first_tag = next_tag_ + static_cast<uint64_t>(spec.tag)};
  next_tag_ += (plan.count() + kTagsPerTransfer - 1) / kTagsPerTransfer * kTagsPerTransfer;
  ++pending_;
  return TransferId{end_++};
}

bool TransferRing::is_pending(uint64_t number) const {
  const Transfer& transfer = (*this)[number];
  return transfer.number() == number && transfer.state == TransferState::kPending;
}

Transfer& TransferRing::count(const ChunkEnd& end) {
  Transfer& transfer = (*this)[static_cast<uint64_t>(end.transfer)];
  require(transfer.id == end.transfer && transfer.state == TransferState::kPending,
          "a chunk finishes while its transfer is pending");
  ++transfer.finished_chunks;
  transfer.finished_bytes += end.bytes;
  --transfer.outstanding;
  return transfer;
}

void TransferRing::done(Transfer& transfer) {
  transfer.state = TransferState::kDone;
  --pending_;
}

void TransferRing::fail_pending() {
  for (Transfer& transfer : transfers_) {
    if (transfer.state != TransferState::kPending) continue;
    transfer.state = transfer.acknowledged ? TransferState::kDone : TransferState::kFailed;
    if (transfer.acknowledged) transfer.finished_bytes = transfer.plan.transfer_bytes();
  }
  pending_ = 0;
}

TransferAnswer TransferRing::poll(TransferId id, const Status& failure) {
  Transfer& transfer = (*this)[static_cast<uint64_t>(id)];
  if (transfer.id != id || transfer.state == TransferState::kUnknown) return {};
  // With failover, bytes may have been sent twice; they count once.
  TransferAnswer answer{.state = transfer.state,
                        .status = Status::ok(),
                        .bytes_done = std::min(transfer.finished_bytes, transfer.plan.transfer_bytes())};
  if (transfer.state == TransferState::kFailed) answer.status = failure;
  if (transfer.state != TransferState::kPending) transfer.state = TransferState::kUnknown;
  return answer;
}

}  // namespace tcpx
