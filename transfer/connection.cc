#include "transfer/connection.h"

#include <limits>
#include <thread>
#include <utility>

#include "base/text.h"

namespace tcpx {

Result<std::unique_ptr<Connection>> Connection::create(Comm comm, const ReceiveParts& receive, const Clock& clock,
                                                       const ConnectionOptions& options) {
  if (options.limits.window < 1 || options.limits.window > kQueueDepth) {
    return Status(Code::kInvalidArgument, "create connection",
                  concat("window of ", options.limits.window, ", must be 1 to ", kQueueDepth));
  }
  if (options.limits.peer_gone_tests < 2)
    return Status(Code::kInvalidArgument, "create connection", "fewer than 2 peer-gone tests");
  if (options.max_transfers == 0) return Status(Code::kInvalidArgument, "create connection", "room for no transfer");
  if (auto plan = ChunkPlan::make(0, options.chunk_bytes); !plan.is_ok()) return plan.status();
  return std::unique_ptr<Connection>(new Connection(std::move(comm), receive, clock, options));
}

Connection::Connection(Comm comm, const ReceiveParts& receive, const Clock& clock, const ConnectionOptions& options)
    : channel_(std::move(comm), receive, clock, options.limits),
      chunk_bytes_(options.chunk_bytes),
      transfers_(options.max_transfers) {}

Connection::~Connection() {
  if (pending_ == 0 && channel_.status().is_ok()) {
    (void)close();  // logged where it was first seen
    return;
  }
  channel_.fail(Status(Code::kInvalidArgument, "destroy connection", concat(pending_, " transfers are pending")));
  while (!channel_.closed()) {
    if (!progress()) std::this_thread::yield();
  }
}

Result<RegisteredMemory> Connection::register_memory(void* data, size_t bytes, MemoryType type) {
  if (!status().is_ok()) return status();
  if (!channel_.comm().is_open()) return Status(Code::kInvalidArgument, "register memory", "the connection is closed");
  return channel_.comm().register_memory(data, bytes, type);
}

Result<TransferId> Connection::submit(const TransferSpec& spec) {
  if (!status().is_ok()) return status();
  if (!channel_.comm().is_open()) return Status(Code::kInvalidArgument, "submit transfer", "the connection is closed");
  if (spec.offset > spec.memory.bytes || spec.bytes > spec.memory.bytes - spec.offset) {
    return Status(Code::kInvalidArgument, "submit transfer",
                  concat(spec.bytes, " bytes at ", spec.offset, " of a registration of ", spec.memory.bytes, " bytes"));
  }
  auto plan = ChunkPlan::make(spec.bytes, chunk_bytes_);
  if (!plan.is_ok()) return plan.status();
  if (spec.tag < 0 || plan->count() - 1 > static_cast<uint64_t>(std::numeric_limits<int>::max() - spec.tag)) {
    return Status(Code::kInvalidArgument, "submit transfer",
                  concat("tag ", spec.tag, " and ", plan->count(), " chunks do not fit an int"));
  }
  Transfer& transfer = slot(next_id_);
  if (transfer.state != TransferState::kUnknown) {
    return Status(Code::kExhausted, "submit transfer", concat(transfers_.size(), " transfers have not been polled to their end"));
  }
  transfer = {.id = TransferId{next_id_}, .state = TransferState::kPending, .spec = spec, .plan = *plan};
  ++pending_;
  return TransferId{next_id_++};
}

bool Connection::progress() {
  bool advanced = post_chunks();
  const Channel::Progress step = channel_.progress();
  for (const TransferId id : step.finished) count_finished(id);
  advanced |= step.advanced;
  if (channel_.closed() && pending_ > 0) fail_pending();
  return advanced;
}

bool Connection::post_chunks() {
  bool advanced = false;
  while (posting_id_ < next_id_ && channel_.has_room()) {
    Transfer& transfer = slot(posting_id_);
    const Chunk chunk = transfer.plan[transfer.posted_chunks];
    const TransferSpec& spec = transfer.spec;
    if (!channel_.try_post({.transfer = transfer.id,
                            .chunk = chunk,
                            .data = spec.memory.data + spec.offset + chunk.offset,
                            .memory = spec.memory.handle,
                            .tag = spec.tag + static_cast<int>(chunk.index)})) {
      break;
    }
    advanced = true;
    if (++transfer.posted_chunks == transfer.plan.count()) ++posting_id_;
  }
  return advanced;
}

void Connection::count_finished(TransferId id) {
  Transfer& transfer = slot(static_cast<uint64_t>(id));
  require(transfer.id == id && transfer.state == TransferState::kPending, "a chunk finishes while its transfer is pending");
  if (++transfer.finished_chunks < transfer.plan.count()) return;
  transfer.state = TransferState::kDone;
  --pending_;
}

void Connection::fail_pending() {
  for (Transfer& transfer : transfers_) {
    if (transfer.state == TransferState::kPending) transfer.state = TransferState::kFailed;
  }
  pending_ = 0;
  posting_id_ = next_id_;
}

TransferAnswer Connection::poll(TransferId id) {
  Transfer& transfer = slot(static_cast<uint64_t>(id));
  if (transfer.id != id || transfer.state == TransferState::kUnknown) return {};
  // All chunks but the last are of one size, so bytes follow from the count.
  const bool all = transfer.finished_chunks == transfer.plan.count();
  TransferAnswer answer{.state = transfer.state,
                        .status = Status::ok(),
                        .bytes_done = all ? transfer.plan.transfer_bytes() : transfer.finished_chunks * chunk_bytes_};
  if (transfer.state == TransferState::kFailed) answer.status = status();
  if (transfer.state != TransferState::kPending) transfer.state = TransferState::kUnknown;
  return answer;
}

Status Connection::close() {
  if (!status().is_ok()) return status();
  if (pending_ > 0) return Status(Code::kInvalidArgument, "close connection", concat(pending_, " transfers are pending"));
  return channel_.close();
}

}  // namespace tcpx
