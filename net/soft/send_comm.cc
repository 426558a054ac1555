#include "net/soft/send_comm.h"

#include <algorithm>

#include "base/text.h"
#include "net/soft/send_socket.h"

namespace tcpx::soft {

Result<std::unique_ptr<SendComm>> SendComm::create(MemoryOps& memory, int device, std::shared_ptr<IoPool> io,
                                                   ConnectedSockets sockets) {
  std::unique_ptr<SendComm> comm(new SendComm(ObjectKind::kSendComm, memory, device, std::move(io), sockets));
  for (UniqueFd& fd : sockets.data) {
    const size_t index = comm->sockets_.size();
    comm->sockets_.push_back(std::make_unique<SendSocket>(std::move(fd), *comm, index));
  }
  for (const auto& socket : comm->sockets_) TCPX_RETURN_IF_ERROR(socket->start(comm->io_->next()));
  TCPX_RETURN_IF_ERROR(comm->control_.start(comm->io_->next()));
  return comm;
}

SendComm::~SendComm() {
  stop_sockets();
}

void SendComm::stop_data_sockets() {
  for (const auto& socket : sockets_) socket->stop();
}

Status SendComm::prepare_region(const Region& region) {
  if (region.host_readable) return Status::ok();
  for (const auto& socket : sockets_) TCPX_RETURN_IF_ERROR(socket->prepare_staging(memory_, device_, chunk_bytes_));
  return Status::ok();
}

bool SendComm::region_in_use(const Region* region) const {
  for (uint64_t sequence = reported_; sequence < posted_; ++sequence) {
    if (messages_[sequence % kQueueDepth].region == region) return true;
  }
  return false;
}

Result<abi::TcpxRequest*> SendComm::isend(const void* data, int size, int tag, const Region* region) {
  constexpr const char* kOperation = "isend";
  if (size < 0) return refused(kOperation, concat("size ", size));
  abi::TcpxRequest* request = nullptr;
  {
    MutexLock lock(mutex_);
    if (!failed()) {
      auto checked = check_region(region, data, static_cast<uint64_t>(size), kOperation);
      if (!checked.is_ok()) return checked.status();
      if (posted_ - reported_ == kQueueDepth) {
        return Status(Code::kExhausted, kOperation, concat(kQueueDepth, " requests are outstanding: test the oldest"));
      }
      Message& slot = message(posted_);
      const auto bytes = static_cast<uint32_t>(size);
      const uint32_t chunks = bytes == 0 ? 1 : (bytes - 1) / chunk_bytes_ + 1;
      slot = {.data = static_cast<const std::byte*>(data),
              .region = region,
              .size = bytes,
              .tag = tag,
              .next_offset = 0,
              .unsent_chunks = chunks};
      request = &requests_[posted_ % kQueueDepth];
      *request = {};
      request->comm = static_cast<Object*>(this);
      request->data = const_cast<void*>(data);
      request->op = abi::kRequestOpSend;
      request->mem_type = static_cast<int32_t>((*checked)->type);
      request->size = size;
      ++posted_;
      wake_sockets(chunks);
    }
  }
  if (request == nullptr) return report_failure();
  return request;
}

// Idle ones only: a socket that is full would leave the message lying while others have room. Starts with another one each time
// so that small messages use them all.
void SendComm::wake_sockets(uint32_t chunks) {
  for (size_t i = 0; i < sockets_.size() && chunks > 0; ++i) {
    const size_t socket = (posted_ + i) % sockets_.size();
    if ((idle_ & 1u << socket) == 0) continue;
    idle_ &= ~(1u << socket);
    sockets_[socket]->kick();
    --chunks;
  }
}

bool SendComm::claim(size_t socket, OutgoingChunk& chunk) {
  MutexLock lock(mutex_);
  if (failed() || claimed_ == posted_) {
    idle_ |= 1u << socket;
    return false;
  }
  idle_ &= ~(1u << socket);
  Message& next = message(claimed_);
  chunk.header = {.sequence = claimed_,
                  .total = next.size,
                  .offset = next.next_offset,
                  .bytes = std::min(chunk_bytes_, next.size - next.next_offset),
                  .tag = next.tag};
  chunk.data = next.data + next.next_offset;
  chunk.host_readable = next.region->host_readable;
  next.next_offset += chunk.header.bytes;
  if (next.next_offset == next.size) ++claimed_;
  return true;
}

void SendComm::chunk_sent(const OutgoingChunk& chunk) {
  MutexLock lock(mutex_);
  --message(chunk.header.sequence).unsent_chunks;
}

void SendComm::fail(const Status& why) {
  MutexLock lock(mutex_);
  set_failure(why);
}

Result<TestAnswer> SendComm::test(const abi::TcpxRequest* request) {
  {
    MutexLock lock(mutex_);
    TCPX_RETURN_IF_ERROR(check_oldest(request));
    Message& oldest = message(reported_);
    if (oldest.unsent_chunks == 0) {
      ++reported_;
      return TestAnswer{.done = true, .bytes = static_cast<int32_t>(oldest.size)};
    }
    if (!failed()) return TestAnswer{};
  }
  return report_failure();
}

}  // namespace tcpx::soft
